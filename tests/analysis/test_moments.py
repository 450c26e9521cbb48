"""What is at the same time as what: spans, slices, loads and looks, at their borders and one tick beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from brokerdrill.analysis import gaps, judge
from brokerdrill.analysis.checks import available
from brokerdrill.analysis.checks.finding import CLOCKS, Finding, worst
from brokerdrill.analysis.checks.no_dead_letters import DeadLetterLook, LastDelivery, look_at
from brokerdrill.analysis.completeness import Numbered, holes
from brokerdrill.analysis.events import NEVER, Event, Failback, Pressure
from brokerdrill.analysis.kernel import unpack
from brokerdrill.analysis.measures import MOST_BUCKETS, SECOND_NS, base_width, bucket_ns
from brokerdrill.analysis.placing import Placed
from brokerdrill.analysis.stages import Source
from brokerdrill.analysis.tables import stage_tables
from brokerdrill.analysis.timeline import Timeline, timeline
from brokerdrill.analysis.watching import pressures
from brokerdrill.ledger.contract import PromiseSpec, RunInfo


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


@pytest.mark.parametrize("units", [True, False])
def test_that_no_message_ended_dead_is_known_where_one_was_to_be_got(units: bool) -> None:
    """What was sent to a topic without subscriptions is no unit, and breaks nothing."""
    finding = Finding(evidence=units)
    times = Timeline(run_end=90, load_over=40)
    look_at(finding, [DeadLetterLook("DLQ", None, True, None, 50)], {"topic": "DLQ"}, {"topic"}, times, [])
    assert (finding.evidence, finding.doubt) == (units, not units)


@pytest.mark.parametrize(("n", "lacking"), [(6, {}), (7, {"c": 6, "p": 3})])
def test_there_are_no_more_operations_than_numbers_where_a_writer_numbers_all(n: int, lacking: dict[str, int]) -> None:
    """Both count up to 10 from 1 on; four of them are c's."""
    assert holes([Numbered("p", n, 1, 10), Numbered("c", 4, 2, 9)]) == lacking


def test_dead_letter_addresses_that_nobody_looked_at_are_told_in_their_order() -> None:
    finding = Finding(evidence=True)
    addresses = {f"q{number}": f"DLQ.{number}" for number in range(9)}
    look_at(finding, [], addresses, {*addresses}, Timeline(run_end=90, load_over=40), [])
    assert finding.why == [f"nobody looked at DLQ.{number} when the load was over" for number in range(9)]


# A delivery was over at 50, by a clock that may be 3 off; those who look have one that may be 4 off.
@pytest.mark.parametrize(
    ("tick", "at", "looked"), [(0, 49, False), (0, 50, True), (1, 56, False), (1, 57, True), (None, 53, True)]
)
def test_a_look_counts_from_the_last_delivery_of_its_own_addresses(tick: int | None, at: int, looked: bool) -> None:
    finding = Finding(evidence=True)
    given = {"q": "DLQ", "other": "DLQ.other"}
    delivered = [LastDelivery("q", 0, 50), LastDelivery("other", 0, 90), LastDelivery("unmapped", 0, 90)]
    times = Timeline(run_end=90, load_over=40, clocks={"c": Placed(u=3), "d": Placed(u=4)})
    look_at(finding, [DeadLetterLook("DLQ", None, True, tick, at)], given, {"q"}, times, delivered)
    assert (finding.evidence, finding.doubt) == (True, not looked)


@pytest.mark.parametrize(("tick", "at", "looked"), [(0, 42, False), (0, 43, True), (1, 43, False), (1, 44, True)])
def test_a_look_counts_from_the_loads_end_for_certain(tick: int, at: int, looked: bool) -> None:
    for over in (40, None):
        finding = Finding(evidence=True)
        times = Timeline(run_end=90, load_over=over, clocks={"c": Placed(u=3), "d": Placed(u=4)})
        look_at(finding, [DeadLetterLook("DLQ", None, True, tick, at)], {"q": "DLQ"}, {"q"}, times, [])
        assert finding.doubt == (not looked or over is None)


@pytest.mark.parametrize(
    ("tick", "server", "refused_at", "seen_at", "doubted"),
    [
        (0, "a", 60, 61, False),
        (0, "a", 61, 61, True),  # at one time
        (1, "a", 60, 67, True),  # after it only perhaps
        (1, "a", 60, 68, False),
        (0, "b", 60, 61, True),  # at another instance
        (0, "a", 10, 61, False),  # in the load, and seen after it
        (0, "b", 10, 61, True),  # in the load, and never again there
    ],
)
def test_a_refused_look_is_made_good_by_a_later_one_at_that_instance(
    tick: int, server: str, refused_at: int, seen_at: int, doubted: bool
) -> None:
    finding = Finding(evidence=True)
    times = Timeline(run_end=90, load_over=40, clocks={"c": Placed(u=3), "d": Placed(u=4)})
    looks = [DeadLetterLook("DLQ", server, False, 0, refused_at), DeadLetterLook("DLQ", "a", True, tick, seen_at)]
    look_at(finding, looks, {"q": "DLQ"}, {"q"}, times, [])
    assert finding.doubt == doubted


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


def test_of_witnesses_that_are_equally_bad_the_first_by_their_fields_are_told() -> None:
    """Whatever fields they are: numbers, then texts, then nothing."""
    rows = [{"weight": 1, "a": None}, {"weight": 1, "a": "x"}, {"weight": 1, "a": 7}, {"weight": 2, "a": "y"}]
    assert worst(rows) == [{"a": "y"}, {"a": 7}, {"a": "x"}, {}]
