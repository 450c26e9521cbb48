"""The HTML pages: one for a run, one for several. Each is a single file that loads nothing from anywhere."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from bokeh.resources import INLINE
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from brokerdrill.base.atomic import write
from brokerdrill.base.errors import UsageError
from brokerdrill.ledger import contract, journal
from brokerdrill.ledger.series import Series
from brokerdrill.ledger.verdict import FAIL, PASS, UNKNOWN, RunVerdict
from brokerdrill.report import details, view, words
from brokerdrill.report import format as fmt
from brokerdrill.report.index import index_view
from brokerdrill.report.palette import variables
from brokerdrill.report.pictures import Pictures, draw
from brokerdrill.report.pictures.figures import merged_bands
from brokerdrill.report.pictures.routes import store_colours
from brokerdrill.report.pictures.timeline import ROLE_SHAPES, client_names
from brokerdrill.report.shown import Shown

TEMPLATES = Path(__file__).parent / "templates"
REPORT_FILE = "report.html"
SWATCHES = {"/": "low striped", ".": "low dotted", "x": "crossed"}


@functools.cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        finalize=lambda value: value if isinstance(value, Markup) or not isinstance(value, str) else fmt.clean(value),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def own(name: str) -> Markup:
    """One of our own style sheets or scripts, which is not escaped."""
    text = (TEMPLATES / name).read_text(encoding="utf-8")
    return Markup(text.replace("@LIGHT@", variables(dark=False)).replace("@DARK@", variables(dark=True)))


def script(text: str) -> Markup:
    """Return JavaScript that may stand in a page: no string in it can end the script element or begin a comment."""
    return Markup(text.replace("</", "<\\/").replace("<!--", "<\\!--"))


def _version() -> str:
    try:
        return version("brokerdrill")
    except PackageNotFoundError:
        return ""


def render(template: str, **values: Any) -> str:
    """Return the page of a template of ours, with the style and the scripts that all pages share."""
    return (
        _environment()
        .get_template(template)
        .render(
            style=own("style.css"),
            theme_script=own("theme.js"),
            page_script=own("page.js"),
            terms=words.TERMS,
            nothing=fmt.NOTHING,
            brokerdrill_version=_version(),
            **values,
        )
    )


def _write(out: Path, text: str) -> Path:
    # A lone surrogate of a strange file name must not end the report.
    return write(out, text.encode("utf-8", errors="replace"))


def _summary(result: RunVerdict, run: contract.RunInfo | None) -> str:
    """What the headline adds to the verdict: which promises it rests on."""
    if result.error:
        return fmt.clean(result.error)
    by_verdict = {
        # A promise may be listed twice, of sends and of deliveries.
        verdict: list(dict.fromkeys(fmt.clean(row.name) for row in result.promises if row.verdict == verdict))
        for verdict in words.VERDICT_WORDS
    }
    if not result.promises:
        return "no promise was checked"
    if by_verdict[FAIL]:
        return f"{', '.join(by_verdict[FAIL])} {'does' if len(by_verdict[FAIL]) == 1 else 'do'} not hold"
    if by_verdict[UNKNOWN]:
        return f"nothing proves {', '.join(by_verdict[UNKNOWN])}"
    missed = [row.name for row in view.promise_rows(result, run) if not row.met]
    if missed and not result.as_expected:
        return f"{', '.join(map(fmt.clean, missed))} should have been broken"
    count = len(result.promises)
    return f"all {count} promises hold" if count > 1 else f"{by_verdict[PASS][0]} holds"


def _facts(result: RunVerdict, series: Series, run: contract.RunInfo | None) -> list[tuple[str, str, str]]:
    failovers = result.failovers()
    times = [value for value in failovers.values() if value is not None]
    sends = sum(bucket.sends for bucket in series.buckets)
    facts = [
        ("acknowledged sends", fmt.number(sends), words.TERMS["acknowledged"]),
        ("deliveries", fmt.number(sum(bucket.deliveries for bucket in series.buckets)), ""),
    ]
    if failovers:
        facts.append(("failovers", fmt.number(len(failovers)), words.TERMS["failover"]))
        slowest = fmt.milliseconds(max(times)) if len(times) == len(failovers) else "never"
        facts.append(
            ("slowest client's next send", slowest, "From the fault to the first send that the successor acknowledged.")
        )
    facts.append(("length", fmt.span(series.end_ns), ""))
    if run is not None:
        facts.append(("topology", run.topology or fmt.NOTHING, ""))
        facts.append(("seed", fmt.NOTHING if run.seed is None else str(run.seed), words.TERMS["seed"]))
    return facts


class Zoom(NamedTuple):
    """A part of the run that the page offers to look at closely, in s of run time."""

    label: str
    start: str
    end: str


class Mark(NamedTuple):
    """A fault's mark in the pictures, and what it stands for."""

    mark: str
    text: str


