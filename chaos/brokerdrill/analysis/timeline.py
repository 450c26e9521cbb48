"""What a run's events say over time: phases, role epochs, faults with their heals, failbacks, spans of unreadiness.

Plain Python over one run's events: they are few (repeated roles are dropped while they are read), whereas operations
stay in Spark. Rules are those of the ledger's specification ("Words", "Promises"). `at` is run time in nanoseconds,
`u` its uncertainty: the event's own plus its clock's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from brokerdrill.ledger.contract import ALERTS_WATCHED, LOG_READ, OPERATION, ROUND, TOWARD, WITH

# Later than every time: the end of a call that never returned. Half of a long's range, so that sums do not overflow.
NEVER = 1 << 62


@dataclass(frozen=True)
class Event:
    """One event in run time; `detail` holds the map's entries, sorted."""

    kind: str
    at: int
    u: int = 0
    target: str | None = None
    instance: str | None = None
    store: str | None = None
    name: str | None = None
    value: str | None = None
    detail: tuple[tuple[str, str], ...] = ()


class Epoch(NamedTuple):
    """One uninterrupted time for which `instance` is active on `store`; `open`: it runs to the end of the run."""

    store: str
    instance: str
    start: int
    start_u: int
    end: int
    end_u: int
    open: bool


class Fault(NamedTuple):
    """A fault, numbered by time, and when it was healed (the first later heal of the same name and target; None:
    never). `toward`: the instances at the ends of the link that it hit."""

    number: int
    name: str | None
    instance: str | None
    target: str | None
    store: str | None
    at: int
    u: int
    healed_at: int | None
    toward: tuple[str, ...] = ()


class Hit(NamedTuple):
    """A fault on an instance that was active: the epoch it hit, and the next epoch on that store (None: there is none).
    `again`: a later fault hit the same epoch before the next began. `detected_at`: when a sign first told that the next
    epoch's side had noticed (None: no event tells)."""

    fault: Fault
    epoch: Epoch
    next: Epoch | None
    again: bool
    detected_at: int | None


class Takeover(NamedTuple):
    """The begin of an epoch on a store that another instance had served last."""

    store: str
    before: str
    instance: str
    at: int


class Failback(NamedTuple):
    """From the heal of a fault (of type `name`) on a store's original instance to its next epoch there (None: none)."""

    name: str | None
    instance: str
    store: str
    healed_at: int
    back_at: int | None


class Ending(NamedTuple):
    """The end of an instance's process: `how` and with which `status` or signal it ended, and the `last` lines that it
    wrote. `meant`: a fault on that instance, on another in the process, or on its host was in effect, or an operation
    was under way."""

    instance: str
    at: int
    how: str | None
    status: str | None
    last: str | None
    meant: bool


class Round(NamedTuple):
    """A pass through a method that is repeated: its steps took from `start` to `end`, and what happened before
    `until`, the begin of the next one (NEVER: there is none), is of this one."""

    name: str
    start: int
    end: int
    until: int


class Alert(NamedTuple):
    """A time in which the alert `name` fired, of an instance or a store (None: of no certain one); `at_u` is the
    uncertainty of its begin. `cleared_at` None: to the end of the run."""

    name: str
    instance: str | None
    store: str | None
    at: int
    at_u: int
    cleared_at: int | None

    def concerns(self, fault: Fault) -> bool:
        """Whether it may be about `fault`: what both say of instance and store is the same."""
        pairs = ((self.instance, fault.instance), (self.store, fault.store))
        return all(mine == its or mine is None or its is None for mine, its in pairs)


class Span(NamedTuple):
    """A store and a time, the end not in it."""

    store: str
    start: int
    end: int


@dataclass(frozen=True)
class Timeline:
    """What the events of one run say; times of drains are None where no such event was recorded, `guess` is the last
    event's time."""

    run_end: int
    guess: int = 0
    drain_begin: int | None = None
    drain_end: int | None = None
    loads: tuple[tuple[int, int], ...] = ()
    homes: Mapping[str, str | None] = field(default_factory=dict)
    roles: tuple[Event, ...] = ()
    epochs: tuple[Epoch, ...] = ()
    overlaps: tuple[tuple[Epoch, Epoch, int, int], ...] = ()
    faults: tuple[Fault, ...] = ()
    hits: tuple[Hit, ...] = ()
    takeovers: tuple[Takeover, ...] = ()
    failbacks: tuple[Failback, ...] = ()
    unready: tuple[Span, ...] = ()
    # The stores that the pools' events name.
    pooled: frozenset[str] = frozenset()
    endings: tuple[Ending, ...] = ()
    # The instances whose logs were read, so that no ending means that there was none.
    logged: frozenset[str] = frozenset()
    rounds: tuple[Round, ...] = ()
    alerts: tuple[Alert, ...] = ()
    # The times (begin, end) for which it is known which alerts fired.
    alerts_watched: tuple[tuple[int, int], ...] = ()


