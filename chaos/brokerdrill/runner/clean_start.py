"""A clean start: the load's addresses are empty when it begins.

What earlier drills left there is removed. Where anybody else's messages wait, the run is refused unless it was asked to
remove them, and nothing is touched. Only addresses that are declared a drill's come here (inventory/addresses.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.base.progress import Progress
from brokerdrill.inventory.addresses import dead_letters, declared
from brokerdrill.ledger import contract
from brokerdrill.ledger.events import EventWriter
from brokerdrill.products.base import ManagementError, NotAllowed, QueueCounts
from brokerdrill.runner.load.control import LoadControl
from brokerdrill.runner.system import POLL_S, Instance, System
from brokerdrill.workload.looking import Look, QueueContents

# Brokers that publish their counts once in a while have published them by then.
EMPTIED_S = 30
LOOK_AGAIN_S = 15


async def clean_start(
    addresses: Sequence[str],
    purge: bool,
    runs: Mapping[str, str],
    system: System,
    load: LoadControl,
    events: EventWriter,
    progress: Progress,
) -> dict[str, int]:
    """Empty `addresses` of what earlier drills left, with `purge` of everything, as well as the drill's own dead-letter
    addresses; `runs` are the names of runs by their tags. `load` has started, and sends nothing yet. Returns how many
    messages were ever added to each of `addresses` until then.

    Raises InfrastructureError where no broker counts what is in an address, where anybody else's messages wait, where
    it cannot be seen whose they are, and where a broker does not give up what was removed.
    """
    prepared = await _prepared(system, events, progress)
    system.prepared_before = frozenset(name for found in prepared.values() for name in found)
    await _refuse_uncounted(system, addresses)
    await _refuse_consumers(system, addresses)
    seen = [] if purge else await _seen(system, addresses, load)
    if seen:
        if problems := [said for one in seen if (said := strangers(one, runs))]:
            places = ", ".join(sorted({one.address for one in seen}))
            raise InfrastructureError(
                f"{'; '.join(problems)}. Nothing was removed: take them away, or say --purge, which empties {places}"
            )
        for one in seen:
            progress.step(f"remove what earlier drills left in {one.address} at {one.instance}: {whose(one, runs)}")
    names = _emptied(system, addresses, purge)
    for broker in system.active_brokers():
        if seen or purge:
            removed = await broker.management.purge(names)
            if removed:
                progress.step(f"removed {removed} messages from {', '.join(names)} at {broker.descriptor.instance}")
    return await _until_empty(system, addresses, prepared)


async def _refuse_uncounted(system: System, addresses: Sequence[str]) -> None:
    """Raise InfrastructureError where no active broker has one of `addresses`."""
    counted = {address for found in (await _waiting(system, addresses)).values() for address in found}
    if unknown := sorted(set(addresses) - counted):
        raise InfrastructureError(f"no broker has {', '.join(unknown)}, which is declared an address for drills")


async def _refuse_consumers(system: System, addresses: Sequence[str]) -> None:
    """Raise InfrastructureError where somebody consumes from one of `addresses` still after LOOK_AGAIN_S: this run has
    no consumers yet, those of one that was killed are soon missed, and whoever stays would take its messages."""
    end = now_ns() + int(LOOK_AGAIN_S * 1e9)
    while taken := [
        f"{counts.consumers} consumers from {address} at {instance}"
        for instance, found in (await _waiting(system, addresses)).items()
        for address, counts in found.items()
        if counts.consumers
    ]:
        if now_ns() > end:
            raise InfrastructureError(f"somebody else takes what a drill would send: {', '.join(taken)}. End them")
        await asyncio.sleep(2 * POLL_S)


async def _seen(system: System, addresses: Sequence[str], load: LoadControl) -> list[QueueContents]:
    """Look at each of `addresses` in which a broker counts messages, again for LOOK_AGAIN_S where a look is not whole:
    counts may be some seconds old, and who had messages handed out may just have gone."""
    end = now_ns() + int(LOOK_AGAIN_S * 1e9)
    while True:
        looks = [
            Look(address, instance, counts.messages, drills=True)
            for instance, found in (await _waiting(system, addresses)).items()
            for address, counts in found.items()
            if counts.messages
        ]
        seen = await load.look(looks) if looks else []
        if now_ns() > end or not any(one.error for one in seen):
            return seen
        await asyncio.sleep(2 * POLL_S)


def _emptied(system: System, addresses: Sequence[str], purge: bool) -> list[str]:
    """Return what is emptied: `addresses`, and with `purge` those of their dead letters that are a drill's."""
    found = system.descriptors()
    letters = set(dead_letters(found, addresses)) & declared(found) if purge else set()
    return [*addresses, *sorted(letters.difference(addresses))]


