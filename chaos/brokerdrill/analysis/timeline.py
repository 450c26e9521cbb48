"""What a run's events say over time: phases, role epochs, faults with their heals, failbacks, spans of unreadiness.

Plain Python over one run's events: they are few (repeated roles are dropped while they are read), whereas operations
stay in Spark. Rules are those of the ledger's specification ("Words", "Promises"). `at` is run time in nanoseconds,
`u` its uncertainty: the event's own plus its clock's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from brokerdrill.analysis.endings import endings, restarted
from brokerdrill.analysis.epochs import epochs, overlaps, role_changes, takeovers
from brokerdrill.analysis.events import (
    NEVER,
    Alert,
    Ending,
    Epoch,
    Event,
    Failback,
    Fault,
    Hit,
    LogRead,
    MethodRound,
    Overlap,
    Pressure,
    Routed,
    Span,
    Unwatched,
    in_order,
)
from brokerdrill.analysis.placing import Placed
from brokerdrill.analysis.readiness import pooled, since_faults, unready_by_pool, unready_by_role
from brokerdrill.analysis.watching import logs_read, pressures, told_by_log, untold, unwatched
from brokerdrill.ledger.contract import ALERTS_WATCHED, PREPARATIONS, ROUND, TOWARD
from brokerdrill.ledger.evidence import BY, BY_LOG, BY_TTL, CLIENTS, CLIENTS_KILLED, CLIENTS_SEPARATOR, TTL
from brokerdrill.ledger.verdict import Takeover


@dataclass(frozen=True)
class Timeline:
    """What the events of one run say; times of drains are None where no such event was recorded, `guess` is the last
    event's time."""

    run_end: int
    guess: int = 0
    drain_begin: int | None = None
    drain_end: int | None = None
    loads: tuple[tuple[int, int], ...] = ()
    # When the last load was over for certain; None: nobody has said so.
    load_over: int | None = None
    homes: Mapping[str, str | None] = field(default_factory=dict)
    roles: tuple[Event, ...] = ()
    epochs: tuple[Epoch, ...] = ()
    overlaps: tuple[Overlap, ...] = ()
    faults: tuple[Fault, ...] = ()
    hits: tuple[Hit, ...] = ()
    takeovers: tuple[Takeover, ...] = ()
    failbacks: tuple[Failback, ...] = ()
    unready: tuple[Span, ...] = ()
    # The stores that the pools' events name.
    pooled: frozenset[str] = frozenset()
    routed: tuple[Routed, ...] = ()
    # The routers that said so; each of their own connects is one of their clients'.
    routers: frozenset[str] = frozenset()
    endings: tuple[Ending, ...] = ()
    # What tells that a host was started anew, by nobody's doing.
    restarts: tuple[Event, ...] = ()
    # What was read of logs, so that no ending means that there was none.
    logs: tuple[LogRead, ...] = ()
    # The times in which an instance's role was not known, by its log neither.
    unwatched: tuple[Unwatched, ...] = ()
    pressures: tuple[Pressure, ...] = ()
    clocks: Mapping[str, Placed] = field(default_factory=dict)
    rounds: tuple[MethodRound, ...] = ()
    alerts: tuple[Alert, ...] = ()
    # The times (begin, end) for which it is known which alerts fired.
    alerts_watched: tuple[tuple[int, int], ...] = ()
    # When clients were killed, and by which faults, by these' numbers.
    deaths: Mapping[str, int] = field(default_factory=dict)
    victims: Mapping[int, frozenset[str]] = field(default_factory=dict)

    @property
    def slack(self) -> int:
        """By how much (ns) a span between times of any two clocks may be off."""
        return 2 * max((clock.u for clock in self.clocks.values()), default=0)


def disturbing(times: Timeline) -> list[Fault]:
    """Return the faults that disturb something while they are in effect."""
    return [fault for fault in times.faults if fault.name not in PREPARATIONS]


