"""What is at the same time as what: rules of the timeline and of alerts, at their borders and one tick beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from brokerdrill.analysis import gaps, judge
from brokerdrill.analysis.checks import available, failback_within, failover_within, single_active
from brokerdrill.analysis.checks.alerted_within import _quiet_from, find
from brokerdrill.analysis.checks.available import fault_over
from brokerdrill.analysis.checks.finding import BUSY, CLOCKS, Finding, worst
from brokerdrill.analysis.checks.no_dead_letters import DeadLetterLook, look_at
from brokerdrill.analysis.completeness import Numbered, holes
from brokerdrill.analysis.endings import endings, operations
from brokerdrill.analysis.events import NEVER, Alert, Epoch, Event, Failback, Fault, Hit, Overlap, Pressure, Span
from brokerdrill.analysis.kernel import unpack
from brokerdrill.analysis.measures import MOST_BUCKETS, SECOND_NS, base_width, bucket_ns
from brokerdrill.analysis.placing import Placed
from brokerdrill.analysis.readiness import since_faults
from brokerdrill.analysis.stages import Source
from brokerdrill.analysis.tables import stage_tables
from brokerdrill.analysis.timeline import Timeline, alerts, detected, faults, homes, overlaps, role_changes, timeline
from brokerdrill.analysis.watching import pressures
from brokerdrill.ledger.contract import OPERATION, WITH, PromiseSpec, RunInfo

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
    assert operations(marks) == [(10, 20, None), (40, NEVER, None), (50, 50, None)]


def role(at: int, instance: str, value: str, store: str | None = None, u: int = 0) -> Event:
    return Event("role", at, u, instance=instance, value=value, store=store)


def test_a_role_without_a_store_is_of_the_only_one_else_of_the_last() -> None:
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


def epoch(instance: str, start: int, start_u: int, end: int, end_u: int, *, open: bool = False) -> Epoch:
    """An epoch on s of which nothing else is known."""
    return Epoch("s", instance, start, start_u, end, end_u, open, start - start_u, end + end_u)


HIT, NEXT = epoch("a", 10, 0, 105, 0), epoch("b", 150, 0, 1000, 0, open=True)


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


def test_the_first_of_several_signs_detects() -> None:
    assert detected(KILL, HIT, NEXT, [Event("note", at, name="detected", store="s") for at in (130, 120, 140)]) == 120


@pytest.mark.parametrize(("end", "expected"), [(149, 149), (150, 150), (151, None)])
def test_a_fault_is_detected_when_the_epoch_ended_if_that_was_by_the_next_ones_begin(
    end: int, expected: int | None
) -> None:
    assert detected(KILL, HIT._replace(end=end), NEXT, []) == expected


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
    judging = judge.Judging(None, Source(whole=whole), judge.Ledger({}, {}, {}, {}, parts=1, series=False))
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
    who = base.sql(gaps._SIDES.sql).to_arrow_table().to_pylist()
    assert {(row["moment"], row["client"]) for row in who} == {
        (0, "p0"), (5, "p1"), (8, "p0"), (20, "p1"), (31, "p0"), (32, "p1")
    }  # fmt: skip


def test_of_several_drains_the_first_begin_and_the_last_end_count() -> None:
    marks = [(1, "begin"), (5, "end"), (7, "begin"), (9, "end")]
    found = timeline([Event("phase", at, name="drain", value=value) for at, value in marks], {}, None)
    assert (found.drain_begin, found.drain_end) == (1, 9)


@pytest.mark.parametrize(
    ("since", "until", "known"), [(0, 160, True), (0, 159, False), (100, 160, True), (101, 160, False)]
)
def test_that_no_alert_came_is_known_where_the_whole_bound_was_watched(since: int, until: int, known: bool) -> None:
    found = find(Timeline(run_end=1000, faults=(KILL,), alerts_watched=((since, until),)), "BrokerDown", 60)
    assert (found.n, found.doubt) == ((1, False) if known else (0, True))


@pytest.mark.parametrize(("until", "known"), [(260, True), (259, False)])
def test_that_an_alert_did_not_clear_is_known_where_the_whole_bound_was_watched(until: int, known: bool) -> None:
    times = Timeline(run_end=1000, faults=(KILL,), alerts=(alert(120),), alerts_watched=((0, until),))
    found = find(times, "BrokerDown", 60)
    assert (found.n, found.doubt, found.evidence) == ((1, False, True) if known else (0, True, False))


def test_an_alert_is_as_bad_as_the_longer_of_its_two_times() -> None:
    faults = (KILL, KILL._replace(number=2, instance="b", at=500, healed_at=600))
    fired = (alert(110, 0, 500), Alert("BrokerDown", "b", "s", 550, 0, 800))
    found = find(Timeline(run_end=1000, faults=faults, alerts=fired, alerts_watched=((0, 1000),)), "BrokerDown", 60)
    told = [(one["instance"], one["fired_ms"], one["cleared_ms"]) for one in found.witnesses]
    assert told == [("a", 10 / 1e6, 300 / 1e6), ("b", 50 / 1e6, 200 / 1e6)]
    assert found.measured == 300 / 1e6


def test_an_alert_that_never_cleared_is_worse_than_one_that_was_late() -> None:
    """It fired just when the bound was over, the other one long after it, and was cleared within it."""
    sure = KILL._replace(u=0)
    faults = (sure, sure._replace(number=2, instance="b", at=500, healed_at=800))
    fired = (alert(160), Alert("BrokerDown", "b", "s", 700, 0, 810))
    found = find(Timeline(run_end=1000, faults=faults, alerts=fired, alerts_watched=((0, 1000),)), "BrokerDown", 60)
    assert [(one["instance"], one["fired_ms"]) for one in found.witnesses] == [("a", 60 / 1e6), ("b", 200 / 1e6)]
    assert (found.n, found.moments) == (2, [100, 500])


@pytest.mark.parametrize(
    ("one", "quiet"),
    [(alert(99, 0, 120), 120), (alert(100, 0, 120), 120), (alert(101, 0, 120), 100), (alert(100), None)],
)
def test_alerts_are_quiet_from_when_the_last_that_fires_is_cleared(one: Alert, quiet: int | None) -> None:
    assert _quiet_from([one], 100) == quiet


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        # (start, its uncertainty, end, its uncertainty) of two instances' epochs
        ((100, 0, 150, 0), (110, 0, 200, 0), (110, 150)),
        ((100, 0, 150, 0), (150, 0, 200, 0), None),
        # whichever uncertainty it is: no time is certain to be of both
        ((100, 50, 150, 0), (110, 0, 200, 0), None),
        ((100, 0, 150, 40), (110, 0, 200, 0), None),
        ((100, 0, 150, 0), (110, 40, 200, 0), None),
        ((100, 0, 900, 0), (110, 0, 150, 40), None),
        ((100, 49, 150, 0), (110, 0, 200, 0), (149, 150)),
        ((100, 0, 150, 39), (110, 0, 200, 0), (110, 111)),
        ((100, 0, 150, 0), (110, 39, 200, 0), (149, 150)),
        ((100, 0, 900, 0), (110, 0, 150, 39), (110, 111)),
    ],
)
def test_two_epochs_overlap_for_as_long_as_both_are_certain(
    one: tuple[int, int, int, int], other: tuple[int, int, int, int], overlap: tuple[int, int] | None
) -> None:
    epochs = epoch("a", *one), epoch("b", *other)
    assert [(one.start, one.end) for one in overlaps(epochs) if one.certain] == ([overlap] if overlap else [])


@pytest.mark.parametrize(
    ("one", "other", "perhaps"),
    [
        ((100, 0, 150, 0), (150, 0, 200, 0), False),
        ((100, 0, 150, 1), (150, 0, 200, 0), True),
        ((100, 0, 150, 0), (150, 1, 200, 0), True),
        ((100, 0, 150, 20), (170, 0, 200, 0), False),
        ((100, 0, 150, 20), (170, 1, 200, 0), True),
        # What is certain is not only possible.
        ((100, 0, 160, 5), (150, 1, 200, 0), False),
    ],
)
def test_two_epochs_may_overlap_where_they_do_when_each_is_widened(
    one: tuple[int, int, int, int], other: tuple[int, int, int, int], perhaps: bool
) -> None:
    epochs = epoch("a", *one), epoch("b", *other)
    assert [one.certain for one in overlaps(epochs) if not one.certain] == [False] * perhaps


@pytest.mark.parametrize(
    ("name", "instance", "at", "healed_at", "expected"),
    [
        # Epochs of 100 to 200 and of 150 to 250, whose uncertainty is 2, as the fault's.
        ("pause", "b", 240, 245, [(152, 198, True)]),
        ("pause", "a", 140, 220, []),
        ("pause", "a", 140, None, []),
        ("pause", "a", 140, 170, [(172, 198, True)]),
        ("pause", "a", 160, 220, [(152, 158, True)]),
        # It went on at 197, give or take 2, and was gone at 200, give or take 2.
        ("pause", "a", 140, 197, [(195, 202, False)]),
        ("partition", "a", 140, 220, [(152, 198, True)]),
        ("pause", None, 140, 220, [(152, 198, True)]),
    ],
)
def test_a_process_that_is_halted_is_not_active(
    name: str, instance: str | None, at: int, healed_at: int | None, expected: list[tuple[int, int, bool]]
) -> None:
    epochs = epoch("a", 100, 2, 200, 2), epoch("b", 150, 2, 250, 2)
    fault = Fault(0, name, instance, None, "s", at, 2, healed_at)
    assert [(one.start, one.end, one.certain) for one in overlaps(epochs, [fault])] == expected


def test_a_reading_of_pressure_that_says_nothing_of_a_time_is_none() -> None:
    def reading(at: int, kind: str = "pressure", name: str | None = "cpu", **detail: int) -> Event:
        return Event(kind, at, name=name, target="h", detail=tuple((key, str(value)) for key, value in detail.items()))

    whole = reading(200, since_ns=100, stalled_ns=60)
    others = [
        reading(200, since_ns=100),
        reading(200, stalled_ns=60),
        reading(200, since_ns=100, stalled_ns=0),
        reading(200, since_ns=200, stalled_ns=60),
        reading(200, since_ns=201, stalled_ns=60),
        reading(200, name=None, since_ns=100, stalled_ns=60),
        reading(200, kind="note", since_ns=100, stalled_ns=60),
        reading(200),
    ]
    assert pressures([*others, whole]) == (Pressure("h", "cpu", 100, 200, 60),)


def test_a_run_lasts_to_its_last_time_whoever_tells_it() -> None:
    told = [Event("note", 9), Event("note", 1)]
    assert [(one.run_end, one.guess) for one in (timeline(told, {}, 20), timeline(told, {}, 5))] == [(20, 9), (9, 9)]
    assert (timeline([], {}, None).run_end, timeline([], {}, None).guess) == (0, 0)


def windows(specs: Sequence[PromiseSpec], times: Timeline, parts: int = 2) -> list[dict[str, Any]]:
    made = stage_tables({0: RunInfo("r")}, {0: specs}, {0: times}, parts, series=False)
    return unpack(made["windows"]).to_pylist()


@pytest.mark.parametrize(
    ("load", "width_s"),
    [
        ((0, 80), 10),
        ((20, 60), 5),
        ((20, NEVER // SECOND_NS), 7.5),  # which no event ended: up to the last event
        ((0, 4), None),
    ],
)
def test_a_load_is_looked_at_in_four_slices_a_partition_of_a_second_at_least(
    load: tuple[int, int], width_s: float | None
) -> None:
    times = Timeline(run_end=NEVER, guess=80 * SECOND_NS, loads=((load[0] * SECOND_NS, load[1] * SECOND_NS),))
    (row,) = windows([PromiseSpec("available", bound_ms=1)], times)
    # What ends with the load is in the last slice.
    assert row["width"] == (SECOND_NS if width_s is None else round(width_s * SECOND_NS) + 1)


def test_only_what_is_asked_for_is_looked_at_in_slices() -> None:
    back = Failback("kill", "a", "s", 10, 10, 10, 20)
    times = Timeline(run_end=90, loads=((0, 80),), failbacks=(back,))
    available, failback, other = (PromiseSpec(name) for name in ("available", "failback_within", "no_loss"))
    for specs, sides in (
        ([other, available], {"send"}),
        ([other, failback], {"failback"}),
        ([failback, available, PromiseSpec("available", side="receive")], {"send", "receive", "failback"}),
        ([other], set()),
    ):
        assert {row["side"] for row in windows(specs, times)} == sides


def test_a_store_is_not_ready_from_the_first_role_on_that_is_known_of_who_may_serve_it() -> None:
    """Whether run.json says that it may, or its role does."""
    stores = {"s": ("a",), "z": ("a", "x"), "quiet": ("c",)}
    told = [
        *(role(10, "a", "active", "s"), role(50, "x", "active", "z"), role(60, "x", "passive", "z")),
        *(role(20, "b", "passive", "y"), role(30, "b", "active", "y")),
    ]
    assert sorted(timeline(told, stores, 100).unready) == [("y", 20, 30), ("z", 10, 50), ("z", 60, NEVER)]


def test_an_instance_is_at_home_in_the_only_store_that_run_json_and_its_roles_name() -> None:
    stores = {"s": ("a", "b"), "z": ("x", "y"), "both": ("y",)}
    told = [
        *(role(1, "a", "active", "s"), role(1, "b", "active", "z"), role(1, "c", "active", "s"), role(1, "d", "down")),
        # No role
        Event("alert", 1, instance="a", store="z", name="BrokerDown"),
    ]
    assert homes(told, stores) == {"a": "s", "b": None, "x": "z", "y": None, "c": "s"}


def kill(at: int, kind: str = "fault") -> Event:
    return Event(kind, at, instance="a", store="s", name="kill")


@pytest.mark.parametrize(("second", "again"), [(100, False), (101, True), (149, True), (150, False)])
def test_an_epoch_is_hit_again_by_a_later_fault_before_the_next_begins(second: int, again: bool) -> None:
    roles = [role(10, "a", "active", "s"), role(150, "b", "active", "s"), role(200, "a", "down", "s")]
    first, *_ = timeline([*roles, kill(100), kill(second)], {"s": ("a", "b")}, 900).hits
    assert (first.fault.at, first.again) == (100, again)


def test_an_epoch_that_no_other_follows_is_hit_again_by_any_later_fault() -> None:
    made = timeline([role(10, "a", "active", "s"), kill(100), kill(120)], {"s": ("a", "b")}, 900)
    assert [(hit.next, hit.again) for hit in made.hits] == [(None, True), (None, False)]


@pytest.mark.parametrize(("begin", "follows"), [(149, False), (150, False), (151, True)])
def test_the_next_epoch_is_one_that_began_after_the_fault(begin: int, follows: bool) -> None:
    roles = [role(10, "a", "active", "s"), role(begin, "b", "active", "s")]
    (hit,) = timeline([*roles, kill(150)], {"s": ("a", "b")}, 900).hits
    assert (hit.next is not None) is follows


@pytest.mark.parametrize(
    ("fault", "heal", "back"),
    [
        # a is active from 10 to 100, and from 200 on
        (90, 120, [(120, 200)]),
        (100, 100, []),  # a heal just then is another fault's
        (99, 100, [(100, 200)]),  # active no longer
        (98, 99, []),  # active still, as before the fault
        (90, 199, [(199, 200)]),
        (90, 200, [(200, 200)]),  # active again already
        (90, 300, [(300, 200)]),  # active again before it
        (200, 300, []),  # active since the fault
        (199, 300, [(300, 200)]),
    ],
)
def test_a_failback_is_due_from_a_heal_unless_it_finds_the_instance_active_as_before(
    fault: int, heal: int, back: list[tuple[int, int]]
) -> None:
    roles = [role(10, "a", "active", "s"), role(100, "a", "down", "s"), role(200, "a", "active", "s")]
    made = timeline([*roles, kill(fault), kill(heal, "heal")], {"s": ("a", "b")}, 900)
    assert [(one.healed_at, one.back_at) for one in made.failbacks] == back


@pytest.mark.parametrize("fields", [{"instance": "b"}, {"name": "cut"}, {"kind": "note"}])
def test_a_failback_is_due_from_the_heal_of_a_fault_on_that_instance_alone(fields: dict[str, str]) -> None:
    roles = [role(10, "a", "active", "s"), role(100, "a", "down", "s"), role(200, "a", "active", "s")]
    made = timeline([*roles, replace(kill(90), **fields), kill(120, "heal")], {"s": ("a", "b")}, 900)
    assert made.failbacks == ()


def test_a_fault_is_healed_by_its_own_first_later_heal() -> None:
    """Of two instances on a host and of two links each has its own, and a fault may be there again."""

    def told(kind: str, at: int, name: str, instance: str | None, target: str) -> Event:
        return Event(kind, at, name=name, instance=instance, target=target)

    who = [("kill", "a", "h"), ("kill", "b", "h"), ("pause", "a", "h"), ("cut", None, "l"), ("cut", None, "m")]
    events = [told("fault", 100, *one) for one in who]
    heals = [told("heal", 110 + place, *one) for place, one in enumerate(who)]
    later = [told("heal", 120 + place, *one) for place, one in enumerate(who)]
    once = [told("heal", at, *one) for at in (90, 100) for one in who]
    found = faults([*later, *heals, *once, *events])
    # In the order of name, instance and target.
    assert [(one.name, one.instance, one.target, one.healed_at) for one in found] == [
        ("cut", None, "l", 113),
        ("cut", None, "m", 114),
        ("kill", "a", "h", 110),
        ("kill", "b", "h", 111),
        ("pause", "a", "h", 112),
    ]
    assert [one.number for one in found] == [1, 2, 3, 4, 5]


def test_an_alert_is_cleared_by_an_event_of_its_own() -> None:
    def told(kind: str, at: int, value: str, **of: str) -> Event:
        return Event(kind, at, at % 10, value=value, **{"name": "BrokerDown", "instance": "a", "store": "s", **of})

    events = [
        told("alert", 11, "firing"),
        told("alert", 12, "firing"),
        told("health", 13, "cleared"),
        *(told("alert", 14, "cleared", **other) for other in ({"name": "x"}, {"instance": "b"}, {"store": "z"})),
        told("alert", 25, "cleared"),
        told("alert", 36, "firing"),
        told("health", 31, "firing"),
    ]
    assert alerts(events) == (Alert("BrokerDown", "a", "s", 11, 1, 25), Alert("BrokerDown", "a", "s", 36, 6, None))


@pytest.mark.parametrize("told", [(1, 40), (40, 1), (1, 20, 40)])
def test_of_an_alert_that_is_told_twice_at_one_time_the_vaguest_and_the_surest_are_known(told: tuple[int, ...]) -> None:
    events = [Event("alert", 500, u, instance="a", store="s", name="BrokerDown", value="firing") for u in told]
    events.append(Event("alert", 510, 60, instance="a", store="s", name="BrokerDown", value="firing"))
    assert alerts(events) == (Alert("BrokerDown", "a", "s", 500, 40, None, 1),)


def test_that_an_alert_fired_before_the_fault_the_surest_tells() -> None:
    sure = KILL._replace(u=0, healed_at=None)
    fired = (alert(90, 40)._replace(least_u=1),)
    found = find(Timeline(run_end=1000, faults=(sure,), alerts=fired, alerts_watched=((0, 1000),)), "BrokerDown", 60)
    assert (found.n, found.doubt, found.evidence) == (0, True, False)


@pytest.mark.parametrize("units", [True, False])
def test_that_no_message_ended_dead_is_known_where_one_was_to_be_got(units: bool) -> None:
    """What was sent to a topic without subscriptions is no unit, and breaks nothing."""
    finding = Finding(evidence=units)
    look_at(finding, [DeadLetterLook("DLQ", None, True, 50)], {"topic": "DLQ"}, {"topic"}, 40, {})
    assert (finding.evidence, finding.doubt) == (units, not units)


@pytest.mark.parametrize(("n", "lacking"), [(6, {}), (7, {"c": 6, "p": 3})])
def test_there_are_no_more_operations_than_numbers_where_a_writer_numbers_all(n: int, lacking: dict[str, int]) -> None:
    """Both count up to 10 from 1 on; four of them are c's."""
    assert holes([Numbered("p", n, 1, 10), Numbered("c", 4, 2, 9)]) == lacking


