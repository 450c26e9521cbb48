"""The pictures of a report: Bokeh figures over the aggregates of one run, sharing one zoomable time axis.

Figures carry no background, legend or toolbar of their own: the page draws those, and recolours the models that a
`themed` tag names when it changes between light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bokeh.core.properties import value as constant
from bokeh.embed import components
from bokeh.models import (
    BasicTicker,
    BoxAnnotation,
    BoxZoomTool,
    ColumnDataSource,
    FactorRange,
    FixedTicker,
    HoverTool,
    Label,
    LogTickFormatter,
    Model,
    NumeralTickFormatter,
    Range1d,
    Span,
)
from bokeh.plotting import figure

from brokerdrill.ledger.contract import PREPARATIONS
from brokerdrill.ledger.verdict import Failover
from brokerdrill.report import format as fmt
from brokerdrill.report.details import SAME_NS
from brokerdrill.report.palette import PALETTE
from brokerdrill.report.series import Band, Bucket, RoleSpan, Routes, Series, Stay
from brokerdrill.report.words import CLASS_WORDS, FAILOVER_PARTS, ROLE_WORDS

TIME_RANGE = "run_time"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"
TEXT_FONT = constant(FONT)  # a glyph would take the bare string for a column's name
NAME_LIMIT = 17
LANE_PX = 30
# A client's lane beside a broker's.
CLIENT_LANE = 0.6
MAX_BARS = 24
MARK_GAP = 0.08
MARK_ROWS = 3
RIGHT_BORDER_PX = 18
# Enough for the ticks and the title of every time plot, so that their frames stand exactly under each other.
MIN_LEFT_PX = 80

OUTAGE_SIDES = {"send": "no acknowledged send", "receive": "no delivery"}

# role -> (height of its bar in a lane, hatch): a role can be told without its colour.
ROLE_SHAPES: Mapping[str, tuple[float, str]] = {
    "active": (0.68, " "),
    "passive": (0.44, " "),
    "syncing": (0.44, "/"),
    "starting": (0.44, "."),
    "failed": (0.68, "x"),
    "down": (0.14, " "),
}
# The roles that are written into their bars, in these colours; hatched bars would hide the word.
WRITTEN_ROLES: Mapping[str, str] = {"active": "on-active", "passive": "on-pale"}


@dataclass(frozen=True)
class Pictures:
    """What the page embeds: one script for all figures, and a div for each figure that has something to show."""

    script: str
    divs: Mapping[str, str]
    bars_left_out: int = 0


def themed(model: Model, **properties: str) -> Model:
    """Set colour `properties` of `model` to names of the palette; the page sets them again when its theme changes."""
    for name, colour in properties.items():
        setattr(model, name, PALETTE[colour].light)
    model.tags = [*model.tags, *(f"{name}={colour}" for name, colour in properties.items())]
    return model


def plain(text: object, limit: int | None = None) -> str:
    """Return text for a canvas: no control characters, nothing that Bokeh reads as mathematics, at most `limit` long
    (cut in its middle, since names differ at both ends)."""
    cleaned = fmt.clean(text).replace("$$", "$\u200b$").replace("\\[", "\\\u200b[").replace("\\(", "\\\u200b(")
    if limit is None or len(cleaned) <= limit:
        return cleaned
    head = (limit - 1) // 2
    return f"{cleaned[:head]}…{cleaned[len(cleaned) - (limit - 1 - head) :]}"


def _s(ns: float) -> float:
    return ns / 1e9


def quiet(plot: Any, left_px: int) -> Any:
    """Give `plot` the quiet look all pictures share."""
    plot.toolbar_location = None
    plot.sizing_mode = "stretch_width"
    plot.background_fill_color = None
    plot.border_fill_color = None
    plot.outline_line_color = None
    plot.min_border_left = left_px
    plot.min_border_right = RIGHT_BORDER_PX
    plot.min_border_top = 6
    for axis in plot.axis:
        themed(
            axis,
            axis_label_text_color="muted",
            major_label_text_color="muted",
            axis_line_color="line",
            major_tick_line_color="line",
        )
        axis.minor_tick_line_color = None
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size = "12px"
        axis.major_label_text_font_size = "12px"
        axis.axis_label_text_font = axis.major_label_text_font = FONT
        axis.axis_label_standoff = 6
    for grid in plot.grid:
        themed(grid, grid_line_color="line")
    return plot


def _hide(models: Iterable[Model], *properties: str) -> None:
    """Make colour `properties` invisible, for the page's themes too."""
    for model in models:
        for name in properties:
            setattr(model, name, None)
        model.tags = [tag for tag in model.tags if tag.split("=")[0] not in properties]


