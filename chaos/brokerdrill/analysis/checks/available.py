"""available: while load runs, no address goes longer than the bound without an acknowledged send (or a delivery)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from brokerdrill.analysis.checks.finding import BUSY, CLOCKS, Finding, milliseconds
from brokerdrill.analysis.events import Fault
from brokerdrill.analysis.timeline import Timeline, disturbing
from brokerdrill.analysis.watching import stalled
from brokerdrill.ledger.verdict import Outage
from brokerdrill.promises.catalogue import AVAILABLE

NAME = AVAILABLE


class Slice(NamedTuple):
    """The successes in a slice of time: the first and the last, and the longest span between successive ones (None:
    there is one success only)."""

    number: int
    first: int
    last: int
    longest: int | None


class Gap(NamedTuple):
    """A span longer than the bound (ns) on an address, and the fault that it falls under."""

    start: int
    end: int
    address: str
    fault: Fault | None


class Addressed(NamedTuple):
    """What the stages return of an address in a load: its slices, how many spans within one are longer than the bound,
    and those of them that matter (the longest and the first)."""

    load: int
    address: str
    slices: Sequence[Slice]
    inner: int
    shown: Sequence[tuple[int, int]]


def spans(slices: Sequence[Slice], begin: int, end: int, bound: int | None) -> tuple[int, list[tuple[int, int]]]:
    """Return the longest span (ns) from `begin` to `end` without a success, and the spans between slices that are
    longer than `bound` (None: none is asked for).

    `begin` and `end` bound the first and the last span, so that an outage that never ended counts too.
    """
    longest, found, last = 0, [], begin
    for one in sorted(slices):
        for start, until, inner in ((last, one.first, False), (one.last - (one.longest or 0), one.last, True)):
            longest = max(longest, until - start)
            if bound is not None and not inner and until - start > bound:
                found.append((start, until))
        last = one.last
    longest = max(longest, end - last)
    if bound is not None and end - last > bound:
        found.append((last, end))
    return longest, found


def fault_over(times: Timeline, start: int, end: int) -> Fault | None:
    """Return the fault that a span falls under: the last one that began before the span ended and was not healed before
    the span began."""
    over = (f for f in reversed(times.faults) if f.at <= end and (f.healed_at is None or f.healed_at >= start))
    return next(over, None)


def find(
    times: Timeline, addressed: Sequence[Addressed], bound: int, side: str, named: Collection[str] = ()
) -> tuple[Finding, list[Gap]]:
    """Return what the addresses' slices say of the promise, and its gaps: each span longer than the bound (ns)
    breaks, whatever the clocks were off by; an acknowledged send (delivery) under load is evidence. A span that may be
    longer casts doubt, and so does one that busy hosts explain, one that began before a fault and was cut off by the
    load's end, and an address of the load (`named`) that was not used in each."""
    finding = Finding()
    gaps = []
    off = times.slack
    explained = 0
    for one in addressed:
        begin, end = times.loads[one.load]
        longest, between = spans(one.slices, begin, end, bound + off)
        if bound - off < longest <= bound + off and off:
            finding.doubted(CLOCKS)
        finding.evidence |= bool(one.slices)
        last = max((of.last for of in one.slices), default=begin)
        if end - last <= bound + off and any(
            last - fault.u - off // 2 <= fault.at < end + fault.u for fault in disturbing(times)
        ):
            finding.doubted("the load ended before the bound was over, and nothing was served since a fault")
        finding.measured = max(finding.measured or 0.0, longest / 1e6)
        finding.n += len(between) + one.inner
        gaps += [Gap(start, until, one.address, None) for start, until in (*between, *one.shown)]
    for out in list(gaps):
        if stalled(times.pressures, out.start, out.end) >= out.end - out.start - bound:
            gaps.remove(out)
            explained += 1
            finding.doubted(BUSY)
    finding.n -= explained
    if not times.loads:
        finding.doubted("it is not told when the load was")
    used = {one.address for one in addressed}
    in_each = [{one.address for one in addressed if one.load == number} for number in range(len(times.loads))]
    for address in sorted(one for one in named if any(one not in of for of in in_each)):
        finding.doubted(f"nobody {'sent to' if side == 'send' else 'received from'} {address}")
    finding.judged_from = {"addresses": sorted(used)}
    gaps = [one._replace(fault=fault_over(times, one.start, one.end)) for one in gaps]
    finding.moments = [one.start for one in gaps]
    finding.broken_by(_witness(one, side) for one in gaps)
    return finding, gaps


def _witness(one: Gap, side: str) -> dict[str, Any]:
    return {
        "weight": one.end - one.start,
        "address": one.address,
        "side": side,
        "start_ns": one.start,
        "end_ns": one.end,
        "span_ms": milliseconds(one.end - one.start),
        "fault": one.fault and one.fault.name,
        "target": one.fault and (one.fault.instance or one.fault.target),
    }


def outages(gaps: Sequence[Gap], side: str, who: Mapping[tuple[str, str, int], tuple[str, str | None]]) -> list[Outage]:
    """Return the gaps as outages; `who` (client, server) had the success at (side, address, time): the last before and
    the first after (none: the load's own begin or end is there)."""
    rows = []
    for one in gaps:
        before, after = (who.get((side, one.address, at), (None, None)) for at in (one.start, one.end))
        rows.append(
            Outage(
                start_ns=one.start,
                end_ns=one.end,
                fault=one.fault and one.fault.name,
                target=one.fault and (one.fault.instance or one.fault.target),
                address=one.address,
                side=side,
                client=before[0],
                instance=before[1],
                next_client=after[0],
                next_instance=after[1],
            )
        )
    return rows
