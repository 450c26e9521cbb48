"""The page of trends: what got worse, each series over time, and what has been drilled when."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bokeh.embed import components
from bokeh.models import ColumnDataSource, DatetimeTickFormatter, HoverTool, NumeralTickFormatter, Range1d, Span
from bokeh.plotting import figure

from brokerdrill.base.atomic import write, write_json
from brokerdrill.base.statistics import quantile_interval, rate_interval, to_json
from brokerdrill.report import format as fmt
from brokerdrill.report.page import bokeh_scripts, own, render, script
from brokerdrill.report.pictures.figures import MIN_LEFT_PX, plain, quiet, themed, tip
from brokerdrill.results.regression import ComparedSeries, RunPoint, versions_text

PAGE_FILE, JSON_FILE = "trends.html", "trends.json"
# group -> (glyph, colour): shapes differ too
MARKERS = {
    "baseline": ("circle", "class-neutral"),
    "newest": ("diamond", "sends"),
    "not as expected": ("x", "class-bad"),
}


def write_trends(
    found: Sequence[ComparedSeries], coverage: Sequence[Mapping[str, Any]], alpha: float, out: Path
) -> Path:
    """Write the page `out` and its JSON beside it; return the page. Raises InfrastructureError: no room."""
    view = trends_view(found, coverage, alpha)
    content = {
        "alpha": alpha,
        "regressions": view["regressions"],
        "series": [series_json(one, alpha) for one in found],
        "coverage": [dict(row) for row in coverage],
    }
    write_json(out.with_suffix(".json"), content, default=str)
    return write(out, render("trends.html.j2", **view).encode("utf-8", errors="replace"))


def series_json(one: ComparedSeries, alpha: float) -> dict[str, Any]:
    """Return what is known of a series."""
    return {
        "scenario": one.series.scenario,
        "topology": one.series.topology,
        "settings": one.series.settings,
        "baseline_runs": len(one.baseline),
        "newest_runs": [run.run_id for run in one.recent],
        "tests": [
            {
                "what": test.what,
                "p": test.p,
                "p_adjusted": test.adjusted,
                "regression": test.regression(alpha),
                "times": to_json(test.times),
                "rates": to_json(test.rates),
            }
            for test in one.tests
        ],
    }


def coverage_rows(rows: Sequence[Mapping[str, Any]], scenarios: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return scenario × topology × versions with how often and when last it was drilled, and how that ended; those of
    `scenarios` (name, topology) that never were are there with a count of 0."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        key = (row["scenario"], row["topology"], versions_text(row["versions"]))
        entry = found.setdefault(
            key, {"scenario": key[0], "topology": key[1], "versions": key[2], "ids": set(), "last": row["started_at"]}
        )
        entry["ids"].add(row["run_id"])
        if row["started_at"] >= entry["last"]:
            entry |= {"last": row["started_at"], "verdict": row["run_verdict"], "as_expected": row["run_as_expected"]}
    drilled = {(scenario, topology) for scenario, topology, _ in found}
    for name, topology in scenarios:
        if (name, topology) not in drilled:
            found[(name, topology, "")] = {"scenario": name, "topology": topology, "versions": "", "ids": set(),
                                           "last": None, "verdict": None, "as_expected": None}  # fmt: skip
    return [
        {name: value for name, value in entry.items() if name != "ids"} | {"runs": len(entry["ids"])}
        for _, entry in sorted(found.items())
    ]


def _when(at: datetime.datetime | None) -> str:
    return fmt.NOTHING if at is None else f"{at:%Y-%m-%d %H:%M}"


def trends_view(found: Sequence[ComparedSeries], coverage: Sequence[Mapping[str, Any]], alpha: float) -> dict[str, Any]:
    """Return what the template needs."""
    regressions = [f"{one.series.name}: {test.sentence(alpha)}" for one in found for test in one.regressions(alpha)]
    tested = sum(one.tested for one in found)
    tone = "bad" if regressions else "good" if tested else "doubt"
    plots = {str(number): plot for number, one in enumerate(found) if (plot := picture(one)) is not None}
    drawn, divs = components(plots, wrap_script=False) if plots else ("", {})
    return {
        "tone": tone,
        "sign": {"bad": "✗", "good": "✓", "doubt": "?"}[tone],
        "headline": f"{len(regressions)} regression{'' if len(regressions) == 1 else 's'}"
        if regressions
        else "nothing got worse that the runs can show"
        if tested
        else "too few runs to tell",
        "regressions": regressions,
        "series": [_series_view(number, one, divs, alpha) for number, one in enumerate(found)],
        "tested": tested,
        "runs": sum(len(one.series.runs) for one in found),
        "alpha": fmt.percent(alpha),
        "tests": sum(test.p is not None for one in found for test in one.tests),
        "coverage": [coverage_view(row) for row in coverage],
        "bokeh_scripts": bokeh_scripts() if plots else [],
        "plot_script": script(drawn),
        "plots_script": own("plots.js"),
    }


def coverage_view(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of `coverage_rows` in words."""
    if not row["runs"]:
        return {**row, "last": "never", "tone": "none", "word": "not drilled", "sign": "–"}
    tone = "good" if row["as_expected"] else "bad" if row["verdict"] == "fail" else "doubt"
    sign = {"good": "✓", "bad": "✗", "doubt": "?"}[tone]
    word = "as expected" if row["as_expected"] else "not as expected"
    return {**row, "last": _when(row["last"]), "tone": tone, "sign": sign, "word": word}


