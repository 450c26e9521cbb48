"""What is at the same time as what: rules of the timeline and of alerts, at their borders and one tick beside them."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from brokerdrill.analysis import gaps, judge
from brokerdrill.analysis.checks.alerted_within import _quiet_from, find
from brokerdrill.analysis.measures import MOST_BUCKETS, SECOND_NS, base_width, bucket_ns
from brokerdrill.analysis.stages import Source
from brokerdrill.analysis.timeline import (
    NEVER,
    OPERATION,
    WITH,
    Alert,
    Epoch,
    Event,
    Fault,
    Timeline,
    detected,
    endings,
    operations,
    role_changes,
    timeline,
)

KILL = Fault(0, "kill", "a", None, "s", 100, 5, 200)


def ended(at: int, u: int = 0, instance: str = "a", **fields: str) -> Event:
    given = {name: value for name, value in fields.items() if name == "target"}
    detail = {WITH: fields["beside"]} if "beside" in fields else {}
    return Event("ended", at, u, instance=instance, detail=tuple(detail.items()), **given)


def playbook(at: int, name: str, mark: str) -> Event:
    return Event("note", at, name=name, detail=((OPERATION, mark),))


def meant(event: Event, fault: Fault | None = KILL, *playbooks: Event) -> bool:
    (found,) = endings([event, *playbooks], [fault] if fault else [])
    return found.meant


@pytest.mark.parametrize(
    ("at", "u", "expected"),
    [(94, 0, False), (95, 0, True), (93, 2, True), (200, 0, True), (201, 0, False), (203, 3, True), (204, 3, False)],
)
def test_an_end_is_a_faults_from_its_effect_to_its_heal_as_far_as_clocks_tell(at: int, u: int, expected: bool) -> None:
    assert meant(ended(at, u)) is expected


def test_an_end_is_a_faults_that_nobody_healed() -> None:
    assert meant(ended(10_000), KILL._replace(healed_at=None))
    assert not meant(ended(10), KILL._replace(healed_at=None))


def test_an_end_is_of_the_instance_that_the_fault_hit_or_of_one_in_its_process() -> None:
    assert not meant(ended(150, instance="b"))
    assert meant(ended(150, instance="b", beside="a\nc"))
    assert not meant(ended(150, instance="b", beside="c"))
    of_a_host = KILL._replace(instance=None, target="h1")
    assert meant(ended(150, instance="b", target="h1"), of_a_host)
    assert not meant(ended(150, instance="b", target="h2"), of_a_host)
    # Who is named counts, and not where it is.
    assert not meant(ended(150, instance="b", target="h1"), KILL._replace(target="h1"))


@pytest.mark.parametrize(
    ("at", "u", "expected"), [(99, 0, False), (100, 0, True), (98, 2, True), (150, 0, True), (151, 0, False)]
)
def test_an_end_while_a_playbook_runs_is_meant(at: int, u: int, expected: bool) -> None:
    assert meant(ended(at, u), None, playbook(100, "restart", "begin"), playbook(150, "restart", "end")) is expected


def test_a_playbook_lasts_to_its_own_next_end() -> None:
    marks = [
        playbook(10, "one", "begin"),
        playbook(5, "one", "end"),
        playbook(12, "other", "end"),
        playbook(20, "one", "end"),
        playbook(30, "one", "end"),
        playbook(40, "one", "begin"),
        playbook(50, "other", "begin"),
        playbook(50, "other", "end"),
    ]
    assert operations(marks) == [(10, 20), (40, NEVER), (50, 50)]


def test_a_role_without_a_store_is_of_the_only_one_else_of_the_last() -> None:
    def role(at: int, instance: str, value: str, store: str | None = None) -> Event:
        return Event("role", at, instance=instance, value=value, store=store)

    told = [
        role(1, "a", "active"),
        role(2, "a", "passive", "z"),
        role(3, "a", "active"),
        role(4, "b", "active"),
        role(5, "b", "active", "z"),
        role(6, "b", "passive"),
        role(7, "b", "passive"),
    ]
    changes = role_changes(told, {"a": "s", "b": None})
    assert [(e.at, e.instance, e.value, e.store) for e in changes] == [
        (1, "a", "active", "s"),
        (2, "a", "passive", "z"),
        (3, "a", "active", "s"),
        (4, "b", "active", None),
        (5, "b", "active", "z"),
        (6, "b", "passive", "z"),
    ]


def alert(at: int, u: int = 0, cleared: int | None = None) -> Alert:
    return Alert("BrokerDown", "a", "s", at, u, cleared)


@pytest.mark.parametrize(
    ("one", "judged"),
    [
        (alert(94), False),  # before the fault for certain, and firing when it came
        (alert(95), True),
        (alert(93, 2), True),
        (alert(92, 2), False),
        (alert(50, 0, 100), False),  # it is over only after the fault
        (alert(50, 0, 99), True),
        (alert(94, 0, 100), False),
        (alert(120), True),
    ],
)
def test_a_fault_is_not_judged_whose_alert_was_firing_for_certain(one: Alert, judged: bool) -> None:
    times = Timeline(run_end=1000, faults=(KILL,), alerts=(one,), alerts_watched=((0, 1000),))
    found = find(times, "BrokerDown", 60)
    assert (found.evidence, found.doubt) == (judged, not judged)


HIT, NEXT = Epoch("s", "a", 10, 0, 105, 0, False), Epoch("s", "b", 150, 0, 1000, 0, True)


def detecting(at: int, kind: str = "note", **fields: str) -> int | None:
    given = {"name": "detected", "store": "s", **fields}
    return detected(KILL, HIT, NEXT, [Event(kind, at, **given)])


@pytest.mark.parametrize(
    ("sign", "expected"),
    [
        (detecting(120), 120),
        (detecting(120, "health"), 120),
        (detecting(100), 100),  # with the fault
        (detecting(99), 105),
        (detecting(150), 150),  # with the next epoch
        (detecting(151), 105),
        # Of the store, or of who served next: either will do
        (detecting(120, store="z", instance="b"), 120),
        (detecting(120, store="z", instance="c"), 105),
        (detecting(120, name="else"), 105),
        (detecting(120, "alert"), 105),
        (detecting(120, "role", value="starting", name="", store="", instance="b"), 120),
        (detecting(120, "role", value="starting", name="", store="", instance="a"), 105),
    ],
)
def test_a_fault_is_detected_by_the_first_sign_else_when_the_epoch_ended(sign: int | None, expected: int) -> None:
    assert sign == expected


@pytest.mark.parametrize(
    ("run_s", "width_s", "base_s"),
    [
        (0, 0.1, 0.1),
        (60, 0.1, 0.1),
        (60.000000001, 0.2, 0.1),
        (9_000, 15, 15),
        (9_001, 30, 30),
        (3_600 * MOST_BUCKETS, 3_600, 3_600),
        (3_600 * MOST_BUCKETS + 1, 3_601, 1),
        (7_200 * MOST_BUCKETS, 7_200, 1),
    ],
)
def test_a_bucket_is_as_wide_as_a_run_is_long(run_s: float, width_s: float, base_s: float) -> None:
    end = round(run_s * SECOND_NS)
    assert (bucket_ns(end), base_width(end)) == (round(width_s * SECOND_NS), round(base_s * SECOND_NS))


@pytest.mark.parametrize(
    ("whole", "strays", "follows"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_a_look_up_follows_where_clients_are_whole_and_end_their_own(whole: bool, strays: bool, follows: bool) -> None:
    judging = judge.Judging(None, Source(whole=whole), judge.Ledger({}, {}, {}))
    judging._first = {"stray": [object()]} if strays else {}  # type: ignore[list-item]
    assert judging.follows is follows


def times(*lists: list[int]) -> pa.Table:
    """Slices' successes as stage 1 tells them, a list of ns for each client."""
    return pa.table({"slice": pa.array(range(len(lists))), "least": pa.array([10] * len(lists)), "moments": lists})


