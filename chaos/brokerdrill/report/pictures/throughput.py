"""Acknowledged sends and deliveries a second, by the bucket, and the outages below them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bokeh.models import BasicTicker, ColumnDataSource, HoverTool, NumeralTickFormatter, Range1d

from brokerdrill.report import format as fmt
from brokerdrill.report.pictures.figures import add_bands, hide, plain, seconds, themed, time_figure, tip
from brokerdrill.report.shown import Shown

OUTAGE_SIDES = {"send": "no acknowledged send", "receive": "no delivery"}


def bucket_source(shown: Shown) -> ColumnDataSource:
    """Return the buckets as columns: rates, latencies, and both as texts."""
    width = seconds(shown.series.bucket_ns)
    buckets = shown.buckets

    def column(name: str) -> list[float]:
        return [math.nan if (value := getattr(bucket, name)) is None else float(value) for bucket in buckets]

    def words(name: str) -> list[str]:
        return [fmt.milliseconds(getattr(bucket, name)) for bucket in buckets]

    latencies = [f"{side}_{part}_ms" for side in ("send", "delivery") for part in ("p50", "p99", "max")]
    return ColumnDataSource(
        {
            "x": [seconds(bucket.start_ns) + width / 2 for bucket in buckets],
            "from": [f"{seconds(bucket.start_ns):,.2f} s" for bucket in buckets],
            "zero": [0.0 for _ in buckets],
            "sends": [bucket.sends / width for bucket in buckets],
            "deliveries": [bucket.deliveries / width for bucket in buckets],
            **{name: column(name) for name in latencies},
            **{f"{name}_text": words(name) for name in latencies},
        }
    )


def hover_everywhere(plot: Any, source: ColumnDataSource, level: float, rows: Sequence[tuple[str, str]]) -> None:
    """Show `rows` for the bucket under the pointer, wherever it is: an invisible line at `level` answers in every
    bucket, where steps do not, and curves with gaps only in some."""
    column = f"level {level}"
    source.add([level] * len(source.data["x"]), column)
    probe = plot.line("x", column, source=source, line_alpha=0)
    plot.add_tools(HoverTool(renderers=[probe], mode="vline", tooltips=tip(rows), line_policy="nearest"))


def throughput(shown: Shown, source: ColumnDataSource, x_range: Range1d, left_px: int) -> Any:
    """Return the figure: acknowledged sends and deliveries a second, and the outages at its foot."""
    height = 170
    top = max([*source.data["sends"], *source.data["deliveries"], 1.0])
    plot = time_figure(height, x_range, left_px, y_range=Range1d(0, top * 1.22))
    plot.yaxis.axis_label = "messages / s"
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[0]a")
    plot.yaxis.ticker = BasicTicker(desired_num_ticks=4)
    hide(plot.xgrid, "grid_line_color")
    add_bands(plot, shown, height)
    area = plot.varea_step(x="x", y1="zero", y2="sends", source=source, fill_alpha=0.12, step_mode="center")
    themed(area.glyph, fill_color="sends")
    # Steps: a count holds for its whole bucket.
    sends = plot.step("x", "sends", source=source, line_width=2, mode="center")
    themed(sends.glyph, line_color="sends")
    deliveries = plot.step("x", "deliveries", source=source, line_width=2, line_dash=[5, 3], mode="center")
    themed(deliveries.glyph, line_color="deliveries")
    if shown.series.outages:
        outages = ColumnDataSource(
            {
                "left": [seconds(item.start_ns) for item in shown.series.outages],
                "right": [seconds(item.end_ns or shown.series.end_ns) for item in shown.series.outages],
                "length": [
                    fmt.span((item.end_ns or shown.series.end_ns) - item.start_ns) for item in shown.series.outages
                ],
                "fault": [plain(item.fault or "no fault") for item in shown.series.outages],
                "address": [plain(item.address or "all addresses") for item in shown.series.outages],
                "side": [OUTAGE_SIDES.get(str(item.side), OUTAGE_SIDES["send"]) for item in shown.series.outages],
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
    hover_everywhere(plot, source, top * 0.6, rates)
    return plot