def tip(rows: Sequence[tuple[str, str]]) -> str:
    """Return what a hover shows, labels and `@column` values, in the page's colours; Bokeh escapes the values."""
    cells = "".join(f'<span style="color:var(--muted)">{label}</span><span>{field}</span>' for label, field in rows)
    look = "display:grid;grid-template-columns:auto auto;gap:1px 12px;font:13px/1.5 var(--sans)"
    return f'<div style="{look}">{cells}</div>'


def _time_figure(height: int, x_range: Range1d, left_px: int, **options: Any) -> Any:
    plot = figure(frame_height=height, x_range=x_range, tools=[], **options)
    quiet(plot, left_px)
    # A drag zooms in; the page's own buttons, and a double click, zoom out.
    zoom = BoxZoomTool(dimensions="width")
    themed(zoom.overlay, fill_color="fault", line_color="fault")
    plot.add_tools(zoom)
    plot.toolbar.active_drag = zoom
    plot.xaxis.axis_label = "seconds since the run's start"
    plot.xaxis.formatter = NumeralTickFormatter(format="0.[000]")
    plot.xaxis.ticker = BasicTicker(desired_num_ticks=7)
    return plot


def mark_rows(starts: Sequence[float], width: float) -> list[int]:
    """Return for each mark at `starts` (ascending) the row, from 0, in which it does not cover one before it."""
    gap = width * MARK_GAP
    free = [-math.inf] * MARK_ROWS
    rows = []
    for start in starts:
        row = next(
            (index for index, until in enumerate(free) if start >= until), min(range(MARK_ROWS), key=free.__getitem__)
        )
        free[row] = start + gap
        rows.append(row)
    return rows


def merged_bands(bands: Iterable[Band]) -> list[Band]:
    """Return one band a mark: the changes of one fault on several targets, from the first start to the last end."""
    merged: dict[str, Band] = {}
    for band in bands:
        first = merged.get(band.mark)
        if first is None:
            merged[band.mark] = band
            continue
        targets = ", ".join(filter(None, (first.target, band.target)))
        merged[band.mark] = replace(
            first, target=targets, end_ns=max(first.end_ns, band.end_ns), healed=first.healed and band.healed
        )
    return list(merged.values())


def _shade(plot: Any, bands: Sequence[Band]) -> None:
    """Shade each fault's time in effect, behind everything else; of a mere preparation, only mark the begin."""
    for band in bands:
        start = _s(band.start_ns)
        if band.name not in PREPARATIONS:
            box = BoxAnnotation(left=start, right=_s(band.end_ns), fill_alpha=0.12, line_alpha=0, level="underlay")
            plot.add_layout(themed(box, fill_color="fault"))
        edge = Span(location=start, dimension="height", line_width=1.5, line_dash="dashed", level="underlay")
        plot.add_layout(themed(edge, line_color="fault"))


def _add_bands(plot: Any, series: Series, height: int) -> None:
    """Shade the faults and write their marks at the top of a plot whose frame is `height` pixels high."""
    bands = merged_bands(series.bands)
    _shade(plot, bands)
    rows = mark_rows([_s(band.start_ns) for band in bands], _s(series.end_ns))
    for band, row in zip(bands, rows, strict=True):
        mark = Label(
            x=_s(band.start_ns),
            y=height - 1 - 15 * row,
            y_units="screen",
            x_offset=3,
            text=band.mark,
            text_baseline="top",
            text_font_size="12px",
            text_font_style="bold",
            text_font=FONT,
            tags=["mark"],
        )
        plot.add_layout(themed(mark, text_color="fault"))


def lane_names(roles: Sequence[RoleSpan]) -> list[str]:
    """Return the instances in the order of their lanes: those of one store together, by name."""
    first_store: dict[str, str] = {}
    for role in roles:
        first_store.setdefault(role.instance, role.store)
    return sorted(first_store, key=lambda name: (first_store[name], name))


def _write_in(plot: Any, source: ColumnDataSource, colour: str, **options: Any) -> None:
    """Write a column of `source` on `plot`: `options` place it (x, y, text, …)."""
    look = {"text_baseline": "middle", "text_font": TEXT_FONT, "text_font_size": "12px"}
    themed(plot.text(source=source, **(look | options)).glyph, text_color=colour)


def _spans(starts: Sequence[int], ends: Sequence[int], names: Sequence[str], whole_ns: int) -> dict[str, list[Any]]:
    """The columns of bars with a name inside: `label` is the name where it has room, which the page keeps true."""
    return {
        "left": [_s(start) for start in starts],
        "right": [_s(end) for end in ends],
        "middle": [_s(start + end) / 2 for start, end in zip(starts, ends, strict=True)],
        "name": list(names),
        "label": [
            name if end - start > 0.14 * whole_ns else "" for start, end, name in zip(starts, ends, names, strict=True)
        ],
        "length": [fmt.span(end - start) for start, end in zip(starts, ends, strict=True)],
    }