def timeline(
    events: Sequence[Event],
    stores: Mapping[str, Sequence[str]],
    ops_end: int | None,
    clocks: Mapping[str, Placed] | None = None,
) -> Timeline:
    """Return the `Timeline` of one run from its events in any order, run.json's `stores`, its clocks and the last time
    of its operations (None: there are none)."""
    run_end = max([event.at for event in events] + ([] if ops_end is None else [ops_end]), default=0)
    home = homes(events, stores)
    changes = role_changes(events, home)
    fault = faults(events)
    logs = logs_read(events)
    showing = frozenset(e.instance for e in events if e.kind == "role" and e.name == BY_LOG and e.instance)
    silent, early = ({*of} for of in (unwatched(events, run_end), untold(events, stores, run_end)))
    blind = [one for one in sorted(silent | early) if not told_by_log(one, showing, logs, fault)]
    epoch = epochs(events, changes, run_end, [one for one in blind if one in silent])
    hit = hits(fault, epoch, events)
    drains = {
        value: [e.at for e in events if (e.kind, e.name, e.value) == ("phase", "drain", value)]
        for value in ("begin", "end")
    }
    return Timeline(
        run_end=run_end,
        guess=max((event.at for event in events), default=0),
        drain_begin=min(drains["begin"], default=None),
        drain_end=max(drains["end"], default=None),
        loads=loads(events, run_end),
        load_over=load_over(events),
        homes=home,
        roles=tuple(changes),
        epochs=epoch,
        overlaps=overlaps(epoch, fault, blind),
        faults=fault,
        hits=hit,
        takeovers=takeovers(epoch),
        failbacks=failbacks(events, fault, epoch),
        unready=since_faults(
            [*unready_by_pool(events, stores), *unready_by_role(events, changes, epoch, stores)], fault, stores
        ),
        pooled=pooled(events, stores),
        routed=routed(events),
        routers=frozenset(e.name for e in events if e.kind == "routed" and e.name),
        endings=endings(events, fault),
        restarts=restarted(events, fault),
        logs=logs,
        unwatched=tuple(blind),
        pressures=pressures(events),
        clocks=clocks or {},
        rounds=rounds(events, run_end),
        alerts=alerts(events),
        alerts_watched=alerts_watched(events, run_end),
        deaths=deaths(events),
        victims=victims(events, fault),
    )


def _killed(event: Event) -> frozenset[str]:
    """The clients that an event says were killed."""
    if (event.kind, event.name) != ("note", CLIENTS_KILLED):
        return frozenset()
    return frozenset(filter(None, dict(event.detail).get(CLIENTS, "").split(CLIENTS_SEPARATOR)))


def deaths(events: Sequence[Event]) -> dict[str, int]:
    """Return when clients were killed, by their names."""
    found: dict[str, int] = {}
    for event in events:
        for client in _killed(event):
            found[client] = min(event.at, found.get(client, event.at))
    return found


def victims(events: Sequence[Event], found: Sequence[Fault]) -> dict[int, frozenset[str]]:
    """Return the clients that faults killed, by the faults' numbers; none of a fault that killed none."""
    by_fault: dict[int, frozenset[str]] = {}
    for event in events:
        for fault in found if _killed(event) else ():
            if (event.value, event.instance, event.target) == (fault.step, fault.instance, fault.target):
                by_fault[fault.number] = by_fault.get(fault.number, frozenset()) | _killed(event)
    return by_fault


def routed(events: Sequence[Event]) -> tuple[Routed, ...]:
    """Return whom each client was connected to by routers, each time until the next."""
    of_client: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    for event in events:
        if event.kind == "routed" and event.target and event.instance:
            of_client[event.target].append((event.at - event.u, event.instance, event.name or ""))
    return tuple(
        Routed(client, instance, router or None, start, until)
        for client, connects in sorted((client, sorted(found)) for client, found in of_client.items())
        for (start, instance, router), (until, *_) in pairwise([*connects, (NEVER, "", "")])
    )


def loads(events: Sequence[Event], run_end: int) -> tuple[tuple[int, int], ...]:
    """Return (begin, end) of each load phase: from a begin to the next load event, or to the run's end where it broke
    off."""
    marks = sorted((e.at, e.value != "begin") for e in events if e.kind == "phase" and e.name == "load")
    ends = [at for at, _ in marks[1:]] + [run_end]
    return tuple((at, until) for (at, is_end), until in zip(marks, ends, strict=False) if not is_end)


def load_over(events: Sequence[Event]) -> int | None:
    """Return when the last load was over for certain; None: its end was not recorded, or none was."""
    marks = sorted((e.at, e.value == "end", e.at + e.u) for e in events if (e.kind, e.name) == ("phase", "load"))
    return marks[-1][2] if marks and marks[-1][1] else None


