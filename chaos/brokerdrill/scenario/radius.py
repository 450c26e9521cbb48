"""How far a drill could go, whatever the live roles turn out to be, and whether that is too far. Pure.

A drill is followed step by step: what a fault took out of service counts until it was healed and seen to serve again,
or to the end of the drill.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

from pydantic import Field, ValidationError

from brokerdrill.base.documents import Strict
from brokerdrill.base.errors import BrokerdrillError, UsageError
from brokerdrill.faults.registry import fault_type
from brokerdrill.inventory.allowance import Allowance
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.operations import operation
from brokerdrill.inventory.targets import Scene, Target, is_drawn, resolve, served_by, with_neighbours
from brokerdrill.inventory.topology import Topology
from brokerdrill.products.registry import PRODUCTS
from brokerdrill.scenario.model import ABOUT_LOAD, Action, Consume, Heal, Operation, Order, Probe, Scenario, Tamper
from brokerdrill.scenario.outages import Loss, Losses, most, service_names
from brokerdrill.scenario.rounds import in_round

VARIABLE = "drill_radius"
# More than there are.
UNLIMITED = 1000
# Where links begin. These hosts serve nobody, and are always allowed.
LOAD = "load"


class Radius(Strict):
    """How far drills may go; a drill that could go further is not held, and no fault is injected that does."""

    groups: list[str] = Field([], description="the inventory's groups that may be hit; without any, all")
    at_once: int = Field(
        1, ge=1, description="brokers, servers or databases that may be out of service at the same time"
    )


@dataclass(frozen=True)
class Limits:
    """All that a drill must stay within: each of `radii`, on hosts of these groups."""

    radii: tuple[Radius, ...]
    groups_of: Mapping[str, Sequence[str]]

    @property
    def at_once(self) -> int:
        """How many services may be out of service at the same time."""
        return min(radius.at_once for radius in self.radii)

    @property
    def unlimited(self) -> bool:
        """Whether nothing is too far."""
        return all(radius.at_once >= UNLIMITED and not radius.groups for radius in self.radii)

    def outside(self, hosts: Iterable[str]) -> str | None:
        """Return in words which of `hosts` may not be hit; None: all may."""
        for radius in self.radii:
            allowed = {*radius.groups, LOAD}
            out = sorted(host for host in hosts if not allowed & set(self.groups_of.get(host, ())))
            if radius.groups and out:
                return f"{', '.join(out)}, outside {', '.join(radius.groups)}"
        return None


def limits(topology: Topology, given: Radius | None = None) -> Limits:
    """Return what drills on `topology` must stay within: what the inventory's hosts say in `drill_radius`, and what is
    `given` for this one; where neither says anything, one service at a time. Raises UsageError for a `drill_radius`
    that is none."""
    said: list[Radius] = []
    for host in topology.hosts:
        if (value := host.vars.get(VARIABLE)) is not None:
            try:
                one = Radius.model_validate(value)
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(map(str, (VARIABLE, *first["loc"])))
                raise UsageError(f"inventory {topology.name}: {where} of {host.name}: {first['msg']}") from None
            said += [one] if one not in said else []
    radii = (*said, given) if given else tuple(said)
    if not said and (given is None or given.at_once == UNLIMITED):
        radii = (*radii, Radius())
    return Limits(radii, {host.name: host.groups for host in topology.hosts})


class _Scripted(random.Random):
    """Takes the samples that a script says: place by place, which of all possible ones."""

    def __init__(self, script: Sequence[int]) -> None:
        super().__init__(0)
        self._script = script
        self.sizes: list[int] = []

    def sample(self, population: Any, k: int, **_: Any) -> list[Any]:
        options = list(combinations(population, k))
        place = len(self.sizes)
        self.sizes.append(len(options))
        return list(options[self._script[place] if place < len(self._script) else 0])


def _next(script: Sequence[int], sizes: Sequence[int]) -> list[int] | None:
    """Return the script after `script`, of which the samples had these sizes; None: it was the last one."""
    taken = [script[place] if place < len(script) else 0 for place in range(len(sizes))]
    for place in reversed(range(len(sizes))):
        if taken[place] + 1 < sizes[place]:
            return [*taken[:place], taken[place] + 1]
    return None


def _roles(descriptors: Sequence[Descriptor]) -> Iterator[dict[str, str]]:
    """Yield roles in which each two stores have each two of their members active: no target is about more of them."""
    by_store: dict[str, list[str]] = {}
    for item in descriptors:
        if item.store:
            by_store.setdefault(item.store, []).append(item.instance)
    several = [store for store, members in by_store.items() if len(members) > 1]
    pairs: list[tuple[str, ...]] = [*combinations(several, 2)]
    for pair in pairs or [tuple(several)]:
        for places in product(*(range(len(by_store[store])) for store in pair)):
            active = dict(zip(pair, places, strict=True))
            yield {
                name: "active" if place == active.get(store, 0) else "passive"
                for store, members in by_store.items()
                for place, name in enumerate(members)
            }


def possible(descriptors: Sequence[Descriptor], spec: str) -> list[Target]:
    """Return all that the target's words can come to mean, each once; none where they name nothing that is there."""
    found: dict[str, Target] = {}
    for roles in _roles(descriptors):
        script: list[int] | None = []
        while script is not None:
            rng = _Scripted(script)
            try:
                target = resolve(Scene(descriptors, roles, rng), spec)
            except BrokerdrillError:  # with these roles nothing fits
                pass
            else:
                found.setdefault(target.describe(), target)
            script = _next(script, rng.sizes)
    return list(found.values())


