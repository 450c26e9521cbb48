"""no_loss: every durable message that the broker took is processed, or still may be where the address was not
drained."""

from __future__ import annotations

from pyspark.sql import DataFrame

from brokerdrill.analysis.frames import Frames
from brokerdrill.analysis.promises.by_class import check_classes

NAME = "no_loss"


def check(frames: Frames) -> DataFrame:
    """Return marks: each lost unit breaks, each unseen one makes a pass unknown."""
    return check_classes(frames, NAME, ("lost",), doubtful=("unseen",))
