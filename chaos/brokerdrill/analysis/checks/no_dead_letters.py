"""no_dead_letters: no message that the broker took ends on a dead-letter address instead of with a consumer.

What nobody looked at may hold anything: each dead-letter address is to be looked at when the load is over and the last
message was delivered, and no look may have been refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from brokerdrill.analysis.checks.by_class import rule
from brokerdrill.analysis.checks.finding import Finding
from brokerdrill.analysis.events import NEVER
from brokerdrill.analysis.timeline import Timeline
from brokerdrill.promises.catalogue import PROMISES

RULE = rule(PROMISES["no_dead_letters"], lambda judged: judged.units)


class DeadLetterLook(NamedTuple):
    """The last look (when it `begun`, ns, by the clock `tick`) at a dead-letter address of an instance (None: not
    known) that succeeded, or that did not."""

    address: str
    server: str | None
    ok: bool
    tick: int | None
    begun: int


class LastDelivery(NamedTuple):
    """When the last delivery on an address was over (`moment`, ns) by the clock `tick`."""

    address: str
    tick: int | None
    moment: int


def _off(times: Timeline, one: int | None, other: int | None) -> int:
    """By how much (ns) times of two clocks, by their places, may be off from each other; None: it is not placed."""
    uncertain = [clock.u for _, clock in sorted(times.clocks.items())]
    return 0 if one == other else sum(uncertain[tick] for tick in (one, other) if tick is not None)


def refused(looks: Sequence[DeadLetterLook], address: str, times: Timeline) -> bool:
    """Whether a look at `address` was refused after which none succeeded for certain at that instance."""
    of = [one for one in looks if one.address == address]
    return any(
        not any(
            other.ok and other.server == one.server and other.begun > one.begun + _off(times, other.tick, one.tick)
            for other in of
        )
        for one in of
        if not one.ok
    )


def look_at(
    finding: Finding,
    looks: Sequence[DeadLetterLook],
    dead_letters: Mapping[str, str],
    live: Collection[str],
    times: Timeline,
    delivered: Sequence[LastDelivery],
) -> None:
    """Complete what was found (evidence: there are units): `dead_letters` of each address, the addresses to which
    something was sent (`live`). A look counts from the load's end on, and not before the last delivery (`delivered`) on
    an address whose dead letters are there."""
    wanted = sorted({dead_letters[address] for address in live if address in dead_letters})
    over = NEVER if times.load_over is None else times.load_over
    seen = {
        one.address
        for one in looks
        if one.ok and one.begun - _off(times, one.tick, None) >= over
        if all(
            one.begun >= last.moment + _off(times, one.tick, last.tick)
            for last in delivered
            if dead_letters.get(last.address) == one.address
        )
    }
    if wanted and not finding.evidence:
        finding.doubted("nobody was to get what was sent")
    if wanted and (unmapped := sorted(address for address in live if address not in dead_letters)):
        finding.doubted(f"it is not known where the dead letters of {', '.join(unmapped)} go")
    finding.evidence &= bool(wanted)
    finding.judged_from["looked_at"] = sorted(seen & {*wanted})
    for address in wanted:
        if address not in seen:
            finding.doubted(f"nobody looked at {address} when the load was over")
        elif refused(looks, address, times):
            finding.doubted(f"a look at {address} was refused")
