"""Which store each routing key reached, from when to when, a line a key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, Range1d

from brokerdrill.ledger.series import Routes, Stay
from brokerdrill.report import format as fmt
from brokerdrill.report.pictures.figures import hide, merged_bands, plain, seconds, shade, themed, time_figure, tip
from brokerdrill.report.shown import Shown

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


def routes(shown: Shown, routes: Routes, x_range: Range1d, left_px: int) -> Any:
    """Draw for each key, a line each, which store its connects reached, pale until a connect reaches another; keys of
    one first store lie together."""
    first: dict[str, str] = {}
    for stay in sorted(routes.stays, key=lambda item: item.start_ns):
        first.setdefault(stay.key, stay.store)
    until = until_elsewhere(routes.stays, shown.series.end_ns)
    lanes = {key: -place for place, key in enumerate(sorted(first, key=lambda key: (first[key], key)))}
    height = min(560, max(90, 4 * len(lanes)))
    plot = time_figure(height, x_range, left_px, y_range=Range1d(-len(lanes) + 0.5, 0.5))
    hide(plot.ygrid, "grid_line_color")
    hide(plot.yaxis, "major_tick_line_color", "minor_tick_line_color", "axis_line_color")
    plot.yaxis.ticker = FixedTicker(ticks=[])
    shade(plot, merged_bands(shown.bands))
    renderers = []
    for store, colour in store_colours(routes).items():
        stays = [stay for stay in routes.stays if stay.store == store]
        if not stays:
            continue
        source = ColumnDataSource(
            {
                "left": [seconds(stay.start_ns) for stay in stays],
                "right": [seconds(max(stay.end_ns, stay.start_ns + shown.series.bucket_ns // 4)) for stay in stays],
                "until": [seconds(max(stay.end_ns, until[stay])) for stay in stays],
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
