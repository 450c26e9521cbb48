"""`brokerdrill heal`: finish, from the journals, what a killed runner left behind."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brokerdrill.base.errors import BrokerdrillError, InfrastructureError, UsageError
from brokerdrill.base.locks import inventory_lock
from brokerdrill.base.progress import Progress
from brokerdrill.faults.executor import heal_change
from brokerdrill.hosts.connection import HostConnection, connected
from brokerdrill.inventory.topology import Topology, load
from brokerdrill.ledger import contract, journal
from brokerdrill.ledger.journal import Journal
from brokerdrill.runner.spools import fetch_spool


@dataclass
class Unfinished:
    """A run whose runner ended early: its unhealed faults (newest first) and the spools still on its load hosts."""

    run_dir: Path
    inventory: Path
    bench: Path | None
    faults: list[dict[str, Any]] = field(default_factory=list)
    spools: list[dict[str, Any]] = field(default_factory=list)


def unfinished(runs: Path) -> list[Unfinished]:
    """Return the runs below `runs` that left something to do, newest first. Raises UsageError without such a folder."""
    if not runs.is_dir():
        raise UsageError(f"there is no runs directory {runs}")
    found = []
    for path in sorted(runs.glob(f"*/{journal.JOURNAL}"), reverse=True):
        entries = journal.read(path)
        run = next((entry for entry in entries if entry["phase"] == "run"), None)
        if run is None:
            continue
        bench = Path(run["bench"]) if run.get("bench") else None
        ops = path.parent / contract.OPS_DIR
        spools = [e for e in entries if e["phase"] == "worker" and not (ops / Path(e["spool"]).name).exists()]
        item = Unfinished(path.parent, Path(run["inventory"]), bench, journal.unhealed(entries), spools)
        if item.faults or item.spools:
            found.append(item)
    return found


async def heal_run(item: Unfinished, progress: Progress) -> None:
    """Heal one run's faults on their hosts and bring its spools home. Raises InfrastructureError for what cannot be."""
    topology: Topology = load(item.inventory, item.bench)
    names = {entry["host"] for entry in [*item.faults, *item.spools]}
    problems: list[str] = []
    with inventory_lock(topology.directory):
        async with connected([topology.host(name) for name in sorted(names)]) as connections:
            written = Journal(item.run_dir)
            with contextlib.closing(written):
                for entry in item.faults:
                    problems += await _heal_one(connections[entry["host"]], entry, written, progress)
            for entry in item.spools:
                problems += await _fetch_one(connections[entry["host"]], entry["spool"], item.run_dir, progress)
    if problems:
        raise InfrastructureError("; ".join(problems))
    info = contract.read_run(item.run_dir)
    if info.outcome == "running":
        contract.write_run(item.run_dir, contract.finished(info, "crashed"))


async def _heal_one(
    connection: HostConnection, entry: dict[str, Any], written: Journal, progress: Progress
) -> list[str]:
    try:
        _, _, ours = await heal_change(connection, entry["fault_id"], entry["verify_heal"])
    except BrokerdrillError as error:
        return [str(error)]
    by = "brokerdrill heal" if ours else "time-to-live"
    written.write("healed", entry["fault_id"], by=by)
    progress.step(f"healed {entry['fault']} of {entry['resolved']} on {connection.name} (by {by})")
    return []


async def _fetch_one(connection: HostConnection, spool: str, run_dir: Path, progress: Progress) -> list[str]:
    if (await connection.sh(f"[ -e {spool} ]")).rc != 0:
        return []
    try:
        target = await fetch_spool(connection, spool, run_dir)
    except BrokerdrillError as error:
        return [str(error)]
    progress.step(f"fetched {target.name} of {connection.name}")
    return []
