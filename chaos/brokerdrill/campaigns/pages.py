"""The pages of a sweep and of a matrix, and their JSON: what `results` found, in words."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from brokerdrill.base.atomic import write, write_json
from brokerdrill.base.statistics import ALPHA, quantile_interval, rate_interval, smallest_p
from brokerdrill.campaigns import results
from brokerdrill.campaigns.matrix import Square, squares
from brokerdrill.campaigns.plan import CampaignPlan
from brokerdrill.campaigns.results import CellOutcome, Comparison, OutcomeGroup
from brokerdrill.report import format as fmt
from brokerdrill.report.index import strip
from brokerdrill.report.page import render

PAGE_FILE, JSON_FILE = "index.html", "results.json"
# word -> (sign, tone)
SIGNS: Mapping[str, tuple[str, str]] = {
    "kept": ("✓", "good"),
    "broken": ("✗", "bad"),
    "only": ("◐", "doubt"),
    "unknown": ("?", "doubt"),
    "failed": ("!", "doubt"),
    "refused": ("⊘", "doubt"),
    "pending": ("…", "none"),
}
WORDS = {"failed": "not made", "pending": "not run yet", "only": "kept only with"}


def write_results(plan: CampaignPlan, found: Sequence[CellOutcome], runs: Path, folder: Path) -> Path:
    """Write the plan's page and JSON into `folder` and return the page's path. Raises InfrastructureError where the
    disk does not take them."""
    placed = results.places(found)
    comparisons = results.compared(placed) if plan.kind == "sweep" else []
    content = {
        "kind": plan.kind,
        "name": plan.name,
        "title": plan.title,
        "cells": len(plan.cells),
        "done": sum(one.word != results.PENDING for one in found),
        "places": [results.place_json(place) for place in placed],
    }
    if plan.kind == "sweep":
        content["comparisons"] = [one.to_json() for one in comparisons]
    else:
        content["squares"] = [
            {"mode": mode, "fault": fault, "client": client, "verdict": square.word, "kept_with": square.kept_with,
             "broken_with": square.broken_with}
            for (mode, fault, client), square in squares(placed).items()
        ]  # fmt: skip
    write_json(folder / JSON_FILE, content)
    view = (
        _sweep_view(placed, comparisons, runs, folder) if plan.kind == "sweep" else _matrix_view(placed, runs, folder)
    )
    page = render(f"{plan.kind}.html.j2", **_head(plan, found), **view)
    return write(folder / PAGE_FILE, page.encode("utf-8", errors="replace"))


def _head(plan: CampaignPlan, found: Sequence[CellOutcome]) -> dict[str, Any]:
    words = [one.word for one in found]
    done = len(words) - words.count(results.PENDING)
    unexpected = [one for one in found if one.result is not None and not one.result.as_expected]
    wrong = any(one.word == results.BROKEN for one in unexpected)
    open_ = done < len(words) or unexpected or any(word in ("failed", "refused") for word in words)
    tone = "bad" if wrong else "doubt" if open_ else "good"
    counts = [(word, words.count(word)) for word in SIGNS if words.count(word)]
    return {
        "title": fmt.clean(plan.title),
        "name": plan.name,
        "tone": tone,
        "sign": {"bad": "✗", "doubt": "?", "good": "✓"}[tone],
        "total": len(words),
        "done": done,
        "summary": ", ".join(f"{count} {WORDS.get(word, word)}" for word, count in counts),
        "expected": sum(bool(one.result and one.result.as_expected) for one in found),
    }


def _runs(place: OutcomeGroup, runs: Path, folder: Path) -> list[dict[str, Any]]:
    rows = []
    for one in place.outcomes:
        sign, tone = SIGNS[one.word]
        run_dir = one.ended.run_dir if one.ended else None
        report = runs / run_dir / "report.html" if run_dir else None
        link = quote(os.path.relpath(report.absolute(), folder.absolute())) if report and report.is_file() else None
        error = fmt.clean(one.ended.error) if one.ended and one.ended.error else ""
        rows.append(
            {"number": one.cell.repeat, "sign": sign, "tone": tone, "word": WORDS.get(one.word, one.word), "link": link,
             "error": error, "run": run_dir or ""}
        )  # fmt: skip
    return rows


def _facts(place: OutcomeGroup) -> dict[str, Any]:
    """What the cards and rows of a place say in numbers."""
    times, broken = place.times, place.broken()
    violated, judged = place.violations
    p50, p95 = quantile_interval(times, 0.5), quantile_interval(times, 0.95)
    return {
        "word": WORDS.get(place.word, place.word),
        "sign": SIGNS[place.word][0],
        "tone": SIGNS[place.word][1],
        "expected": place.as_expected,
        "errors": [
            fmt.clean(error)
            for error in dict.fromkeys(one.ended.error for one in place.outcomes if one.ended and one.ended.error)
        ],
        "broken": ", ".join(f"{name} ({count} of {judged} runs)" for name, count in broken.items()),
        "failovers": len(times) + place.never,
        "never": place.never,
        "p50": fmt.milliseconds(p50.estimate if p50 else None),
        "p50_interval": fmt.interval(p50, fmt.milliseconds),
        "p95": fmt.milliseconds(p95.estimate if p95 else None),
        "p95_interval": fmt.interval(p95, fmt.milliseconds),
        "max": fmt.milliseconds(max(times, default=None)),
        "violated": violated,
        "judged": judged,
        "rate_interval": fmt.interval(rate_interval(violated, judged), fmt.percent),
        "takeovers": [
            f"{fmt.clean(store)}: {count} in {runs} of {len(place.results)} runs"
            for store, (count, runs) in place.takeovers().items()
        ],
        "messages": fmt.number(place.messages()),
        "lost": fmt.number(place.messages("lost")),
        "duplicated": fmt.number(place.messages("duplicated")),
    }


def place_name(place: OutcomeGroup) -> str:
    """Return a place's labels as one name: `session_ms 2000, rate 400`."""
    return fmt.clean(", ".join(f"{axis} {word}" for axis, word in place.labels.items()))


