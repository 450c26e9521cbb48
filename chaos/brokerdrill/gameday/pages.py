"""What is published: the reports of a game day, and a page of all days. Static files, for any web server."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from brokerdrill.base.atomic import new_folder, write, write_json
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.gameday.history import WORDS, Day
from brokerdrill.report.page import REPORT_FILE, render

PAGE_FILE, JSON_FILE, RUNS = "index.html", "gamedays.json", "runs"
# What of a run's directory is published: what was judged, never the ledger or the logs.
PUBLISHED = (REPORT_FILE, "summary.md", "junit.xml", "verdict.json")
# state -> (sign, tone)
SIGNS: Mapping[str, tuple[str, str]] = {
    "expected": ("✓", "good"),
    "unexpected": ("✗", "bad"),
    "crashed": ("✗", "bad"),
    "failed": ("!", "doubt"),
    "stopped": ("■", "doubt"),
    "over_window": ("!", "doubt"),
    "refused": ("⊘", "doubt"),
    "missed": ("!", "doubt"),
    "running": ("…", "none"),
}


def publish(name: str, title: str, found: Sequence[Day], runs: Path, folder: Path) -> Path:
    """Publish the reports of the runs of the days `found` and the page of them; return that page.

    Raises InfrastructureError where `folder` does not take them. What is there already is not copied again.
    """
    for run in dict.fromkeys(one.run for day in found for one in day.drills if one.run):
        _copy(runs / run, folder / name / RUNS / run)
    page = folder / name / PAGE_FILE
    write_json(folder / name / JSON_FILE, [_json(day) for day in found])
    return write(page, render("gamedays.html.j2", **view(title, found, folder / name)).encode())


def _copy(run_dir: Path, target: Path) -> None:
    there = [run_dir / file for file in PUBLISHED if (run_dir / file).is_file()]
    if not there or target.exists():
        return
    try:
        with new_folder(target) as folder:
            for file in there:
                shutil.copyfile(file, folder / file.name)
            folder.chmod(0o755)
    except OSError as error:
        raise InfrastructureError(f"{target} cannot be written: {error.strerror}") from None


def _json(day: Day) -> dict[str, Any]:
    return {
        "id": day.id,
        "state": day.state,
        "began": day.began,
        "ended": day.ended,
        "why": day.why,
        "drills": [vars(one) for one in day.drills],
    }


def view(title: str, found: Sequence[Day], folder: Path) -> dict[str, Any]:
    """Return what the page says; reports are linked where `folder` has them."""
    newest = list(reversed(found))
    last = newest[0] if newest else None
    sign, tone = SIGNS[last.state] if last else ("…", "none")
    return {
        "title": title,
        "sign": sign,
        "tone": tone,
        "headline": f"the last one: {last.word}" if last else "none was held yet",
        "why": last.why if last else "",
        "days": [_row(day, folder) for day in newest],
    }


def _row(day: Day, folder: Path) -> dict[str, Any]:
    sign, tone = SIGNS[day.state]
    return {
        "id": day.id,
        "began": day.began,
        "ended": day.ended,
        "word": day.word,
        "sign": sign,
        "tone": tone,
        "why": day.why,
        "drills": [
            {
                "name": one.drill,
                "topology": one.topology,
                "word": WORDS[one.state],
                "sign": SIGNS[one.state][0],
                "tone": SIGNS[one.state][1],
                "why": one.why,
                "link": quote(f"{RUNS}/{one.run}/{REPORT_FILE}")
                if one.run and (folder / RUNS / one.run / REPORT_FILE).is_file()
                else None,
            }
            for one in day.drills
        ],
    }