def test_spans_of_a_slice_are_those_between_successes_that_follow_each_other() -> None:
    slices, wide = gaps.spans(times([30, 0, 10, 21], [7], [5, 5]))
    assert slices.to_pylist() == [
        {"slice": 0, "first": 0, "last": 30, "longest": 11},
        {"slice": 1, "first": 7, "last": 7, "longest": None},
        {"slice": 2, "first": 5, "last": 5, "longest": 0},
    ]
    # Ten is not longer than ten.
    assert wide.to_pylist() == [{"slice": 0, "gap_from": 10, "gap_to": 21}]


def test_spans_are_the_same_where_a_table_is_a_part_of_a_larger_one() -> None:
    whole = times([0, 50], [3, 20, 100], [7, 8])
    told = [gaps.spans(part) for part in (whole, whole.slice(1, 1), whole.slice(2))]
    for place in (0, 1):
        rows = [found[place].to_pylist() for found in told]
        assert rows[1] + rows[2] == [row for row in rows[0] if row["slice"] > 0]


def test_of_many_outages_the_longest_and_the_first_are_shown() -> None:
    base = duckdb.connect()
    base.execute(
        """
        CREATE TABLE "time" AS
        SELECT 0 AS run, 'send' AS side, 0 AS number, 'q' AS address, 0 AS slice, * FROM (
            VALUES ('p0', 'b', [0, 8, 31]), ('p1', 'b', [20, 5, 32])) t (client, server, moments);
        CREATE TABLE specs AS SELECT 0 AS run, 0 AS spec, 'available' AS name, 'send' AS side, 1 AS bound;
        """
    )
    gaps.find(base, most_witnesses=2, most_rows=1)
    assert base.execute("SELECT count(*) FROM outage").fetchall() == [(4,)]
    assert base.execute("SELECT gap_from, gap_to FROM shown ORDER BY ALL").fetchall() == [(0, 5), (8, 20), (20, 31)]
    who = base.sql(gaps._SIDES).to_arrow_table().to_pylist()
    assert {(row["moment"], row["who"]["client"]) for row in who} == {
        (0, "p0"), (5, "p1"), (8, "p0"), (20, "p1"), (31, "p0"), (32, "p1")
    }  # fmt: skip


def test_of_several_drains_the_first_begin_and_the_last_end_count() -> None:
    marks = [(1, "begin"), (5, "end"), (7, "begin"), (9, "end")]
    found = timeline([Event("phase", at, name="drain", value=value) for at, value in marks], {}, None)
    assert (found.drain_begin, found.drain_end) == (1, 9)


@pytest.mark.parametrize(("until", "known"), [(160, True), (159, False)])
def test_that_no_alert_came_is_known_where_the_whole_bound_was_watched(until: int, known: bool) -> None:
    found = find(Timeline(run_end=1000, faults=(KILL,), alerts_watched=((0, until),)), "BrokerDown", 60)
    assert (found.n, found.doubt) == ((1, False) if known else (0, True))


@pytest.mark.parametrize(
    ("one", "quiet"),
    [(alert(99, 0, 120), 120), (alert(100, 0, 120), 120), (alert(101, 0, 120), 100), (alert(100), None)],
)
def test_alerts_are_quiet_from_when_the_last_that_fires_is_cleared(one: Alert, quiet: int | None) -> None:
    assert _quiet_from([one], 100) == quiet
