"""Properties of the timeline (epochs, heals, failbacks, unreadiness) over arbitrary events, and the oracle's epochs."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from brokerdrill.analysis.events import Event
from brokerdrill.analysis.measures import MOST_BUCKETS, bucket_ns
from brokerdrill.analysis.timeline import timeline
from brokerdrill.analysis.verdict import merged
from brokerdrill.ledger.contract import POOL_VALUES, ROLES, VERDICTS, RunInfo
from tests.analysis import oracle

STORES = {"s": ("a", "b"), "z": ("x", "b")}
INSTANCES = ("a", "b", "x")

times = st.integers(0, 50)
role_events = st.builds(
    Event,
    kind=st.just("role"),
    at=times,
    u=st.integers(0, 3),
    instance=st.sampled_from(INSTANCES),
    store=st.sampled_from(("s", "z")),
    value=st.sampled_from(ROLES),
)
fault_events = st.builds(
    Event,
    kind=st.sampled_from(("fault", "heal")),
    at=times,
    instance=st.sampled_from((*INSTANCES, None)),
    name=st.sampled_from(("kill", "pause")),
)
pool_events = st.builds(
    Event, kind=st.just("pool"), at=times, instance=st.sampled_from(INSTANCES), value=st.sampled_from(POOL_VALUES)
)
events = st.lists(st.one_of(role_events, fault_events, pool_events), max_size=25)


@given(events)
def test_an_instance_serves_one_store_at_a_time(drawn: list[Event]) -> None:
    made = timeline(drawn, STORES, ops_end=60)
    assert made.run_end == max([60, *(event.at for event in drawn)])
    for instance in INSTANCES:
        own = [epoch for epoch in made.epochs if epoch.instance == instance]
        assert all(one.end <= other.start for one, other in pairwise(own))
        assert all(epoch.start <= epoch.end for epoch in own)
        assert [epoch.open for epoch in own[:-1]] == [False] * len(own[:-1])


@given(st.lists(role_events, max_size=25, unique_by=lambda event: event.at))
def test_epochs_are_the_oracles(drawn: list[Event]) -> None:
    rows = [
        {
            "kind": e.kind,
            "t_ns": e.at,
            "instance": e.instance,
            "store": e.store,
            "value": e.value,
            "uncertainty_ns": e.u,
        }
        for e in sorted(drawn, key=lambda e: e.at)
    ]
    theirs = oracle.find_epochs(RunInfo("r", stores=STORES), rows)
    mine = timeline(drawn, STORES, ops_end=60).epochs
    told = [(e.instance, e.store, e.begin, e.begin_uncertainty, e.end, e.end_uncertainty) for e in theirs]
    assert [(e.instance, e.store, e.start, e.start_u, None if e.open else e.end, e.end_u) for e in mine] == told


@given(events)
def test_overlaps_are_of_two_instances_on_one_store_at_one_time(drawn: list[Event]) -> None:
    for a, b, start, end, certain in timeline(drawn, STORES, ops_end=60).overlaps:
        assert a.store == b.store
        assert a.instance != b.instance
        assert start < end
        assert not certain or max(a.start, b.start) <= start < end <= min(a.end, b.end)


@given(events)
def test_faults_hits_and_failbacks(drawn: list[Event]) -> None:
    made = timeline(drawn, STORES, ops_end=60)
    assert len(made.faults) == sum(event.kind == "fault" for event in drawn)
    assert all(fault.healed_at is None or fault.healed_at >= fault.at for fault in made.faults)
    for hit in made.hits:
        assert hit.epoch.start <= hit.fault.at <= max(hit.epoch.end, hit.epoch.latest)
        assert hit.next is None or (hit.next.start > hit.fault.at and hit.next.store == hit.epoch.store)
        assert hit.detected_at is None or hit.fault.at <= hit.detected_at
    for back in made.failbacks:
        assert back.back_at is None or back.back_at >= back.earliest


@given(events)
def test_a_store_is_ready_while_the_pool_says_so(drawn: list[Event]) -> None:
    # Faults aside: from one that explains it a store is not ready although nobody says so yet.
    drawn = [event for event in drawn if event.kind != "fault"]
    made = timeline(drawn, STORES, ops_end=60)
    for store, instances in STORES.items():
        spans = [span for span in made.unready if span.store == store]
        pooled = {e.instance for e in drawn if e.kind == "pool"} & set(instances)
        for moment in range(51):
            unready = any(span.start <= moment < span.end for span in spans)
            if pooled:
                latest = {}
                for event in sorted((e for e in drawn if e.kind == "pool"), key=lambda e: (e.at, e.value)):
                    if event.at <= moment:
                        latest[event.instance] = event.value
                assert unready == all(latest.get(instance) == "not_ready" for instance in pooled)
            else:
                active = any(e.store == store and e.start <= moment < max(e.end, e.start + 1) for e in made.epochs)
                assert not (unready and active and all(e.start < e.end for e in made.epochs))


@given(events)
def test_a_store_is_not_ready_from_the_fault_that_explains_it(drawn: list[Event]) -> None:
    made = timeline(drawn, STORES, ops_end=60)
    said = timeline([event for event in drawn if event.kind != "fault"], STORES, ops_end=60).unready
    at = {fault.at for fault in made.faults}
    seen = [span for span in sorted(said) if span.start < span.end]
    assert [(span.store, span.end) for span in made.unready] == [(span.store, span.end) for span in seen]
    for span, plain in zip(made.unready, seen, strict=True):
        assert span.start <= plain.start
        assert span.start == plain.start or span.start in at
    for one, other in pairwise(made.unready):
        assert one.store != other.store or one.end <= other.start


@given(st.lists(st.sampled_from(VERDICTS)))
def test_verdicts_merge_to_the_worst(drawn: list[str]) -> None:
    assert merged(drawn) == oracle.merge(drawn)


@given(st.integers(0, 10**16))
def test_a_run_has_at_most_600_buckets(run_end: int) -> None:
    assert -(-run_end // bucket_ns(run_end)) <= MOST_BUCKETS


@given(events)
def test_a_takeover_is_a_begin_that_another_instance_served_before(drawn: list[Event]) -> None:
    made = timeline(drawn, STORES, ops_end=60)
    for store in STORES:
        served = [epoch.instance for epoch in made.epochs if epoch.store == store]
        told = [(one.other_instance, one.instance) for one in made.takeovers if one.store == store]
        assert told == [(a, b) for a, b in pairwise(served) if a != b]
