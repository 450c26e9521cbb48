"""Each client's way over each failover: from the fault to its first acknowledged send and delivery, a bar each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bokeh.models import BasicTicker, ColumnDataSource, FactorRange, HoverTool, NumeralTickFormatter, Range1d, Span
from bokeh.plotting import figure

from brokerdrill.ledger.verdict import Failover
from brokerdrill.report import format as fmt
from brokerdrill.report.details import SAME_NS
from brokerdrill.report.pictures.figures import NAME_LIMIT, hide, plain, quiet, themed, tip, write_in
from brokerdrill.report.shown import Band
from brokerdrill.report.words import FAILOVER_PARTS

MAX_BARS = 24


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


def failover(bars: Sequence[FailoverBar], bound_ms: float | None) -> Any | None:
    """Return the figure of the bars, and the bound as a line; None: there is no bar."""
    if not bars:
        return None
    labels = _different([bar.label for bar in bars])
    longest = max([part for bar in bars for _, part in bar.milestones] + [1.0])
    end = max(longest * 1.25, (bound_ms or 0) * 1.06)
    plot = figure(
        frame_height=18 + 26 * len(bars), y_range=FactorRange(*reversed(labels)), x_range=Range1d(0, end), tools=[]
    )
    quiet(plot, 70)
    hide(plot.ygrid, "grid_line_color")
    hide(plot.yaxis, "major_tick_line_color")
    for axis in plot.yaxis:
        themed(axis, major_label_text_color="ink")
    plot.xaxis.axis_label = "milliseconds since the fault"
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0")
    plot.xaxis.ticker = BasicTicker(desired_num_ticks=4)
    _draw_parts(plot, labels, bars)
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
    write_in(plot, ends, "ink", x="x", y="y", text="text", x_offset=6)
    if bound_ms is not None:
        line = Span(location=bound_ms, dimension="height", line_width=2, line_dash=[6, 4])
        plot.add_layout(themed(line, line_color="outage"))
    return plot


def _different(labels: Iterable[str]) -> list[str]:
    """The labels, which are factors of the axis, made to differ by what is not seen."""
    found: list[str] = []
    for label in labels:
        again = sum(one.rstrip("\u200b") == label for one in found)
        found.append(label + "\u200b" * again)
    return found


def _draw_parts(plot: Any, labels: Sequence[str], bars: Sequence[FailoverBar]) -> None:
    """Draw each part of each bar from the milestone before it to its own."""
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
    renderers = []
    for key, _, _ in FAILOVER_PARTS:
        part = key.removesuffix("_ms")
        if part in columns:
            bars_of = plot.hbar(
                y="y", left="left", right="right", height=0.62, source=ColumnDataSource(columns[part]), line_width=1
            )
            themed(bars_of.glyph, fill_color=part.replace("_", "-"), line_color="surface")
            renderers.append(bars_of)
    rows = [("client", "@client"), ("part", "@part"), ("took", "@took"), ("reached after", "@at")]
    plot.add_tools(HoverTool(renderers=renderers, tooltips=tip(rows)))
