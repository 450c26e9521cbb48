"""Every type of fault, with the runner killed at every step: when its time-to-live is over, no fault is left.

What heals is the host's own timer alone: nobody calls `brokerdrill heal`. A few of them are in `make test`.
"""

from __future__ import annotations

import asyncio
import functools
import json
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from rich.console import Console

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.base.progress import Progress
from brokerdrill.bench import bench
from brokerdrill.faults.lease import left_over
from brokerdrill.faults.registry import FAULTS
from brokerdrill.gameday.guards import steady
from brokerdrill.gameday.model import Guard
from brokerdrill.hosts.connection import HostConnection, connected
from brokerdrill.inventory.playbooks import run_playbook
from brokerdrill.inventory.topology import Topology, find_topology
from brokerdrill.ledger import journal
from tests.drill.conftest import ROOT
from tests.drill.killed_runner import STEPS

TTL_S = 4
# The time-to-live counts from each registration, and some heals start a service again.
WHOLE_WITHIN_S = TTL_S + 60


class Hurt(NamedTuple):
    """A fault on a target."""

    fault: str
    target: str
    parameters: Mapping[str, Any] = MappingProxyType({})


QUORUM = (
    Hurt("kill", "zk3"),
    Hurt("kill", "zk3", {"restart": True}),
    Hurt("stop", "zk3"),
    Hurt("pause", "zk3"),
    Hurt("restart_host", "zk3"),
    Hurt("partition", "link artemis→zk3"),
    Hurt("partition", "link zk3→zk1", {"how": "reject"}),
    Hurt("toxic", "link load→artemis1", {"type": "timeout", "attributes": {"timeout": 0}}),
    Hurt("cut", "link load→artemis1"),
    Hurt("client_killed", "load1"),
)
# What needs another product than the bench of the other drills has.
ELSEWHERE = {
    "classic_shared_file": (Hurt("lock_file", "classic2"),),
    "artemis_peers": (Hurt("disk_full", "artemis2"),),
    "classic_lease": (Hurt("switchover", "active of lease_db"), Hurt("clock", "classic2")),
    "rabbitmq_router": (
        Hurt("drain", "link amqp_router→rabbit1"),
        Hurt("hold", "all of amqp_router"),
        Hurt("drift", "router1"),
        Hurt("replace", "router1"),
    ),
}
FEW = {("kill", "effective"), ("partition", "injected"), ("cut", "verified"), ("pause", "heal_intent")}


def test_every_type_of_fault_is_among_them() -> None:
    assert {hurt.fault for group in (QUORUM, *ELSEWHERE.values()) for hurt in group} == set(FAULTS)


def cases() -> Iterator[Any]:
    for hurt in QUORUM:
        for step in STEPS:
            few = (hurt.fault, step) in FEW and not hurt.parameters
            yield pytest.param(
                hurt,
                step,
                id=f"{hurt.fault}-{'-'.join(map(str, hurt.parameters.values())) or hurt.target}-{step}",
                marks=() if few else pytest.mark.long,
            )