def test_dead_letter_addresses_that_nobody_looked_at_are_told_in_their_order() -> None:
    finding = Finding(evidence=True)
    addresses = {f"q{number}": f"DLQ.{number}" for number in range(9)}
    look_at(finding, [], addresses, {*addresses}, 40, {})
    assert finding.why == [f"nobody looked at DLQ.{number} when the load was over" for number in range(9)]


@pytest.mark.parametrize(("at", "looked"), [(49, False), (50, True)])
def test_a_look_counts_from_the_last_delivery_of_its_own_addresses(at: int, looked: bool) -> None:
    finding = Finding(evidence=True)
    given = {"q": "DLQ", "other": "DLQ.other"}
    look_at(finding, [DeadLetterLook("DLQ", None, True, at)], given, {"q"}, 40, {"q": 50, "other": 90, "unmapped": 90})
    assert (finding.evidence, finding.doubt) == (True, not looked)


def test_of_several_faults_the_last_counts_and_of_several_epochs_the_next() -> None:
    """At the second heal the instance is as it was before the second fault."""
    times = ((10, "active"), (100, "down"), (200, "active"), (400, "down"), (500, "active"))
    told = [role(at, "a", value, "s") for at, value in times]
    told += [kill(90), kill(120, "heal"), kill(250), kill(300, "heal")]
    made = timeline(told, {"s": ("a", "b")}, 900)
    assert [(one.healed_at, one.back_at) for one in made.failbacks] == [(120, 200)]


