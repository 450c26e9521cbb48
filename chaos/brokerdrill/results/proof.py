"""The proof that is kept: PROOF/TOPOLOGY.parquet, a row a run, small enough to stand in a tree beside the drills.

A row says what was run (drill, topology, and the content of all that it rests on), where, and what was seen. Runs
themselves are hundreds of megabytes and go; what the pages say of a drill is counted from these rows.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from brokerdrill.base import paths
from brokerdrill.base.atomic import replacing
from brokerdrill.base.errors import UsageError
from brokerdrill.base.locks import held
from brokerdrill.inventory.topology import Topology, find_topology, fingerprint, meaning_fingerprint, topologies
from brokerdrill.ledger import contract
from brokerdrill.ledger.verdict import FAIL, RunVerdict
from brokerdrill.results.table import started_at
from brokerdrill.scenario.drill import Drill, drills
from brokerdrill.scenario.table import KeptResults

# What is kept of the shipped drills on the shipped topologies.
PROVEN = paths.ROOT / "results"
SUFFIX = ".parquet"
LOCKED_S = 30
# What a run rests on, by the word that `--unchanged` takes: another content is not what was proven.
DRILL, INVENTORY, ROLES, ENGINE = "drill", "inventory", "roles", "engine"
PARTS = (DRILL, INVENTORY, ROLES, ENGINE)
_ROLES = ("roles", "plugins", "playbooks")
_TEXTS = pa.map_(pa.string(), pa.string())
_COUNTS = pa.map_(pa.string(), pa.int64())

SCHEMA = pa.schema(
    [
        pa.field("run_id", pa.string(), nullable=False),
        pa.field("cell", pa.string(), nullable=False),  # the cell of a plan that the run was made for
        pa.field("drill", pa.string(), nullable=False),
        pa.field("topology", pa.string(), nullable=False),
        pa.field("rests_on", _TEXTS, nullable=False),  # a part → its SHA-256
        pa.field("started_at", pa.timestamp("s", tz="UTC"), nullable=False),
        pa.field("seconds", pa.float64()),  # from the run's start to its verdict
        pa.field("machine", pa.string()),
        pa.field("versions", _TEXTS),
        pa.field("settings", _TEXTS),
        pa.field("seed", pa.int64()),
        pa.field("outcome", pa.string()),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("as_expected", pa.bool_(), nullable=False),
        pa.field("vacuous", pa.list_(pa.string())),
        pa.field("messages", _COUNTS),
        pa.field(
            "promises",
            pa.list_(
                pa.struct(
                    [
                        pa.field("name", pa.string()),
                        pa.field("verdict", pa.string()),
                        pa.field("expected", pa.string()),
                        pa.field("as_expected", pa.bool_()),
                        pa.field("count", pa.int64()),
                        pa.field("bound", pa.float64()),
                        pa.field("measured", pa.float64()),
                        pa.field("reason", pa.string()),
                    ]
                )
            ),
        ),
        pa.field(
            "coverage",
            pa.list_(
                pa.struct(
                    [
                        pa.field("step", pa.string()),
                        pa.field("fault", pa.string()),
                        pa.field("instance", pa.string()),
                        pa.field("role", pa.string()),
                        pa.field("clients", pa.int64()),
                        pa.field("in_flight", pa.int64()),
                        pa.field("operations", pa.int64()),
                        pa.field("measured", _COUNTS),
                    ]
                )
            ),
        ),
        # Of each failover the ms until its slowest client was served again; null: it never was.
        pa.field("failover_ms", pa.list_(pa.float64())),
    ]
)
_MAPS = ("rests_on", "versions", "settings", "messages")


def rests_on(drills: Iterable[Drill], topology: Topology) -> dict[str, dict[str, str]]:
    """Return drill → part → SHA-256 (hex) of what a run of it on `topology` rests on, as it is now."""
    roles = "".join(fingerprint(paths.COLLECTION / name) for name in _ROLES)
    shared = {
        INVENTORY: _inventory(topology),
        ROLES: hashlib.sha256(roles.encode()).hexdigest(),
        ENGINE: fingerprint(paths.PACKAGE),
    }
    return {drill.name: {DRILL: drill.sha256, **shared} for drill in drills}


def machine() -> str:
    """Return what this machine is: its processor, cores and kernel."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release().split('-')[0]}"


