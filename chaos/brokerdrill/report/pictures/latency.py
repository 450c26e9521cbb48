"""Latencies of sends and from end to end, by the bucket: median and 99th percentile."""

from __future__ import annotations

import math
from typing import Any

from bokeh.models import ColumnDataSource, FixedTicker, NumeralTickFormatter, Range1d

from brokerdrill.report.pictures.figures import add_bands, hide, themed, time_figure
from brokerdrill.report.pictures.throughput import hover_everywhere
from brokerdrill.report.shown import Shown


def log_ticks(low: float, high: float) -> list[float]:
    """Return round values (1, 2 and 5 of each decade; over more than two and a half decades the decades alone) from
    `low` to `high`, both above 0."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if math.log10(high / low) < 2.5 else (1,)
    return [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]


def latency(shown: Shown, source: ColumnDataSource, x_range: Range1d, left_px: int) -> Any | None:
    """Return the figure, on a logarithmic scale; None: nothing has a latency."""
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
    plot = time_figure(
        height, x_range, left_px, y_axis_type="log", y_range=Range1d(max(low, min(values) / 3), high * 4)
    )
    plot.yaxis.ticker = plot.ygrid.ticker = FixedTicker(ticks=log_ticks(plot.y_range.start, plot.y_range.end))
    plot.yaxis.axis_label = "ms (log scale)"
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[000]")
    hide(plot.xgrid, "grid_line_color")
    add_bands(plot, shown, height)
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
    hover_everywhere(plot, source, low * 2, tooltips)
    return plot
