"""no_phantoms, always checked: nothing is delivered that was not sent, or not as it was sent."""

from __future__ import annotations

from pyspark.sql import DataFrame

from brokerdrill.analysis.frames import Frames
from brokerdrill.analysis.promises.by_class import check_classes

NAME = "no_phantoms"


def check(frames: Frames) -> DataFrame:
    """Return marks: each unit that is corrupted, phantom or unexpected breaks."""
    return check_classes(frames, NAME, ("corrupted", "phantom", "unexpected"))