def _side(runs: Sequence[RunPoint]) -> dict[str, Any]:
    times = [run.slowest for run in runs if run.slowest is not None]
    known = [run.violated for run in runs if run.violated is not None]
    p50 = quantile_interval(times, 0.5)
    return {
        "runs": len(runs),
        "p50": fmt.milliseconds(p50.estimate if p50 else None),
        "p50_interval": fmt.interval(p50, fmt.milliseconds),
        "max": fmt.milliseconds(max(times, default=None)),
        "never": sum(run.never for run in runs),
        "violated": f"{sum(known)} of {len(known)}",
        "violated_interval": fmt.interval(rate_interval(sum(known), len(known)), fmt.percent),
        "from": _when(runs[0].started) if runs else fmt.NOTHING,
        "to": _when(runs[-1].started) if runs else fmt.NOTHING,
        "versions": "; ".join(dict.fromkeys(run.versions for run in runs if run.versions)),
    }


def _series_view(number: int, one: ComparedSeries, divs: Mapping[str, str], alpha: float) -> dict[str, Any]:
    from markupsafe import Markup

    return {
        "name": fmt.clean(f"{one.series.scenario} on {one.series.topology}"),
        "settings": fmt.clean(one.series.settings),
        "sides": [("baseline", _side(one.baseline)), ("newest", _side(one.recent))],
        "plot": Markup(divs.get(str(number), "")),
        "tests": [
            {
                "what": test.what,
                "sentence": test.sentence(alpha),
                "p": fmt.p_text(test.p),
                "adjusted": fmt.p_text(test.adjusted),
                "bad": test.regression(alpha),
            }
            for test in one.tests
        ],
        "broken": sorted({name for run in one.series.runs for name in run.broken}),
    }


def picture(one: ComparedSeries) -> Any | None:
    """Return the figure of a series' failover times over the weeks; None where no run had a failover."""
    timed = [run for run in one.series.runs if run.slowest is not None]
    if not timed:
        return None
    bounds = [run.bound for run in timed if run.bound is not None]
    top = max([run.slowest or 0 for run in timed] + bounds[-1:]) * 1.1
    plot = figure(frame_height=220, x_axis_type="datetime", y_range=Range1d(0, top), tools=[])
    quiet(plot, MIN_LEFT_PX)
    plot.yaxis.axis_label = "slowest failover, ms"
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    plot.xaxis.formatter = DatetimeTickFormatter(hours="%d %b %H:%M", days="%d %b", months="%b %Y", minutes="%H:%M")
    newest = {run.run_id for run in one.recent}
    glyphs = []
    for group, (marker, colour) in MARKERS.items():
        chosen = [run for run in timed if group == _group(run, newest)]
        if not chosen:
            continue
        source = ColumnDataSource(
            {
                "at": [run.started for run in chosen],
                "ms": [run.slowest for run in chosen],
                "run": [plain(run.run_id) for run in chosen],
                "said": [plain(", ".join(run.broken) or run.verdict) for run in chosen],
                "text": [fmt.milliseconds(run.slowest) for run in chosen],
                "version": [plain(run.versions) for run in chosen],
            }
        )
        dots = plot.scatter(x="at", y="ms", marker=marker, size=9, source=source, line_width=1.5)
        themed(dots.glyph, fill_color=colour, line_color=colour)
        glyphs.append(dots)
    if bounds:
        line = Span(location=bounds[-1], dimension="width", line_width=1.5, line_dash="dashed")
        plot.add_layout(themed(line, line_color="outage"))
    rows = [("run", "@run"), ("failover", "@text"), ("verdict", "@said"), ("versions", "@version")]
    plot.add_tools(HoverTool(renderers=glyphs, tooltips=tip(rows)))
    return plot


def _group(run: RunPoint, newest: set[str]) -> str:
    return "not as expected" if run.violated else "newest" if run.run_id in newest else "baseline"