def row_of(run: contract.RunInfo, result: RunVerdict, cell: str, parts: Mapping[str, str]) -> dict[str, Any]:
    """Return the row of a run that has just been judged. Raises UsageError where run.json says no start."""
    started = started_at(run)
    if started is None:
        raise UsageError(f"run {run.run_id} does not say when it began")
    return {
        "run_id": run.run_id,
        "cell": cell,
        "drill": run.scenario.name,
        "topology": run.topology,
        "rests_on": dict(parts),
        "started_at": started,
        "seconds": round((datetime.datetime.now(datetime.UTC) - started).total_seconds(), 1),
        "machine": machine(),
        "versions": dict(run.versions),
        "settings": dict(run.settings),
        "seed": run.seed,
        "outcome": run.outcome,
        "verdict": result.verdict,
        "as_expected": result.as_expected,
        "vacuous": list(result.vacuous),
        "messages": {name: count for name, count in result.messages.items() if count},
        "promises": [
            {
                "name": one.name,
                "verdict": one.verdict,
                "expected": one.expected,
                "as_expected": one.as_expected,
                "count": one.count,
                "bound": one.bound,
                "measured": one.measured,
                "reason": one.reason or one.beyond or None,
            }
            for one in result.promises
        ],
        "coverage": [
            {
                "step": one.step,
                "fault": one.fault,
                "instance": one.instance,
                "role": one.role,
                "clients": one.clients,
                "in_flight": one.in_flight,
                "operations": one.operations,
                "measured": dict(one.measured),
            }
            for one in result.coverage
        ],
        "failover_ms": list(result.failovers().values()),
    }


def append(folder: Path, row: Mapping[str, Any]) -> Path:
    """Put a run's row into the file of its topology, in place of an earlier one of the same run; return the file.

    Raises InfrastructureError where the disk refuses, or another process writes there for too long; UsageError where
    the file there is none of these.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{row['topology']}{SUFFIX}"
    with held(folder / ".lock", f"another process writes {path}", LOCKED_S):
        rows = [one for one in (_read_one(path) if path.exists() else ()) if one["run_id"] != row["run_id"]]
        table = pa.Table.from_pylist(
            [{**one, **{name: list((one[name] or {}).items()) for name in _MAPS}} | _met(one) for one in [*rows, row]],
            schema=SCHEMA,
        )
        with replacing(path) as file:
            pq.write_table(table, file, compression="zstd")
    return path


def _met(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"coverage": [{**one, "measured": list((one["measured"] or {}).items())} for one in row["coverage"] or ()]}


def read(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of all files by start of their runs; none where there is no folder. Raises UsageError for a file
    that is none of these."""
    rows = [row for path in sorted(folder.glob(f"*{SUFFIX}")) for row in _read_one(path)]
    return sorted(rows, key=lambda row: (row["started_at"], row["run_id"]))


def _read_one(path: Path) -> Iterable[dict[str, Any]]:
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    missing = [one.name for one in SCHEMA if not one.nullable and one.name not in table.column_names]
    if missing:
        raise UsageError(f"{path}: column {missing[0]} is missing")
    blank = dict.fromkeys(SCHEMA.names)
    found = []
    for row in table.to_pylist():
        whole = blank | row | {name: dict(row.get(name) or ()) for name in _MAPS}
        whole["coverage"] = [{**one, "measured": dict(one["measured"] or ())} for one in whole["coverage"] or ()]
        found.append(whole)
    return found


def _inventory(topology: Topology) -> str:
    return meaning_fingerprint(topology.directory, topology.bench)


def unchanged(row: Mapping[str, Any], now: Mapping[str, str], parts: Iterable[str]) -> bool:
    """Return whether each of `parts` was for the row's run what it is now."""
    return all(row["rests_on"].get(part) == now[part] for part in parts)


def current(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of shipped drills and topologies whose drill and inventory are what they were."""
    texts = {drill.name: drill.sha256 for drill in drills()}
    places = {name: _inventory(find_topology(name)) for name, _ in topologies()}
    return [
        row
        for row in rows
        if (row["rests_on"].get(DRILL), row["rests_on"].get(INVENTORY))
        == (texts.get(row["drill"]), places.get(row["topology"]))
    ]


def seen(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], KeptResults]:
    """Return (drill, topology) → what its runs have shown; of rows in the order of their start."""
    grouped: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        grouped.setdefault((row["drill"], row["topology"]), []).append(row)
    return {pair: _seen(members) for pair, members in grouped.items()}


def _seen(rows: Sequence[Mapping[str, Any]]) -> KeptResults:
    broken: dict[str, int] = {}
    for row in rows:
        for name in sorted({one["name"] for one in row["promises"] or () if one["verdict"] == FAIL}):
            broken[name] = broken.get(name, 0) + 1
    last = rows[-1]
    return KeptResults(
        runs=len(rows),
        as_expected=sum(row["as_expected"] for row in rows),
        vacuous=sum(bool(row["vacuous"]) for row in rows),
        broken=broken,
        last=last["started_at"].date(),
        versions=dict(last["versions"]),
    )
