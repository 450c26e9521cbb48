"""The drain: the producers have stopped, the consumers take what is left, and every address is seen empty, or not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from brokerdrill.base.clock import now_ns
from brokerdrill.base.progress import Progress
from brokerdrill.ledger.events import EventWriter
from brokerdrill.products.base import ManagementError
from brokerdrill.runner.clean_start import dead_letter_looks
from brokerdrill.runner.load.clocks import write_clocks
from brokerdrill.runner.load.control import LoadControl, Totals
from brokerdrill.runner.system import POLL_S, System

# How often a drain waits for as long as it may.
WAITS = 3


async def drain(
    addresses: Sequence[str],
    limit_s: float,
    load: LoadControl,
    system: System,
    events: EventWriter,
    progress: Progress,
) -> dict[str, bool]:
    """Stop the producers, let the consumers take what is left, close; say of each address whether it is empty.

    Each of these may take `limit_s` seconds; what was prepared before the run is not waited for. Raises Unmet when a
    worker does not stop in time, InfrastructureError when one fails.
    """
    progress.step("stop the producers, drain")
    events.write("phase", at_ns=now_ns(), name="load", value="end")
    await load.stop_producers()
    await load.all_reach("producers_stopped", limit_s)
    events.write("phase", at_ns=now_ns(), name="drain", value="begin")
    left = dict.fromkeys(addresses, "not looked at")
    end = now_ns() + int(limit_s * 1e9)
    quiet = 0
    # Twice in a row: a message in flight between two counters is in neither. And with every store served, or what
    # it holds is not counted; whether it has a backup is of no matter here.
    while quiet < 2 and now_ns() < end:
        left = await _left(addresses, system)
        quiet = 0 if left else quiet + 1
        load.totals()  # raises where a worker has failed
        await asyncio.sleep(2 * POLL_S)
    if left:
        said = "; ".join(f"{address}: {words}" for address, words in sorted(left.items()))
        progress.step(f"not drained within {limit_s:.0f} s: {said}")
    looks = await dead_letter_looks(system, addresses)
    # For the last time: a worker that has been stopped answers no more.
    await write_clocks(load.living, events)
    await load.stop(looks)
    await load.all_reach("closed", limit_s)
    events.write("phase", at_ns=now_ns(), name="drain", value="end")
    progress.step(f"drained: {received_words(load.totals())}")
    return {address: address not in left for address in addresses}


def received_words(totals: Totals) -> str:
    """Return how many messages were acknowledged and received.

    What got no answer when it was committed may have come again, and then counts among the received ones as well.
    """
    said = f"{totals.sent_ok} messages acknowledged, {totals.received} received"
    if totals.received_unknown:
        said += f" and up to {totals.received_unknown} more, to whose receipt the broker gave no answer"
    return said


async def _left(addresses: Sequence[str], system: System) -> dict[str, str]:
    """Return in words what is left of each of `addresses` that is not known to be empty on all instances."""
    if not system.served():
        return dict.fromkeys(addresses, "not every store is served")
    left: dict[str, list[str]] = {}
    for broker in system.active_brokers():
        instance, management = broker.descriptor.instance, broker.management
        try:
            counts = await management.counts(addresses)
            # Either may become messages of any address.
            elsewhere = {
                "transactions prepared": len(set(await management.prepared()).difference(system.prepared_before)),
                "messages in transit": await management.in_transit(),
            }
        except ManagementError as error:
            return dict.fromkeys(addresses, f"{instance} does not say: {error}")
        for address in addresses:
            found = counts.get(address)
            words = [f"{number} {what}" for what, number in elsewhere.items() if number]
            if found is None:
                words.append("no such address")
            elif not found.empty:
                words.append(f"{found.messages} messages, {found.delivering} handed out, {found.scheduled} scheduled")
                words += ["more on its disk"] if found.paging else []
            if words:
                left.setdefault(address, []).append(f"{', '.join(words)} at {instance}")
    return {address: "; ".join(words) for address, words in left.items()}
