"""When game days were held, as metrics in a file that Prometheus' node exporter reads: for one that does not happen any
more, because its timer or its host is dead, nobody else would say so."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from brokerdrill.base.atomic import replacing
from brokerdrill.gameday.history import EXPECTED, MISSED, REFUSED, RUNNING, WORDS, Day

# No secret is in it, and the exporter is another user.
MODE = 0o644


def exposition(name: str, days: Sequence[Day]) -> str:
    """Return the metrics of the game days called `name`, `days` in their order, in Prometheus' text format: times are
    Unix seconds, 0 where there was none."""
    label = name.replace("\\", "\\\\").replace('"', '\\"')
    ended = [day for day in days if day.state != RUNNING]
    times = (
        ("last_begin", "when the last one began", [day.began for day in days if day.state not in (REFUSED, MISSED)]),
        ("last_end", "when the last one ended, however", [day.ended for day in ended if day.ended]),
        ("last_success", "when the last one ended as expected", [day.ended for day in ended if day.state == EXPECTED]),
    )
    lines: list[str] = []
    for metric, what, values in times:
        full = f"brokerdrill_gameday_{metric}_timestamp_seconds"
        seconds = max(map(_seconds, values), default=0.0)
        lines += _metric(full, what, [f'{full}{{gameday="{label}"}} {seconds:.0f}'])
    full = "brokerdrill_gameday_state"
    last = ended[-1].state if ended else None
    samples = [
        f'{full}{{gameday="{label}",state="{state}"}} {int(state == last)}' for state in WORDS if state != RUNNING
    ]
    lines += _metric(full, "1: how the last one ended", samples)
    return "\n".join(lines) + "\n"


def write_metrics(path: Path, name: str, days: Sequence[Day]) -> None:
    """Replace the file `path` by the metrics of `days`; everybody may read it. Raises InfrastructureError."""
    with replacing(path) as file:
        os.fchmod(file.fileno(), MODE)
        file.write(exposition(name, days).encode())


def _metric(full: str, what: str, samples: Iterable[str]) -> list[str]:
    return [f"# HELP {full} Game days: {what}.", f"# TYPE {full} gauge", *samples]


def _seconds(at: str) -> float:
    return datetime.datetime.fromisoformat(at).timestamp()
