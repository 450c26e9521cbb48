"""failover_within: after a fault on the active instance every client is served again within the bound.

Counted from the fault to the end of the client's first acknowledged send (in a transaction: its commit) that began
after the fault plus its uncertainty and was served by an epoch of that store that began after the fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from brokerdrill.analysis.checks.finding import BUSY, CLOCKS, Finding, milliseconds
from brokerdrill.analysis.events import NEVER, Hit, Pressure
from brokerdrill.analysis.timeline import Timeline
from brokerdrill.analysis.watching import stalled
from brokerdrill.ledger.verdict import Failover

NAME = "failover_within"
UNSEEN = "a client was served for the store that was hit, and nobody knew who had taken over"


class ClientAtFault(NamedTuple):
    """What stage 1 returns of a client and a fault (`clients._FAILOVERS`)."""

    fault: int
    client: str
    joined: int | None
    before: bool
    success: int | None
    elsewhere: int | None
    nameless: int | None
    last_try: int
    as_before: bool
    u: int = 0
    unseen: int | None = None


class DueFailover(NamedTuple):
    """A client at a fault that an epoch did not outlive: `blind` (it is not known who served it first), `took` (ns from
    the fault to the success; None: blind, or none), `elsewhere` (another store served it first: the success is that),
    `last_try` (ns), `u` how uncertain the times between the fault and the client's are (ns), `unseen` (its store served
    it before that, and it is not known that who did so had taken over)."""

    hit: Hit
    client: str
    before: bool
    success: int | None
    blind: bool
    took: int | None
    last_try: int
    u: int = 0
    elsewhere: bool = False
    unseen: bool = False


def failovers(clients: Iterable[ClientAtFault], times: Timeline) -> list[DueFailover]:
    """Return the failovers that are due.

    An epoch outlived a fault if it served on after it and was hit again before the next began, or never ended and had
    no next: no failover is due. Nor is it from a client that came only after the fault.
    """
    hits = {hit.fault.number: hit for hit in times.hits}
    at_fault = list(clients)
    outlived = _outlived(at_fault, hits)
    found = []
    for one in at_fault:
        hit = hits[one.fault]
        if one.fault in outlived or not (one.before or one.joined is None or one.joined <= hit.fault.at):
            continue
        elsewhere = one.elsewhere is not None and (one.success is None or one.elsewhere < one.success)
        success = one.elsewhere if elsewhere else one.success
        blind = one.nameless is not None and (success is None or one.nameless < success)
        took = None if blind or success is None else success - hit.fault.at
        last_try = times.run_end if one.last_try == NEVER else one.last_try
        u = hit.fault.u + one.u
        unseen = one.unseen is not None and (success is None or one.unseen < success)
        found.append(DueFailover(hit, one.client, one.before, success, blind, took, last_try, u, elsewhere, unseen))
    return found


def _outlived(clients: Iterable[ClientAtFault], hits: Mapping[int, Hit]) -> set[int]:
    """The faults that the epoch which they hit outlived."""
    return {
        one.fault
        for one in clients
        if one.as_before and (hits[one.fault].again or (hits[one.fault].epoch.open and hits[one.fault].next is None))
    }


def _outlasted(hit: Hit) -> bool:
    """Whether the epoch that was hit lasted longer than the fault, and the next one began after it: something else may
    have ended it."""
    healed = hit.fault.healed_at
    if healed is None or hit.next is None or hit.epoch.open:
        return False
    return healed < min(hit.epoch.end - hit.epoch.end_u, hit.next.start - hit.next.start_u)


def untried(clients: Sequence[ClientAtFault], found: Iterable[DueFailover], times: Timeline) -> list[Hit]:
    """Return the faults that an epoch did not outlive and after which nobody tried to be served by its store."""
    hits = {hit.fault.number: hit for hit in times.hits}
    tried = {
        one.hit.fault.number
        for one in found
        if not one.elsewhere
        and (one.took is not None or one.blind or (one.before and one.last_try > one.hit.fault.at + one.u))
    }
    return [hit for number, hit in hits.items() if number not in tried | _outlived(clients, hits)]


def _in_vain(one: DueFailover) -> bool:
    """Whether a client that was served before the fault tried to be served after it, and never was."""
    return one.before and one.success is None and one.last_try > one.hit.fault.at + one.u and not one.blind


def _doubt(one: DueFailover, waited: int, bound: int, pressures: Sequence[Pressure], followed: int) -> str | None:
    """Return why a client that waited so long (ns) neither keeps the bound nor breaks it; None: it does one of both.
    `followed`: when another step's fault came."""
    at = one.hit.fault.at
    if _in_vain(one) and waited + one.u <= bound:
        return "a client tried in vain, and not for as long as the bound"
    if waited - one.u <= bound < waited + one.u:
        return CLOCKS
    if waited <= bound:
        return None
    if one.unseen:
        return UNSEEN
    if _outlasted(one.hit):
        return "what was active outlasted the fault and its heal: what ended it is not known"
    if followed <= at + one.hit.fault.u + bound:
        return "another step's fault came before the bound was over"
    return BUSY if stalled(pressures, at, at + waited) >= waited - bound else None