def timeline(events: Sequence[Event], stores: Mapping[str, Sequence[str]], ops_end: int | None) -> Timeline:
    """Return the `Timeline` of one run from its events in any order, run.json's `stores` and the last time of its
    operations (None: there are none)."""
    run_end = max([event.at for event in events] + ([] if ops_end is None else [ops_end]), default=0)
    home = homes(events, stores)
    changes = role_changes(events, home)
    epoch = epochs(changes, run_end)
    fault = faults(events)
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
        homes=home,
        roles=tuple(changes),
        epochs=epoch,
        overlaps=overlaps(epoch),
        faults=fault,
        hits=hit,
        takeovers=takeovers(epoch),
        failbacks=failbacks(events, epoch),
        unready=since_faults(
            [*unready_by_pool(events, stores), *unready_by_role(events, changes, epoch, stores)], fault, stores
        ),
        pooled=pooled(events, stores),
        endings=endings(events, fault),
        logged=frozenset(e.instance for e in events if (e.kind, e.name) == ("note", LOG_READ) and e.instance),
        rounds=rounds(events, run_end),
        alerts=alerts(events),
        alerts_watched=alerts_watched(events, run_end),
    )


def loads(events: Sequence[Event], run_end: int) -> tuple[tuple[int, int], ...]:
    """Return (begin, end) of each load phase: from a begin to the next load event, or to the run's end where it broke
    off."""
    marks = sorted((e.at, e.value != "begin") for e in events if e.kind == "phase" and e.name == "load")
    ends = [at for at, _ in marks[1:]] + [run_end]
    return tuple((at, until) for (at, is_end), until in zip(marks, ends, strict=False) if not is_end)


def rounds(events: Sequence[Event], run_end: int) -> tuple[Round, ...]:
    """Return the rounds of the method, by time; one that did not come to its end lasts until the next, or the run's
    end."""
    marks = sorted((e.at, e.name or "", dict(e.detail)[ROUND]) for e in events if ROUND in dict(e.detail))
    begins = [(at, name) for at, name, edge in marks if edge == "begin"]
    found = []
    for (at, name), (until, _) in zip(begins, [*begins, (NEVER, "")][1:], strict=True):
        ends = [end for end, of, edge in marks if edge == "end" and of == name and at <= end]
        found.append(Round(name, at, min([*ends, until, max(at, run_end)]), until))
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


def _order(event: Event) -> tuple[int, str, str, int]:
    return event.at, event.value or "", event.store or "", event.u


def role_changes(events: Sequence[Event], home: Mapping[str, str | None]) -> list[Event]:
    """Return the role events that change their instance's value or store, by time. An event without a store keeps the
    instance's only one, else the one that it named last."""
    changes = []
    last: dict[str, tuple[str | None, str | None]] = {}
    for event in sorted((e for e in events if e.kind == "role" and e.instance), key=_order):
        assert event.instance is not None
        known = last.get(event.instance, (None, None))
        store = event.store or home.get(event.instance) or known[1]
        if (event.value, store) != known:
            changes.append(
                Event("role", event.at, event.u, event.target, event.instance, store, event.name, event.value)
            )
        last[event.instance] = (event.value, store)
    return changes


def epochs(changes: Sequence[Event], run_end: int) -> tuple[Epoch, ...]:
    """Return the epochs that `role_changes` make, by start."""
    found = []
    running: dict[str, Event] = {}
    for change in changes:
        assert change.instance is not None
        begun = running.pop(change.instance, None)
        if begun is not None and begun.store is not None:
            found.append(Epoch(begun.store, change.instance, begun.at, begun.u, change.at, change.u, False))
        if change.value == "active":
            running[change.instance] = change
    for instance, begun in running.items():
        if begun.store is not None:
            found.append(Epoch(begun.store, instance, begun.at, begun.u, run_end, 0, True))
    return tuple(sorted(found, key=lambda e: (e.start, e.instance, e.store)))


def overlaps(epoch: Sequence[Epoch]) -> tuple[tuple[Epoch, Epoch, int, int], ...]:
    """Return the pairs of epochs of two instances on one store whose certain times (shrunk by their uncertainty)
    overlap, with the overlap's start and end."""
    by_store: dict[str, list[Epoch]] = defaultdict(list)
    for one in epoch:
        by_store[one.store].append(one)
    found = []
    for same in by_store.values():
        for a, b in combinations(same, 2):
            start, end = max(a.start + a.start_u, b.start + b.start_u), min(a.end - a.end_u, b.end - b.end_u)
            if a.instance != b.instance and start < end:
                found.append((a, b, start, end))
    return tuple(found)