def test_an_epoch_that_was_over_as_it_began_is_no_return() -> None:
    """The heal is just then: it finds the instance not active, and what counts is the epoch after it."""
    roles = [role(at, "a", value, "s") for at, value in ((10, "active"), (100, "down"), (200, "active"), (200, "down"))]
    made = timeline([*roles, role(300, "a", "active", "s"), kill(90), kill(200, "heal")], {"s": ("a", "b")}, 900)
    assert [(one.healed_at, one.back_at) for one in made.failbacks] == [(200, 300)]


@pytest.mark.parametrize(
    ("faults", "since"),
    [
        # (at, healed at) of faults on the store, which was ready from 100 to 150
        ([(99, None)], 150),
        ([(100, None)], 100),
        ([(120, None)], 120),
        ([(150, None)], 150),
        ([(151, None)], 150),
        ([(120, None), (130, None)], 130),
        ([(120, None), (150, None)], 150),  # the last one
        ([(120, 149)], 150),
        ([(120, 150)], 150),  # healed when that time began
        ([(120, 151)], 120),
    ],
)
def test_a_store_is_not_ready_since_the_last_fault_that_explains_it(
    faults: list[tuple[int, int | None]], since: int
) -> None:
    spans = [Span("s", 50, 100), Span("s", 150, 200), Span("z", 100, 110)]
    given = [Fault(number, "kill", None, None, "s", at, 0, healed) for number, (at, healed) in enumerate(faults)]
    assert since_faults(spans, given, {})[1] == ("s", since, 200)


