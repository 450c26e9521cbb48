"""The faults of a run as its scenario asks for them: each target resolved at its moment, by the run's seed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.base.progress import Progress
from brokerdrill.faults import client
from brokerdrill.faults.executor import Executor, Injection
from brokerdrill.faults.link import ARM
from brokerdrill.faults.registry import fault_type
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.targets import Scene, Target, resolve, served_by, with_neighbours
from brokerdrill.runner.load.control import LoadControl
from brokerdrill.runner.outages import Outages
from brokerdrill.runner.system import System
from brokerdrill.scenario.model import Action, Scenario
from brokerdrill.scenario.radius import touched

# An armed link outlives the longest run by this margin at most.
ARM_TTL_MARGIN_S = 120


@dataclass(frozen=True)
class Injected:
    """A fault that an action injected, and each instance's role just before."""

    injection: Injection
    roles: Mapping[str, str]


def arm_ttl_s(scenario: Scenario) -> float:
    """The time-to-live of an armed link in s: as long as the run may take, and a margin."""
    return scenario.longest_s() + scenario.abort.drain + scenario.steady_state.timeout + ARM_TTL_MARGIN_S


class Injections:
    """What the run injects, by the names of its actions, within the radius. `tag` distinguishes its faults on the
    hosts from other runs'."""

    def __init__(
        self,
        executor: Executor,
        system: System,
        load: LoadControl,
        descriptors: Sequence[Descriptor],
        outages: Outages,
        seed: int,
        tag: str,
        progress: Progress,
    ) -> None:
        self._executor = executor
        self._system = system
        self._load = load
        self._descriptors = descriptors
        self.outages = outages
        self._rng = random.Random(seed)
        self._tag = tag
        self._progress = progress
        self._injected: dict[str, Injected] = {}

    async def arm(self, links: Sequence[str], ttl_s: float) -> None:
        """Arm `links`, so that faults can hit them. Raises InfrastructureError when one is not there, or outside the
        radius."""
        for index, spec in enumerate(links, 1):
            target = self.resolve(spec)
            self.outages.admit_link(f"arm {spec}", target)
            self._progress.step(f"arm {target.describe()}")
            await self._executor.inject(f"arm-{index}", ARM, target, ARM.complete({}), ttl_s, self._tag)

    async def inject(self, step: Action) -> None:
        """Inject the fault of `step`. Raises InfrastructureError when its target is not there or beyond the radius, or
        it takes no effect; Unmet when no client of the load has died of one that kills them."""
        target, fault = self._target(step), fault_type(step.fault)
        if fault.whole_host:
            self._refuse_others(step.name, target)
            target = with_neighbours(self._descriptors, target)
        self.outages.admit(step.name, target)
        self._progress.step(f"inject {step.name}: {step.fault} {target.describe()}")
        roles = dict(self._system.roles)
        params = fault.complete(step.params)
        killed: dict[str, list[str]] = {}
        async with contextlib.AsyncExitStack() as meanwhile:
            if fault.name == client.NAME:
                for host in sorted(touched(target)):
                    killed[host] = await meanwhile.enter_async_context(self._load.killed(host))
            injection = await self._executor.inject(step.name, fault, target, params, step.ttl, self._tag)
        if killed:
            self._executor.tell_killed(injection, killed)
        self._injected[step.name] = Injected(injection, roles)
        if fault.passes(params):
            self.outages.over(step.name, healed=False)

    async def heal(self, of: str) -> None:
        """Undo the fault of the action `of`. Raises InfrastructureError when it cannot be undone, and Unmet when the
        clients that it killed are not there again in time."""
        self._progress.step(f"heal {of}")
        healed = self._injected[of].injection
        await self._executor.heal(healed)
        if healed.fault.name == client.NAME:
            await self._load.replace_killed()
        self.outages.over(of, healed=True)

    async def heal_left(self) -> None:
        """Undo what actions injected and nothing has healed yet. Raises as `heal` does."""
        for name, item in self._injected.items():
            await self._executor.heal(item.injection)
            self.outages.over(name, healed=True)
        if any(item.injection.fault.name == client.NAME for item in self._injected.values()):
            await self._load.replace_killed()

    def meddled(self) -> None:
        """Take note that a step is about to act on instances by itself: faults of theirs may end by that."""
        self._executor.meddled()

    def injected(self, of: str | None) -> Injected | None:
        """What the action `of` injected; None where there is no such action."""
        return self._injected.get(of or "")

    def hit(self) -> list[Descriptor]:
        """The instances that faults hit so far."""
        return [one for item in self._injected.values() for one in item.injection.target.instances]

    def _target(self, step: Action) -> Target:
        if step.of is None:
            return self.resolve(step.target)
        return served_by(self._descriptors, self._injected[step.of].injection.target, step.aim)

    def _refuse_others(self, name: str, target: Target) -> None:
        """Raise InfrastructureError where a broker that is not meant runs on a host of `target`: a drill's words say
        which ones it hits."""
        hosts, hit = {item.host for item in target.instances}, {item.instance for item in target.instances}
        others = [
            one for one, item in self._system.instances.items() if item.descriptor.host in hosts and one not in hit
        ]
        if others:
            raise InfrastructureError(
                f"{name}: {', '.join(sorted(others))} would be hit, too, which the target does not say"
            )

    def resolve(self, spec: str) -> Target:
        """Return what `spec` means at this moment. Raises as `targets.resolve` does."""
        return resolve(Scene(self._descriptors, self._system.roles, self._rng, self._load.reached()), spec)