def takeovers(epoch: Sequence[Epoch]) -> tuple[Takeover, ...]:
    """Return how often a store changed hands, by time, from the epochs by start; whether a fault led to it or none."""
    found = []
    last: dict[str, str] = {}
    for one in epoch:
        before = last.setdefault(one.store, one.instance)
        if before != one.instance:
            found.append(Takeover(one.store, before, one.instance, one.start))
        last[one.store] = one.instance
    return tuple(found)


def faults(events: Sequence[Event]) -> tuple[Fault, ...]:
    """Return the faults by time, each with its heal."""

    def whom(event: Event) -> tuple[str, str, str]:
        return event.name or "", event.instance or "", event.target or ""

    heals: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for event in events:
        if event.kind == "heal":
            heals[whom(event)].append(event.at)
    ordered = sorted((e for e in events if e.kind == "fault"), key=lambda e: (e.at, whom(e)))
    return tuple(
        Fault(
            number,
            event.name,
            event.instance,
            event.target,
            event.store,
            event.at,
            event.u,
            min((at for at in heals[whom(event)] if at > event.at), default=None),
            tuple(filter(None, dict(event.detail).get(TOWARD, "").split(", "))),
        )
        for number, event in enumerate(ordered, start=1)
    )


def detected(fault: Fault, hit: Epoch, following: Epoch | None, events: Sequence[Event]) -> int | None:
    """Return when the fault was detected: the first event, from the fault to the next epoch's begin, that is a note or
    health named `detected` of that store or of the next epoch's instance, or that instance's role `starting`; else the
    end of the epoch that was hit, if it ended by then; None: no event tells."""
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
    return min(signs, default=None if hit.end > following.start else hit.end)


def hits(fault: Sequence[Fault], epoch: Sequence[Epoch], events: Sequence[Event]) -> tuple[Hit, ...]:
    """Return the faults that hit an instance while it was active, by time.

    At the end of an epoch the instance's next role holds: it is no longer active.
    """
    found = []
    for one in fault:
        # An instance serves one store at a time.
        hit = next(
            (
                e
                for e in epoch
                if e.instance == one.instance
                and e.start <= one.at
                and (e.open or one.at < e.end)
                and one.store in (None, e.store)
            ),
            None,
        )
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


def failbacks(events: Sequence[Event], epoch: Sequence[Epoch]) -> tuple[Failback, ...]:
    """Return the failbacks that are due: from each heal of a fault on a store's original instance (that of its first
    epoch). A heal that finds the instance active as before the fault makes none due; active again before the heal was
    recorded, it took no time."""
    originals: dict[str, str] = {}
    for one in epoch:
        originals.setdefault(one.store, one.instance)
    found = []
    for heal in sorted((e for e in events if e.kind == "heal"), key=lambda e: e.at):
        faults_before = [
            e.at
            for e in events
            if e.kind == "fault" and (e.name, e.instance) == (heal.name, heal.instance) and e.at < heal.at
        ]
        for store, original in originals.items():
            if original != heal.instance or heal.store not in (None, store) or not faults_before:
                continue
            own = [e for e in epoch if (e.instance, e.store) == (original, store)]
            running = [e for e in own if e.start <= heal.at and (e.open or heal.at < e.end)]
            if running and running[0].start <= max(faults_before):
                continue
            begins = [heal.at] if running else [e.start for e in own if e.start > heal.at]
            found.append(Failback(heal.name, original, store, heal.at, min(begins, default=None)))
    return tuple(found)


def operations(events: Sequence[Event]) -> list[tuple[int, int]]:
    """Return (begin, end) of each playbook that ran as a step; one that did not come to its end lasts on."""
    marks = [(e.at, e.name, dict(e.detail)[OPERATION]) for e in events if OPERATION in dict(e.detail)]
    return [
        (at, min((end for end, of, mark in marks if mark == "end" and of == name and end >= at), default=NEVER))
        for at, name, mark in marks
        if mark == "begin"
    ]


def endings(events: Sequence[Event], fault: Sequence[Fault]) -> tuple[Ending, ...]:
    """Return the ends of the instances' processes, by time."""
    during = operations(events)
    found = []
    for event in sorted((e for e in events if e.kind == "ended" and e.instance), key=lambda e: (e.at, e.instance)):
        assert event.instance is not None
        told = dict(event.detail)
        within = {event.instance, *(told.get(WITH) or "").split("\n")}
        meant = any(begin <= event.at + event.u and event.at - event.u <= end for begin, end in during) or any(
            (one.instance in within or (one.instance is None and one.target == event.target))
            and one.at - one.u <= event.at + event.u
            and (one.healed_at is None or event.at - event.u <= one.healed_at)
            for one in fault
        )
        found.append(Ending(event.instance, event.at, event.value, told.get("status"), told.get("last"), meant))
    return tuple(found)


