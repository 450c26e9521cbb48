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
from brokerdrill.promises.catalogue import PROMISES

RULE = rule(PROMISES["no_dead_letters"], lambda judged: judged.units)


class DeadLetterLook(NamedTuple):
    """The last look (when it `begun`, ns) at a dead-letter address of an instance (None: not known) that succeeded, or
    that did not."""

    address: str
    server: str | None
    ok: bool
    begun: int


def refused(looks: Sequence[DeadLetterLook], address: str) -> bool:
    """Whether a look at `address` was refused after which none succeeded at that instance."""
    of = [one for one in looks if one.address == address]
    seen = {one.server: one.begun for one in of if one.ok}
    return any(not one.ok and one.begun >= seen.get(one.server, -1) for one in of)


def look_at(
    finding: Finding,
    looks: Sequence[DeadLetterLook],
    dead_letters: Mapping[str, str],
    live: Collection[str],
    since: int | None,
    delivered: Mapping[str, int],
) -> None:
    """Complete what was found (evidence: there are units): `dead_letters` of each address, the addresses to which
    something was sent (`live`), and since when a look counts (the load's end; None: not known), and not before the last
    delivery (`delivered`) on an address whose dead letters are there."""
    wanted = sorted({dead_letters[address] for address in live if address in dead_letters})
    from_when = dict.fromkeys(wanted, -NEVER if since is None else since)
    for address, at in delivered.items():
        if (dead := dead_letters.get(address)) in from_when:
            from_when[dead] = max(from_when[dead], at)
    counted = [one for one in looks if one.begun >= from_when.get(one.address, NEVER)]
    seen = {one.address for one in counted if one.ok}
    if wanted and not finding.evidence:
        finding.doubted("nobody was to get what was sent")
    if wanted and (unmapped := sorted(address for address in live if address not in dead_letters)):
        finding.doubted(f"it is not known where the dead letters of {', '.join(unmapped)} go")
    finding.evidence &= bool(wanted)
    finding.judged_from["looked_at"] = sorted(seen & {*wanted})
    for address in wanted:
        if address not in seen:
            finding.doubted(f"nobody looked at {address} when the load was over")
        elif refused(counted, address):
            finding.doubted(f"a look at {address} was refused")