@pytest.mark.parametrize(("at", "hit"), [(9, False), (10, True), (199, True), (200, False)])
def test_a_fault_hits_who_is_active_from_its_epochs_begin_up_to_its_end(at: int, hit: bool) -> None:
    roles = [role(10, "a", "active", "s"), role(200, "a", "down", "s")]
    assert [one.fault.at for one in timeline([*roles, kill(at)], {"s": ("a",)}, 900).hits] == ([at] if hit else [])


@pytest.mark.parametrize(
    ("at", "u", "end_u", "hit"),
    [
        (200, 0, 0, False),
        (201, 0, 0, False),
        (201, 1, 0, False),
        (201, 2, 0, True),
        (201, 0, 1, False),
        (201, 0, 2, True),
        (205, 3, 3, True),
        (205, 2, 3, False),
    ],
)
def test_an_epoch_that_may_have_ended_after_the_fault_was_ended_by_it(at: int, u: int, end_u: int, hit: bool) -> None:
    """Polls see the end of who is restarted a little before the time that is given for the fault."""
    told = [role(10, "a", "active", "s"), role(200, "a", "starting", "s", end_u), role(300, "b", "active", "s")]
    made = timeline([*told, replace(kill(at), u=u)], {"s": ("a", "b")}, 900)
    assert [(one.epoch.start, one.next and one.next.start, one.detected_at) for one in made.hits] == (
        [(10, 300, at)] if hit else []
    )


