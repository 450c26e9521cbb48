"""When game days were held, as metrics in a file that Prometheus' node exporter reads: for one that does not happen any
more, because its timer or its host is dead, nobody else would say so."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from brokerdrill.base.exposition import metric
from brokerdrill.gameday.history import EXPECTED, MISSED, REFUSED, RUNNING, WORDS, Day


def exposition(name: str, days: Sequence[Day]) -> list[str]:
    """Return the metrics of the game days called `name`, `days` in their order, in lines: times are Unix seconds, 0
    where there was none."""
    of = {"gameday": name}
    ended = [day for day in days if day.state != RUNNING]
    times = (
        ("last_begin", "when the last one began", [day.began for day in days if day.state not in (REFUSED, MISSED)]),
        ("last_end", "when the last one ended, however", [day.ended for day in ended if day.ended]),
        ("last_success", "when the last one ended as expected", [day.ended for day in ended if day.state == EXPECTED]),
    )
    lines: list[str] = []
    for what, meaning, values in times:
        full = f"brokerdrill_gameday_{what}_timestamp_seconds"
        lines += metric(full, f"Game days: {meaning}", [(of, max(map(_seconds, values), default=0.0))])
    last = ended[-1].state if ended else None
    states = [({**of, "state": state}, float(state == last)) for state in WORDS if state != RUNNING]
    return lines + metric("brokerdrill_gameday_state", "Game days: 1: how the last one ended", states)


def _seconds(at: str) -> float:
    return datetime.datetime.fromisoformat(at).timestamp()
