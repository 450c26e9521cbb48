"""The executor on this machine as a host: a real connection, agent and kernel, faults that are files."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.faults import lease as lease_module
from brokerdrill.faults.base import FaultType, HostChange, Parameters
from brokerdrill.faults.executor import Executor
from brokerdrill.faults.lease import LeaseRequest, leased, left_over, take
from brokerdrill.hosts.connection import HostConnection, KernelRefused, connect
from brokerdrill.inventory.targets import Target
from brokerdrill.inventory.topology import Host
from brokerdrill.ledger.events import FILE, EventWriter
from brokerdrill.ledger.journal import Journal, read, unhealed
from tests.unit.safety_host import SafetyHost, until

Scripts = dict[str, str]


def a_change(host: str, world: Path, **scripts: str) -> HostChange:
    """A fault on `host` that is in effect as long as there is the file `world`."""
    given = {
        "effect": f"touch {world}",
        "verify": f"[ -e {world} ]",
        "heal": f"rm -f {world}",
        "verify_heal": f"[ ! -e {world} ]",
        **scripts,
    }
    return HostChange(host=host, target=host, instance=world.name, **given)


class Stage:
    """Two names of this machine, an executor, and a fault whose changes are those of `plan`, or others."""

    def __init__(self, connections: dict[str, HostConnection], executor: Executor, run_dir: Path) -> None:
        self.connections, self.executor, self.run_dir = connections, executor, run_dir
        self.changes: list[HostChange] = []

    def plan(self, host: str, world: Path, **scripts: str) -> None:
        self.changes.append(a_change(host, world, **scripts))

    async def inject(self, ttl_s: float = 60, changes: list[HostChange] | None = None) -> Any:
        made = self.changes if changes is None else changes
        fault = FaultType("test", "instance", "a test", Parameters, lambda *_: made)
        return await self.executor.inject("one", fault, Target("here"), Parameters(), ttl_s, "tag")

    def journal(self) -> list[dict[str, Any]]:
        return read(self.run_dir / "journal.jsonl")

    def rows(self) -> list[dict[str, Any]]:
        """What is in the ledger."""
        return [json.loads(line) for line in (self.run_dir / "events" / FILE).read_text().splitlines()]

    def heals(self) -> list[dict[str, Any]]:
        return [entry for entry in self.journal() if entry["phase"] == "healed"]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SafetyHost]:
    made = SafetyHost(tmp_path / "host")
    monkeypatch.setattr(lease_module, "KERNEL_SOURCE", made.source)
    monkeypatch.setenv("PATH", made.path)
    yield made
    made.close()


def local(name: str) -> Host:
    return Host(name, "127.0.0.1", 22, "root", None, (), {"ansible_connection": "local"})


@pytest.fixture
def on_stage(machine: SafetyHost, tmp_path: Path) -> Callable[[Callable[[Stage], Awaitable[None]]], None]:
    def call(work: Callable[[Stage], Awaitable[None]], silent_s: float = 30) -> None:
        async def main() -> None:
            connections = {name: await connect(local(name)) for name in ("a", "b")}
            run_dir = tmp_path / "run"
            run_dir.mkdir()
            try:
                async with leased(LeaseRequest("run", "inventory", silent_s), connections) as held:
                    journal, events = Journal(run_dir), EventWriter(run_dir, "run", now_ns())
                    executor = Executor(connections, held, journal, events)
                    await work(Stage(connections, executor, run_dir))
                assert os.environ["PATH"] == machine.path
            finally:
                await asyncio.gather(*(one.close() for one in connections.values()))

        asyncio.run(main())

    return call


def test_an_effect_that_is_slower_than_its_siblings_failure_is_healed(on_stage: Any, tmp_path: Path) -> None:
    """One host fails at once; the other one's effect lands after that, and before the heal."""

    async def work(stage: Stage) -> None:
        broken = tmp_path / "broken"
        stage.plan("a", tmp_path / "never", effect="exit 1")
        stage.plan("b", broken, effect=f"sleep 1; touch {broken}")
        with pytest.raises(InfrastructureError, match="apply fails"):
            await stage.inject()
        assert broken.exists(), "the failure is said when all siblings have ended"
        assert [row["kind"] for row in stage.rows()] == ["fault"], "what took effect is in the ledger"
        assert await stage.executor.heal_all() == []
        assert not broken.exists()
        # What failed half-way is healed, too.
        assert {(row["kind"], row["instance"]) for row in stage.rows()[1:]} == {("heal", "broken"), ("heal", "never")}
        assert await left_over(stage.connections.values()) == {}

    on_stage(work)


