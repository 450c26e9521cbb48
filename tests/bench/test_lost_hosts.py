"""Hosts that are lost while a fault is in effect: cut off for a while, started anew, or slow to stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.bench import made

from brokerdrill.base.clock import now_ns
from brokerdrill.bench import bench
from brokerdrill.faults.executor import Executor, Injection
from brokerdrill.faults.lease import LeaseRequest, leased, left_over
from brokerdrill.faults.registry import fault_type
from brokerdrill.hosts.connection import HostConnection, connected
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.targets import Link, Target
from brokerdrill.inventory.topology import Topology
from brokerdrill.ledger.contract import EVENTS_DIR
from brokerdrill.ledger.events import EventWriter
from brokerdrill.ledger.journal import Journal
from brokerdrill.runner.evidence.journal_coverage import read_covered_times
from brokerdrill.runner.guards.undone_faults import until_fault_undone
from brokerdrill.runner.live_run import LiveRun

pytestmark = pytest.mark.bench

# Takes longer to stop than a script of the runner may.
SERVICE = """[Service]
ExecStart=/bin/sleep infinity
ExecStop=/bin/sh -c 'sleep $(cat /etc/slow 2>/dev/null || echo 0)'
TimeoutStopSec=90
[Install]
WantedBy=multi-user.target
"""
# All of SSH is dropped for so long; the host ends that by itself.
CUT = """nft -f - <<'NFT'
table inet away {{
 chain in {{ type filter hook input priority -20; tcp dport 22 drop; }}
 chain out {{ type filter hook output priority -20; tcp sport 22 drop; }}
}}
NFT"""
CUT_FOR = (
    "systemd-run --quiet --collect --on-active=1 --timer-property=AccuracySec=10ms sh -c {cut}; "
    "systemd-run --quiet --collect --on-active={seconds} --timer-property=AccuracySec=10ms nft delete table inet away"
)


class Lab:
    """A host with a service, faults on it, and what was noticed of it."""

    def __init__(self, connection: HostConnection, executor: Executor, events: EventWriter, folder: Path) -> None:
        self.connection, self.executor, self.events, self.folder = connection, executor, events, folder
        self.noticed: list[str] = []
        connection.notice = lambda value, _: self.noticed.append(value)

    async def inject(self, fault: str, ttl: float = 300, link: bool = False, **params: Any) -> Injection:
        told = {"schema": 1, "product": "it", "instance": "it", "host": "one", "unit": "it.service", "store": "s"}
        links = (Link("one→it", "one", "172.30.248.1", 9, "it"),)
        item = Descriptor.model_validate(told)
        target = Target("it", links=links) if link else Target("it", instances=(item,))
        kind = fault_type(fault)
        return await self.executor.inject(fault, kind, target, kind.complete(params), ttl, f"t{now_ns()}")

    async def state(self) -> str:
        return (await self.connection.sh("systemctl show -p ActiveState --value it")).out.strip()

    def written(self) -> list[dict[str, Any]]:
        lines = (self.folder / EVENTS_DIR / "runner.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


OnHost = Callable[[Callable[[Lab], Coroutine[Any, Any, None]]], None]


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    folder = tmp_path_factory.mktemp("inventories")
    found = made.up(folder, "lost_selftest", "172.30.248.0/24", {"one": "172.30.248.11"})

    async def prepare() -> None:
        async with connected(found.hosts) as hosts:
            made = (
                f"printf %s {shlex.quote(SERVICE)} >/etc/systemd/system/it.service; systemctl enable --now --quiet it"
            )
            await hosts["one"].sh(made, check=True)

    asyncio.run(prepare())
    yield found
    bench.down(found.name)


@pytest.fixture
def on_host(topology: Topology, tmp_path: Path) -> OnHost:
    @contextlib.asynccontextmanager
    async def lab() -> AsyncIterator[Lab]:
        events = EventWriter(tmp_path, "lost", now_ns())
        async with connected(topology.hosts) as hosts:
            async with leased(LeaseRequest("lost", str(topology.directory)), hosts) as lease:
                executor = Executor(hosts, lease, Journal(tmp_path), events)
                lease.keep(executor)
                try:
                    yield Lab(hosts["one"], executor, events, tmp_path)
                finally:
                    assert await executor.heal_all() == []
            assert await left_over(hosts.values()) == {}

    def call(work: Callable[[Lab], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with asyncio.timeout(280), lab() as here:
                await work(here)

        (tmp_path / EVENTS_DIR).mkdir()
        asyncio.run(main())

    return call


@pytest.mark.parametrize("seconds", [15, pytest.param(60, marks=pytest.mark.long)])
def test_a_fault_is_healed_though_its_host_was_cut_off(on_host: OnHost, seconds: int) -> None:
    async def work(lab: Lab) -> None:
        injection = await lab.inject("pause")
        cut = CUT_FOR.format(cut=shlex.quote(CUT.format()), seconds=seconds)
        await lab.connection.sh(cut, check=True)
        await asyncio.sleep(2)
        # Asked for while nothing gets there.
        await lab.executor.heal(injection)
        pid = "$(systemctl show -p MainPID --value it)"
        assert (await lab.connection.sh(f"cut -d' ' -f3 /proc/{pid}/stat")).out.strip() == "S"
        if seconds == 60:
            assert lab.noticed == ["lost", "back"]
        heals = [one for one in lab.written() if one["kind"] == "heal"]
        assert len(heals) == 1

    on_host(work)


def test_a_host_that_restarts_under_a_fault_ends_nothing(on_host: OnHost) -> None:
    async def work(lab: Lab) -> None:
        injection = await lab.inject("stop")
        boot = lab.connection.boot_id
        await lab.connection.sh("systemd-run --quiet --collect --on-active=1 systemctl --no-wall reboot", check=True)
        while lab.connection.boot_id == boot:
            await lab.connection.sh(":")
            await asyncio.sleep(0.5)
        await lab.executor.heal(injection)
        assert await lab.state() == "active"
        assert "restarted" in lab.noticed

    on_host(work)


@pytest.mark.parametrize("how", ["orderly", "abrupt"])
def test_a_host_can_be_restarted_by_a_drill(on_host: OnHost, how: str) -> None:
    async def work(lab: Lab) -> None:
        begun, boot = now_ns(), lab.connection.boot_id
        injection = await lab.inject("restart_host", how=how)
        assert lab.connection.boot_id != boot and len(lab.connection.boots) == 2
        await lab.executor.heal(injection)
        assert await lab.state() == "active"
        fault, heal = (next(one for one in lab.written() if one["kind"] == kind) for kind in ("fault", "heal"))
        assert fault["instance"] == heal["instance"] == "it"
        assert fault["t_ns"] < heal["t_ns"]
        read = await read_covered_times(lab.connection, (begun, now_ns()))
        # An orderly end is in the journal; of the other one nobody knows what was lost.
        assert [part.boots for part in read] == ([2] if how == "orderly" else [1, 1])

    on_host(work)


def test_a_service_may_take_as_long_to_stop_as_its_unit_says(on_host: OnHost) -> None:
    async def work(lab: Lab) -> None:
        await lab.connection.sh("echo 40 >/etc/slow", check=True)
        try:
            injection = await lab.inject("stop")
            assert await lab.state() in ("inactive", "failed")
        finally:
            await lab.connection.sh("rm /etc/slow", check=True)
        await lab.executor.heal(injection)
        assert await lab.state() == "active"

    on_host(work)


def test_a_fault_that_the_host_undid_is_noticed(on_host: OnHost) -> None:
    async def work(lab: Lab) -> None:
        await lab.inject("partition", link=True)
        watched = LiveRun(lab.folder, cast(Any, None), cast(Any, None), cast(Any, None), lab.executor, lab.events)
        watching = asyncio.ensure_future(until_fault_undone(watched))
        done, _ = await asyncio.wait([watching], timeout=6)
        assert not done
        await lab.connection.sh("nft flush ruleset", check=True)
        said = await asyncio.wait_for(watching, 30)
        assert "on one→it is gone, and nobody here healed it" in said

    on_host(work)
