"""Probes: what they wait for, as functions of the live roles and of the load's counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import Unmet
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.targets import leads_clients
from brokerdrill.runner.injections import Injected
from brokerdrill.runner.load.control import LoadControl
from brokerdrill.runner.system import System
from brokerdrill.scenario.model import Probe

UNANSWERED_PERIOD_S = 0.3
UNDELIVERED_S = 10

Roles = Mapping[str, str]


def failed_over(hit: Sequence[Descriptor], instances: Iterable[Descriptor], roles: Roles) -> bool:
    """Whether in a store of an instance that was hit another one is active."""
    names = {item.instance for item in hit}
    stores = {item.store for item in _of_stores(hit)}
    return any(
        roles.get(item.instance) == "active" and item.instance not in names and item.store in stores
        for item in instances
    )


def failed_back(hit: Sequence[Descriptor], roles: Roles) -> bool:
    """Whether all instances of stores that were hit are active."""
    meant = _of_stores(hit)
    return bool(meant) and all(roles.get(item.instance) == "active" for item in meant)


def _of_stores(hit: Sequence[Descriptor]) -> list[Descriptor]:
    """Return those that serve a store: a host may have others beside its broker, as a server of the shared file system,
    and these are never active."""
    return [item for item in hit if item.store]


def kept(brokers: Iterable[Descriptor], before: Roles, roles: Roles) -> bool:
    """Whether every broker that was active `before` is active."""
    return all(roles.get(item.instance) == "active" for item in brokers if before.get(item.instance) == "active")


def even(reached: Mapping[str, int], brokers: Iterable[Descriptor], roles: Roles, most: int) -> bool:
    """Whether no two stores that are served differ by more than `most` in how many connections `reached` them. Not
    before all roles are known: who serves may be one that has not answered yet."""
    targets = [item for item in brokers if item.store and not leads_clients(item)]
    counts: dict[str, int] = {}
    for item in targets:
        if roles.get(item.instance) == "active":
            counts[str(item.store)] = counts.get(str(item.store), 0) + reached.get(item.instance, 0)
    known = all(item.instance in roles for item in targets)
    return known and bool(counts) and max(counts.values()) - min(counts.values()) <= most


def proven(place: Callable[[], bool], acknowledged: Callable[[], int], count: int) -> Callable[[], bool]:
    """The condition that `place` holds and, since it does, `count` messages were acknowledged: it must prove itself."""
    since: int | None = None

    def holds() -> bool:
        nonlocal since
        if not place():
            since = None
            return False
        if since is None:
            since = acknowledged()
        return acknowledged() >= since + count

    return holds


def unchanged(value: Callable[[], int], seconds: float, now: Callable[[], int] = now_ns) -> Callable[[], bool]:
    """The condition that `value` has been the same for `seconds`, counted from now; `now` says the time in ns."""
    last, since = value(), now()

    def holds() -> bool:
        nonlocal last, since
        if (found := value()) != last:
            last, since = found, now()
        return now() - since >= seconds * 1e9

    return holds


def lasting(holds: Callable[[], bool], seconds: float, now: Callable[[], int] = now_ns) -> Callable[[], bool]:
    """The condition that `holds` has been true each time that it was asked for `seconds`; `now` says the time in ns."""
    since: int | None = None

    def lasted() -> bool:
        nonlocal since
        if not holds():
            since = None
            return False
        if since is None:
            since = now()
        return now() - since >= seconds * 1e9

    return lasted


def condition(probe: Probe, about: Injected | None, system: System, load: LoadControl) -> Callable[[], bool]:
    """The condition of a probe (any but `unanswered`) as a function without arguments; it starts counting now.

    Called, it raises InfrastructureError where a worker has failed.
    """

    def acknowledged() -> int:
        return load.totals().sent_ok

    def undelivered() -> bool:
        found = load.totals()
        return found.sent_ok - found.received - found.received_unknown >= probe.count

    start = acknowledged()
    hit = about.injection.target.instances if about else ()
    before = about.roles if about else {}
    instances = [item.descriptor for item in system.instances.values()]
    brokers = [item.descriptor for item in system.brokers()]
    conditions: dict[str, Callable[[], bool]] = {
        "failed_over": proven(lambda: failed_over(hit, instances, system.roles_since_act), acknowledged, probe.count),
        "failed_back": proven(lambda: failed_back(hit, system.roles_since_act), acknowledged, probe.count),
        "kept": proven(lambda: kept(brokers, before, system.roles_since_act), acknowledged, probe.count),
        "syncing": lambda: "syncing" in system.roles_since_act.values(),
        "in_sync": system.in_sync,
        "even": lambda: even(load.reached(), brokers, system.roles_since_act, probe.count),
        "acknowledged": lambda: acknowledged() >= start + probe.count,
        "held_back": unchanged(acknowledged, probe.count),
        "undelivered": lasting(undelivered, UNDELIVERED_S),
    }
    return conditions[probe.until]


async def until_unanswered(
    probe: Probe, system: System, load: LoadControl, addresses: Sequence[str], added_before: Mapping[str, int]
) -> None:
    """Wait until the brokers hold `count` more messages than were acknowledged, twice in a row with no reply between:
    sends have arrived, and their replies have not.

    `added_before`: the messages that were added to each address before the load. Raises Unmet when it does not come to
    that within the probe's timeout.
    """
    end = now_ns() + int(probe.timeout * 1e9)
    before = -1
    while True:
        acknowledged = load.totals().sent_ok
        added = -sum(added_before.get(name, 0) for name in addresses)
        for management in system.active():
            added += sum(item.added for item in (await management.counts(addresses)).values())
        if added - acknowledged >= probe.count and acknowledged == before:
            return
        before = acknowledged
        if now_ns() > end:
            raise Unmet(
                f"probe {probe.name}: {added - acknowledged} sends unanswered, not {probe.count}, "
                f"within {probe.timeout:.0f} s"
            )
        await asyncio.sleep(UNANSWERED_PERIOD_S)
