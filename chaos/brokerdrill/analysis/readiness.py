"""When stores were not ready, as the events of pools and roles record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from brokerdrill.analysis.events import NEVER, Epoch, Event, Fault, Span, in_order


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
