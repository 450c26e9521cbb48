"""What game days were: a line before and after each step, and from these lines what each day came to."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from brokerdrill.base import json_lines
from brokerdrill.base.locks import is_held

FOLDER = "gamedays"
LOCK_FILE = ".lock"
# How a day or a drill ended; the worst of a day's drills is the day's.
EXPECTED, UNEXPECTED, FAILED, STOPPED = "expected", "unexpected", "failed", "stopped"
REFUSED, OVER_WINDOW, CRASHED, MISSED, RUNNING = "refused", "over_window", "crashed", "missed", "running"
WORDS: Mapping[str, str] = {
    EXPECTED: "as expected",
    UNEXPECTED: "not as expected",
    FAILED: "could not be made",
    STOPPED: "stopped",
    REFUSED: "not begun",
    OVER_WINDOW: "over its window",
    CRASHED: "crashed",
    MISSED: "missed",
    RUNNING: "running",
}
_WORST = (CRASHED, UNEXPECTED, OVER_WINDOW, STOPPED, FAILED, REFUSED, EXPECTED)


@dataclass(frozen=True)
class Held:
    """A drill of a game day: how it ended (RUNNING: not yet), its run's directory name (None: it has none), and why;
    `harm`: what was lost or came twice, whatever the drill expects."""

    drill: str
    topology: str
    began: str
    state: str = RUNNING
    run: str | None = None
    why: str = ""
    harm: str = ""


@dataclass
class Day:
    """A game day: its id, when it began and ended (RFC 3339), how, and its drills."""

    id: str
    began: str
    state: str = RUNNING
    ended: str = ""
    why: str = ""
    process: int = 0
    announced: bool = False
    drills: list[Held] = field(default_factory=list)

    @property
    def harmed(self) -> bool:
        """Whether a drill lost something, or something came twice."""
        return any(one.harm for one in self.drills)

    @property
    def word(self) -> str:
        """How it ended, in words."""
        return WORDS[self.state]


def worst(states: Iterable[str]) -> str:
    """Return the worst of `states`; EXPECTED where there is none."""
    found = set(states)
    return next((state for state in _WORST if state in found), EXPECTED)


class GameDayLog:
    """The lines of the game days of one name, below the folder of runs."""

    def __init__(self, runs: Path, name: str) -> None:
        self.folder = runs / FOLDER
        self.path = self.folder / f"{name}.jsonl"
        self.lock = self.folder / LOCK_FILE

    def write(self, day: str, phase: str, **fields: Any) -> None:
        """Write one line; `phase` is begin, drill, drilled, end or announced. Raises InfrastructureError."""
        at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        json_lines.append(self.path, {"day": day, "phase": phase, "at": at, **fields})

    def days(self) -> list[Day]:
        """Return the days, oldest first; one that began, did not end, and nobody holds any more has crashed."""
        return days(json_lines.entries(self.path), alive=is_held(self.lock))


def days(entries: Sequence[Mapping[str, Any]], alive: bool) -> list[Day]:
    """Return the days in `entries`; with `alive` the newest of them may still be running."""
    found: dict[str, Day] = {}
    for entry in entries:
        phase, at = str(entry.get("phase")), str(entry.get("at", ""))
        key = str(entry.get("day"))
        if phase == "begin":
            found[key] = Day(key, at)
        day = found.get(key)
        if day is None:
            continue
        if phase == "drill":
            day.drills.append(Held(str(entry["drill"]), str(entry["topology"]), at, run=entry.get("run")))
        elif phase == "drilled" and day.drills:
            last = day.drills[-1]
            why, run = str(entry.get("why") or ""), entry.get("run")
            harm = str(entry.get("harm") or "")
            day.drills[-1] = Held(last.drill, last.topology, last.began, str(entry["state"]), run, why, harm)
        elif phase == "end":
            day.state, day.ended, day.why = str(entry["state"]), at, str(entry.get("why") or "")
            # A drill that the end of its day cut off has ended as that did.
            day.drills = [replace(one, state=day.state) if one.state == RUNNING else one for one in day.drills]
        elif phase == "announced":
            day.announced = True
    listed = list(found.values())
    for place, day in enumerate(listed):
        if day.state == RUNNING and not (alive and place == len(listed) - 1):
            day.state, day.why = CRASHED, "its runner ended without a word"
            day.drills = [replace(one, state=CRASHED) if one.state == RUNNING else one for one in day.drills]
    return listed


def last_begun(found: Sequence[Day]) -> datetime.datetime | None:
    """Return when the last of these days began that was not refused; None: there is none."""
    began = [day.began for day in found if day.state not in (REFUSED, MISSED)]
    return datetime.datetime.fromisoformat(began[-1]) if began else None