def _fault_lane(plot: Any, bands: Sequence[Band], rows: Sequence[int]) -> None:
    marks = [band.mark for band in bands]
    source = ColumnDataSource(
        {
            "left": [_s(band.start_ns) for band in bands],
            "right": [_s(band.end_ns) for band in bands],
            "top": [-row + 0.3 for row in rows],
            "bottom": [-row - 0.3 for row in rows],
            "y": [-row for row in rows],
            "mark": marks,
            "label": marks,
            "name": [plain(band.name) for band in bands],
            "target": [plain(band.target) for band in bands],
            "start": [f"{_s(band.start_ns):,.3f} s" for band in bands],
            "healed": [f"{_s(band.end_ns):,.3f} s" if band.healed else "not during the run" for band in bands],
        },
        tags=["marks"],
    )
    bars = plot.quad("left", "right", "top", "bottom", source=source, fill_alpha=0.3, line_width=1.5)
    themed(bars.glyph, fill_color="fault", line_color="fault")
    _write_in(plot, source, "ink", x="left", y="y", text="label", x_offset=4, text_font_style="bold")
    rows_shown = [("fault", "@mark @name"), ("hits", "@target"), ("injected", "@start"), ("healed", "@healed")]
    plot.add_tools(HoverTool(renderers=[bars], tooltips=tip(rows_shown)))


def _phase_lane(plot: Any, series: Series, y: float) -> None:
    phases = series.phases
    columns = _spans(
        [phase.start_ns for phase in phases],
        [phase.end_ns for phase in phases],
        [plain(phase.name, NAME_LIMIT) for phase in phases],
        series.end_ns,
    )
    source = ColumnDataSource(columns, tags=["fit"])
    bars = plot.quad("left", "right", y + 0.3, y - 0.3, source=source, line_width=1)
    themed(bars.glyph, fill_color="raised", line_color="line")
    _write_in(plot, source, "muted", x="middle", y=y, text="label", text_align="center")
    plot.add_tools(HoverTool(renderers=[bars], tooltips=tip([("phase", "@name"), ("for", "@length")])))


def _role_lanes(plot: Any, series: Series, lanes: Mapping[str, float]) -> None:
    """Draw each instance's roles in its lane, whose middle `lanes` gives."""
    renderers = []
    for value, (height, hatch) in ROLE_SHAPES.items():
        roles = [role for role in series.roles if role.value == value]
        if not roles:
            continue
        columns = _spans(
            [role.start_ns for role in roles], [role.end_ns for role in roles], [value] * len(roles), series.end_ns
        )
        middles = [lanes[role.instance] for role in roles]
        columns |= {
            "y": middles,
            "top": [middle + height / 2 for middle in middles],
            "bottom": [middle - height / 2 for middle in middles],
            "instance": [plain(role.instance) for role in roles],
            "store": [plain(role.store) for role in roles],
            "role": [f"{value}: {ROLE_WORDS[value]}"] * len(roles),
            "since": [f"{_s(role.start_ns):,.3f} s ± {fmt.milliseconds(role.uncertainty_ns / 1e6)}" for role in roles],
        }
        source = ColumnDataSource(columns, tags=["fit"])
        bars = plot.quad("left", "right", "top", "bottom", source=source, line_width=0.5)
        themed(bars.glyph, fill_color=value, line_color="surface")
        if hatch != " ":
            bars.glyph.update(hatch_pattern=hatch, hatch_alpha=0.7, hatch_scale=8)
            themed(bars.glyph, hatch_color="on-pale")
        if value in WRITTEN_ROLES:
            _write_in(plot, source, WRITTEN_ROLES[value], x="middle", y="y", text="label", text_align="center")
        renderers.append(bars)
    names = ("instance", "store", "role", "since")
    rows = [*((name, f"@{name}") for name in names), ("for", "@length")]
    plot.add_tools(HoverTool(renderers=renderers, tooltips=tip(rows)))


def _ending_marks(plot: Any, series: Series, lanes: Mapping[str, float]) -> None:
    """Mark where a process ended that the drill had not touched, in its instance's lane."""
    shown = [one for one in series.endings if not one.meant and one.instance in lanes]
    if not shown:
        return
    columns = {
        "x": [_s(one.at_ns) for one in shown],
        "y": [lanes[one.instance] for one in shown],
        "instance": [plain(one.instance) for one in shown],
        "at": [f"{_s(one.at_ns):,.3f} s" for one in shown],
        "how": [plain(f"{one.how}, {one.status}" if one.status else one.how) for one in shown],
        "last": [plain(one.last.splitlines()[-1] if one.last else "") for one in shown],
    }
    source = ColumnDataSource(columns)
    outer = plot.scatter("x", "y", source=source, marker="x", size=14, line_width=6)
    themed(outer.glyph, line_color="surface")
    cross = plot.scatter("x", "y", source=source, marker="x", size=12, line_width=3)
    themed(cross.glyph, line_color="fault")
    rows = [("its process ended", "@instance"), ("at", "@at"), ("how", "@how"), ("last words", "@last")]
    plot.add_tools(HoverTool(renderers=[cross], tooltips=tip(rows)))


