"""Which hosts a drill could hit, whatever the live roles turn out to be, and whether that is too far. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brokerdrill.base.errors import BrokerdrillError
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.targets import Scene, Target, resolve, served_by
from brokerdrill.scenario import facts
from brokerdrill.scenario.model import ABOUT_INSTANCES, Action, Heal, Operation, Order, Probe, Scenario, Step


class _Turn(random.Random):
    """Takes its sample from place `turn` on: every member's turn comes."""

    def __init__(self, turn: int) -> None:
        super().__init__(turn)
        self._turn = turn

    def sample(self, population: Any, k: int, **_: Any) -> list[Any]:
        return [population[(self._turn + place) % len(population)] for place in range(k)]


@dataclass(frozen=True)
class Reach:
    """What one step could do: to which hosts, and to how many instances at the most; `targets` in words."""

    step: str
    what: str
    hosts: frozenset[str]
    targets: tuple[str, ...]
    most: int = 0


@dataclass(frozen=True)
class Reached:
    """What a whole scenario could do; `at_once` is the most instances that are hit at the same time."""

    steps: tuple[Reach, ...]
    at_once: int

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset(host for step in self.steps for host in step.hosts)


def _scenes(descriptors: Sequence[Descriptor]) -> Iterator[Scene]:
    """Yield scenes in which each member of each store is active once, and each member of a group has its turn."""
    by_store: dict[str, list[Descriptor]] = {}
    for item in descriptors:
        if item.store:
            by_store.setdefault(item.store, []).append(item)
    for turn in range(max(1, len(descriptors))):
        roles = {
            item.instance: "active" if place == turn % len(members) else "passive"
            for members in by_store.values()
            for place, item in enumerate(members)
        }
        yield Scene(descriptors, roles, _Turn(turn))


def possible(descriptors: Sequence[Descriptor], spec: str) -> list[Target]:
    """Return all that the target's words can come to mean, each once; none where they name nothing that is there."""
    found: dict[str, Target] = {}
    for scene in _scenes(descriptors):
        try:
            target = resolve(scene, spec)
        except BrokerdrillError:  # with these roles nothing fits
            continue
        found.setdefault(target.describe(), target)
    return list(found.values())


def reached(scenario: Scenario, descriptors: Sequence[Descriptor]) -> Reached:
    """Return what `scenario` could do to the hosts of `descriptors`.

    A fault counts until its heal, or to the end; several on one target count once, as long as no step waits for the
    roles to change between them.
    """
    steps: list[Reach] = []
    aims: dict[str, tuple[str, list[Target]]] = {}
    in_effect: dict[str, tuple[str, int, int]] = {}
    changes = most = 0
    for link in scenario.links:
        steps.append(_reach(f"arm {link}", "arm_link", possible(descriptors, link), descriptors))
    for step in scenario.method:
        if isinstance(step, Action):
            spec, targets = step.target, possible(descriptors, step.target) if step.target else []
            if step.of is not None:
                spec, hit = aims[step.of]
                targets = [served_by(descriptors, target, step.aim) for target in hit]
            aims[step.name] = spec, targets
            reach = _reach(step.name, _words(step), targets, descriptors)
            steps.append(reach)
            in_effect[step.name] = (spec, changes, reach.most)
        elif isinstance(step, Heal):
            in_effect.pop(step.of, None)
        elif isinstance(step, Operation):
            brokers = [item for members in facts.stores(descriptors).values() for item in members]
            hosts = frozenset(item.host for item in brokers)
            steps.append(Reach(step.name, f"playbook {step.playbook}", hosts, tuple(sorted(hosts)), 1))
        elif isinstance(step, Order):
            steps.append(_reach(step.name, f"order {step.words}", possible(descriptors, step.target), descriptors))
        elif isinstance(step, Probe) and step.until in ABOUT_INSTANCES:
            changes += 1
        now = sum(count for _, _, count in set(in_effect.values()))
        most = max(most, now + isinstance(step, Operation))
    return Reached(tuple(steps), most)


def _words(step: Step) -> str:
    assert isinstance(step, Action)
    given = "".join(f", {name} {value}" for name, value in step.params.items())
    return f"{step.fault}{given}, at most {step.ttl:g} s"


def _reach(name: str, what: str, targets: Sequence[Target], descriptors: Sequence[Descriptor]) -> Reach:
    hosts = {item.host for target in targets for item in target.instances}
    hosts |= {link.dialler for target in targets for link in target.links}
    most = max(map(_count, targets), default=0)
    return Reach(name, what, frozenset(hosts), tuple(target.describe() for target in targets), most)


def _count(target: Target) -> int:
    """Return how many instances a target takes away: with links, the fewer of their two ends."""
    diallers = {link.dialler for link in target.links}
    return len(target.instances) + min(len(diallers), len({link.instance for link in target.links}))


def too_far(found: Reached, groups: Sequence[str], at_once: int, groups_of: Mapping[str, Sequence[str]]) -> list[str]:
    """Return in what the scenario goes further than `groups` of hosts (none: all may be hit) and `at_once` allow.

    Hosts of the load are where links are bent; they serve nobody and are always allowed.
    """
    problems = [f"what {step.step} would hit is not known beforehand" for step in found.steps if not step.targets]
    allowed = {*groups, "load"}
    if groups:
        outside = sorted(host for host in found.hosts if not allowed & set(groups_of.get(host, ())))
        if outside:
            problems.append(f"it could hit {', '.join(outside)}, outside {', '.join(groups)}")
    if found.at_once > at_once:
        problems.append(f"it could hit {found.at_once} at once, and {at_once} is allowed")
    return problems
