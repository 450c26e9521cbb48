"""What all figures share: their quiet look, colours that follow the page's theme, texts, the axis of time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from bokeh.core.properties import value as constant
from bokeh.models import (
    BasicTicker,
    BoxAnnotation,
    BoxZoomTool,
    ColumnDataSource,
    Label,
    Model,
    NumeralTickFormatter,
    Range1d,
    Span,
)
from bokeh.plotting import figure

from brokerdrill.ledger.contract import PREPARATIONS
from brokerdrill.report import format as fmt
from brokerdrill.report.palette import PALETTE
from brokerdrill.report.shown import Band, Shown

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"
TEXT_FONT = constant(FONT)  # a glyph would take the bare string for a column's name
NAME_LIMIT = 17
RIGHT_BORDER_PX = 18
# Enough for the ticks and the title of every time plot, so that their frames stand exactly under each other.
MIN_LEFT_PX = 80
MARK_GAP = 0.08
MARK_ROWS = 3


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


def seconds(ns: float) -> float:
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


def hide(models: Iterable[Model], *properties: str) -> None:
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


def time_figure(height: int, x_range: Range1d, left_px: int, **options: Any) -> Any:
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


def write_in(plot: Any, source: ColumnDataSource, colour: str, **options: Any) -> None:
    """Write a column of `source` on `plot`: `options` place it (x, y, text, …)."""
    look = {"text_baseline": "middle", "text_font": TEXT_FONT, "text_font_size": "12px"}
    themed(plot.text(source=source, **(look | options)).glyph, text_color=colour)


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


def shade(plot: Any, bands: Sequence[Band]) -> None:
    """Shade each fault's time in effect, behind everything else; of a mere preparation, only mark the begin."""
    for band in bands:
        start = seconds(band.start_ns)
        if band.name not in PREPARATIONS:
            box = BoxAnnotation(left=start, right=seconds(band.end_ns), fill_alpha=0.12, line_alpha=0, level="underlay")
            plot.add_layout(themed(box, fill_color="fault"))
        edge = Span(location=start, dimension="height", line_width=1.5, line_dash="dashed", level="underlay")
        plot.add_layout(themed(edge, line_color="fault"))


def add_bands(plot: Any, shown: Shown, height: int) -> None:
    """Shade the faults and write their marks at the top of a plot whose frame is `height` pixels high."""
    bands = merged_bands(shown.bands)
    shade(plot, bands)
    rows = mark_rows([seconds(band.start_ns) for band in bands], seconds(shown.series.end_ns))
    for band, row in zip(bands, rows, strict=True):
        mark = Label(
            x=seconds(band.start_ns),
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