def alert_names(series: Series) -> list[str]:
    """Return the names of the alerts that have a lane, by name."""
    return sorted({alert.name for alert in series.alerts})


def _alert_lanes(plot: Any, series: Series, lanes: Mapping[str, float]) -> None:
    """Draw when each alert fired in the lane of its name, of which `lanes` gives the middle; of whom stands in it."""
    alerts = series.alerts
    whom = [plain(one.instance or one.store, NAME_LIMIT) for one in alerts]
    columns = _spans([one.start_ns for one in alerts], [one.end_ns for one in alerts], whom, series.end_ns)
    columns |= {
        "y": [lanes[one.name] for one in alerts],
        "top": [lanes[one.name] + 0.3 for one in alerts],
        "bottom": [lanes[one.name] - 0.3 for one in alerts],
        "alert": [plain(one.name) for one in alerts],
        "since": [f"{_s(one.start_ns):,.3f} s" for one in alerts],
        "cleared": [f"{_s(one.end_ns):,.3f} s" if one.cleared else "not during the run" for one in alerts],
    }
    source = ColumnDataSource(columns, tags=["fit"])
    bars = plot.quad("left", "right", "top", "bottom", source=source, fill_alpha=0.3, line_width=1.5)
    themed(bars.glyph, fill_color="outage", line_color="outage")
    _write_in(plot, source, "ink", x="middle", y="y", text="label", text_align="center")
    rows = [("alert", "@alert"), ("of", "@name"), ("fired", "@since"), ("cleared", "@cleared"), ("for", "@length")]
    plot.add_tools(HoverTool(renderers=[bars], tooltips=tip(rows)))


def client_names(series: Series) -> list[str]:
    """Return the clients that have a lane, by name and number: `consumer-2` before `consumer-10`."""

    def order(name: str) -> tuple[str, int]:
        head = name.rstrip("0123456789")
        return head, int(name[len(head) :] or -1)

    return sorted({span.client for span in series.clients}, key=order)


def _client_lanes(plot: Any, series: Series, lanes: Mapping[str, float]) -> None:
    """Draw when each client was served, low, and when its operations failed, high, in its lane (its middle)."""
    renderers = []
    for value, height, colour, what in (
        ("served", 0.2, "sends", "was served"),
        ("failed", 0.46, "outage", "an operation failed or is in doubt"),
    ):
        spans = [span for span in series.clients if span.value == value]
        if not spans:
            continue
        source = ColumnDataSource(
            {
                "left": [_s(span.start_ns) for span in spans],
                "right": [_s(span.end_ns) for span in spans],
                "top": [lanes[span.client] + height / 2 for span in spans],
                "bottom": [lanes[span.client] - height / 2 for span in spans],
                "client": [plain(span.client) for span in spans],
                "what": [f"{what} ({span.failures})" if span.failures else what for span in spans],
                "from": [f"{_s(span.start_ns):,.2f} s" for span in spans],
                "length": [fmt.span(span.end_ns - span.start_ns) for span in spans],
            }
        )
        bars = plot.quad("left", "right", "top", "bottom", source=source, line_width=1)
        themed(bars.glyph, fill_color=colour, line_color=colour)
        renderers.append(bars)
    if renderers:
        rows = [("client", "@client"), ("", "@what"), ("from", "@from"), ("for", "@length")]
        plot.add_tools(HoverTool(renderers=renderers, tooltips=tip(rows)))