def test_the_last_of_the_epochs_before_a_fault_is_the_one_that_it_ended() -> None:
    told = [role(10, "a", "active", "s"), role(20, "a", "down", "s", 500), role(30, "a", "active", "s")]
    told.append(role(200, "a", "down", "s", 9))
    for at, hit in ((205, [30]), (210, [])):
        assert [one.epoch.start for one in timeline([*told, kill(at)], {"s": ("a",)}, 900).hits] == hit


@pytest.mark.parametrize(
    ("told", "bounds"),
    [
        # (at, value, uncertainty) of roles; the epochs' first and last possible moments
        ([(100, "active", 9), (200, "down", 50)], [(91, 250)]),
        # A vague poll and a line of the log: the log bounds it.
        ([(100, "active", 9), (200, "starting", 50), (210, "down", 5)], [(91, 215)]),
        ([(100, "active", 9), (200, "starting", 5), (210, "down", 50)], [(91, 205)]),
        # What it was before, it was not any more.
        ([(95, "passive", 2), (100, "active", 9), (200, "down", 5)], [(93, 205)]),
        ([(95, "passive", 60), (100, "active", 9), (200, "down", 5)], [(91, 205)]),
        # Of two epochs each has its own.
        ([(100, "active", 0), (200, "down", 90), (250, "active", 70), (260, "down", 1)], [(100, 290), (180, 261)]),
        ([(100, "active", 0), (200, "down", 10), (250, "active", 70), (260, "down", 1)], [(100, 210), (190, 261)]),
        # No epoch began before the one before it.
        ([(100, "active", 5), (101, "down", 90), (103, "active", 70)], [(95, 191), (95, 900)]),
        ([(100, "active", 5)], [(95, 900)]),
    ],
)
def test_an_epoch_is_bounded_by_the_surest_of_the_roles_around_it(
    told: list[tuple[int, str, int]], bounds: list[tuple[int, int]]
) -> None:
    made = timeline([role(at, "a", value, "s", u) for at, value, u in told], {"s": ("a",)}, 900)
    assert [(one.earliest, one.latest) for one in made.epochs] == bounds


