"""How many messages each class has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bokeh.models import ColumnDataSource, FactorRange, HoverTool, LogTickFormatter, NumeralTickFormatter, Range1d
from bokeh.plotting import figure

from brokerdrill.report import format as fmt
from brokerdrill.report.pictures.figures import hide, quiet, themed, tip, write_in
from brokerdrill.report.words import CLASS_WORDS


def classes(messages: Mapping[str, int]) -> Any | None:
    """Return the figure of the classes that have messages; None: none has."""
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
    hide(plot.ygrid, "grid_line_color")
    hide(plot.yaxis, "major_tick_line_color")
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
        write_in(plot, source, "ink", x="right", y="y", text="text", x_offset=6)
        bars.append(bar)
    plot.add_tools(HoverTool(renderers=bars, tooltips=tip([("@y", "@text"), ("meaning", "@meaning")])))
    return plot
