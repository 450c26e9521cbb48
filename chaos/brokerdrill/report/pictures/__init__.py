"""The pictures of a report: Bokeh figures over the aggregates of one run, sharing one zoomable time axis.

Figures carry no background, legend or toolbar of their own: the page draws those, and recolours the models that a
`themed` tag names when it changes between light and dark. A module a picture; what all share is in `figures`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bokeh.embed import components
from bokeh.models import Range1d

from brokerdrill.ledger.series import Bucket, Series
from brokerdrill.report.pictures.classes import classes
from brokerdrill.report.pictures.failover import failover, failover_bars
from brokerdrill.report.pictures.figures import MIN_LEFT_PX, NAME_LIMIT, plain, seconds
from brokerdrill.report.pictures.latency import latency
from brokerdrill.report.pictures.routes import routes
from brokerdrill.report.pictures.throughput import bucket_source, throughput
from brokerdrill.report.pictures.timeline import alert_names, client_names, lane_names, timeline
from brokerdrill.report.shown import Shown

TIME_RANGE = "run_time"


@dataclass(frozen=True)
class Pictures:
    """What the page embeds: one script for all figures, and a div for each figure that has something to show."""

    script: str
    divs: Mapping[str, str]
    bars_left_out: int = 0


def draw(shown: Shown, messages: Mapping[str, int], failover_bound_ms: float | None) -> Pictures:
    """Return all pictures that have something to show: timeline, throughput, latency, routes, failover,
    classes."""
    series = shown.series
    end = max(seconds(series.end_ns), 0.001)
    x_range = Range1d(0, end, bounds=(0, end), min_interval=end / 5000, name=TIME_RANGE)
    left = _left_px(series)
    plots: dict[str, Any | None] = {}
    if series.roles or shown.bands or series.phases or series.clients:
        plots["timeline"] = timeline(shown, x_range, left)
    if any(map(_has_operations, shown.buckets)):
        source = bucket_source(shown)
        plots["throughput"] = throughput(shown, source, x_range, left)
        plots["latency"] = latency(shown, source, x_range, left)
    if series.routes and series.routes.stays:
        plots["routes"] = routes(shown, series.routes, x_range, left)
    bars, left_out = failover_bars(series.failover, shown.bands)
    plots["failover"] = failover(bars, failover_bound_ms)
    plots["classes"] = classes(messages)
    present = {name: plot for name, plot in plots.items() if plot is not None}
    if not present:
        return Pictures("", {})
    script, divs = components(present, wrap_script=False)
    return Pictures(script, dict(divs), left_out)


def _left_px(series: Series) -> int:
    names = [*lane_names(series.roles), *alert_names(series), *client_names(series)]
    longest = max((len(plain(name, NAME_LIMIT)) for name in names), default=0)
    return max(MIN_LEFT_PX, 18 + round(7.2 * longest))


def _has_operations(bucket: Bucket) -> bool:
    return bool(bucket.sends or bucket.deliveries)