@pytest.mark.parametrize(
    ("told", "earliest"),
    [
        # (at, value, uncertainty, source): a poll found it active, and its log says since when
        ([(100, "active", 50, "poll"), (110, "active", 2, "log")], 108),
        ([(100, "active", 50, "poll"), (152, "active", 2, "log")], 150),
        ([(100, "active", 50, "poll"), (153, "active", 2, "log")], 50),  # it was active before that line
        ([(100, "active", 50, "poll"), (110, "active", 2, "poll")], 50),
        ([(100, "active", 50, "poll"), (105, "active", 2, "poll"), (110, "active", 2, "log")], 108),
        ([(100, "active", 50, "poll"), (105, "down", 2, "log"), (110, "active", 2, "log")], 50),
        ([(100, "active", 50, "poll"), (110, "active", 70, "log")], 50),  # no surer than the poll
        ([(100, "active", 50, "poll"), (110, "active", 2, "log"), (112, "active", 0, "log")], 108),
    ],
)
def test_an_epoch_begins_not_before_the_line_of_the_log_that_says_so(
    told: list[tuple[int, str, int, str]], earliest: int
) -> None:
    events = [replace(role(at, "a", value, "s", u), name=source) for at, value, u, source in told]
    assert timeline(events, {"s": ("a",)}, 900).epochs[0].earliest == earliest