def _timeline(series: Series, x_range: Range1d, left_px: int) -> Any:
    instances = lane_names(series.roles)
    bands = merged_bands(series.bands)
    fault_rows = mark_rows([_s(band.start_ns) for band in bands], _s(series.end_ns))
    faults_high = max(fault_rows, default=-1) + 1
    above = faults_high + bool(series.phases)
    clients, alerts = client_names(series), alert_names(series)
    total = above + len(instances) + len(alerts) + CLIENT_LANE * len(clients) + (0.2 if clients else 0)
    plot = _time_figure(round(LANE_PX * total), x_range, left_px, y_range=Range1d(-(total - 0.5), 0.5))
    _hide(plot.ygrid, "grid_line_color")
    _hide(plot.yaxis, "major_tick_line_color", "axis_line_color")
    _shade(plot, bands)
    names: dict[float, str] = {}
    if bands:
        names[-(faults_high - 1) / 2] = "faults"
        _fault_lane(plot, bands, fault_rows)
    if series.phases:
        names[-faults_high] = "phase"
        _phase_lane(plot, series, -faults_high)
    if instances:
        lanes = {name: -float(above + index) for index, name in enumerate(instances)}
        names |= {y: plain(name, NAME_LIMIT) for name, y in lanes.items()}
        _role_lanes(plot, series, lanes)
        _ending_marks(plot, series, lanes)
    if alerts:
        lanes = {name: -float(above + len(instances) + index) for index, name in enumerate(alerts)}
        names |= {y: plain(name, NAME_LIMIT) for name, y in lanes.items()}
        _alert_lanes(plot, series, lanes)
    if clients:
        # The first lies under the last lane above, whose middle is half a lane above its end.
        top = above + len(instances) + len(alerts) - 0.5 + 0.2
        lanes = {name: -(top + CLIENT_LANE * (index + 0.5)) for index, name in enumerate(clients)}
        names |= {y: plain(name, NAME_LIMIT) for name, y in lanes.items()}
        _client_lanes(plot, series, lanes)
    plot.yaxis.ticker = FixedTicker(ticks=sorted(names))
    plot.yaxis.major_label_overrides = dict(names)
    for axis in plot.yaxis:
        themed(axis, major_label_text_color="ink")
    return plot


# The stores' colours, in turn.
ROUTE_COLOURS = ("sends", "deliveries", "fault", "good", "class-doubt", "class-neutral")


def store_colours(routes: Routes) -> dict[str, str]:
    """Return the colour of each store that keys were led to; with more stores than colours some share one."""
    return {row.store: ROUTE_COLOURS[place % len(ROUTE_COLOURS)] for place, row in enumerate(routes.stores)}


def until_elsewhere(stays: Iterable[Stay], end_ns: int) -> dict[Stay, int]:
    """Return for each stay when its key connected elsewhere (ns), `end_ns` where it never did."""
    found: dict[Stay, int] = {}
    latest: dict[str, Stay] = {}
    for stay in sorted(stays, key=lambda item: item.start_ns):
        found[stay] = end_ns
        if stay.key in latest:
            found[latest[stay.key]] = stay.start_ns
        latest[stay.key] = stay
    return found