def test_a_run_that_is_cancelled_while_effects_begin_leaves_nothing(on_stage: Any, tmp_path: Path) -> None:
    delays_s = (0.0, 0.02, 0.1, 0.5)
    # Longer than any of them, so that none of the effects is there before its injection is cancelled.
    effect_s = 2

    async def work(stage: Stage) -> None:
        async def cancelled(delay_s: float) -> None:
            changes = []
            for name in ("a", "b"):
                world = tmp_path / f"broken-{name}-{delay_s}"
                changes.append(a_change(name, world, effect=f"sleep {effect_s}; touch {world}"))
            injecting = asyncio.create_task(stage.inject(changes=changes))
            await asyncio.sleep(delay_s)
            injecting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await injecting

        await asyncio.gather(*map(cancelled, delays_s))
        assert await stage.executor.heal_all() == []
        assert unhealed(stage.journal()) == []
        # An effect that went on by itself would be there by now.
        await asyncio.sleep(effect_s)
        assert [*tmp_path.glob("broken*")] == []
        assert await left_over(stage.connections.values()) == {}

    on_stage(work)


def test_an_order_that_comes_after_the_heal_is_refused_by_the_host(on_stage: Any, tmp_path: Path) -> None:
    async def work(stage: Stage) -> None:
        stage.plan("a", tmp_path / "broken")
        injection = await stage.inject()
        await stage.executor.heal(injection)
        with pytest.raises(
            KernelRefused, match="host a: the effect of fault tag-1 comes too late: it is healed by runner"
        ):
            await stage.executor._effect("tag-1", stage.changes[0])
        assert not (tmp_path / "broken").exists()

    on_stage(work)


