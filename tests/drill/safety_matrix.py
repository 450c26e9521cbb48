"""Every type of fault × the runner killed at each step × what befalls the host then: is it whole in time? A program.

    python -m tests.drill.safety_matrix TOPOLOGY FILE [WORD ...]

TOPOLOGY is deployed (`DIRECTORY:NAME`: a copy of the one of that name), or `bare` or `bare*N`: N pairs of hosts that
are made for it, share the cells, and are taken down after it. Each cell is a line of JSON in FILE; cells that are whole
there are not made again, so that it goes on where it was ended. WORDs choose cells whose names have all of them. Hosts
are looked at through the bench's engine, which needs no network of theirs. In the end it says how many cells of FILE
were whole, and the slowest, for each trouble. Exit status 1: one of the cells was not whole within its time-to-live and
GRACE_S.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from docker.errors import APIError
from rich.console import Console

from brokerdrill.base.progress import Progress
from brokerdrill.bench import bench, engine
from brokerdrill.bench.plan import plan
from brokerdrill.faults.registry import FAULTS
from brokerdrill.gameday.guards import steady
from brokerdrill.gameday.model import Guard
from brokerdrill.inventory.topology import Topology, find_topology
from brokerdrill.ledger import journal
from tests.bench import bare_hosts
from tests.drill.conftest import ROOT
from tests.drill.killed_runner import STEPS
from tests.drill.test_killed_runner import ELSEWHERE, QUORUM, Hurt

TTL_S = 4
GRACE_S = 10
# What needs no product.
BARE = (
    Hurt("kill", "victim"),
    Hurt("kill", "victim", {"restart": True}),
    Hurt("kill", "victim", {"children": True}),
    Hurt("stop", "victim"),
    Hurt("pause", "victim"),
    Hurt("pause", "victim", {"end": "kill"}),
    Hurt("partition", "link victim→server"),
    Hurt("toxic", "link victim→server", {"type": "timeout", "attributes": {"timeout": 0}}),
    Hurt("cut", "link victim→server"),
    Hurt("disk_full", "victim"),
    Hurt("lock_file", "victim"),
    Hurt("clock", "victim"),
    Hurt("restart_host", "victim"),
)
# Who was cut off or started anew goes on by itself after so long.
AWAY_S = 60
CONTROL_AWAY_S = 15
BOOT_S = 60
READY_S = 180
# A runner that is slower than the time-to-live, on a machine with too much to do, does not come to its step.
TRIES = 3
TROUBLES = ("alone", "restarted", "control away", "network cut")

# As `brokerdrill heal` ends the lease of a run that is gone: the next cell need not wait for that.
_GIVE_BACK = """python3 - <<'PY'
import runpy
kernel = runpy.run_path("/var/lib/brokerdrill/safety/safety_kernel.py")["Kernel"]()
if lease := kernel._read(kernel.state / "lease.json"):
    kernel.give_back(lease["token"])
