"""What is at the same time as what: how long an instance is active, at the borders and one tick beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerdrill.analysis.checks import single_active
from brokerdrill.analysis.epochs import overlaps, role_changes
from brokerdrill.analysis.events import NEVER, Event, Fault, Overlap
from brokerdrill.analysis.timeline import Timeline, homes, timeline
from tests.analysis.moments import epoch, role


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
    fault = Fault(0, name, instance, None, "s", at, 2, healed_at, healed_u=2)
    assert [(one.start, one.end, one.certain) for one in overlaps(epochs, [fault])] == expected


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