async def _waiting(system: System, addresses: Sequence[str]) -> dict[str, Mapping[str, QueueCounts]]:
    """Return the counts of `addresses` of each active broker, by its instance."""
    return {broker.descriptor.instance: await _counts(broker, addresses) for broker in system.active_brokers()}


async def _counts(broker: Instance, addresses: Sequence[str]) -> Mapping[str, QueueCounts]:
    """Return what a broker counts in `addresses`. One question without an answer ends no run: the host is busy, or the
    broker has just ended a connection. It is asked again for LOOK_AGAIN_S; ManagementError is raised then, and at once
    where the account may not ask."""
    end = now_ns() + int(LOOK_AGAIN_S * 1e9)
    while True:
        try:
            return await broker.management.counts(addresses)
        except ManagementError as error:
            if isinstance(error, NotAllowed) or now_ns() > end:
                raise
        await asyncio.sleep(2 * POLL_S)


async def _prepared(system: System, events: EventWriter, progress: Progress) -> dict[str, Sequence[str]]:
    """Return and say which transactions are prepared at which instance: they are none of this run's, and its drain does
    not wait for them."""
    found: dict[str, Sequence[str]] = {}
    for broker in system.active_brokers():
        instance = broker.descriptor.instance
        if names := sorted(await broker.management.prepared()):
            found[instance] = names
            said = f"{instance} has {len(names)} prepared transactions from before this run: {', '.join(names)}"
            progress.step(said)
            events.write("note", at_ns=now_ns(), instance=instance, name=contract.PREPARED_BEFORE, value=said[:500])
    return found


async def _until_empty(
    system: System, addresses: Sequence[str], prepared: Mapping[str, Sequence[str]]
) -> dict[str, int]:
    """Wait until `addresses` are empty; return how many messages were ever added to each.

    Raises InfrastructureError, which names what may hold them, where they are not empty after EMPTIED_S.
    """
    end = now_ns() + int(EMPTIED_S * 1e9)
    while True:
        waiting = await _waiting(system, addresses)
        left = {instance: _left(found) for instance, found in waiting.items() if _left(found)}
        if not left:
            break
        if now_ns() > end:
            raise InfrastructureError("; ".join(_held(*item, prepared) for item in left.items()))
        await asyncio.sleep(2 * POLL_S)
    added: dict[str, int] = {}
    for found in waiting.values():
        for address, counts in found.items():
            added[address] = added.get(address, 0) + counts.added
    return added


def _left(found: Mapping[str, QueueCounts]) -> dict[str, QueueCounts]:
    return {address: counts for address, counts in found.items() if not counts.empty}


def _held(instance: str, left: Mapping[str, QueueCounts], prepared: Mapping[str, Sequence[str]]) -> str:
    """Say what an instance does not give up, and why that may be."""
    said = ", ".join(
        f"{counts.messages} messages in {address}, {counts.delivering} of them handed out, {counts.scheduled} scheduled"
        for address, counts in left.items()
    )
    names = prepared.get(instance, ())
    why = f"end its prepared transactions ({', '.join(names)})" if names else "end who has taken them, or restart it"
    return f"{instance} does not give up {said}, and would not be seen empty at the end: {why}"


def strangers(seen: QueueContents, runs: Mapping[str, str]) -> str | None:
    """Say what a look saw that is not a drill's, or that it did not see all; None: all there is are earlier drills'."""
    if not seen.foreign and not seen.error:
        return None
    parts = [whose(seen, runs), seen.error and f"whose the others are is not known: {seen.error}"]
    return f"{seen.address} at {seen.instance} has " + "; ".join(filter(None, parts))


def whose(seen: QueueContents, runs: Mapping[str, str]) -> str:
    """Say whose the messages are that a look saw."""
    parts = [
        f"{number} messages of {runs.get(tag, f'a run with tag {tag}')}" for tag, number in sorted(seen.by_run.items())
    ]
    if seen.foreign:
        parts.append(f"{seen.foreign} messages that no drill has sent (such as {', '.join(seen.examples)})")
    return ", ".join(parts) or "messages"


async def dead_letter_looks(system: System, addresses: Sequence[str]) -> list[Look]:
    """Return where to look for the dead letters of `addresses`: each active broker that counts some, or does not say;
    where none does, one of them."""
    descriptors = system.descriptors()
    own = declared(descriptors)
    brokers = system.active_brokers() or system.brokers()
    found = []
    for address in dead_letters(descriptors, addresses):
        counted = [(one.descriptor.instance, await _counted(one, address)) for one in brokers]
        asked = [item for item in counted if item[1] != 0] or counted[:1]
        found += [Look(address, instance, number or 0, address in own, own=True) for instance, number in asked]
    return found


async def _counted(broker: Instance, address: str) -> int | None:
    """Return how many messages a broker counts in an address, None where it does not say."""
    try:
        counts = (await broker.management.counts([address])).get(address)
    except ManagementError:
        return None
    return counts.messages if counts else 0
