"""The promises, one module each. A module has `NAME` and `check(frames) -> marks`, for all runs that list the
promise."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from brokerdrill.analysis.frames import Frames
from brokerdrill.analysis.promises import (
    available,
    failback_within,
    failover_within,
    no_dead_letters,
    no_duplicates,
    no_loss,
    no_phantoms,
    ordered,
    single_active,
    sticky,
)

CHECKS: dict[str, Callable[[Frames], DataFrame]] = {
    module.NAME: module.check
    for module in (
        no_phantoms,
        no_loss,
        no_duplicates,
        no_dead_letters,
        ordered,
        sticky,
        single_active,
        failover_within,
        failback_within,
        available,
    )
}