def touched(target: Target) -> frozenset[str]:
    """Return the hosts that a fault on `target` changes: those of its instances, and those that dial its links."""
    return frozenset({item.host for item in target.instances} | {link.dialler for link in target.links})


@dataclass(frozen=True)
class Reach:
    """What one step could do: to which hosts; `targets` in words, none: nobody knows; to which instances; and to which
    links, each with the host that dials it."""

    step: str
    what: str
    hosts: frozenset[str]
    targets: tuple[str, ...]
    instances: frozenset[str] = frozenset()
    links: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Reached:
    """What a whole scenario could do; `at_once` is the most services that are out of service at the same time."""

    steps: tuple[Reach, ...]
    at_once: int

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset(host for step in self.steps for host in step.hosts)

    def allowances(self, descriptors: Sequence[Descriptor], at_once: int) -> dict[str, Allowance]:
        """Return by host what this scenario's faults may hit there, with `at_once` services out of service at most; no
        other host may be hit at all."""
        instances = {name for step in self.steps for name in step.instances}
        links = {link for step in self.steps for link in step.links}
        return {
            host: Allowance(
                host,
                frozenset(item.instance for item in descriptors if item.host == host and item.instance in instances),
                frozenset(name for dialler, name in links if dialler == host),
                at_once,
            )
            for host in sorted(self.hosts)
        }


@dataclass(frozen=True)
class _StepOut:
    """What the step `step` took out of service; `over`: what did it is over, and none has been seen to serve again;
    `healed`: that it is over was seen on its host."""

    step: str
    loss: Loss
    over: bool = False
    healed: bool = False