def hurt_and_die(topology: Topology, hurt: Hurt, step: str, run_dir: Path, ttl_s: int = TTL_S) -> list[dict[str, Any]]:
    """Have a runner killed at `step`; return the intents of its journal."""
    # As a drill does: a broker that lost its ZooKeeper in the test before is down for a moment, and a database that is
    # still joining cannot change places with the other one.
    assert asyncio.run(steady(topology, Guard(), run_dir, Progress(Console()))) == []
    words = [topology.name, hurt.fault, hurt.target, json.dumps(dict(hurt.parameters)), step, str(ttl_s), str(run_dir)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.drill.killed_runner", *words], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    return [entry for entry in journal.read(run_dir / journal.JOURNAL) if entry["phase"] == "intent"]


def on_hosts_of(topology: Topology, work: Callable[[dict[str, HostConnection]], Awaitable[None]]) -> None:
    """Run `work` with the connections of all hosts."""

    async def main() -> None:
        async with connected(topology.hosts) as connections:
            await work(connections)

    asyncio.run(main())


async def whole(connections: dict[str, HostConnection], intents: list[dict[str, Any]]) -> None:
    """Wait until no host holds a fault and each fault's own check says that it is gone."""
    deadline = time.monotonic() + WHOLE_WITHIN_S
    while True:
        left: Any = await left_over(connections.values())
        for entry in intents:
            # What was done to a proxy goes with the proxy, which is its link's own fault.
            if FAULTS.get(entry["fault"]) and FAULTS[entry["fault"]].acts_on == "armed link":
                continue
            if not left and (await connections[entry["host"]].sh(entry["verify_heal"])).rc != 0:
                left = entry
        if not left:
            return
        assert time.monotonic() < deadline, left
        await asyncio.sleep(0.2)


async def a_client(connections: dict[str, HostConnection]) -> None:
    """No load runs in these tests: have a process that is called as one of its processes is."""
    name = "python3 -u -m brokerdrill.workload.worker x"
    started = await connections["load1"].sh(f"setsid bash -c 'exec -a \"{name}\" sleep 600' >/dev/null 2>&1 &")
    assert started.rc == 0, started
    async with asyncio.timeout(30):
        while (await connections["load1"].sh(f"pgrep -f '^{name}'")).rc != 0:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(("hurt", "step"), [*cases()])
def test_nothing_is_left_after_the_time_to_live(
    topology: Topology, on_hosts: Callable[..., Any], tmp_path: Path, hurt: Hurt, step: str
) -> None:
    if hurt.fault == "client_killed":
        on_hosts(a_client)
    intents = hurt_and_die(topology, hurt, step, tmp_path)
    assert intents, "the intent is on disk before anything is done"
    on_hosts(lambda connections: whole(connections, intents))


@pytest.mark.long
@pytest.mark.parametrize("name", ELSEWHERE)
def test_nothing_is_left_elsewhere(name: str, tmp_path: Path) -> None:
    found = find_topology(name)
    bench.up(found, fresh=True, progress=print)
    try:
        run_playbook(found, "site", Progress(Console()))
        for hurt in ELSEWHERE[name]:
            for step in STEPS:
                run_dir = tmp_path / f"{hurt.fault}-{step}"
                run_dir.mkdir()
                intents = hurt_and_die(found, hurt, step, run_dir)
                on_hosts_of(found, functools.partial(whole, intents=intents))
    finally:
        bench.down(found.name)


@pytest.mark.long
def test_a_host_that_the_runner_cannot_reach_heals_itself(
    topology: Topology, on_hosts: Callable[..., Any], tmp_path: Path
) -> None:
    """Nobody reaches the host from before the fault's time-to-live is over until after: it is whole by then."""
    ttl_s, unreachable_s = 20, 30
    intents = hurt_and_die(topology, Hurt("pause", "zk3"), "verified", tmp_path, ttl_s)
    undo = "systemd-run --quiet --collect --timer-property=AccuracySec=100ms"
    cut = f"""set -e
ls /var/lib/brokerdrill/safety/faults/{intents[0]["fault_id"]}.json
{undo} --on-active={unreachable_s} nft delete table inet unreachable
nft -f - <<'NFT'
table inet unreachable {{ chain in {{ type filter hook input priority -200; tcp dport 22 drop; }}; }}
NFT
sleep {2 * unreachable_s}
"""

    async def cut_off(connections: dict[str, HostConnection]) -> None:
        asked = asyncio.create_task(connections["zk3"].sh(cut))
        done, _ = await asyncio.wait([asked], timeout=5)
        assert not done, asked.result()
        asked.cancel()

    async def reached_again(connections: dict[str, HostConnection]) -> None:
        assert await left_over(connections.values()) == {}
        await whole(connections, intents)

    on_hosts_of(topology, cut_off)
    deadline = time.monotonic() + 2 * unreachable_s
    while True:
        try:
            on_hosts(reached_again)
            return
        except InfrastructureError as error:
            assert time.monotonic() < deadline, error