def rounds(events: Sequence[Event], run_end: int) -> tuple[MethodRound, ...]:
    """Return the rounds of the method, by time; one that did not come to its end lasts until the next, or the run's
    end."""
    marks = sorted((e.at, e.name or "", dict(e.detail)[ROUND]) for e in events if ROUND in dict(e.detail))
    begins = [(at, name) for at, name, edge in marks if edge == "begin"]
    found = []
    for (at, name), (until, _) in zip(begins, [*begins, (NEVER, "")][1:], strict=True):
        ends = [end for end, of, edge in marks if edge == "end" and of == name and at <= end]
        found.append(MethodRound(name, at, min([*ends, until, max(at, run_end)]), until))
    return tuple(found)


def homes(events: Sequence[Event], stores: Mapping[str, Sequence[str]]) -> dict[str, str | None]:
    """Return, by instance, the only store that it may ever serve; None where run.json and the roles name several."""
    may: dict[str, set[str]] = defaultdict(set)
    for store, instances in stores.items():
        for instance in instances:
            may[instance].add(store)
    for event in events:
        if event.kind == "role" and event.instance and event.store:
            may[event.instance].add(event.store)
    return {instance: next(iter(served)) if len(served) == 1 else None for instance, served in may.items()}


def _heal_of(fault: Event, heal: Event) -> int:
    """When a fault was healed, as far as is known: where its host undid it by itself, when that was due."""
    ttl = dict(fault.detail).get(TTL)
    if dict(heal.detail).get(BY) != BY_TTL or ttl is None:
        return heal.at
    return min(heal.at, fault.at + round(float(ttl) * 1e9))


def faults(events: Sequence[Event]) -> tuple[Fault, ...]:
    """Return the faults by time, each with its heal."""

    def whom(event: Event) -> tuple[str, str, str]:
        return event.name or "", event.instance or "", event.target or ""

    heals: dict[tuple[str, str, str], list[Event]] = defaultdict(list)
    for event in events:
        if event.kind == "heal":
            heals[whom(event)].append(event)
    found = []
    ordered = sorted((e for e in events if e.kind == "fault"), key=lambda e: (e.at, whom(e)))
    for number, event in enumerate(ordered, start=1):
        later = (heal for heal in heals[whom(event)] if heal.at > event.at and _of_step(heal, event.value))
        healed = min(later, key=lambda e: e.at, default=None)
        toward = tuple(filter(None, dict(event.detail).get(TOWARD, "").split(", ")))
        healed_at = None if healed is None else _heal_of(event, healed)
        vague = healed is not None and dict(healed.detail).get(BY) == BY_TTL and TTL not in dict(event.detail)
        places = event.name, event.instance, event.target, event.store
        heal_u = 0 if healed is None else healed.u
        found.append(Fault(number, *places, event.at, event.u, healed_at, toward, event.value, vague, heal_u))
    return tuple(found)


def _of_step(heal: Event, step: str | None) -> bool:
    """Whether a heal may be that of a fault which this step injected: two steps may hit the same in the same way."""
    return heal.value is None or step is None or heal.value == step


def detected(fault: Fault, hit: Epoch, following: Epoch | None, events: Sequence[Event]) -> int | None:
    """Return when the fault was detected: the first event, from the fault to the next epoch's begin, that is a note or
    health named `detected` of that store or of the next epoch's instance, or that instance's role `starting`; else the
    end of the epoch that was hit, if it ended by then; None: no event shows it."""
    if following is None:
        return None
    signs = [
        event.at
        for event in events
        if fault.at <= event.at <= following.start
        and (
            (
                event.kind in ("note", "health")
                and event.name == "detected"
                and (event.store == hit.store or event.instance == following.instance)
            )
            or (event.kind, event.value, event.instance) == ("role", "starting", following.instance)
        )
    ]
    return min(signs, default=None if hit.end > following.start else max(hit.end, fault.at))


def hits(fault: Sequence[Fault], epoch: Sequence[Epoch], events: Sequence[Event]) -> tuple[Hit, ...]:
    """Return the faults that hit an instance while it was active, by time.

    At the end of an epoch the instance's next role holds: it is no longer active. Where an epoch ended before the
    fault, and not if times were off by their uncertainties, it is the fault that ended it.
    """
    found = []
    for one in fault:
        if one.name in PREPARATIONS:
            continue
        # An instance serves one store at a time.
        own = [e for e in epoch if e.instance == one.instance and e.start <= one.at and one.store in (None, e.store)]
        hit = own[-1] if own and (own[-1].open or one.at - one.u < own[-1].latest) else None
        if hit is not None:
            later = [e for e in epoch if e.store == hit.store and e.start > one.at]
            found.append((one, hit, min(later, key=lambda e: (e.start, e.instance), default=None)))
    return tuple(
        Hit(
            one,
            hit,
            follower,
            any(
                one.at < other.at and epoch_hit == hit and (follower is None or other.at < follower.start)
                for other, epoch_hit, _ in found
            ),
            detected(one, hit, follower, events),
        )
        for one, hit, follower in found
    )


