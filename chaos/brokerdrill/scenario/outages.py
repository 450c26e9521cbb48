"""Which services a fault may take out of service, and how many several faults may at the same time. Pure.

A service is what runs as one: the instances of one unit on one host go down together, and count once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.operations import OutOfService, PlaybookStep
from brokerdrill.inventory.targets import Target

Services = frozenset[str]
# Beyond so many ends of links all of them count: to find the fewest would take too long.
_MOST_ENDS = 12


@dataclass(frozen=True)
class Loss:
    """What one fault may take out of service: what its target came to is one of `outcomes`, and each of these is one of
    several alternatives. Faults of one `draw` have the same target, and come to the same place of their outcomes."""

    draw: str
    outcomes: tuple[tuple[Services, ...], ...]

    @property
    def services(self) -> Services:
        """All that it could take out of service."""
        return frozenset(name for outcome in self.outcomes for one in outcome for name in one)


def service_names(descriptors: Iterable[Descriptor]) -> dict[str, str]:
    """Return the service of each instance: the first instance, by name, of the same unit on the same host."""
    found: dict[tuple[str, str], str] = {}
    instances = sorted(descriptors, key=lambda item: item.instance)
    for item in instances:
        found.setdefault((item.host, item.unit or item.instance), item.instance)
    return {item.instance: found[item.host, item.unit or item.instance] for item in instances}


class Losses:
    """What targets and playbooks take out of service among the instances of `descriptors`."""

    def __init__(self, descriptors: Sequence[Descriptor]) -> None:
        self._descriptors = descriptors
        self._by_name = {item.instance: item for item in descriptors}
        self._service = service_names(descriptors)

    def service(self, instance: str) -> str:
        """Return the service of an instance."""
        return self._service.get(instance, instance)

    def of(self, target: Target) -> tuple[Services, ...]:
        """Return the alternatives of what a fault on `target` takes out of service: all of its instances; of its links
        the end that depends on them, or, between equals, the fewest that have an end of each."""
        hit = {self.service(item.instance) for item in target.instances}
        either: set[Services] = set()
        for link in target.links:
            ends = self._ends(link.caller, link.instance)
            if len(ends) == 1 or self._of_two(link.caller, link.instance):
                hit |= ends
            else:
                either.add(ends)
        return tuple(frozenset(hit | more) for more in _fewest([ends for ends in either if not ends & hit]))

    def _ends(self, caller: str, server: str) -> Services:
        """Return the ends of a link that may go out of service with it."""
        one, other = self._by_name.get(caller), self._by_name.get(server)
        if one is None or one.store is None:
            # A client, or who hands clients on: it is the server that cannot be had.
            return frozenset({self.service(server)})
        if other is None or one.product != other.product:
            return frozenset({self.service(caller)})
        return frozenset({self.service(caller), self.service(server)})

    def _of_two(self, caller: str, server: str) -> bool:
        """Whether two equals have nobody else: apart from each other, none of them may serve."""
        one, other = self._by_name[caller], self._by_name[server]
        alike = [item for item in self._descriptors if item.product == one.product]
        if one.store == other.store:
            alike = [item for item in alike if item.store == one.store]
        return len(alike) <= 2

    def of_operation(self, name: str, operation: PlaybookStep) -> tuple[list[Descriptor], list[Loss]]:
        """Return (the instances that a playbook changes, what it takes out of service while it works)."""
        reached = [item for item in self._descriptors if operation.reaches(item.product)]
        services = sorted({self.service(item.instance) for item in reached})
        if not services:
            return reached, []
        if operation.out is OutOfService.ALL:
            return reached, [Loss(name, ((frozenset(services),),))]
        if operation.out is OutOfService.ONE:
            return reached, [Loss(name, tuple((frozenset({one}),) for one in services))]
        stores: dict[str, set[str]] = defaultdict(set)
        for item in reached:
            stores[item.store or item.instance].add(self.service(item.instance))
        return reached, [
            Loss(f"{name} {store}", tuple((frozenset({one}),) for one in sorted(members)))
            for store, members in sorted(stores.items())
        ]


def _fewest(edges: Sequence[Services]) -> list[Services]:
    """Return the smallest sets that have an end of each edge: the empty one where there is no edge."""
    ends = sorted({end for edge in edges for end in edge})
    if len(ends) > _MOST_ENDS:
        return [frozenset(ends)]
    for size in range(len(ends) + 1):
        found = [one for one in map(frozenset, combinations(ends, size)) if all(edge & one for edge in edges)]
        if found:
            return found
    return []


def most(losses: Iterable[Loss]) -> int:
    """Return how many services `losses` take out of service together at the most: never too few."""
    by_draw: dict[str, list[Loss]] = defaultdict(list)
    for loss in losses:
        by_draw[loss.draw].append(loss)
    outcomes = [[*zip(*(loss.outcomes for loss in same), strict=True)] for same in by_draw.values()]
    everything = {name for same in by_draw.values() for loss in same for name in loss.services}
    # What has one outcome, and that one alternative, is out of service for sure, and no other loss adds it.
    sure = {name for draw in outcomes if _is_sure(draw) for outcome in draw for one in outcome for name in one[0]}
    more = sum(max((_most_of(outcome, sure) for outcome in draw), default=0) for draw in outcomes if not _is_sure(draw))
    return min(len(sure) + more, len(everything))


# What losses of one draw come to together: the alternatives of each.
_Outcome = tuple[tuple[Services, ...], ...]


def _is_sure(draw: Sequence[_Outcome]) -> bool:
    return len(draw) == 1 and all(len(alternatives) == 1 for alternatives in draw[0])


def _most_of(outcome: _Outcome, besides: Collection[str]) -> int:
    """Return how many services that are not `besides` losses of one draw, that came to this, take out at the most."""
    left = [[one.difference(besides) for one in alternatives] for alternatives in outcome]
    everything = {name for alternatives in left for one in alternatives for name in one}
    return min(len(everything), sum(max(map(len, alternatives), default=0) for alternatives in left))
