"""Every type of fault × the runner killed at each step × what befalls the host then: is it whole in time? A program.

    python -m tests.drill.safety_matrix TOPOLOGY FILE [WORD ...]

TOPOLOGY is deployed, or `bare`: two hosts that are made for it and taken down after it. Each cell is a line of JSON in
FILE; cells that are there are not made again, so that it goes on where it was ended. WORDs choose cells whose names
have all of them. Hosts are looked at through the bench's engine, which needs no network of theirs. Exit status 1: a
cell was not whole within its time-to-live and GRACE_S.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from brokerdrill.bench import bench, engine
from brokerdrill.faults.registry import FAULTS
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
)
# Who was cut off or started anew goes on by itself after so long.
AWAY_S = 60
CONTROL_AWAY_S = 15
BOOT_S = 60
TROUBLES = ("alone", "restarted", "control away", "network cut")

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
        self._plan = bench.plan(topology)
        self._client = engine.require().client()

    def sh(self, host: str, script: str) -> tuple[int, str]:
        container = self._client.containers.get(self._plan.container(host))
        done: Any = container.exec_run(["/bin/sh", "-c", script])
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
            code, said = machine.sh(host, script.replace("{away}", str(away)))
            assert code == 0, said
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
    return {"made": True, "whole": not found, "after_s": round(after_s, 1), "limit_s": limit_s, "left": found}


def main(name: str, file: str, *words: str) -> int:
    """Make the cells that are not in `file` yet."""
    if name != "bare":
        return made(find_topology(name), ELSEWHERE.get(name, QUORUM), Path(file), words)
    with tempfile.TemporaryDirectory() as folder:
        topology = bare_hosts.up(Path(folder))
        try:
            Machine(topology).sh("dialler", "touch /srv/store/lock")
            return made(topology, BARE, Path(file), words)
        finally:
            bench.down(topology)


def made(topology: Topology, hurts: tuple[Hurt, ...], path: Path, words: tuple[str, ...]) -> int:
    """Make the cells of `hurts` whose names have all `words`; return the exit status."""
    done = {json.loads(line)["cell"] for line in path.read_text().splitlines()} if path.exists() else set()
    machine, broken = Machine(topology), 0
    for cell, hurt, step, trouble in cells(hurts):
        if cell in done or not all(word in cell for word in words):
            continue
        row = {"topology": topology.name, "cell": cell, **make(topology, machine, hurt, step, trouble)}
        broken += not row.get("whole")
        with path.open("a") as out:
            out.write(json.dumps(row) + "\n")
        print(cell, {key: row[key] for key in row if key not in ("cell", "topology")}, flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
