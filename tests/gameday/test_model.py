"""A game day's file: what it may say, what is refused, and when drills may run."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from brokerdrill.base.errors import UsageError
from brokerdrill.gameday.model import GameDay, load_gameday
from brokerdrill.gameday.windows import closed, ends_at, missed_since

UTC = datetime.UTC
LEAST = "title: T\ntopologies: [artemis_shared_store]\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "weekly.yml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title: T\n", "topologies: Field required"),
        (LEAST + "drill: {most: 1}\n", "line 3: drill: there is no such field"),
        (LEAST + "drills:\n  most: 0\n", "line 4: drills.most: Input should be greater than or equal to 1"),
        (LEAST + "timezone: Europe/Brlin\n", "line 3: timezone: there is no time zone 'Europe/Brlin'"),
        (LEAST + "window: {start: 9, end: '17:00'}\n", "line 3: window.start: '9' is no time of day such as 09:30"),
        (LEAST + "window:\n  start: 9:60\n", "line 4: window.start: '9:60' is no time of day such as 09:30"),
        (LEAST + "window: {end: 24:30}\n", "line 3: window.end: '24:30' is no time of day: a day ends at 24:00"),
        (LEAST + "window: {end: [9]}\n", "window.end"),
        (LEAST + "window: 10:00\n", "line 3: window: Input should be"),
        (LEAST + "guard: {time_limit_s: 1:30}\n", "line 3: guard.time_limit_s: Input should be a valid number"),
        (LEAST + "window: {start: 9:00}\nwindow: {start: 10:00}\n", "line 4: window is there twice, first on line 3"),
        (LEAST + "guard:\n  time_limit_s: 60\n  time_limit_s: 90\n", "line 5: time_limit_s is there twice"),
        (LEAST + "notify: &a [*a]\n", "notify"),
        (LEAST + "heartbeat: {}\n", "give one of url and url_file"),
        (LEAST + "blackouts:\n- {first: 2026-12-24, last: 2026-12-20, why: x}\n", "first is after last"),
        (LEAST + "notify:\n- type: slack\n", "give one of url and url_file"),
        (LEAST + "notify:\n- type: pager\n", "pager"),
        ("- a\n", "a game day is a mapping"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_gameday(written(tmp_path, text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_gameday(Path("/nowhere/weekly.yml"))


def test_paths_are_seen_from_the_file(tmp_path: Path) -> None:
    more = "publish: {folder: www}\nnotify: [{type: slack, url_file: secret}]\n"
    name, day = load_gameday(written(tmp_path, LEAST.replace("artemis_shared_store", "../here, plain") + more))
    assert name == "weekly"
    assert day.topologies == [str(tmp_path / "../here"), "plain"]
    assert day.publish is not None and day.publish.folder == tmp_path / "www"
    assert day.notify[0].url_file == tmp_path / "secret"  # type: ignore[union-attr]


def day(**more: object) -> GameDay:
    return GameDay.model_validate({"title": "T", "topologies": ["a"], "timezone": "Europe/Berlin", **more})


def at(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("typed", "time"),
    [
        ("10:00", (10, 0)), ("9:30", (9, 30)), ("09:00", (9, 0)), ("08:09", (8, 9)), ("'16:00'", (16, 0)),
        ("0:10", (0, 10)), ("23:59:59", (23, 59, 59)), ("24:00", (0, 0)), ('"9:05"', (9, 5)),
    ],
)  # fmt: skip
def test_times_are_what_was_typed_with_or_without_quotes(tmp_path: Path, typed: str, time: tuple[int, ...]) -> None:
    _, one = load_gameday(written(tmp_path, LEAST + f"window: {{start: {typed}, end: {typed}}}\n"))
    assert one.window.start == one.window.end == datetime.time(*time)


def test_a_number_is_the_one_that_was_typed(tmp_path: Path) -> None:
    _, one = load_gameday(written(tmp_path, LEAST + "guard: {time_limit_s: 0900}\n"))
    assert one.guard.time_limit_s == 900
    _, one = load_gameday(written(tmp_path, LEAST + "guard: {time_limit_s: 1_200.5}\n"))
    assert one.guard.time_limit_s == 1200.5


WINDOW = {"start": "09:00", "end": "17:00", "days": ["mon", "tue", "wed", "thu", "fri"]}


@pytest.mark.parametrize(
    ("now", "why"),
    [
        ("2026-11-23T07:59", "it is 08:59, outside"),  # a Monday; Berlin is an hour ahead in winter
        ("2026-11-23T08:00", None),
        ("2026-11-23T15:59:59", None),
        ("2026-11-23T16:00", "it is 17:00, outside"),
        ("2026-07-20T07:00", None),  # and two in summer
        ("2026-11-22T10:00", "no drills on Sundays"),
        ("2026-12-24T10:00", "blackout from 2026-12-24 to 2026-12-26: freeze"),
        ("2026-12-26T22:59", "blackout"),
        ("2026-12-28T10:00", None),
    ],
)
def test_when_a_drill_may_begin(now: str, why: str | None) -> None:
    one = day(window=WINDOW, blackouts=[{"first": "2026-12-24", "last": "2026-12-26", "why": "freeze"}])
    said = closed(one, at(now))
    assert (said is None) if why is None else (said is not None and said.startswith(why))


def test_a_day_ends_with_its_window_or_its_time() -> None:
    one = day(window=WINDOW, guard={"time_limit_s": 7200})
    assert ends_at(one, at("2026-11-23T08:00")) == at("2026-11-23T10:00")
    assert ends_at(one, at("2026-11-23T15:00")) == at("2026-11-23T16:00")


@pytest.mark.parametrize(
    ("now", "why", "end"),
    [
        ("2026-11-27T21:30", None, "2026-11-28T05:00"),  # Friday, 22:30
        ("2026-11-28T04:59", None, "2026-11-28T05:00"),  # Saturday, 05:59: the window of Friday
        ("2026-11-28T05:00", "no drills on Saturdays", None),
        ("2026-11-28T22:30", "no drills on Saturdays", None),
        ("2026-11-27T04:00", "no drills on Thursdays", None),  # Friday, 05:00
        ("2026-11-27T12:00", "it is 13:00, outside the window from 22:00 to 06:00", None),
        ("2026-12-24T01:00", "blackout", None),
    ],
)
def test_a_window_across_midnight_is_of_the_day_it_begins_on(now: str, why: str | None, end: str | None) -> None:
    one = day(
        window={"start": "22:00", "end": "06:00", "days": ["fri", "wed"]},
        blackouts=[{"first": "2026-12-24", "last": "2026-12-26", "why": "freeze"}],
        guard={"time_limit_s": 86400},
    )
    said = closed(one, at(now))
    assert (said is None) if why is None else (said is not None and said.startswith(why))
    if end:
        assert ends_at(one, at(now)) == at(end)


def test_without_times_a_window_is_the_whole_day() -> None:
    one = day(window={"days": ["mon"]})
    assert closed(one, at("2026-11-22T23:00")) is None  # midnight in Berlin
    assert closed(one, at("2026-11-23T22:59:59")) is None
    assert closed(one, at("2026-11-23T23:00")) == "no drills on Tuesdays (the window's days: mon)"


def test_when_one_is_missed() -> None:
    held = at("2026-11-16T08:00")
    one = day(due_every_h=168)
    assert missed_since(one, held, at("2026-11-23T08:00")) is None
    assert missed_since(one, held, at("2026-11-23T08:01")) == at("2026-11-23T08:00")
    assert missed_since(one, None, at("2026-11-23T08:01")) is None
    assert missed_since(day(), held, at("2027-11-23T08:01")) is None