PY"""
_CUT = """nft -f - <<'NFT'
table inet unreachable { chain in { type filter hook input priority -200; iif lo accept; tcp dport 22 drop; }; }
NFT
systemd-run --quiet --collect --on-active={away} --timer-property=AccuracySec=100ms nft delete table inet unreachable"""
# toxiproxy's API and a router's control socket, which is given back.
_CONTROL = """nft -f - <<'NFT'
table inet uncontrolled { chain in { type filter hook input priority -200; iif lo tcp dport 8474 drop; }; }
NFT
for one in /run/*/control.sock; do [ ! -S $one ] || mv $one $one.away; done
cat > /run/control-again <<'SH'
nft delete table inet uncontrolled
for one in /run/*/control.sock.away; do [ ! -S $one ] || mv $one ${one%.away}; done
SH
systemd-run --quiet --collect --on-active={away} --timer-property=AccuracySec=100ms sh /run/control-again"""


def cells(hurts: tuple[Hurt, ...]) -> Iterator[tuple[str, Hurt, str, str]]:
    """Yield all cells with their names."""
    for hurt in hurts:
        given = " ".join(f"{name}={value}" for name, value in hurt.parameters.items())
        for step in STEPS:
            for trouble in TROUBLES:
                yield f"{hurt.fault} {hurt.target} {given or '-'} | {step} | {trouble}", hurt, step, trouble


class Machine:
    """The hosts of a topology, through the engine that runs them."""

    def __init__(self, topology: Topology) -> None:
        self._plan = plan(topology)
        self._client = engine.require().client()

    def sh(self, host: str, script: str) -> tuple[int, str]:
        end = time.monotonic() + BOOT_S
        while True:
            try:
                container = self._client.containers.get(self._plan.container(host))
                done: Any = container.exec_run(["/bin/sh", "-c", script])
            except APIError:  # it is being started anew
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
            else:
                return done.exit_code, done.output.decode(errors="replace")

    def restart(self, host: str) -> None:
        self._client.containers.get(self._plan.container(host)).restart(timeout=2)


def befall(machine: Machine, trouble: str, hosts: set[str]) -> float:
    """Have `trouble` befall `hosts`; return how long (s) its end may keep a heal waiting."""
    for host in sorted(hosts):
        if trouble == "restarted":
            machine.restart(host)
        elif trouble != "alone":
            script, away = (_CUT, AWAY_S) if trouble == "network cut" else (_CONTROL, CONTROL_AWAY_S)
            end = time.monotonic() + BOOT_S
            # A host that the fault itself starts anew takes no order meanwhile.
            while (done := machine.sh(host, script.replace("{away}", str(away))))[0] != 0:
                assert time.monotonic() < end, done[1]
                time.sleep(0.2)
    return {"restarted": BOOT_S, "control away": CONTROL_AWAY_S}.get(trouble, 0)


def left(machine: Machine, intents: list[dict[str, Any]]) -> list[str]:
    """What is not healed, by the hosts' records and by each fault's own check."""
    found = []
    for host in sorted({entry["host"] for entry in intents}):
        code, said = machine.sh(host, "cat /var/lib/brokerdrill/safety/faults/*.json 2>/dev/null")
        if code == 0 and said:
            found.append(f"{host}: {said[-400:]}")
    for entry in intents:
        of_proxy = FAULTS.get(entry["fault"]) and FAULTS[entry["fault"]].acts_on == "armed link"
        if not of_proxy and machine.sh(entry["host"], entry["verify_heal"])[0] != 0:
            found.append(f"{entry['fault_id']} on {entry['host']}: its check")
    return found


def make(topology: Topology, machine: Machine, hurt: Hurt, step: str, trouble: str) -> dict[str, Any]:
    """Make one cell; return how it went."""
    with tempfile.TemporaryDirectory() as folder:
        words = [topology.word, hurt.fault, hurt.target, json.dumps(dict(hurt.parameters)), step, str(TTL_S), folder]
        done = subprocess.run(
            [sys.executable, "-m", "tests.drill.killed_runner", *words], cwd=ROOT, capture_output=True, text=True
        )
        killed_ns = time.monotonic_ns()
        entries = journal.read(Path(folder) / journal.JOURNAL)
    intents = [entry for entry in entries if entry["phase"] == "intent"]
    if done.returncode != -9:
        return {"made": False, "said": (done.stdout + done.stderr)[-400:]}
    waits_s = befall(machine, trouble, {entry["host"] for entry in intents})
    limit_s = TTL_S + GRACE_S + waits_s
    while (found := left(machine, intents)) and (time.monotonic_ns() - killed_ns) / 1e9 < limit_s:
        time.sleep(0.3)
    after_s = (time.monotonic_ns() - killed_ns) / 1e9
    if trouble in ("network cut", "control away"):
        while any(
            machine.sh(entry["host"], "nft list tables | grep -e unreach -e uncontrol")[0] == 0 for entry in intents
        ):
            time.sleep(0.5)
    for host in topology.hosts:
        machine.sh(host.name, _GIVE_BACK)
    return {"made": True, "whole": not found, "after_s": round(after_s, 1), "limit_s": limit_s, "left": found}


def main(name: str, file: str, *words: str) -> int:
    """Make the cells that are not whole in `file` yet."""
    kind, _, pairs = name.partition("*")
    if kind != "bare":
        topology, _, like = name.partition(":")
        return made([find_topology(topology)], ELSEWHERE.get(like or topology, QUORUM), Path(file), words)
    with tempfile.TemporaryDirectory() as folder, bare(Path(folder), int(pairs or 1)) as topologies:
        return made(topologies, BARE, Path(file), words)


@contextlib.contextmanager
def bare(folder: Path, pairs: int) -> Iterator[list[Topology]]:
    """Have so many pairs of hosts that no product is on."""
    with contextlib.ExitStack() as downs:
        topologies = []
        for pair in range(pairs):
            within = folder / str(pair)
            within.mkdir()
            topologies.append(bare_hosts.up(within, pair))
            downs.callback(bench.down, topologies[-1])
        yield topologies


def rows(path: Path) -> dict[str, dict[str, Any]]:
    """The cells in a file by name; of one that was made again the last."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {row["cell"]: row for row in map(json.loads, lines)}


