"""The safety kernel on real hosts: faults that overlap, a host that starts anew, and all cells of the matrix."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.bench import bare_hosts
from tests.drill.safety_matrix import BARE, Machine, made

from brokerdrill.base import paths
from brokerdrill.base.clock import now_ns
from brokerdrill.bench import bench
from brokerdrill.faults.executor import Executor
from brokerdrill.faults.lease import LeaseRequest, leased, left_over
from brokerdrill.faults.registry import fault_type
from brokerdrill.hosts.connection import HostConnection, KernelRefused, connected
from brokerdrill.hosts.descriptors import read_all
from brokerdrill.hosts.safety_kernel import STATE
from brokerdrill.inventory.targets import Scene, resolve
from brokerdrill.inventory.topology import Topology
from brokerdrill.ledger.events import EventWriter
from brokerdrill.ledger.journal import Journal, read
from brokerdrill.products.registry import DESCRIPTORS

pytestmark = pytest.mark.bench

Connections = dict[str, HostConnection]
Inject = Callable[..., Coroutine[Any, Any, Any]]


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    found = bare_hosts.up(tmp_path_factory.mktemp("inventories"))
    yield found
    bench.down(found.name)


@pytest.fixture
def drilled(topology: Topology, tmp_path: Path) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], None]:
    """Run a coroutine function with the connections, an executor and a function that injects, within a lease."""

    def call(work: Callable[..., Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with (
                connected(topology.hosts) as connections,
                leased(LeaseRequest("selftest", str(topology.directory)), connections) as lease,
            ):
                found = await read_all(connections.values(), DESCRIPTORS)
                executor = Executor(connections, lease, Journal(tmp_path), EventWriter(tmp_path, "selftest", now_ns()))
                lease.keep(executor)

                async def inject(fault: str, **params: Any) -> Any:
                    kind = fault_type(fault)
                    target = resolve(Scene(found, {}, random.Random(1)), "victim")
                    return await executor.inject(fault, kind, target, kind.complete(params), 300, f"t{now_ns()}")

                try:
                    await work(connections, executor, inject)
                finally:
                    assert await executor.heal_all() == []
                    assert await left_over(connections.values()) == {}
                    await serves(connections["dialler"])

        asyncio.run(main())

    return call


async def serves(connection: HostConnection) -> None:
    """Wait until the victim runs, by its own, and is not stopped."""
    state = "cut -d' ' -f3 /proc/$(systemctl show -p MainPID --value victim.service)/stat"
    end = time.monotonic() + 30
    while (said := (await connection.sh(state)).out.strip()) not in ("S", "R"):
        assert time.monotonic() < end, said
        await asyncio.sleep(0.1)
    assert (await connection.sh("ls /run/systemd/system/victim.service.d")).out == ""


OVERLAPPING = (
    (("pause", {}), ("kill", {})),
    (("pause", {"end": "kill"}), ("kill", {})),
    (("pause", {}), ("stop", {})),
    (("pause", {}), ("kill", {"restart": True})),
    (("kill", {}), ("stop", {})),
    (("kill", {"restart": True}), ("kill", {})),
    (("disk_full", {}), ("kill", {})),
)


@pytest.mark.parametrize(("faults", "newest_first"), [*itertools.product(OVERLAPPING, (True, False))])
def test_faults_that_overlap_are_healed_in_any_order(drilled: Any, faults: Any, newest_first: bool) -> None:
    async def work(connections: Connections, executor: Executor, inject: Inject) -> None:
        injections = []
        for name, params in faults:
            injections.append(await inject(name, **params))
            if params.get("restart"):
                await serves(connections["dialler"])
        first, second = reversed(injections) if newest_first else injections
        await executor.heal(first)
        if second.fault.name in ("kill", "stop") and not newest_first and not faults[1][1]:
            held = await connections["dialler"].sh("systemctl is-active --quiet victim.service")
            assert held.rc != 0, "the other fault lasts"
        await executor.heal(second)

    drilled(work)


def test_a_host_that_starts_anew_heals_what_outlived_that(topology: Topology, drilled: Any, tmp_path: Path) -> None:
    async def work(connections: Connections, executor: Executor, inject: Inject) -> None:
        await inject("stop")
        await inject("disk_full")
        await asyncio.to_thread(Machine(topology).restart, "dialler")
        end = time.monotonic() + 90
        while len(healed := [one for one in read(tmp_path / "journal.jsonl") if one["phase"] == "healed"]) < 2:
            assert time.monotonic() < end, healed
            await asyncio.sleep(0.1)
        assert {one["by"] for one in healed} == {"restart"}
        used = (await connections["dialler"].sh("df --output=pcent /srv/store | tail -1", check=True)).out
        assert int(used.strip(" %\n")) < 50

    drilled(work)


def test_a_host_that_holds_nothing_starts_no_guard(topology: Topology, drilled: Any) -> None:
    """The service and its timer, after a start of a host that was drilled before."""

    async def nothing(*_: Any) -> None:
        pass

    drilled(nothing)
    machine = Machine(topology)
    units = "brokerdrill-guard.service brokerdrill-guard.timer"
    end = time.monotonic() + 30
    while machine.sh("dialler", f"ls {STATE}/lease.json || systemctl is-active {units}")[0] == 0:
        assert time.monotonic() < end, "the guard ends with the lease"
        time.sleep(0.2)
    machine.restart("dialler")
    while machine.sh("dialler", "systemctl is-system-running --wait")[1].strip() not in ("running", "degraded"):
        assert time.monotonic() < end + 60
        time.sleep(0.2)
    assert machine.sh("dialler", f"systemctl show -p ActiveState --value {units}")[1].split() == ["inactive"] * 2


def test_another_controller_is_refused_by_the_host(topology: Topology, drilled: Any) -> None:
    async def work(connections: Connections, executor: Executor, inject: Inject) -> None:
        async with connected(topology.hosts) as others:
            with pytest.raises(KernelRefused, match="holds it for run selftest"):
                async with leased(LeaseRequest("another", "elsewhere"), others):
                    pass

    drilled(work)


def test_of_two_controllers_with_a_hundred_tries_at_once_one_runs(topology: Topology) -> None:
    words = [sys.executable, "-m", "tests.bench.controller", topology.word]
    how: dict[str, Any] = {"cwd": paths.ROOT, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    controllers = [subprocess.Popen([*words, name, "50"], **how) for name in ("one", "other")]
    try:
        assert [one.stdout.readline() for one in controllers] == ["ready\n"] * 2
        for one in controllers:
            one.stdin.write("go\n")
            one.stdin.flush()
        said = [json.loads(one.stdout.readline()) for one in controllers]
    finally:
        for one in controllers:
            one.communicate()
    (won,) = [run for one in said for run in one["won"]]
    refused = [why for one in said for why in one["refused"]]
    assert (len(refused), [one["others"] for one in said]) == (99, [[], []])
    # Hosts are asked in one order: who has the first has all, and the others are told of nobody else.
    assert all(f"holds it for run {won} (" in why for why in refused)
    print(f"1 of 100 has both hosts, {won}; all are told within {max(one['took_s'] for one in said):.1f} s")


@pytest.mark.long
def test_whatever_befalls_a_host_after_its_runner_it_is_whole_in_time(topology: Topology, tmp_path: Path) -> None:
    assert made([topology], BARE, tmp_path / "cells.jsonl", ()) == 0
