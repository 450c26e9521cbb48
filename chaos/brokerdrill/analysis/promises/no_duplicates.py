"""no_duplicates: no message is processed more than once in one subscription."""

from __future__ import annotations

from pyspark.sql import DataFrame

from brokerdrill.analysis.frames import Frames
from brokerdrill.analysis.promises.by_class import check_classes

NAME = "no_duplicates"


def check(frames: Frames) -> DataFrame:
    """Return marks: each duplicated unit breaks."""
    return check_classes(frames, NAME, ("duplicated",))