@pytest.mark.parametrize(
    ("at", "healed", "falls"),
    [
        (99, None, True),
        (150, None, True),
        (200, None, True),  # as the span ends
        (201, None, False),
        (90, 99, False),
        (90, 100, True),  # not before the span began
        (90, 101, True),
    ],
)
def test_a_span_falls_under_a_fault_that_was_in_effect_at_some_time_of_it(
    at: int, healed: int | None, falls: bool
) -> None:
    fault = KILL._replace(at=at, healed_at=healed)
    assert fault_over(Timeline(run_end=900, faults=(fault,)), 100, 200) == (fault if falls else None)


def test_a_span_falls_under_the_last_of_several_faults() -> None:
    first, last = KILL._replace(at=50, healed_at=None), KILL._replace(number=1, at=120, healed_at=None)
    assert fault_over(Timeline(run_end=900, faults=(first, last)), 100, 200) == last


@pytest.mark.parametrize(
    ("longest", "u", "found"),
    [
        (89, 5, (0, [])),
        (90, 5, (0, [])),  # of this long it is known that it was within the bound
        (91, 5, (0, [CLOCKS])),
        (110, 5, (0, [CLOCKS])),
        (111, 5, (1, [])),
        (100, 0, (0, [])),
        (101, 0, (1, [])),
    ],
)
def test_a_span_is_longer_than_the_bound_where_clocks_leave_no_doubt(
    longest: int, u: int, found: tuple[int, list[str]]
) -> None:
    times = Timeline(run_end=900, loads=((0, longest),), clocks={"c": Placed(u=u)})
    told, outages = available.find(times, [available.Addressed(0, "q", [], 0, [])], 100, "send")
    assert (told.n, told.why, len(outages)) == (*found, found[0])