def alerts(events: Sequence[Event]) -> tuple[Alert, ...]:
    """Return the times in which alerts fired, by begin. An alert that fires already is not raised anew."""
    found = []
    firing: dict[tuple[str, str | None, str | None], Event] = {}
    for event in sorted((e for e in events if e.kind == "alert" and e.name), key=_order):
        assert event.name is not None
        key = (event.name, event.instance, event.store)
        if event.value == "firing":
            firing.setdefault(key, event)
        elif begun := firing.pop(key, None):
            found.append(Alert(*key, begun.at, begun.u, event.at))
    found += [Alert(*key, begun.at, begun.u, None) for key, begun in firing.items()]
    return tuple(sorted(found, key=lambda a: (a.at, a.name, a.instance or "", a.store or "")))


def alerts_watched(events: Sequence[Event], run_end: int) -> tuple[tuple[int, int], ...]:
    """Return (begin, end) of each time for which it is known which alerts fired; one without an end lasts to the run's
    end."""
    marks = sorted((e.at, e.value != "begin") for e in events if (e.kind, e.name) == ("note", ALERTS_WATCHED))
    ends = [at for at, _ in marks[1:]] + [run_end]
    return tuple((at, until) for (at, is_end), until in zip(marks, ends, strict=False) if not is_end)


def _at_level(steps: Sequence[tuple[int, int]], level: int) -> list[tuple[int, int]]:
    """Return the spans in which the sum of the `steps` (time, change) so far is `level`; the last one may end NEVER."""
    by_time: dict[int, int] = defaultdict(int)
    for at, change in steps:
        by_time[at] += change
    times = sorted(by_time)
    spans, total = [], 0
    for at, until in zip(times, [*times[1:], NEVER], strict=True):
        total += by_time[at]
        if total == level:
            spans.append((at, until))
    return spans


def _pooled(events: Sequence[Event]) -> dict[str, list[Event]]:
    named: dict[str, list[Event]] = defaultdict(list)
    for event in sorted((e for e in events if e.kind == "pool" and e.instance), key=_order):
        assert event.instance is not None
        named[event.instance].append(event)
    return named


def pooled(events: Sequence[Event], stores: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Return the stores of whose instances some are in a pool."""
    named = _pooled(events)
    return frozenset(store for store, instances in stores.items() if any(instance in named for instance in instances))


def unready_by_pool(events: Sequence[Event], stores: Mapping[str, Sequence[str]]) -> list[Span]:
    """Return the spans in which all instances of a store that the pool's events name were not ready."""
    named = _pooled(events)
    spans = []
    for store, instances in stores.items():
        members = [instance for instance in dict.fromkeys(instances) if instance in named]
        steps = []
        for instance in members:
            down = 0
            for event in named[instance]:
                now = int(event.value == "not_ready")
                steps.append((event.at, now - down))
                down = now
        if members:
            spans += [Span(store, start, end) for start, end in _at_level(steps, len(members))]
    return spans


def unready_by_role(
    events: Sequence[Event],
    changes: Sequence[Event],
    epoch: Sequence[Epoch],
    stores: Mapping[str, Sequence[str]],
) -> list[Span]:
    """Return the spans in which no instance was active on a store that no pool event speaks of, from the first role
    that is known of its instances: before it nothing is known."""
    in_pools = pooled(events, stores)
    first: dict[str, int] = {}
    for change in changes:
        of = {store for store, instances in stores.items() if change.instance in instances}
        for store in of | ({change.store} if change.store else set()):
            first.setdefault(store, change.at)
    spans = []
    for store, at in first.items():
        if store not in in_pools:
            steps = [(at, 0)]
            steps += [(e.start, 1) for e in epoch if e.store == store]
            steps += [(e.end, -1) for e in epoch if e.store == store and not e.open]
            spans += [Span(store, start, end) for start, end in _at_level(steps, 0)]
    return spans


def since_faults(
    spans: Sequence[Span], fault: Sequence[Fault], stores: Mapping[str, Sequence[str]]
) -> tuple[Span, ...]:
    """Return the spans in which a store was not ready, each from the fault that explains it: the last one on the store,
    on an instance of it or on a link toward one, that came while the store was ready before, and was in effect still.
    Whoever watches a pool learns of it later than some of those that the pool leads."""
    found = []
    ended: dict[str, int] = {}
    for span in sorted(spans):
        members = {*stores.get(span.store, ())}
        causes = [
            one.at
            for one in fault
            if ended.get(span.store, one.at) <= one.at <= span.start
            and (one.healed_at is None or one.healed_at > span.start)
            and (one.store == span.store or members & {one.instance, *one.toward})
        ]
        found.append(span._replace(start=max(causes, default=span.start)))
        ended[span.store] = span.end
    return tuple(found)