def test_a_heal_that_fails_is_a_problem_of_this_run_and_refuses_the_next(
    on_stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brokerdrill.faults.executor.HEAL_DEADLINE_S", 1)

    async def work(stage: Stage) -> None:
        answers = tmp_path / "answers"
        stage.plan(
            "a",
            tmp_path / "broken",
            heal=f"[ -e {answers} ] || {{ echo no answer >&2; exit 1; }}; rm -f {tmp_path}/broken",
        )
        await stage.inject()
        (problem,) = await stage.executor.heal_all()
        assert "tag-1 on a is not healed within 1 s, and its host goes on trying: no answer" in problem
        assert [entry["fault_id"] for entry in unhealed(stage.journal())] == ["tag-1"]
        await stage.executor.lease.give_back()
        with pytest.raises(
            KernelRefused, match=r"a fault of an earlier run is not healed .tag-1 of run run; last try: no answer"
        ):
            await take(LeaseRequest("next", "inventory"), stage.connections)
        answers.touch()
        assert await stage.executor.heal_all() == []

    on_stage(work)


def test_a_heal_of_the_hosts_own_is_in_the_ledger_when_it_was(on_stage: Any, tmp_path: Path) -> None:
    async def work(stage: Stage) -> None:
        stage.plan("a", tmp_path / "broken")
        stage.executor.lease.keep(stage.executor)
        injection = await stage.inject(ttl_s=4)
        while (tmp_path / "broken").exists():
            await asyncio.sleep(0.05)
        gone_ns = now_ns() - stage.executor.base_ns
        while not stage.heals():
            await asyncio.sleep(0.05)
        (heal,) = stage.heals()
        assert heal["by"] == "time-to-live" and heal["at_ns"] <= gone_ns + 1_000_000_000
        await stage.executor.heal(injection)
        assert stage.heals() == [heal]

    on_stage(work, silent_s=12)


def test_what_goes_bit_by_bit_is_broken_from_when_that_began(on_stage: Any, tmp_path: Path) -> None:
    async def work(stage: Stage) -> None:
        for gradual in (False, True):
            began = tmp_path / f"began-{gradual}"
            world = tmp_path / f"broken-{gradual}"
            change = a_change("a", world, effect=f"touch {began}; sleep 1; touch {world}")
            injection = await stage.inject(changes=[replace(change, gradual=gradual)])
            (applied,) = injection.applied
            wall_ns = time.time_ns() - now_ns()
            from_begin_ns = applied.at_ns + wall_ns - began.stat().st_mtime_ns
            assert abs(from_begin_ns - (0 if gradual else 500_000_000)) < 300_000_000
            assert (applied.uncertainty_ns > 400_000_000) is not gradual
            await stage.executor.heal(injection)

    on_stage(work)


def test_what_met_a_fault_is_counted_from_its_effect_to_its_heal(on_stage: Any, tmp_path: Path) -> None:
    async def work(stage: Stage) -> None:
        counter = tmp_path / "counter"
        counter.write_text("bytes 70\npackets 7\n")
        stage.plan("a", tmp_path / "broken", count=f"cat {counter}")
        stage.plan("b", tmp_path / "other", count="echo it cannot be read >&2; exit 1")
        injection = await stage.inject()
        counter.write_text("bytes 130\npackets 12\n")
        await stage.executor.heal(injection)
        rows = stage.rows()
        (met,) = [row for row in rows if row["kind"] == "met"]
        assert (met["name"], met["value"], met["instance"]) == ("test", "one", "broken")
        assert met["detail"] == {"fault_id": "tag-1", "bytes": "60", "packets": "5"}

    on_stage(work)


def test_a_host_that_heard_nothing_says_so(on_stage: Any, tmp_path: Path) -> None:
    async def work(stage: Stage) -> None:
        stage.plan("a", tmp_path / "broken")
        await stage.inject()
        while (tmp_path / "broken").exists():
            await asyncio.sleep(0.05)
        stage.executor.lease.keep(stage.executor)
        while not stage.executor.silenced:
            await asyncio.sleep(0.05)
        assert stage.executor.silenced == "tag-1" and stage.heals()[0]["by"] == "controller silent"

    on_stage(work, silent_s=5)


def test_a_second_controller_has_none_of_the_hosts(on_stage: Any) -> None:
    async def work(stage: Stage) -> None:
        other = LeaseRequest("other", "elsewhere")
        with pytest.raises(KernelRefused, match=r"host [ab]: .* holds it for run run .inventory. since "):
            await take(other, stage.connections)
        await stage.executor.lease.give_back()
        async with leased(other, stage.connections):
            pass

    on_stage(work)


def test_a_lease_that_one_host_refuses_is_given_back_on_all(
    machine: SafetyHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        connections = {name: await connect(local(name)) for name in ("a", "b")}
        asked: list[str] = []
        real = HostConnection.kernel

        async def kernel(self: HostConnection, verb: str, **values: Any) -> Any:
            asked.append(f"{verb} {self.name}")
            if (verb, self.name) == ("take", "b"):
                raise KernelRefused("host b: somebody holds it")
            return await real(self, verb, **values)

        monkeypatch.setattr(HostConnection, "kernel", kernel)
        try:
            with pytest.raises(KernelRefused, match="host b: somebody holds it"):
                await take(LeaseRequest("run", "inventory"), connections)
            assert (await connections["a"].kernel("status"))["lease"] is None
            assert asked[2:] == ["take a", "take b", "give_back a", "give_back b", "status a"]
        finally:
            await asyncio.gather(*(one.close() for one in connections.values()))

    asyncio.run(main())
    assert until(lambda: not machine.kernel()._guarded())