class _Story:
    """Follows a scenario's steps: what is out of service, and what each could hit."""

    def __init__(self, descriptors: Sequence[Descriptor], groups_of: Mapping[str, Sequence[str]]) -> None:
        self._descriptors = descriptors
        self._groups_of = groups_of
        self._losses = Losses(descriptors)
        self._watched = {
            self._losses.service(item.instance) for item in descriptors if item.product in PRODUCTS and item.management
        }
        self._aims: dict[str, tuple[str, list[Target]]] = {}
        self._possible: dict[str, list[Target]] = {}
        # While nothing happens that could change the roles, the same words mean the same.
        self._draws: dict[str, str] = {}
        self._out: list[_StepOut] = []
        self.reaches: dict[str, Reach] = {}
        self.most = 0

    def arm(self, link: str) -> None:
        """Note where a link is armed: its connections are led through a proxy, and nothing is out of service."""
        self._reach(f"arm {link}", "arm_link", self.possible(link))

    def possible(self, spec: str) -> list[Target]:
        """As `possible`, looked for once."""
        if spec not in self._possible:
            self._possible[spec] = possible(self._descriptors, spec)
        return self._possible[spec]

    def take(self, steps: Iterable[Any]) -> None:
        """Follow the steps of a round; nothing that was injected before is in effect any more."""
        for name in {one.step for one in self._out} & set(self._aims):
            self._heal(name)
        self._draws.clear()
        for step in steps:
            self._step(step)
            if not self._roles_stay(step):
                self._draws.clear()

    def _step(self, step: Any) -> None:
        if isinstance(step, Action):
            self._action(step)
        elif isinstance(step, Heal):
            self._heal(step.of)
        elif isinstance(step, Operation):
            self._operation(step)
        elif isinstance(step, Order):
            targets = self.possible(step.target)
            self._reach(step.name, f"order {step.words}", targets)
            # An order may do anything to the instance that is given it.
            self._lose(_StepOut(step.name, self._loss(step.name, targets), over=True))
        elif isinstance(step, Probe) and step.required:
            self._seen(step)

    def _roles_stay(self, step: Any) -> bool:
        """Whether nothing in `step` changes who is active: it waits for the load, or bends the load's own links."""
        if not isinstance(step, Action):
            return isinstance(step, (Consume, Tamper)) or (isinstance(step, Probe) and step.until in ABOUT_LOAD)
        clients = {item.host for item in self._descriptors if item.product == LOAD}
        return all(target.links and touched(target) <= clients for target in self._aims[step.name][1])

    def _action(self, step: Action) -> None:
        if step.of is None:
            targets = self.possible(step.target)
            draw = step.name if is_drawn(step.target) else self._draws.setdefault(step.target, step.name)
        else:
            draw, hit = self._aims[step.of]
            targets = [served_by(self._descriptors, target, step.aim) for target in hit]
        fault = fault_type(step.fault)
        if fault.whole_host:
            targets = [with_neighbours(self._descriptors, target) for target in targets]
        self._aims[step.name] = draw, targets
        given = "".join(f", {name} {value}" for name, value in step.params.items())
        self._reach(step.name, f"{step.fault}{given}, at most {step.ttl:g} s", targets)
        passes = fault.passes(fault.complete(step.params))
        self._lose(_StepOut(step.name, self._loss(draw, targets), over=passes))

    def _operation(self, step: Operation) -> None:
        what = operation(step.playbook)
        reached, losses = self._losses.of_operation(step.name, what)
        hosts = {item.host for item in reached}
        if what.everywhere:
            hosts |= set(self._groups_of)
        names = tuple(sorted(hosts)) or ("no host",)
        reach = Reach(step.name, f"playbook {step.playbook}", frozenset(hosts), names)
        self.reaches.setdefault(step.name, reach)
        for loss in losses:
            self._lose(_StepOut(step.name, loss, over=True, healed=True))
        if what.verified:
            self._all_serve()

    def _loss(self, draw: str, targets: Sequence[Target]) -> Loss:
        return Loss(draw, tuple(self._losses.of(target) for target in targets))

    def _lose(self, one: _StepOut) -> None:
        self._out.append(one)
        self.most = max(self.most, most(each.loss for each in self._out))

    def _heal(self, of: str) -> None:
        """A heal is verified on its host; what has live roles counts until these are seen, too."""
        self._out = [
            _StepOut(one.step, one.loss, over=True, healed=True) if one.step == of else one
            for one in self._out
            if one.step != of or one.loss.services & self._watched
        ]

    def _seen(self, step: Probe) -> None:
        if step.until == "in_sync":
            self._all_serve()
        elif step.until == "failed_back":
            self._out = [one for one in self._out if not (one.step == step.of and one.over)]

    def _all_serve(self) -> None:
        """All whose roles are known were seen to serve: what is over is out of service no more."""
        self._out = [one for one in self._out if not (one.over and (one.healed or one.loss.services <= self._watched))]

    def _reach(self, name: str, what: str, targets: Sequence[Target]) -> None:
        self.reaches.setdefault(
            name,
            Reach(
                name,
                what,
                frozenset(host for target in targets for host in touched(target)),
                tuple(target.describe() for target in targets),
                frozenset(item.instance for target in targets for item in target.instances),
                frozenset((link.dialler, link.name) for target in targets for link in target.links),
            ),
        )


def reached(
    scenario: Scenario, descriptors: Sequence[Descriptor], groups_of: Mapping[str, Sequence[str]] | None = None
) -> Reached:
    """Return what `scenario`, with nothing left open, could do to the instances of `descriptors` and the hosts of
    `groups_of`: never less than a run of it does."""
    story = _Story(descriptors, groups_of or {})
    for link in scenario.links:
        story.arm(link)
    # Each round may leave one service more behind than the one before, until all are.
    most_rounds = len(descriptors) + 1
    rounds = most_rounds if scenario.lasting is not None else min(scenario.rounds or 1, most_rounds)
    for number in range(1, rounds + 1):
        story.take(in_round(scenario.method, number) if scenario.repeated else scenario.method)
    steps: dict[str, Reach] = {}
    for name, reach in story.reaches.items():
        steps.setdefault(_plain(name), replace(reach, step=_plain(name)))
    return Reached(tuple(steps.values()), story.most)


def _plain(name: str) -> str:
    """The name of a step, whichever round takes it."""
    return name.rpartition(" (round ")[0] or name


def redeployment(descriptors: Sequence[Descriptor], groups_of: Mapping[str, Sequence[str]]) -> Reached:
    """Return what it does to take every instance away and deploy it anew."""
    hosts = frozenset(groups_of)
    step = Reach("the deployment", "playbooks teardown and site", hosts, tuple(sorted(hosts)))
    return Reached((step,), len(set(service_names(descriptors).values())))


def too_far(found: Reached, allowed: Limits) -> list[str]:
    """Return in what the scenario goes further than it may, a sentence each."""
    problems = [f"what {step.step} would hit is not known beforehand" for step in found.steps if not step.targets]
    if outside := allowed.outside(found.hosts):
        problems.append(f"it could hit {outside}")
    if found.at_once > allowed.at_once:
        problems.append(f"it could hit {found.at_once} at once, and {allowed.at_once} is allowed")
    return problems
