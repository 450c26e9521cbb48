"""The table of results: RUNS/results.parquet/, a Parquet file a run, a row for each of its promises and failovers.

Plain Parquet, because nothing more is needed: a run's rows are one file that appears whole, by a rename, and that only
an analysis of the same run replaces. So appending survives any crash, two writers never touch one file, and Spark,
DuckDB or pandas read the folder as one table. Delta or Iceberg would add a transaction log, a JVM to the command line's
start, and a catalog, for changes of several files at once that never happen here.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from brokerdrill.base.atomic import replacing
from brokerdrill.base.errors import UsageError
from brokerdrill.ledger import contract
from brokerdrill.ledger.verdict import RunVerdict

TABLE = "results.parquet"
PROMISE, FAILOVER = "promise", "failover"
_TIME = pa.timestamp("us", tz="UTC")
_WORDS = pa.map_(pa.string(), pa.string())

SCHEMA = pa.schema(
    [
        pa.field("run_id", pa.string(), nullable=False),
        pa.field("started_at", _TIME, nullable=False),
        pa.field("analysed_at", _TIME, nullable=False),
        pa.field("scenario", pa.string(), nullable=False),
        pa.field("scenario_sha256", pa.string()),
        pa.field("topology", pa.string(), nullable=False),
        pa.field("inventory_sha256", pa.string()),
        pa.field("versions", _WORDS),
        pa.field("settings", _WORDS),
        pa.field("seed", pa.int64()),
        pa.field("outcome", pa.string()),
        pa.field("run_verdict", pa.string(), nullable=False),
        pa.field("run_as_expected", pa.bool_(), nullable=False),
        pa.field("messages", pa.int64()),
        pa.field("lost", pa.int64()),
        pa.field("duplicated", pa.int64()),
        pa.field("kind", pa.string(), nullable=False),  # promise or failover: what this row is about
        pa.field("name", pa.string(), nullable=False),  # the promise, or the fault and whom it hit
        pa.field("verdict", pa.string()),
        pa.field("expected", pa.string()),
        pa.field("as_expected", pa.bool_()),
        pa.field("count", pa.int64()),
        pa.field("bound", pa.float64()),
        # A promise's measure; a failover's ms to the slowest client's next acknowledged send, null: it never came.
        pa.field("measured", pa.float64()),
        pa.field("t_ns", pa.int64()),
        pa.field("detection_ms", pa.float64()),
        pa.field("activation_ms", pa.float64()),
        pa.field("first_delivery_ms", pa.float64()),
    ]
)


def started_at(run: contract.RunInfo) -> datetime.datetime | None:
    """Return when a run began, in UTC; None where run.json does not say."""
    try:
        found = datetime.datetime.fromisoformat(run.started_at)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=datetime.UTC)).astimezone(datetime.UTC)


def rows_of(
    run: contract.RunInfo, result: RunVerdict, started: datetime.datetime, analysed: datetime.datetime
) -> list[dict[str, Any]]:
    """Return a run's rows, by its verdict."""
    common = {
        "run_id": run.run_id,
        "started_at": started,
        "analysed_at": analysed,
        "scenario": run.scenario.name,
        "scenario_sha256": run.scenario.sha256,
        "topology": run.topology,
        "inventory_sha256": run.inventory_sha256,
        "versions": sorted(run.versions.items()),
        "settings": sorted(run.settings.items()),
        "seed": run.seed,
        "outcome": run.outcome,
        "run_verdict": result.verdict,
        "run_as_expected": result.as_expected,
        "messages": result.count(),
        "lost": result.count("lost"),
        "duplicated": result.count("duplicated"),
    }
    rows = [
        common
        | {
            "kind": PROMISE,
            "name": promise.name,
            "verdict": promise.verdict,
            "expected": promise.expected,
            "as_expected": promise.as_expected,
            "count": promise.count,
            "bound": promise.bound,
            "measured": promise.measured,
        }
        for promise in result.promises
    ]
    for (name, t_ns), worst in result.slowest().items():
        rows.append(
            common
            | {
                "kind": FAILOVER,
                "name": name,
                "t_ns": t_ns,
                "measured": worst.first_send_ms,
                "detection_ms": worst.detection_ms,
                "activation_ms": worst.activation_ms,
                "first_delivery_ms": worst.first_delivery_ms,
            }
        )
    return rows


def append(run_dir: Path, result: RunVerdict) -> Path | None:
    """Put a run's rows into the table beside `run_dir`, in place of those of an earlier analysis; return the file.

    None for a run that has no place in time (run.json says no start) or is not on a local disk. Raises
    UsageError where run.json cannot be read, InfrastructureError where the disk does not take the rows.
    """
    if not (run_dir / contract.RUN_FILE).is_file():
        return None
    run = contract.read_run(run_dir)
    started = started_at(run)
    if started is None:
        return None
    rows = rows_of(run, result, started, datetime.datetime.now(datetime.UTC))
    return append_rows(run_dir.absolute().parent, run.run_id, rows) if rows else None


def append_rows(runs: Path, run_id: str, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Put the rows of run `run_id` into the table of `runs`. Raises InfrastructureError where the disk refuses."""
    folder = runs / TABLE
    path = folder / f"{run_id.replace('/', '_')}.parquet"
    with replacing(path) as file:
        pq.write_table(pa.Table.from_pylist(list(rows), schema=SCHEMA), file, compression="zstd")
    return path


def read(runs: Path) -> list[dict[str, Any]]:
    """Return the table's rows by start of their runs. Raises UsageError: no table there, or a file that is none."""
    folder = runs / TABLE
    if not folder.is_dir():
        raise UsageError(f"{runs} has no table of results ({TABLE}): analyse a run there first")
    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.parquet")):
        found.extend(_read_one(path))
    return sorted(found, key=lambda row: (row["started_at"], row["run_id"]))


def topologies_of(runs: Path) -> set[str]:
    """Return the topologies of the table's runs; none where there is no table. Raises UsageError as `read`."""
    return {str(row["topology"]) for row in read(runs)} if (runs / TABLE).is_dir() else set()


def _read_one(path: Path) -> Iterable[dict[str, Any]]:
    try:
        with pq.ParquetFile(path) as file:
            names = set(file.schema_arrow.names)
            missing = [field.name for field in SCHEMA if not field.nullable and field.name not in names]
            if missing:
                raise UsageError(f"{path}: column {missing[0]} is missing")
            rows = file.read(columns=[field.name for field in SCHEMA if field.name in names]).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    blank = dict.fromkeys(SCHEMA.names)
    return [blank | row | {key: dict(row.get(key) or ()) for key in ("versions", "settings")} for row in rows]
