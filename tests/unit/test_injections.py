"""What the actions of a run hit: each target resolved at its moment, or what an action before it hit."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from brokerdrill.runner.injections import Injections
from brokerdrill.runner.outages import Outages
from brokerdrill.scenario.model import Action
from brokerdrill.scenario.radius import Limits, Radius

from .test_targets import descriptor

BROKERS = [descriptor(f"rabbit{n}", "rabbitmq", features=["cluster"]) for n in (1, 2, 3)]
DIALS = [{"link": "backend", "to": f"rabbit{n}", "address": f"10.0.0.{n}", "port": 5672} for n in (1, 2, 3)]
ROUTERS = [descriptor(f"router{n}", "amqp_router", control="ctl", dials=DIALS) for n in (1, 2)]


class Recorded:
    """An executor that notes what it is to inject, and injects nothing."""

    def __init__(self) -> None:
        self.hit: list[tuple[str, str, list[str]]] = []

    async def inject(self, name: str, fault: Any, target: Any, *_: Any) -> Any:
        self.hit.append((fault.name, target.spec, [item.instance for item in target.instances]))
        return SimpleNamespace(target=target)


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