def _routes(series: Series, routes: Routes, x_range: Range1d, left_px: int) -> Any:
    """Draw for each key, a line each, which store its connects reached, pale until a connect reaches another; keys of
    one first store lie together."""
    first: dict[str, str] = {}
    for stay in sorted(routes.stays, key=lambda item: item.start_ns):
        first.setdefault(stay.key, stay.store)
    until = until_elsewhere(routes.stays, series.end_ns)
    lanes = {key: -place for place, key in enumerate(sorted(first, key=lambda key: (first[key], key)))}
    height = min(560, max(90, 4 * len(lanes)))
    plot = _time_figure(height, x_range, left_px, y_range=Range1d(-len(lanes) + 0.5, 0.5))
    _hide(plot.ygrid, "grid_line_color")
    _hide(plot.yaxis, "major_tick_line_color", "minor_tick_line_color", "axis_line_color")
    plot.yaxis.ticker = FixedTicker(ticks=[])
    _shade(plot, merged_bands(series.bands))
    renderers = []
    for store, colour in store_colours(routes).items():
        stays = [stay for stay in routes.stays if stay.store == store]
        if not stays:
            continue
        source = ColumnDataSource(
            {
                "left": [_s(stay.start_ns) for stay in stays],
                "right": [_s(max(stay.end_ns, stay.start_ns + series.bucket_ns // 4)) for stay in stays],
                "until": [_s(max(stay.end_ns, until[stay])) for stay in stays],
                "top": [lanes[stay.key] + 0.42 for stay in stays],
                "bottom": [lanes[stay.key] - 0.42 for stay in stays],
                "key": [plain(stay.key) for stay in stays],
                "store": [plain(stay.store or "unknown")] * len(stays),
                "connects": [stay.connects for stay in stays],
                "length": [fmt.span(stay.end_ns - stay.start_ns) for stay in stays],
            }
        )
        # A client that keeps its connection connects once: its key is there for longer than its connects say.
        for right, alpha in (("until", 0.4), ("right", 1.0)):
            bars = plot.quad("left", right, "top", "bottom", source=source, line_width=0, fill_alpha=alpha)
            themed(bars.glyph, fill_color=colour)
            renderers.append(bars)
    rows = [("key", "@key"), ("reached", "@store"), ("connects", "@connects"), ("for", "@length")]
    plot.add_tools(HoverTool(renderers=renderers[::2], tooltips=tip(rows)))
    return plot


def _bucket_source(series: Series) -> ColumnDataSource:
    width = _s(series.bucket_ns)
    buckets = series.buckets

    def column(name: str) -> list[float]:
        return [math.nan if (value := getattr(bucket, name)) is None else float(value) for bucket in buckets]

    def shown(name: str) -> list[str]:
        return [fmt.milliseconds(getattr(bucket, name)) for bucket in buckets]

    latencies = [f"{side}_{part}_ms" for side in ("send", "delivery") for part in ("p50", "p99", "max")]
    return ColumnDataSource(
        {
            "x": [_s(bucket.start_ns) + width / 2 for bucket in buckets],
            "from": [f"{_s(bucket.start_ns):,.2f} s" for bucket in buckets],
            "zero": [0.0 for _ in buckets],
            "sends": [bucket.sends / width for bucket in buckets],
            "deliveries": [bucket.deliveries / width for bucket in buckets],
            **{name: column(name) for name in latencies},
            **{f"{name}_text": shown(name) for name in latencies},
        }
    )


def _hover_everywhere(plot: Any, source: ColumnDataSource, level: float, rows: Sequence[tuple[str, str]]) -> None:
    """Show `rows` for the bucket under the pointer, wherever it is: an invisible line at `level` answers in every
    bucket, where steps do not, and curves with gaps only in some."""
    column = f"level {level}"
    source.add([level] * len(source.data["x"]), column)
    probe = plot.line("x", column, source=source, line_alpha=0)
    plot.add_tools(HoverTool(renderers=[probe], mode="vline", tooltips=tip(rows), line_policy="nearest"))


def _throughput(series: Series, source: ColumnDataSource, x_range: Range1d, left_px: int) -> Any:
    height = 170
    top = max([*source.data["sends"], *source.data["deliveries"], 1.0])
    plot = _time_figure(height, x_range, left_px, y_range=Range1d(0, top * 1.22))
    plot.yaxis.axis_label = "messages / s"
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[0]a")
    plot.yaxis.ticker = BasicTicker(desired_num_ticks=4)
    _hide(plot.xgrid, "grid_line_color")
    _add_bands(plot, series, height)
    area = plot.varea_step(x="x", y1="zero", y2="sends", source=source, fill_alpha=0.12, step_mode="center")
    themed(area.glyph, fill_color="sends")
    # Steps: a count holds for its whole bucket.
    sends = plot.step("x", "sends", source=source, line_width=2, mode="center")
    themed(sends.glyph, line_color="sends")
    deliveries = plot.step("x", "deliveries", source=source, line_width=2, line_dash=[5, 3], mode="center")
    themed(deliveries.glyph, line_color="deliveries")
    if series.outages:
        outages = ColumnDataSource(
            {
                "left": [_s(item.start_ns) for item in series.outages],
                "right": [_s(item.end_ns or series.end_ns) for item in series.outages],
                "length": [fmt.span((item.end_ns or series.end_ns) - item.start_ns) for item in series.outages],
                "fault": [plain(item.fault or "no fault") for item in series.outages],
                "address": [plain(item.address or "all addresses") for item in series.outages],
                "side": [OUTAGE_SIDES.get(str(item.side), OUTAGE_SIDES["send"]) for item in series.outages],
            }
        )
        bar = plot.quad(left="left", right="right", bottom=0, top=top * 0.035, source=outages, line_width=1)
        themed(bar.glyph, fill_color="outage", line_color="outage")
        plot.add_tools(
            HoverTool(
                renderers=[bar],
                tooltips=tip([("@side for", "@length"), ("on", "@address"), ("under", "@fault")]),
                attachment="above",
            )
        )
    rates = [
        ("from", "@from"),
        ("acknowledged sends", "@sends{0,0.[0]} / s"),
        ("deliveries", "@deliveries{0,0.[0]} / s"),
    ]
    _hover_everywhere(plot, source, top * 0.6, rates)
    return plot


def log_ticks(low: float, high: float) -> list[float]:
    """Return round values (1, 2 and 5 of each decade; over more than two and a half decades the decades alone) from
    `low` to `high`, both above 0."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if math.log10(high / low) < 2.5 else (1,)
    return [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]


def _latency(series: Series, source: ColumnDataSource, x_range: Range1d, left_px: int) -> Any | None:
    sides = (("send", "sends"), ("delivery", "deliveries"))
    values = [
        value
        for side, _ in sides
        for part in ("p50", "p99")
        for value in source.data[f"{side}_{part}_ms"]
        if not math.isnan(value) and value > 0
    ]
    if not values:
        return None
    height = 220
    low, high = 10 ** math.floor(math.log10(min(values))), max(values)
    plot = _time_figure(
        height, x_range, left_px, y_axis_type="log", y_range=Range1d(max(low, min(values) / 3), high * 4)
    )
    plot.yaxis.ticker = plot.ygrid.ticker = FixedTicker(ticks=log_ticks(plot.y_range.start, plot.y_range.end))
    plot.yaxis.axis_label = "ms (log scale)"
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[000]")
    _hide(plot.xgrid, "grid_line_color")
    _add_bands(plot, series, height)
    lines = []
    for side, colour in sides:
        for part, dash, width in (("p50", "solid", 2.0), ("p99", [3, 3], 1.5)):
            name = f"{side}_{part}_ms"
            line = plot.line("x", name, source=source, line_width=width, line_dash=dash)
            themed(line.glyph, line_color=colour)
            # A line shows nothing of a bucket without neighbours.
            points = plot.scatter("x", name, source=source, size=3, line_alpha=0)
            themed(points.glyph, fill_color=colour)
            lines.append(line)
    tooltips = [("from", "@from")]
    for side, label in (("send", "send"), ("delivery", "end to end")):
        parts = " · ".join(f"{part} @{side}_{part}_ms_text" for part in ("p50", "p99", "max"))
        tooltips.append((label, parts))
    _hover_everywhere(plot, source, low * 2, tooltips)
    return plot


@dataclass(frozen=True)
class FailoverBar:
    """One bar of the failover picture: milestones (part, milliseconds since the fault) in the order of their times."""

    label: str
    client: str
    milestones: tuple[tuple[str, float], ...]
    first_send_ms: float | None


def failover_bars(failover: Sequence[Failover], bands: Sequence[Band]) -> tuple[list[FailoverBar], int]:
    """Return the bars, worst client of each fault first, and how many were left out beyond `MAX_BARS`.

    With too many for a picture each fault keeps its worst client's alone.
    """

    def cost(item: Failover) -> float:
        return math.inf if item.first_send_ms is None else item.first_send_ms

    faults: dict[tuple[str, int], list[Failover]] = {}
    for item in sorted(failover, key=lambda row: row.t_ns):
        faults.setdefault((f"{item.fault} {item.instance}", item.t_ns), []).append(item)
    chosen: list[Failover] = []
    for items in faults.values():
        ordered = sorted(items, key=lambda row: (-cost(row), row.client))
        chosen += ordered if len(failover) <= MAX_BARS else ordered[:1]
    left_out = len(failover) - min(len(chosen), MAX_BARS)
    bars = []
    for item in chosen[:MAX_BARS]:
        near = min(bands, key=lambda band: abs(band.start_ns - item.t_ns), default=None)
        same = near is not None and abs(near.start_ns - item.t_ns) < SAME_NS
        mark = near.mark if near and same else f"{item.t_ns / 1e9:.1f} s"
        client = plain(item.client or "all clients", NAME_LIMIT)
        parts = [(key.removesuffix("_ms"), getattr(item, key)) for key, _, _ in FAILOVER_PARTS]
        reached = [(name, float(value)) for name, value in parts if value is not None]
        bars.append(
            FailoverBar(
                f"{mark} {client}",
                plain(item.client or "all clients"),
                tuple(sorted(reached, key=lambda part: part[1])),
                item.first_send_ms,
            )
        )
    return bars, left_out


def _failover(bars: Sequence[FailoverBar], bound_ms: float | None) -> Any | None:
    if not bars:
        return None
    # Labels are factors of the axis and must differ.
    labels: list[str] = []
    for bar in bars:
        again = sum(label.rstrip("\u200b") == bar.label for label in labels)
        labels.append(bar.label + "\u200b" * again)
    longest = max([part for bar in bars for _, part in bar.milestones] + [1.0])
    end = max(longest * 1.25, (bound_ms or 0) * 1.06)
    plot = figure(
        frame_height=18 + 26 * len(bars), y_range=FactorRange(*reversed(labels)), x_range=Range1d(0, end), tools=[]
    )
    quiet(plot, 70)
    _hide(plot.ygrid, "grid_line_color")
    _hide(plot.yaxis, "major_tick_line_color")
    for axis in plot.yaxis:
        themed(axis, major_label_text_color="ink")
    plot.xaxis.axis_label = "milliseconds since the fault"
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0")
    plot.xaxis.ticker = BasicTicker(desired_num_ticks=4)
    renderers = []
    columns: dict[str, dict[str, list[Any]]] = {}
    for label, bar in zip(labels, bars, strict=True):
        before = 0.0
        for part, at in bar.milestones:
            column = columns.setdefault(
                part, {key: [] for key in ("y", "left", "right", "client", "part", "took", "at")}
            )
            words = next(text for key, text, _ in FAILOVER_PARTS if key == f"{part}_ms")
            for key, item in (
                ("y", label), ("left", before), ("right", at), ("client", bar.client), ("part", words),
                ("took", fmt.milliseconds(at - before)), ("at", fmt.milliseconds(at)),
            ):  # fmt: skip
                column[key].append(item)
            before = at
    for key, _, _ in FAILOVER_PARTS:
        part = key.removesuffix("_ms")
        if part in columns:
            bars_of = plot.hbar(
                y="y", left="left", right="right", height=0.62, source=ColumnDataSource(columns[part]), line_width=1
            )
            themed(bars_of.glyph, fill_color=part.replace("_", "-"), line_color="surface")
            renderers.append(bars_of)
    plot.add_tools(
        HoverTool(
            renderers=renderers,
            tooltips=tip([("client", "@client"), ("part", "@part"), ("took", "@took"), ("reached after", "@at")]),
        )
    )
    ends = ColumnDataSource(
        {
            "y": labels,
            "x": [bar.milestones[-1][1] if bar.milestones else 0.0 for bar in bars],
            "text": [
                fmt.milliseconds(bar.first_send_ms) if bar.first_send_ms is not None else "no send acknowledged"
                for bar in bars
            ],
        }
    )
    _write_in(plot, ends, "ink", x="x", y="y", text="text", x_offset=6)
    if bound_ms is not None:
        line = Span(location=bound_ms, dimension="height", line_width=2, line_dash=[6, 4])
        plot.add_layout(themed(line, line_color="outage"))
    return plot


def _classes(messages: Mapping[str, int]) -> Any | None:
    rows = [(name, int(messages.get(name) or 0)) for name in CLASS_WORDS if messages.get(name)]
    if not rows:
        return None
    names = [name for name, _ in rows]
    most = max(count for _, count in rows)
    decades = math.log10(most / 0.5)
    plot = figure(
        frame_height=18 + 26 * len(rows),
        y_range=FactorRange(*reversed(names)),
        x_range=Range1d(0.5, most * 10 ** (0.34 * decades)),
        x_axis_type="log",
        tools=[],
    )
    quiet(plot, 70)
    _hide(plot.ygrid, "grid_line_color")
    _hide(plot.yaxis, "major_tick_line_color")
    for axis in plot.yaxis:
        themed(axis, major_label_text_color="ink")
    plot.xaxis.axis_label = "messages (log scale)"
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0a") if most < 10**12 else LogTickFormatter()
    bars = []
    for tone in ("good", "neutral", "doubt", "bad"):
        chosen = [(name, count) for name, count in rows if CLASS_WORDS[name].tone == tone]
        if not chosen:
            continue
        source = ColumnDataSource(
            {
                "y": [name for name, _ in chosen],
                "right": [count for _, count in chosen],
                "text": [fmt.number(count) for _, count in chosen],
                "meaning": [CLASS_WORDS[name].meaning for name, _ in chosen],
            }
        )
        bar = plot.hbar(y="y", left=0.5, right="right", height=0.62, source=source, line_alpha=0)
        themed(bar.glyph, fill_color=f"class-{tone}")
        _write_in(plot, source, "ink", x="right", y="y", text="text", x_offset=6)
        bars.append(bar)
    plot.add_tools(HoverTool(renderers=bars, tooltips=tip([("@y", "@text"), ("meaning", "@meaning")])))
    return plot


def _left_px(series: Series) -> int:
    names = [*lane_names(series.roles), *alert_names(series), *client_names(series)]
    longest = max((len(plain(name, NAME_LIMIT)) for name in names), default=0)
    return max(MIN_LEFT_PX, 18 + round(7.2 * longest))


def _has_operations(bucket: Bucket) -> bool:
    return bool(bucket.sends or bucket.deliveries)


def draw(series: Series, messages: Mapping[str, int], failover_bound_ms: float | None) -> Pictures:
    """Return all pictures that have something to show: timeline, throughput, latency, routes, failover,
    classes."""
    end = max(_s(series.end_ns), 0.001)
    x_range = Range1d(0, end, bounds=(0, end), min_interval=end / 5000, name=TIME_RANGE)
    left = _left_px(series)
    plots: dict[str, Any | None] = {}
    if series.roles or series.bands or series.phases or series.clients:
        plots["timeline"] = _timeline(series, x_range, left)
    if any(map(_has_operations, series.buckets)):
        source = _bucket_source(series)
        plots["throughput"] = _throughput(series, source, x_range, left)
        plots["latency"] = _latency(series, source, x_range, left)
    if series.routes and series.routes.stays:
        plots["routes"] = _routes(series, series.routes, x_range, left)
    bars, left_out = failover_bars(series.failover, series.bands)
    plots["failover"] = _failover(bars, failover_bound_ms)
    plots["classes"] = _classes(messages)
    present = {name: plot for name, plot in plots.items() if plot is not None}
    if not present:
        return Pictures("", {})
    script, divs = components(present, wrap_script=False)
    return Pictures(script, dict(divs), left_out)
