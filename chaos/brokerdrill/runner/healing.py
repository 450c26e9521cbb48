"""`brokerdrill heal`: finish, from the journals, what a killed runner left behind."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brokerdrill.base.errors import BrokerdrillError, InfrastructureError, UsageError
from brokerdrill.base.locks import held, inventory_lock, is_held
from brokerdrill.base.progress import Progress
from brokerdrill.faults.executor import heal_change
from brokerdrill.hosts.connection import HostConnection, connected, reachable
from brokerdrill.inventory.topology import Host, Topology, load
from brokerdrill.ledger import contract, journal
from brokerdrill.ledger.journal import Journal
from brokerdrill.runner.evidence.run_dir import LOCK_FILE
from brokerdrill.runner.evidence.spools import fetch_spool

BY = "brokerdrill heal"
# What is so where it was interrupted.
INTERRUPTED = "what is not healed yet its host heals by itself; brokerdrill heal goes on"


@dataclass
class Unfinished:
    """A run whose runner ended early: its unhealed faults (newest first), the spools still on its load hosts, and the
    lease that it had on hosts."""

    run_dir: Path
    inventory: Path
    bench: Path | None
    faults: list[dict[str, Any]] = field(default_factory=list)
    spools: list[dict[str, Any]] = field(default_factory=list)
    lease: dict[str, Any] | None = None


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
        lease = journal.lease(entries)
        item = Unfinished(path.parent, Path(run["inventory"]), bench, journal.unhealed(entries), spools, lease)
        if item.faults or item.spools or (lease and not is_held(path.parent / LOCK_FILE)):
            found.append(item)
    return found


async def heal_run(item: Unfinished, progress: Progress) -> None:
    """Heal one run's faults on their hosts, bring its spools home, and give its lease back. Raises InfrastructureError
    for what cannot be."""
    topology: Topology = load(item.inventory, item.bench)
    names = {entry["host"] for entry in [*item.faults, *item.spools]}
    with inventory_lock(topology.directory), held(item.run_dir / LOCK_FILE, "another process makes this run"):
        written = Journal(item.run_dir)
        with contextlib.closing(written):
            # What is on a host that is gone keeps nothing else from being healed.
            async with reachable([topology.host(name) for name in sorted(names)]) as (connections, away):
                problems = [*map(str, away.values()), *await _finished(item, connections, written, progress)]
            if item.lease and not problems:
                hosts = [topology.host(name) for name in item.lease["hosts"]]
                await asyncio.gather(*(_give_back(host, item.lease["token"]) for host in hosts))
                written.write("lease_back", "")
    if problems:
        raise InfrastructureError("; ".join(problems))
    info = contract.read_run(item.run_dir)
    if info.outcome == "running":
        contract.write_run(item.run_dir, contract.finished(info, "crashed"))


async def _give_back(host: Host, token: str) -> None:
    """Have a host be free at once, where it answers: else its lease ends by itself."""
    with contextlib.suppress(InfrastructureError):
        async with connected([host]) as connections:
            await connections[host.name].kernel("give_back", token=token)


async def _finished(
    item: Unfinished, connections: Mapping[str, HostConnection], written: Journal, progress: Progress
) -> list[str]:
    """Do what is left on the hosts of `connections`; return what could not be, a sentence each."""
    problems: list[str] = []
    for entry in item.faults:
        if connection := connections.get(entry["host"]):
            problems += await _heal_one(connection, entry, written, progress)
    for entry in item.spools:
        if connection := connections.get(entry["host"]):
            problems += await _fetch_one(connection, entry["spool"], item.run_dir, progress)
    return problems


async def _heal_one(
    connection: HostConnection, entry: dict[str, Any], written: Journal, progress: Progress
) -> list[str]:
    try:
        done = await heal_change(connection, entry["fault_id"], BY)
    except BrokerdrillError as error:
        return [str(error)]
    written.write("healed", entry["fault_id"], by=done.by, at=done.at)
    progress.step(f"healed {entry['fault']} of {entry['resolved']} on {connection.name} (by {done.by})")
    return []


async def _fetch_one(connection: HostConnection, spool: str, run_dir: Path, progress: Progress) -> list[str]:
    try:
        if (await connection.sh(f"[ -e {shlex.quote(spool)} ]")).rc != 0:
            return []
        target = await fetch_spool(connection, spool, run_dir)
    except BrokerdrillError as error:
        return [str(error)]
    progress.step(f"fetched {target.name} of {connection.name}")
    return []