class Key(NamedTuple):
    """An entry of a picture's legend: the name, what it means, and the kind of its swatch or its colour."""

    name: str
    meaning: str
    kind: str = ""
    colour: str = ""


def _zooms(shown: Shown) -> list[Zoom]:
    """Each fault with what follows it, and the phases."""
    zooms = []
    for band in merged_bands(shown.bands):
        after = [
            item.first_send_ms * 1e6
            for item in shown.series.failover
            if item.first_send_ms is not None and abs(item.t_ns - band.start_ns) < details.SAME_NS
        ]
        length = max([min(band.end_ns - band.start_ns, 20e9), *after, 1e9])
        start, end = band.start_ns - 0.35 * length, band.start_ns + 1.6 * length
        label = f"{band.mark} {fmt.clean(band.name)} at {fmt.seconds(band.start_ns)}"
        zooms.append(Zoom(label, f"{max(0.0, start) / 1e9:.6f}", f"{min(end, shown.series.end_ns) / 1e9:.6f}"))
    for phase in shown.series.phases:
        label = f"phase {fmt.clean(phase.name)}"
        zooms.append(Zoom(label, f"{phase.start_ns / 1e9:.6f}", f"{phase.end_ns / 1e9:.6f}"))
    return zooms


def _marks(shown: Shown) -> list[Mark]:
    return [
        Mark(
            band.mark,
            f"{fmt.clean(band.name)} {fmt.clean(band.target)}, {fmt.seconds(band.start_ns)} to "
            + (fmt.seconds(band.end_ns) if band.healed else "the end, not healed"),
        )
        for band in merged_bands(shown.bands)
    ]


def _roles(series: Series) -> list[Key]:
    seen = {role.value for role in series.roles}
    kinds = {"passive": "low", "down": "thin"}
    return [
        Key(value, f"{words.ROLE_WORDS[value].capitalize()}.", kind=SWATCHES.get(hatch, kinds.get(value, "")))
        for value, (_, hatch) in ROLE_SHAPES.items()
        if value in seen
    ]


def _failover_words(result: RunVerdict) -> str:
    found = result.failovers()
    times = [value for value in found.values() if value is not None]
    count = f"{len(found)} failover{'' if len(found) == 1 else 's'}"
    if len(times) < len(found):
        return f"{count}; {len(found) - len(times)} without an acknowledged send for some client."
    if not times:
        return count
    return f"{count}; the slowest client's next acknowledged send came {fmt.milliseconds(max(times))} after the fault."


def _failover_parts(result: RunVerdict) -> list[Key]:
    return [
        Key(name, meaning, colour=key.removesuffix("_ms").replace("_", "-"))
        for key, name, meaning in words.FAILOVER_PARTS
        if any(getattr(row, key) is not None for row in result.failover)
    ]


def _read(run_dir: Path) -> tuple[contract.RunInfo | None, list[dict[str, Any]], list[str]]:
    """Read what the run says of itself; a page is written even where that cannot be read, and says so."""
    problems = []
    try:
        run = contract.read_run(run_dir)
    except UsageError as error:
        run = None
        problems.append(str(error))
    try:
        entries = journal.read(run_dir / contract.JOURNAL_FILE)
    except OSError as error:
        entries = []
        problems.append(f"{contract.JOURNAL_FILE} cannot be read: {error.strerror}")
    return run, [entry for entry in entries if isinstance(entry, dict)], problems


def bokeh_scripts() -> list[Markup]:
    """Return BokehJS itself, only the part that draws: no widgets, tables, WebGL or mathematics."""
    return [script(text) for text in INLINE.clone(components=["bokeh"]).js_raw]


