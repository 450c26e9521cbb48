"""no_dead_letters: no message that the broker took ends on a dead-letter address instead of with a consumer."""

from __future__ import annotations

from pyspark.sql import DataFrame

from brokerdrill.analysis.frames import Frames
from brokerdrill.analysis.promises.by_class import check_classes

NAME = "no_dead_letters"


def check(frames: Frames) -> DataFrame:
    """Return marks: each dead-lettered unit breaks; only what was sent to an address with a mapped one is evidence."""
    mapped = frames.tables.dead_letters.select("run_id", "address")
    return check_classes(frames, NAME, ("dead_lettered",), only=mapped)
