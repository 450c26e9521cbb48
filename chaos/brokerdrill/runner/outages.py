"""The radius while a run lasts: what is out of service by now, and what may not be taken out of it besides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.operations import OutOfService, operation
from brokerdrill.inventory.targets import Target
from brokerdrill.scenario.model import Operation
from brokerdrill.scenario.outages import Loss, Losses, most
from brokerdrill.scenario.radius import Limits, touched

SERVING = ("active", "passive")
BAD = ("down", "failed")


class Roles(Protocol):
    """The live roles, as a run's system knows them."""

    @property
    def roles(self) -> Mapping[str, str]:
        """The newest known role of each instance that is watched."""
        ...

    def roles_since(self, since_ns: int) -> Mapping[str, str]:
        """The role of each instance that answered what it was asked at `since_ns` or later."""
        ...


@dataclass
class _TakenOut:
    """What something took out of service; `over_ns`: when it was over (controller's clock), None: it is in effect;
    `healed`: that was seen on its host."""

    loss: Loss
    over_ns: int | None = None
    healed: bool = False


class Outages:
    """What a run has taken out of service. All that it is about to break is asked for here first, with what it really
    hits; what was hit counts until it is over and its live roles say that it serves again."""

    def __init__(self, limits: Limits, descriptors: Sequence[Descriptor], system: Roles) -> None:
        self._limits = limits
        self._losses = Losses(descriptors)
        self._system = system
        self._hosts = sorted({item.host for item in descriptors} | set(limits.groups_of))
        self._instances: dict[str, list[str]] = {}
        for item in descriptors:
            self._instances.setdefault(self._losses.service(item.instance), []).append(item.instance)
        self._out: dict[str, _TakenOut] = {}

    def admit(self, step: str, target: Target) -> None:
        """Take note that `step` is about to break `target`. Raises InfrastructureError where it may not: nothing is
        broken then."""
        self._within(step, touched(target), [Loss(step, (self._losses.of(target),))])

    def admit_link(self, step: str, target: Target) -> None:
        """As `admit`, of what is changed on hosts and takes nothing out of service."""
        self._within(step, touched(target), [])

    def admit_operation(self, step: Operation) -> list[str]:
        """As `admit`, of a playbook; return the instances that it works on."""
        what = operation(step.playbook)
        reached, losses = self._losses.of_operation(step.name, what)
        if what.out is OutOfService.ONE_A_STORE:
            losses = [self._of_active(loss) for loss in losses]
        self._within(step.name, self._hosts if what.everywhere else {item.host for item in reached}, losses)
        return sorted(item.instance for item in reached)

    def over(self, step: str, *, healed: bool) -> None:
        """Take note that what `step` did is over, seen on its host (`healed`) or by its nature."""
        for name, one in self._out.items():
            if name.split("\0")[0] == step:
                one.over_ns, one.healed = one.over_ns or now_ns(), one.healed or healed

    def services(self) -> list[str]:
        """Return what is out of service by now, or may be."""
        return sorted({name for loss in self._losses_now() for name in loss.services})

    def _within(self, step: str, hosts: Iterable[str], losses: Sequence[Loss]) -> None:
        if outside := self._limits.outside(hosts):
            raise InfrastructureError(f"{step} is beyond the radius, and was not begun: it would hit {outside}")
        before = self._losses_now()
        count, allowed = most([*before, *losses]), self._limits.at_once
        if losses and count > allowed:
            names = sorted({name for loss in [*before, *losses] for name in loss.services})
            raise InfrastructureError(
                f"{step} is beyond the radius, and was not begun: of {', '.join(names)} it would have {count} out of "
                f"service at once, and {allowed} is allowed"
            )
        for loss in losses:
            self._out[f"{step}\0{loss.draw}"] = _TakenOut(loss)

    def _of_active(self, loss: Loss) -> Loss:
        """Return a loss of those that are active now, where it is known who is."""
        active = {self._losses.service(name) for name, role in self._system.roles.items() if role == "active"}
        return Loss(loss.draw, tuple(one for one in loss.outcomes if one[0] <= active) or loss.outcomes)

    def _losses_now(self) -> list[Loss]:
        """What is out of service by now: what is in effect, what is over and does not serve again yet, and what is down
        though nothing has hit it."""
        left = {name: (one, self._left(one)) for name, one in self._out.items()}
        self._out = {name: one for name, (one, loss) in left.items() if loss.services}
        down = {self._losses.service(name) for name, role in self._system.roles.items() if role in BAD}
        return [
            *(loss for _, loss in left.values() if loss.services),
            *(Loss(f"\0{name}", ((frozenset({name}),),)) for name in sorted(down)),
        ]

    def _left(self, one: _TakenOut) -> Loss:
        """Return what of a loss does not serve again."""
        if one.over_ns is None:
            return one.loss
        roles = self._system.roles_since(one.over_ns)
        back = {name for name in one.loss.services if self._serves(name, roles, one.healed)}
        outcomes = tuple(tuple(each - back for each in outcome) for outcome in one.loss.outcomes)
        return Loss(one.loss.draw, outcomes)

    def _serves(self, service: str, roles: Mapping[str, str], healed: bool) -> bool:
        """Whether a service that was hit serves by `roles`; of one whose role nobody knows its heal is all that can be
        seen."""
        watched = [name for name in self._instances.get(service, ()) if name in self._system.roles]
        return all(roles.get(name) in SERVING for name in watched) if watched else healed