def _pictured(result: RunVerdict, shown: Shown, pictures: Pictures, bound: float | None) -> dict[str, Any]:
    """What the page says of the pictures and beside them; `bound` is that of a failover, in ms."""
    series = shown.series
    clients = client_names(series)
    return {
        "has_time": any(pictures.divs.get(key) for key in ("timeline", "throughput")),
        "zooms": _zooms(shown),
        "plots": {
            key: Markup(pictures.divs.get(key, ""))
            for key in ("timeline", "throughput", "latency", "routes", "failover", "classes")
        },
        "roles": _roles(series),
        "marks": _marks(shown),
        "timeline_words": f"Roles of {len({role.instance for role in series.roles})} brokers and "
        f"{len({band.mark for band in shown.bands})} faults over {fmt.span(series.end_ns)}",
        "alert_lanes": bool(series.alerts),
        "unplanned_ends": any(not one.meant for one in series.endings),
        "client_lanes": len(clients),
        "clients_left_out": fmt.number(series.client_count - len(clients))
        if series.client_count > len(clients)
        else "",
        "outage_count": len(series.outages),
        "route_words": details.route_words(series.routes),
        "route_rows": details.route_rows(series.routes, store_colours(series.routes)) if series.routes else [],
        "parts": _failover_parts(result),
        "failover_bound": fmt.milliseconds(bound) if bound is not None else "",
        "failover_words": _failover_words(result),
        "bars_left_out": pictures.bars_left_out,
        "bokeh_scripts": bokeh_scripts() if pictures.script else [],
        "plot_script": script(pictures.script),
        "plots_script": own("plots.js"),
    }


def render_report(run_dir: Path, result: RunVerdict, series: Series) -> str:
    """Return the HTML of one run's report; see `write_report`."""
    run, entries, problems = _read(run_dir)
    shown = Shown.of(series)
    bounds = [row.bound for row in result.promises if row.name == "failover_within"]
    bound = next((value for value in bounds if value is not None), None)
    pictures: Pictures = draw(shown, result.messages, bound)
    scenario = view.scenario_words(run.scenario.text) if run else {}
    name = fmt.clean((run.scenario.name if run else "") or result.run_id or run_dir.name)
    classes = view.class_rows(result)
    started = f", {run.started_at}" if run and run.started_at else ""
    return render(
        "report.html.j2",
        headline=words.headline(result),
        scenario_name=name,
        tone=words.tone(result),
        sign={"good": "✓", "bad": "✗", "doubt": "?"}[words.tone(result)],
        word="vacuous" if result.vacuous else words.verdict_word(result.verdict),
        expected=words.AS_EXPECTED[result.as_expected],
        summary=_summary(result, run),
        title=f"{scenario.get('title') or name}{f' ({name})' if scenario.get('title') else ''}{started}",
        facts=_facts(result, series, run),
        notes=[*(f"Vacuous: {why}." for why in result.vacuous), *problems, *view.notes(result, run)],
        coverage=details.coverage_rows(result),
        promises=view.promise_rows(result, run, shown.bands),
        phases=details.phase_rows(result),
        attribution=details.attribution_rows(result, shown.bands),
        redeliveries=details.redelivery_rows(result, shown.bands),
        outages=details.outage_rows(result, shown.bands),
        rounds=details.round_rows(result),
        **_pictured(result, shown, pictures, bound),
        classes=classes,
        empty_classes=[row for row in classes if not row.count],
        class_total=sum(row.count for row in classes),
        faults=view.fault_rows(entries, shown.bands),
        environment=view.environment(run),
        clocks=view.clock_rows(run),
        scenario_text=fmt.clean(run.scenario.text) if run else "",
        commands=view.run_again(run, run_dir),
        seed=run.seed if run else None,
        counts=view.count_rows(result, shown, run),
    )


def write_report(run_dir: Path, result: RunVerdict, series: Series, out: Path) -> Path:
    """Write the page of one run and return its path.

    `run_dir` gives run.json and journal.jsonl; `result` is the run's verdict, `series` what the analysis found over
    time, `out` the file, or a directory that gets `report.html`. A run whose own files cannot be read
    gets a page that says so. Raises InfrastructureError when the page cannot be written.
    """
    target = out / REPORT_FILE if out.is_dir() else out
    return _write(target, render_report(run_dir, result, series))


def write_index(runs: Sequence[tuple[Path, RunVerdict]], out: Path) -> Path:
    """Write the page of several runs: a row and a link each, and what their repeats allow to say; return its path.

    `runs` are pairs of a run directory and its verdict, in the order of their rows; `out` is the file, or a directory
    that gets `index.html`. Links go to the reports that are there: `<out's folder>/<run>/report.html`, else the one in
    the run directory. Raises InfrastructureError when the page cannot be written.
    """
    target = out / "index.html" if out.is_dir() else out
    return _write(target, render("index.html.j2", **index_view(runs, target)))
