"""The page of an exploration and its JSON: what was found, what was tried, and what was seen."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from brokerdrill.base.atomic import write, write_json
from brokerdrill.campaigns.plan import CampaignPlan
from brokerdrill.explore import document, finds
from brokerdrill.explore.explorer import Explorer, Find
from brokerdrill.report import format as fmt
from brokerdrill.report.page import render

PAGE_FILE, JSON_FILE = "index.html", "results.json"
# Shades of the picture: more different operations seen, a darker square.
SHADES = 4


def write_page(explorer: Explorer, plan: CampaignPlan, folder: Path, runs: Path) -> Path:
    """Write the page and its JSON into `folder`; return the page's path. Raises InfrastructureError where the disk does
    not take them."""
    totals = summary(explorer)
    write_json(folder / JSON_FILE, {"title": plan.title, **totals})
    page = render(
        "explore.html.j2",
        title=fmt.clean(plan.title),
        tone="bad" if explorer.finds else "none",
        sign="✗" if explorer.finds else "·",
        totals=totals,
        finds=[_find(one, explorer, folder, runs) for one in explorer.finds],
        **picture(explorer),
        curve=_curve(explorer),
        again=[(f"{one.broke.promise}: {', '.join(sorted(one.faults))}", n) for one, n in explorer.again.items()],
    )
    return write(folder / PAGE_FILE, page.encode("utf-8", errors="replace"))


def summary(explorer: Explorer) -> dict[str, Any]:
    """Return an exploration's numbers: trials, time, schedules an hour, what was seen, what was found."""
    hours = explorer.seconds / 3600
    return {
        "seed": explorer.seed,
        "uniform": explorer.uniform,
        "trials": explorer.trials,
        "hunted": explorer.hunted,
        "seconds": round(explorer.seconds, 1),
        "per_hour": round(explorer.trials / hours, 1) if hours else None,
        "seen": len(explorer.coverage.seen),
        "finds": [finds.to_object(one) for one in explorer.finds],
        "known": [one.to_json() for one in explorer.known],
        "met_again": sum(explorer.again.values()),
    }


def picture(explorer: Explorer) -> dict[str, Any]:
    """Return the picture of what was seen: faults in effect by states of the cluster, each square with how many
    different operations of clients began there."""
    squares: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for one in explorer.coverage.seen:
        squares[one.faults][one.state].add(one.operation)
    states = sorted({one.state for one in explorer.coverage.seen})
    most = max((len(kinds) for row in squares.values() for kinds in row.values()), default=1)
    rows = []
    for faults, row in sorted(squares.items(), key=lambda item: (item[0].count(","), item[0])):
        kinds = [sorted(row[state]) for state in states]
        cells = [(len(one), -(-SHADES * len(one) // most), ", ".join(one)) for one in kinds]
        rows.append((fmt.clean(faults), cells))
    return {"states": [fmt.clean(state) for state in states], "rows": rows}


def _find(find: Find, explorer: Explorer, folder: Path, runs: Path) -> dict[str, Any]:
    rate = find.tally.rate
    report = runs / (find.run_dir or "") / "report.html"
    return {
        "promise": find.broke.promise,
        "also": ", ".join(one.promise for one in find.also),
        "minimal": fmt.clean(document.in_words(find.minimal)),
        "found": fmt.clean(document.in_words(find.found)),
        "trial": find.trial,
        "minutes": f"{find.seconds / 60:.1f}",
        "rate": f"{find.tally.broken} of {find.tally.runs}",
        "interval": f"{rate.low or 0:.0%} to {1 if rate.high is None else rate.high:.0%}" if rate else "",
        "spent": find.shrinker.spent,
        "ended": find.ended,
        "confirmed": find.shrinker.confirmed,
        "name": f"{finds.named(find, explorer)}.yml",
        "known_to": finds.known_to(find.signature),
        "link": quote(os.path.relpath(report.absolute(), folder.absolute())) if report.is_file() else None,
    }


def _curve(explorer: Explorer) -> str:
    """The points of a line: what had been seen after each trial, in a box of 600 by 120."""
    if not explorer.curve:
        return ""
    end, most = explorer.curve[-1][0] or 1.0, explorer.curve[-1][1] or 1
    return " ".join(f"{600 * at / end:.1f},{120 - 115 * count / most:.1f}" for at, count in explorer.curve)
