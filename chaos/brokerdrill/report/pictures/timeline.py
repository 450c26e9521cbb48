"""The timeline: faults, phases, each instance's roles, ends of processes, alerts and clients, a lane each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, Range1d

from brokerdrill.ledger.series import RoleSpan, Series
from brokerdrill.report import format as fmt
from brokerdrill.report.pictures.figures import (
    NAME_LIMIT,
    hide,
    mark_rows,
    merged_bands,
    plain,
    seconds,
    shade,
    themed,
    time_figure,
    tip,
    write_in,
)
from brokerdrill.report.shown import Band, Shown
from brokerdrill.report.words import ROLE_WORDS

LANE_PX = 30
# A client's lane beside a broker's.
CLIENT_LANE = 0.6
# role -> (height of its bar in a lane, hatch): a role can be recognised without its colour.
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


def lane_names(roles: Sequence[RoleSpan]) -> list[str]:
    """Return the instances in the order of their lanes: those of one store together, by name."""
    first_store: dict[str, str] = {}
    for role in roles:
        first_store.setdefault(role.instance, role.store)
    return sorted(first_store, key=lambda name: (first_store[name], name))


def alert_names(series: Series) -> list[str]:
    """Return the names of the alerts that have a lane, by name."""
    return sorted({alert.name for alert in series.alerts})


def client_names(series: Series) -> list[str]:
    """Return the clients that have a lane, by name and number: `consumer-2` before `consumer-10`."""

    def order(name: str) -> tuple[str, int]:
        head = name.rstrip("0123456789")
        return head, int(name[len(head) :] or -1)

    return sorted({span.client for span in series.clients}, key=order)


def timeline(shown: Shown, x_range: Range1d, left_px: int) -> Any:
    """Return the figure: faults above, then phases, instances, alerts, clients."""
    series = shown.series
    instances = lane_names(series.roles)
    bands = merged_bands(shown.bands)
    fault_rows = mark_rows([seconds(band.start_ns) for band in bands], seconds(series.end_ns))
    faults_high = max(fault_rows, default=-1) + 1
    above = faults_high + bool(series.phases)
    clients, alerts = client_names(series), alert_names(series)
    total = above + len(instances) + len(alerts) + CLIENT_LANE * len(clients) + (0.2 if clients else 0)
    plot = time_figure(round(LANE_PX * total), x_range, left_px, y_range=Range1d(-(total - 0.5), 0.5))
    hide(plot.ygrid, "grid_line_color")
    hide(plot.yaxis, "major_tick_line_color", "axis_line_color")
    shade(plot, bands)
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


def _bars(starts: Sequence[int], ends: Sequence[int], names: Sequence[str], whole_ns: int) -> dict[str, list[Any]]:
    """The columns of bars with a name inside: `label` is the name where it has room, which the page keeps true."""
    return {
        "left": [seconds(start) for start in starts],
        "right": [seconds(end) for end in ends],
        "middle": [seconds(start + end) / 2 for start, end in zip(starts, ends, strict=True)],
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
            "left": [seconds(band.start_ns) for band in bands],
            "right": [seconds(band.end_ns) for band in bands],
            "top": [-row + 0.3 for row in rows],
            "bottom": [-row - 0.3 for row in rows],
            "y": [-row for row in rows],
            "mark": marks,
            "label": marks,
            "name": [plain(band.name) for band in bands],
            "target": [plain(band.target) for band in bands],
            "start": [f"{seconds(band.start_ns):,.3f} s" for band in bands],
            "healed": [f"{seconds(band.end_ns):,.3f} s" if band.healed else "not during the run" for band in bands],
        },
        tags=["marks"],
    )
    bars = plot.quad("left", "right", "top", "bottom", source=source, fill_alpha=0.3, line_width=1.5)
    themed(bars.glyph, fill_color="fault", line_color="fault")
    write_in(plot, source, "ink", x="left", y="y", text="label", x_offset=4, text_font_style="bold")
    rows_shown = [("fault", "@mark @name"), ("hits", "@target"), ("injected", "@start"), ("healed", "@healed")]
    plot.add_tools(HoverTool(renderers=[bars], tooltips=tip(rows_shown)))


def _phase_lane(plot: Any, series: Series, y: float) -> None:
    phases = series.phases
    columns = _bars(
        [phase.start_ns for phase in phases],
        [phase.end_ns for phase in phases],
        [plain(phase.name, NAME_LIMIT) for phase in phases],
        series.end_ns,
    )
    source = ColumnDataSource(columns, tags=["fit"])
    bars = plot.quad("left", "right", y + 0.3, y - 0.3, source=source, line_width=1)
    themed(bars.glyph, fill_color="raised", line_color="line")
    write_in(plot, source, "muted", x="middle", y=y, text="label", text_align="center")
    plot.add_tools(HoverTool(renderers=[bars], tooltips=tip([("phase", "@name"), ("for", "@length")])))


def _since(role: RoleSpan) -> str:
    return f"{seconds(role.start_ns):,.3f} s ± {fmt.milliseconds(role.uncertainty_ns / 1e6)}"


def _role_lanes(plot: Any, series: Series, lanes: Mapping[str, float]) -> None:
    """Draw each instance's roles in its lane, whose middle `lanes` gives."""
    renderers = []
    for value, (height, hatch) in ROLE_SHAPES.items():
        roles = [role for role in series.roles if role.value == value]
        if not roles:
            continue
        columns = _bars(
            [role.start_ns for role in roles],
            [role.end_ns for role in roles],
            [value] * len(roles),
            series.end_ns,
        )
        middles = [lanes[role.instance] for role in roles]
        columns |= {
            "y": middles,
            "top": [middle + height / 2 for middle in middles],
            "bottom": [middle - height / 2 for middle in middles],
            "instance": [plain(role.instance) for role in roles],
            "store": [plain(role.store) for role in roles],
            "role": [f"{value}: {ROLE_WORDS[value]}"] * len(roles),
            "since": [
                f"{seconds(role.start_ns):,.3f} s ± {fmt.milliseconds(role.uncertainty_ns / 1e6)}" for role in roles
            ],
        }
        source = ColumnDataSource(columns, tags=["fit"])
        bars = plot.quad("left", "right", "top", "bottom", source=source, line_width=0.5)
        themed(bars.glyph, fill_color=value, line_color="surface")
        if hatch != " ":
            bars.glyph.update(hatch_pattern=hatch, hatch_alpha=0.7, hatch_scale=8)
            themed(bars.glyph, hatch_color="on-pale")
        if value in WRITTEN_ROLES:
            write_in(plot, source, WRITTEN_ROLES[value], x="middle", y="y", text="label", text_align="center")
        renderers.append(bars)
    names = ("instance", "store", "role", "since")
    rows = [*((name, f"@{name}") for name in names), ("for", "@length")]
    plot.add_tools(HoverTool(renderers=renderers, tooltips=tip(rows)))