def failbacks(events: Sequence[Event], fault: Sequence[Fault], epoch: Sequence[Epoch]) -> tuple[Failback, ...]:
    """Return the failbacks that are due: from each heal of a fault on a store's original instance (that of its first
    epoch). A heal that finds the instance active as before the fault makes none due.

    A heal that the host made by itself was at some time since the fault, and so was one before which the instance was
    already active again. While another fault on the instance is in effect it need not be back.
    """
    originals: dict[str, str] = {}
    for one in epoch:
        originals.setdefault(one.store, one.instance)
    found = []
    for heal in sorted((e for e in events if e.kind == "heal" and e.name not in PREPARATIONS), key=lambda e: e.at):
        before = [
            f
            for f in fault
            if (f.name, f.instance) == (heal.name, heal.instance) and f.at < heal.at and _of_step(heal, f.step)
        ]
        for store, original in originals.items():
            if original != heal.instance or heal.store not in (None, store) or not before:
                continue
            last = max(before, key=lambda f: f.at)
            own = [e for e in epoch if (e.instance, e.store) == (original, store)]
            running = [e for e in own if e.start <= heal.at and (e.open or heal.at < e.end)]
            if running and running[0].start <= last.at:
                continue
            back = min(running or [e for e in own if e.start > heal.at], key=lambda e: e.start, default=None)
            healed_at, earliest, latest = heal.at, heal.at - heal.u, heal.at + heal.u
            if dict(heal.detail).get(BY) == BY_TTL or (back and back.start < earliest):
                if last.healed_at is not None and last.healed_at < heal.at:
                    healed_at = earliest = last.healed_at
                    latest = healed_at + heal.u
                else:
                    earliest = last.at
            until = back.start if back else NEVER
            others = sorted(
                (f.at - f.u, min(_over(f), until))
                for f in fault
                if f.number != last.number and _on(f, last) and healed_at < _over(f) and f.at < until
            )
            times = healed_at, earliest, latest, back and back.start, back.start_u if back else 0
            unseen = max(back.start_u, back.start - back.earliest) if back else 0
            found.append(Failback(heal.name, original, store, *times, tuple(others), unseen))
    return tuple(found)


def _on(other: Fault, fault: Fault) -> bool:
    """Whether another fault is on the instance of `fault` too: on itself, on a link toward it, or on its host."""
    on_host = other.instance is None and other.target is not None and other.target == fault.target
    return other.name not in PREPARATIONS and (on_host or fault.instance in (other.instance, *other.toward))


def _over(fault: Fault) -> int:
    return NEVER if fault.healed_at is None else fault.healed_at


def alerts(events: Sequence[Event]) -> tuple[Alert, ...]:
    """Return the times in which alerts fired, by begin. An alert that fires already is not raised anew."""
    found = []
    firing: dict[tuple[str, str | None, str | None], Alert] = {}
    for event in sorted((e for e in events if e.kind == "alert" and e.name), key=in_order):
        assert event.name is not None
        key = (event.name, event.instance, event.store)
        if event.value == "firing":
            begun = firing.setdefault(key, Alert(*key, event.at, event.u, None))
            # Recorded twice at one time: those of one time stand by their uncertainties.
            if begun.at == event.at and begun.at_u < event.u:
                least = begun.at_u if begun.least_u is None else begun.least_u
                firing[key] = begun._replace(at_u=event.u, least_u=least)
        elif key in firing:
            found.append(firing.pop(key)._replace(cleared_at=event.at, cleared_u=event.u))
    found += firing.values()
    return tuple(sorted(found, key=lambda a: (a.at, a.name, a.instance or "", a.store or "")))


def alerts_watched(events: Sequence[Event], run_end: int) -> tuple[tuple[int, int], ...]:
    """Return (begin, end) of each time for which it is known which alerts fired; one without an end lasts to the run's
    end."""
    marks = sorted((e.at, e.value != "begin") for e in events if (e.kind, e.name) == ("note", ALERTS_WATCHED))
    ends = [at for at, _ in marks[1:]] + [run_end]
    return tuple((at, until) for (at, is_end), until in zip(marks, ends, strict=False) if not is_end)