def ready(topology: Topology, machine: Machine) -> None:
    """Wait until a topology is whole and serves, as before a drill. Raises TimeoutError."""
    end = time.monotonic() + READY_S
    if topology.name.startswith(bare_hosts.NAME):
        waiting_for = {host.name: bare_hosts.READY for host in topology.hosts}
        while problems := [host for host, script in waiting_for.items() if machine.sh(host, script)[0] != 0]:
            if time.monotonic() > end:
                raise TimeoutError(f"not ready: {problems} of {topology.name}")
            time.sleep(0.2)
        return
    with tempfile.TemporaryDirectory() as folder:
        while problems := asyncio.run(steady(topology, Guard(), Path(folder), Progress(Console(quiet=True)))):
            if time.monotonic() > end:
                raise TimeoutError(f"not ready: {problems} of {topology.name}")


def made(topologies: Sequence[Topology], hurts: tuple[Hurt, ...], path: Path, words: tuple[str, ...]) -> int:
    """Make the cells of `hurts` whose names have all `words`, on all topologies at once; return the exit status."""
    there = rows(path)
    wanted = [item for item in cells(hurts) if all(word in item[0] for word in words)]
    waiting: queue.SimpleQueue[tuple[str, Hurt, str, str]] = queue.SimpleQueue()
    for item in wanted:
        if not there.get(item[0], {}).get("whole"):
            waiting.put(item)
    writing = threading.Lock()

    def work(topology: Topology) -> None:
        machine = Machine(topology)
        with contextlib.suppress(queue.Empty):
            while True:
                cell, hurt, step, trouble = waiting.get_nowait()
                how: dict[str, Any] = {"made": False}
                for _ in range(TRIES):
                    if not how["made"]:
                        ready(topology, machine)
                        how = make(topology, machine, hurt, step, trouble)
                with writing, path.open("a") as out:
                    out.write(json.dumps({"topology": topology.name, "cell": cell, **how}) + "\n")
                    print(cell, how, flush=True)

    with ThreadPoolExecutor(len(topologies)) as pool:
        for done in [pool.submit(work, topology) for topology in topologies]:
            done.result()
    found = rows(path)
    print(told(found.values()))
    return 0 if all(found[item[0]].get("whole") for item in wanted) else 1


def told(found: Collection[dict[str, Any]]) -> str:
    """A table of how it went: for each trouble how many cells, how many of them whole, and the slowest of these."""
    lines = [f"{'trouble':<14}{'cells':>6}{'whole':>6}{'slowest':>9}{'limit':>8}"]
    for trouble in TROUBLES:
        its = [row for row in found if row["cell"].endswith(f"| {trouble}")]
        whole = [row for row in its if row.get("whole")]
        slowest, limit = (max((row[key] for row in whole), default=0) for key in ("after_s", "limit_s"))
        lines.append(f"{trouble:<14}{len(its):>6}{len(whole):>6}{slowest:>7.1f} s{limit:>6.0f} s")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
