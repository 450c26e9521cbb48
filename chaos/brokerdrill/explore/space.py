"""What can be drawn on a topology: faults with their targets, loads, and times that its settings make matter. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from brokerdrill.base.errors import BrokerdrillError
from brokerdrill.explore.schedule import (
    AT_ONCE,
    BACKLOG,
    DRAINING,
    FAILED_OVER,
    IN_SYNC,
    LARGE,
    PLAIN,
    SERVED,
    SINGLE,
    SYNCING,
)
from brokerdrill.faults.base import FaultType
from brokerdrill.faults.registry import FAULTS
from brokerdrill.inventory.descriptors import TOOLS, Descriptor
from brokerdrill.inventory.targets import Target, is_drawn, serves_clients, with_neighbours
from brokerdrill.scenario.facts import LEADING, facts, settings, stores
from brokerdrill.scenario.radius import possible

LOAD = "load"
# How long faults last, in s, whatever is set; beside them times around each setting that is a time.
SPANS_S = (0.5, 2.0, 5.0, 10.0)
LONGEST_S = 15.0
AROUND = (0.8, 1.5, 2.5)
# Brokers that may end by themselves, as their documentation says: who lost what decides that they serve.
ENDS_ITSELF = frozenset(
    {"zookeeper_lock", "vote", "lease", "database_lock", "lock_checked", "pause_minority", "autoheal"}
)


@dataclass(frozen=True)
class FaultChoice:
    """A fault and what it may hit, in a target's words; `arms`: the links that have to be armed for it (empty: none);
    `strengths`: how many parameter sets it is drawn with."""

    fault: str
    target: str
    arms: str = ""
    strengths: int = 1


@dataclass(frozen=True)
class Space:
    """All that can be drawn on `topology`: `choices`, `loads`, `waits`, for how many seconds a fault may last (`spans`,
    in order); `facts` of the topology."""

    topology: str
    choices: tuple[FaultChoice, ...]
    loads: tuple[str, ...]
    waits: tuple[str, ...]
    spans: tuple[float, ...]
    facts: frozenset[str]

    def choice(self, fault: str, target: str) -> FaultChoice | None:
        """Return the choice of that fault on that target; None: there is none here."""
        return next((one for one in self.choices if (one.fault, one.target) == (fault, target)), None)

    @property
    def resyncs(self) -> bool:
        """Whether there are copies that have to be made again."""
        return IN_SYNC in self.waits


def space(topology: str, descriptors: Sequence[Descriptor], proxied: Collection[str]) -> Space:
    """Return what can be drawn on the instances of `topology`, load hosts among them; `proxied`: the hosts with a
    toxiproxy, whose links can be armed."""
    has = facts(descriptors)
    return Space(
        topology,
        tuple(_choices(descriptors, has, proxied)),
        tuple(_loads(has)),
        tuple(_waits(has)),
        spans(settings(descriptors).items()),
        has,
    )


def spans(known: Collection[tuple[str, float]]) -> tuple[float, ...]:
    """Return for how many seconds a fault may last: times around each setting in ms that is one of some seconds."""
    times = {value / 1000 for name, value in known if name.endswith("_ms") and 1000 <= value <= 1000 * LONGEST_S}
    around = {round(time * share, 1) for time in times for share in AROUND}
    return tuple(sorted({*SPANS_S, *(one for one in around if one <= LONGEST_S)}))


def _loads(has: frozenset[str]) -> Iterator[str]:
    yield PLAIN
    # Where sends stand alone anyhow, that is the plain load.
    if not has & {"rabbitmq", "activemq_classic"}:
        yield SINGLE
    yield from (LARGE, BACKLOG, DRAINING)


def _waits(has: frozenset[str]) -> Iterator[str]:
    yield from (AT_ONCE, SERVED)
    if "standby" in has:
        yield FAILED_OVER
    if "replicated" in has:
        yield from (SYNCING, IN_SYNC)


def _choices(descriptors: Sequence[Descriptor], has: frozenset[str], proxied: Collection[str]) -> Iterator[FaultChoice]:
    instances, links = [*instance_targets(descriptors, has)], [*link_targets(descriptors, has)]
    for fault in FAULTS.values():
        if not fault.drawn:
            continue
        for words in instances if fault.acts_on == "instance" else links:
            if fault.only_active and not words.startswith("active"):
                continue
            found = possible(descriptors, words)
            if not found or not all(_may_hit(fault, target, descriptors) for target in found):
                continue
            if fault.acts_on == "armed link":
                arms = unlive(words, descriptors)
                diallers = {link.dialler for target in possible(descriptors, arms) for link in target.links}
                if not is_drawn(words) and diallers and diallers <= {*proxied}:
                    yield FaultChoice(fault.name, words, arms, len(fault.drawn))
            elif _can_be_planned(fault, found):
                yield FaultChoice(fault.name, words, "", len(fault.drawn))


def _may_hit(fault: FaultType[object], target: Target, descriptors: Sequence[Descriptor]) -> bool:  # type: ignore[type-var]
    """Whether all that the target is are of a kind that the fault is made for, and nobody else would be hit."""
    named = {item.instance: item for item in descriptors}
    hit = [*target.instances, *(named[link.caller] for link in target.links if link.caller in named)]
    if any(item.unit is None for item in target.instances):
        return False
    if fault.only_on and not all(fault.only_on & {item.product, *item.features} for item in hit):
        return False
    return not fault.whole_host or len(with_neighbours(descriptors, target).instances) == len(target.instances)


def _can_be_planned(fault: FaultType[object], targets: Sequence[Target]) -> bool:  # type: ignore[type-var]
    try:
        return all(fault.plan(target, fault.complete(given), "drawn") for target in targets for given in fault.drawn)
    except BrokerdrillError:
        return False


def instance_targets(descriptors: Sequence[Descriptor], has: frozenset[str]) -> Iterator[str]:
    """Yield the words for who can be hit, by role rather than by name."""
    yield from (word for word in _roles(descriptors, has))
    if "primary" in has and "one_pair" in has:
        yield from ("primary", "backup")
    for product, members in _groups(descriptors):
        if len(members) == 1:
            yield product
            continue
        if not ("standby" in has and any(map(serves_clients, members))):
            yield f"one of {product}"
        if len(members) > 2:
            yield f"majority of {product}"
        yield f"all of {product}"
        if any(item.store for item in members) and "database" in {name for item in members for name in item.features}:
            yield from (f"active of {product}", f"passive of {product}")


def link_targets(descriptors: Sequence[Descriptor], has: frozenset[str]) -> Iterator[str]:
    """Yield the words for which links can be hit: between roles where there are some, else one of a kind and others."""
    ends = [*_roles(descriptors, has)]
    brokers = [product for product, members in _groups(descriptors) if any(map(serves_clients, members))]
    others = [product for product, _ in _groups(descriptors) if product not in brokers]
    for product in brokers:
        yield f"link {LOAD}→{product}"
        if not ends:
            yield from (f"link {LOAD}→one of {product}", f"link one of {product}↔{product}")
            yield f"link first of {product}↔{product}"
    for role in ends:
        if role.startswith("active"):
            yield f"link {LOAD}→{role}"
        yield from (f"link {role}→{other}" for other in others)
        yield from (f"link {role}→one of {other}" for other in others)
    for one, other in zip(ends[::2], ends[1::2], strict=True):
        yield from (f"link {one}→{other}", f"link {other}→{one}", f"link {one}↔{other}")
    for other in others:
        yield from (f"link {other}→{product}" for product in brokers)
        yield from (f"link {other}→one of {product}" for product in brokers if not ends)
        yield f"link one of {other}↔{other}"


def unlive(words: str, descriptors: Sequence[Descriptor]) -> str:
    """Return a link's words with each role replaced by the product that may have it: what is armed beforehand has to
    be there whoever has the role when the fault comes."""
    broker = next((item.product for item in descriptors if item.store and serves_clients(item)), "")
    ends = words.removeprefix("link ")
    both = "↔" if "↔" in ends else "→"
    named = [broker if end.split(" of ")[0] in ("active", "passive") else end for end in ends.split(both)]
    return f"link {both.join(named)}"


def _roles(descriptors: Sequence[Descriptor], has: frozenset[str]) -> list[str]:
    """The words for who is active and who stands by: of each store where there are several."""
    if "standby" not in has or has & LEADING:
        return []
    pairs = [store for store, members in stores(descriptors).items() if len(members) > 1]
    if len(pairs) == 1 and "one_pair" in has:
        return ["active", "passive"]
    return [f"{role} of {store}" for store in pairs[:2] for role in ("active", "passive")]


def _groups(descriptors: Sequence[Descriptor]) -> list[tuple[str, list[Descriptor]]]:
    """The instances of each product that serves somebody, in the order of the products' names."""
    found: dict[str, list[Descriptor]] = {}
    for item in descriptors:
        if item.product not in TOOLS and item.product != LOAD and item.unit:
            found.setdefault(item.product, []).append(item)
    return sorted(found.items())
