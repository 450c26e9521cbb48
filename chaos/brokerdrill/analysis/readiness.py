"""When stores were not ready, as the events of pools and roles record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from brokerdrill.analysis.events import NEVER, Epoch, Event, Fault, Span, in_order


def _at_level(steps: Sequence[tuple[int, int, int]], level: int) -> list[tuple[int, int, int, int]]:
    """Return the spans (begin, end, how uncertain these are) in which the sum of the `steps` (time, change, how
    uncertain the time is) so far is `level`; the last one may end NEVER."""
    by_time: dict[int, int] = defaultdict(int)
    vague: dict[int, int] = {NEVER: 0}
    for at, change, u in steps:
        by_time[at] += change
        vague[at] = max(u, vague.get(at, 0))
    spans: list[tuple[int, int]] = []
    total, times = 0, sorted(by_time)
    for at, until in zip(times, [*times[1:], NEVER], strict=True):
        total += by_time[at]
        if total == level:
            # What changes and makes no difference divides nothing.
            begin = spans.pop()[0] if spans and spans[-1][1] == at else at
            spans.append((begin, until))
    return [(begin, end, vague[begin], vague[end]) for begin, end in spans]


def _pooled(events: Sequence[Event]) -> dict[str, list[Event]]:
    named: dict[str, list[Event]] = defaultdict(list)
    for event in sorted((e for e in events if e.kind == "pool" and e.instance), key=in_order):
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
                steps.append((event.at, now - down, event.u if now != down else 0))
                down = now
        if members:
            spans += [Span(store, *span) for span in _at_level(steps, len(members))]
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
            steps = [(at, 0, 0)]
            steps += [(e.start, 1, e.start_u) for e in epoch if e.store == store]
            steps += [(e.end, -1, e.end_u) for e in epoch if e.store == store and not e.open]
            spans += [Span(store, *span) for span in _at_level(steps, 0)]
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
            (one.at, one.u)
            for one in fault
            if ended.get(span.store, one.at) <= one.at <= span.start
            and (one.healed_at is None or one.healed_at > span.start)
            and (one.store == span.store or members & {one.instance, *one.toward})
        ]
        start, u = max(causes, default=(span.start, span.start_u))
        found.append(span._replace(start=start, start_u=u))
        ended[span.store] = span.end
    return tuple(found)