def _ending_marks(plot: Any, series: Series, lanes: Mapping[str, float]) -> None:
    """Mark where a process ended that the drill had not touched, in its instance's lane."""
    marks = [one for one in series.endings if not one.meant and one.instance in lanes]
    if not marks:
        return
    columns = {
        "x": [seconds(one.at_ns) for one in marks],
        "y": [lanes[one.instance] for one in marks],
        "instance": [plain(one.instance) for one in marks],
        "at": [f"{seconds(one.at_ns):,.3f} s" for one in marks],
        "how": [plain(", ".join(filter(None, (one.how or "ended", one.status)))) for one in marks],
        "last": [plain(one.last.splitlines()[-1] if one.last else "") for one in marks],
    }
    source = ColumnDataSource(columns)
    outer = plot.scatter("x", "y", source=source, marker="x", size=14, line_width=6)
    themed(outer.glyph, line_color="surface")
    cross = plot.scatter("x", "y", source=source, marker="x", size=12, line_width=3)
    themed(cross.glyph, line_color="fault")
    rows = [("its process ended", "@instance"), ("at", "@at"), ("how", "@how"), ("last words", "@last")]
    plot.add_tools(HoverTool(renderers=[cross], tooltips=tip(rows)))


def _alert_lanes(plot: Any, series: Series, lanes: Mapping[str, float]) -> None:
    """Draw when each alert fired in the lane of its name, of which `lanes` gives the middle; of whom stands in it."""
    alerts = series.alerts
    whom = [plain(one.instance or one.store, NAME_LIMIT) for one in alerts]
    columns = _bars([one.start_ns for one in alerts], [one.end_ns for one in alerts], whom, series.end_ns)
    columns |= {
        "y": [lanes[one.name] for one in alerts],
        "top": [lanes[one.name] + 0.3 for one in alerts],
        "bottom": [lanes[one.name] - 0.3 for one in alerts],
        "alert": [plain(one.name) for one in alerts],
        "since": [f"{seconds(one.start_ns):,.3f} s" for one in alerts],
        "cleared": [f"{seconds(one.end_ns):,.3f} s" if one.cleared else "not during the run" for one in alerts],
    }
    source = ColumnDataSource(columns, tags=["fit"])
    bars = plot.quad("left", "right", "top", "bottom", source=source, fill_alpha=0.3, line_width=1.5)
    themed(bars.glyph, fill_color="outage", line_color="outage")
    write_in(plot, source, "ink", x="middle", y="y", text="label", text_align="center")
    rows = [("alert", "@alert"), ("of", "@name"), ("fired", "@since"), ("cleared", "@cleared"), ("for", "@length")]
    plot.add_tools(HoverTool(renderers=[bars], tooltips=tip(rows)))


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
                "left": [seconds(span.start_ns) for span in spans],
                "right": [seconds(span.end_ns) for span in spans],
                "top": [lanes[span.client] + height / 2 for span in spans],
                "bottom": [lanes[span.client] - height / 2 for span in spans],
                "client": [plain(span.client) for span in spans],
                "what": [f"{what} ({span.failures})" if span.failures else what for span in spans],
                "from": [f"{seconds(span.start_ns):,.2f} s" for span in spans],
                "length": [fmt.span(span.end_ns - span.start_ns) for span in spans],
            }
        )
        bars = plot.quad("left", "right", "top", "bottom", source=source, line_width=1)
        themed(bars.glyph, fill_color=colour, line_color=colour)
        renderers.append(bars)
    if renderers:
        rows = [("client", "@client"), ("", "@what"), ("from", "@from"), ("for", "@length")]
        plot.add_tools(HoverTool(renderers=renderers, tooltips=tip(rows)))
