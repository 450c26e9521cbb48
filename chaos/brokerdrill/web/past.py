"""What was held before: game days, runs, and what was drilled when, or never."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from brokerdrill.gameday.history import FOLDER, Day, GameDayLog
from brokerdrill.gameday.pages import SIGNS
from brokerdrill.results import table
from brokerdrill.results.trends import coverage_rows, coverage_view

MOST_RUNS, MOST_DAYS = 50, 20
TONES: Mapping[bool, tuple[str, str, str]] = {
    True: ("good", "✓", "as expected"),
    False: ("bad", "✗", "not as expected"),
}


def game_days(runs: Path) -> list[tuple[str, Day]]:
    """Return (name, day) of the newest game days of all names, newest first."""
    found = [(path.stem, day) for path in (runs / FOLDER).glob("*.jsonl") for day in GameDayLog(runs, path.stem).days()]
    return sorted(found, key=lambda one: one[1].began, reverse=True)[:MOST_DAYS]


def rows(runs: Path) -> list[dict[str, Any]]:
    """Return the table of results; empty where there is none yet. Raises UsageError for a file that is no table."""
    return table.read(runs) if (runs / table.TABLE).is_dir() else []


def run_rows(found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row a run, newest first."""
    by_run: dict[str, Mapping[str, Any]] = {}
    for row in found:
        by_run[row["run_id"]] = row
    newest = sorted(by_run.values(), key=lambda row: row["started_at"], reverse=True)[:MOST_RUNS]
    return [
        {
            "id": row["run_id"],
            "drill": row["scenario"],
            "topology": row["topology"],
            "started": f"{row['started_at']:%Y-%m-%d %H:%M}",
            "tone": TONES[bool(row["run_as_expected"])][0],
            "sign": TONES[bool(row["run_as_expected"])][1],
            "word": TONES[bool(row["run_as_expected"])][2],
        }
        for row in newest
    ]


def view(runs: Path, applying: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return what the page says; `applying` are the (drill, topology) that could be drilled."""
    found = rows(runs)
    return {
        "days": [
            {"name": name, "began": day.began[:16].replace("T", " "), "word": day.word, "sign": SIGNS[day.state][0],
             "tone": SIGNS[day.state][1], "why": day.why,
             "drills": ", ".join(f"{one.drill} on {one.topology}" for one in day.drills)}
            for name, day in game_days(runs)
        ],
        "runs": run_rows(found),
        "coverage": [coverage_view(row) for row in coverage_rows(found, applying)],
    }  # fmt: skip