def find(
    found: Iterable[DueFailover],
    bound: int,
    pressures: Sequence[Pressure] = (),
    unseen: Sequence[Hit] = (),
    followed: Mapping[int, int] = MappingProxyType({}),
) -> Finding:
    """Return what `failovers` say of the promise: a client served later than the bound (ns) breaks, and one that was
    served before the fault and tried on past the bound without success. What breaks it only if clocks were off, or is
    explained by hosts that were busy (`pressures`), or by another step's fault before the bound was over (`followed`:
    when, by the fault's number), casts doubt, and so does a client that tried in vain and not for as long as the bound,
    and a fault after which nobody tried (`unseen`)."""
    finding = Finding()
    broken: list[dict[str, Any]] = []
    clients = set()
    for one in found:
        at = one.hit.fault.at
        waited = one.took if one.took is not None else one.last_try - at if _in_vain(one) else None
        if one.blind:
            finding.doubted("of some sends it is not known which store served them")
        if one.elsewhere and not one.before:
            continue
        if one.took is not None and not one.elsewhere:
            clients.add(one.client)
            finding.evidence = True
            finding.measured = max(finding.measured or 0.0, one.took / 1e6)
        if waited is None:
            if one.unseen:
                finding.doubted(UNSEEN)
            continue
        if doubt := _doubt(one, waited, bound, pressures, followed.get(one.hit.fault.number, NEVER)):
            finding.doubted(doubt)
        elif waited > bound:
            finding.n += 1
            finding.moments.append(at)
            broken.append(
                {
                    # Who was never served again is worst of all.
                    "weight": NEVER if one.took is None else one.took,
                    "client": one.client,
                    "fault": one.hit.fault.name,
                    "instance": one.hit.fault.instance,
                    "store": one.hit.epoch.store,
                    "t_ns": at,
                    "first_send_ms": None if one.success is None else milliseconds(one.success - at),
                    "last_try_ms": milliseconds(one.last_try - at),
                }
            )
    if not finding.evidence and not finding.n:
        finding.doubted("after no fault on an active instance a client was served again")
    elif unseen:
        one_of = unseen[0].fault
        finding.doubted(f"after the {one_of.name} of {one_of.instance} at {one_of.at / 1e9:.1f} s nobody tried to send")
    finding.judged_from = {"clients": len(clients)}
    finding.broken_by(broken)
    return finding


def split(found: Iterable[DueFailover], received: Mapping[int, int]) -> list[Failover]:
    """Return one row for each client that was served again after a fault, by time and client, and what of its way the
    events show; the first delivery is `received`, by the fault's number.

    Activation is the next epoch's begin, detection as `timeline.detected` has it; the first delivery is that of any
    consumer that an epoch of that store which began after the fault served.
    """
    rows = []
    for one in found:
        if one.took is None or one.elsewhere:
            continue
        fault, at = one.hit.fault, one.hit.fault.at

        def since(time: int | None, at: int = at) -> float | None:
            return None if time is None else milliseconds(time - at)

        rows.append(
            Failover(
                fault=fault.name,
                instance=fault.instance,
                store=one.hit.epoch.store,
                t_ns=at,
                client=one.client,
                detection_ms=since(one.hit.detected_at),
                activation_ms=since(one.hit.next.start if one.hit.next else None),
                first_send_ms=since(one.success),
                first_delivery_ms=since(received.get(fault.number)),
            )
        )
    return sorted(rows, key=lambda row: (row.t_ns, row.client))