def test_an_instance_that_never_came_back_is_worse_than_one_that_was_late() -> None:
    backs = (Failback("kill", "a", "s", 100, 100, 100, 700), Failback("kill", "b", "s", 850, 850, 850, None))
    found = failback_within.find(Timeline(run_end=900, failbacks=backs), {}, 40)
    told = [(one["instance"], one.get("active_ns"), one["client_gap_ms"]) for one in found.witnesses]
    assert told == [("b", None, 50 / 1e6), ("a", 700, 600 / 1e6)]


@pytest.mark.parametrize(
    ("joined", "before", "due"), [(None, False, True), (100, False, True), (101, False, False), (101, True, True)]
)
def test_a_failover_is_due_from_a_client_unless_it_came_after_the_fault(
    joined: int | None, before: bool, due: bool
) -> None:
    times = Timeline(run_end=900, hits=(Hit(KILL, HIT, NEXT, False, None),))
    client = failover_within.ClientAtFault(KILL.number, "p", joined, before, 200, None, None, 200, False)
    assert [one.took for one in failover_within.failovers([client], times)] == ([100] if due else [])


@pytest.mark.parametrize(
    ("took", "u", "stalled", "n", "why"),
    [
        (99, 0, 0, 0, []),
        (100, 0, 0, 0, []),  # exactly the bound keeps it, and there is nothing to explain
        (101, 0, 0, 1, []),
        (110, 0, 9, 1, []),
        (110, 0, 55, 0, [BUSY]),  # as long as it was missed by
        (100, 1, 0, 0, [CLOCKS]),
        (101, 1, 0, 0, [CLOCKS]),
        (99, 1, 0, 0, []),
        (102, 1, 0, 1, []),
    ],
)
def test_a_failover_is_late_where_neither_clocks_nor_busy_hosts_leave_a_doubt(
    took: int, u: int, stalled: int, n: int, why: list[str]
) -> None:
    hit = Hit(KILL._replace(u=0), HIT, NEXT, False, None)
    due = failover_within.DueFailover(hit, "p", True, KILL.at + took, False, took, 900, u)
    found = failover_within.find([due], 100, [Pressure("h", "cpu", 100, 210, stalled)])
    assert (found.n, found.why) == (n, why)


def test_the_longest_overlap_is_the_worst() -> None:
    a, b = epoch("a", 100, 0, 200, 0), epoch("b", 110, 0, 190, 0)
    times = Timeline(
        run_end=900, epochs=(a, b), overlaps=(Overlap(b, a, 300, 310, True), Overlap(a, b, 110, 190, True))
    )
    found = single_active.find(times, single_active.Sends(), {}, [])
    assert [(one["instance"], one["start_ns"], one["end_ns"]) for one in found.witnesses] == [
        ("a", 110, 190),
        ("b", 300, 310),
    ]


def test_of_witnesses_that_are_equally_bad_the_first_by_their_fields_are_told() -> None:
    """Whatever fields they are: numbers, then texts, then nothing."""
    rows = [{"weight": 1, "a": None}, {"weight": 1, "a": "x"}, {"weight": 1, "a": 7}, {"weight": 2, "a": "y"}]
    assert worst(rows) == [{"a": "y"}, {"a": 7}, {"a": "x"}, {}]