def _sweep_view(
    placed: Sequence[OutcomeGroup], comparisons: Sequence[Comparison], runs: Path, folder: Path
) -> dict[str, Any]:
    until = max((time for place in placed for time in place.times), default=0)
    return {
        "places": [
            _facts(place)
            | {"name": place_name(place), "runs": _runs(place, runs, folder), "strip": strip(place.times, None, until)}
            for place in placed
        ],
        "comparisons": [comparison_row(one) for one in comparisons],
        "alpha": f"{ALPHA:.0%}".replace("%", " %"),
    }


def comparison_row(one: Comparison) -> dict[str, Any]:
    """Return what the page says of two settings: a sentence, and the numbers behind it."""
    row = {
        "first": place_name(one.first),
        "second": place_name(one.second),
        "sentence": "no failover to compare in one of them",
        "tone": "none",
        "shift": fmt.NOTHING,
        "p": fmt.NOTHING,
        "adjusted": fmt.NOTHING,
        "delta": fmt.NOTHING,
        "rates": fmt.NOTHING,
    }
    if one.adjusted_rates_p is not None:
        row["rates"] = fmt.p_text(one.adjusted_rates_p)
    if one.times is None:
        return row
    shift = one.times.shift
    row |= {
        "shift": f"{_signed(shift.estimate)} ({fmt.interval(shift, _signed)})",
        "p": fmt.p_text(one.times.p),
        "adjusted": fmt.p_text(one.adjusted_times_p),
        "delta": f"{one.times.delta:+.2f}",
    }
    if one.significant:
        faster = row["first"] if shift.estimate > 0 else row["second"]
        row |= {"tone": "good", "sentence": f"{faster} is faster, by {fmt.milliseconds(abs(shift.estimate))}"}
    elif not one.could_show:
        few = (one.times.count_a, one.times.count_b)
        row["sentence"] = (
            f"not decided: {few[0]} and {few[1]} failovers cannot show a difference (p is never below "
            f"{fmt.p_text(min(1.0, 2 * smallest_p(*few)))})"
        )
    else:
        row["sentence"] = "no difference is shown"
    return row


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + fmt.milliseconds(value)


def _matrix_view(placed: Sequence[OutcomeGroup], runs: Path, folder: Path) -> dict[str, Any]:
    found = squares(placed)
    modes = list(dict.fromkeys(mode for mode, _, _ in found))
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for (mode, fault, client), square in found.items():
        rows.setdefault(fault, {}).setdefault(client, {})[mode] = _square(square, runs, folder)
    return {"modes": modes, "rows": rows, "settled": _settled(found)}


def _square(square: Square, runs: Path, folder: Path) -> dict[str, Any]:
    sign, tone = SIGNS[square.word]
    word = WORDS.get(square.word, square.word)
    if square.word == "only":
        word = f"{word} {fmt.clean(', '.join(square.kept_with))}"
    variants = [
        _facts(place) | {"name": fmt.clean(place.labels["settings"]), "runs": _runs(place, runs, folder)}
        for place in square.places
    ]
    return {"sign": sign, "tone": tone, "word": word, "variants": variants, "named": len(variants) > 1}


def _settled(found: Mapping[Any, Square]) -> list[tuple[str, str, int]]:
    words = [square.word for square in found.values()]
    said = {**WORDS, "only": "kept only with some settings"}
    return [(SIGNS[word][1], said.get(word, word), words.count(word)) for word in SIGNS if word in words]
