"""What the actions of a run hit: each target resolved at its moment, or what an action before it hit."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.runner.injections import Injections
from brokerdrill.runner.outages import Outages
from brokerdrill.scenario.model import Action
from brokerdrill.scenario.radius import Limits, Radius
from tests.unit.descriptors import instance
from tests.unit.inventory.test_targets import descriptor

BROKERS = [descriptor(f"rabbit{n}", "rabbitmq", features=["cluster"]) for n in (1, 2, 3)]
DIALS = [{"link": "backend", "to": f"rabbit{n}", "address": f"10.0.0.{n}", "port": 5672} for n in (1, 2, 3)]
ROUTERS = [descriptor(f"router{n}", "amqp_router", control="ctl", dials=DIALS) for n in (1, 2)]


class Recorded:
    """An executor that notes what it is to inject, and injects nothing."""

    def __init__(self) -> None:
        self.hit: list[tuple[str, str, list[str]]] = []
        self.killed: dict[str, list[str]] = {}

    async def inject(self, name: str, fault: Any, target: Any, *_: Any) -> Any:
        self.hit.append((fault.name, target.spec, [item.instance for item in target.instances]))
        return SimpleNamespace(target=target, fault=fault)

    async def heal(self, injection: Any) -> None:
        self.hit.append(("heal", injection.target.spec, []))

    def tell_killed(self, injection: Any, clients: Any) -> None:
        self.killed = clients


def restart_of(at_once: int, **others: Any) -> list[tuple[str, str, list[str]]]:
    """Restart the host of rabbit1, where `others` (name → product) run, too; return what was hit."""
    executor: Any = Recorded()
    every = [*BROKERS, *(instance(product, name, host="rabbit1") for name, product in others.items())]
    system: Any = SimpleNamespace(roles={}, roles_since=lambda _: {}, instances={})
    progress: Any = SimpleNamespace(step=lambda _: None)
    outages = Outages(Limits((Radius(at_once=at_once),), {}), every, system)
    injections = Injections(
        executor, system, cast(Any, SimpleNamespace(reached=dict)), every, outages, 1, "t", progress
    )
    step = Action(type="action", name="restart", fault="restart_host", target="rabbit1")
    asyncio.run(injections.inject(step))
    return executor.hit  # type: ignore[no-any-return]


def test_a_host_that_restarts_counts_with_all_that_runs_on_it() -> None:
    with pytest.raises(InfrastructureError, match=r"beyond the radius.*of rabbit1, zk1 it would have 2 out of service"):
        restart_of(1, zk1="zookeeper")
    assert restart_of(2, zk1="zookeeper") == [("restart_host", "rabbit1", ["rabbit1", "zk1"])]
    assert restart_of(1, l1="load") == [("restart_host", "rabbit1", ["rabbit1"])]


@pytest.mark.parametrize("seed", range(6))
def test_an_action_hits_what_another_one_hit(seed: int) -> None:
    executor: Any = Recorded()
    system: Any = SimpleNamespace(roles={}, roles_since=lambda _: {})
    load: Any = SimpleNamespace(reached=dict)
    progress: Any = SimpleNamespace(step=lambda _: None)
    every = [*BROKERS, *ROUTERS]
    outages = Outages(Limits((Radius(at_once=2),), {}), every, system)
    injections = Injections(executor, system, load, every, outages, seed, "t", progress)
    drained: list[str] = []

    async def story() -> None:
        drain = Action(type="action", name="drain", fault="drain", target="link amqp_router→one of cluster")
        await injections.inject(drain)
        injected = injections.injected("drain")
        assert injected is not None
        drained.extend({link.instance for link in injected.injection.target.links})
        for name in ("stop", "kill"):
            await injections.inject(
                Action(type="action", name=name, fault=name, of="drain" if name == "stop" else "stop")
            )

    asyncio.run(story())
    assert len(drained) == 1
    assert executor.hit[1:] == [("stop", "what drain hit", drained), ("kill", "what stop hit", drained)]


class MortalLoad:
    """A load of which a fault kills two clients."""

    def __init__(self) -> None:
        self.replaced = 0

    @contextlib.asynccontextmanager
    async def killed(self, host: str) -> AsyncIterator[list[str]]:
        clients: list[str] = []
        yield clients
        clients += [f"producer-0 of {host}", f"consumer-0 of {host}"]

    async def replace_killed(self) -> None:
        self.replaced += 1

    def reached(self) -> dict[str, int]:
        return {}


def test_the_clients_that_a_fault_killed_are_told_and_replaced_at_its_heal() -> None:
    executor: Any = Recorded()
    load: Any = MortalLoad()
    every = [*BROKERS, instance("load", "load1", host="load-host")]
    system: Any = SimpleNamespace(roles={}, roles_since=lambda _: {}, instances={})
    progress: Any = SimpleNamespace(step=lambda _: None)
    outages = Outages(Limits((Radius(at_once=2),), {}), every, system)
    injections = Injections(executor, system, load, every, outages, 1, "t", progress)

    async def drill() -> None:
        await injections.inject(Action(type="action", name="restart", fault="kill", target="rabbit1"))
        await injections.heal("restart")
        assert (executor.killed, load.replaced) == ({}, 0)
        await injections.inject(Action(type="action", name="kill", fault="client_killed", target="one of load"))
        await injections.heal("kill")

    asyncio.run(drill())
    assert executor.killed == {"load-host": ["producer-0 of load-host", "consumer-0 of load-host"]}
    assert load.replaced == 1
    assert [hit[0] for hit in executor.hit] == ["kill", "heal", "client_killed", "heal"]
