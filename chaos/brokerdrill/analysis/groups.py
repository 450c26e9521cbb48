"""Stage 3, by order group and by transaction: the promises that compare messages with each other.

All first deliveries of one producer and key in one subscription are in one partition; so are all units of one
transaction.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from brokerdrill.analysis.checks import atomic, ordered
from brokerdrill.analysis.clients import Plan
from brokerdrill.analysis.kernel import Parcel

EMPTY = {
    "first": "run INT, address TEXT, message_id TEXT, sub TEXT, began BIGINT, over BIGINT, producer TEXT, key TEXT, "
    "moment BIGINT, redelivered BOOL, consumer TEXT, session INT, tick INT",
    "part": "run INT, txn TEXT, client TEXT, message_id TEXT, address TEXT, sub TEXT, seen BOOL, missing BOOL, "
    "open BOOL, sure BOOL, due BOOL, began BIGINT",
}


def by_group(base: duckdb.DuckDBPyConnection, plan: Plan) -> Iterator[Parcel]:
    """Judge the tables first and part of one partition; yield parcels for the driver."""
    if "ordered" in plan.asked:
        base.execute(ordered.LATE)
        yield from ordered.EVIDENCE.of(base)
        yield from ordered.PERHAPS.of(base)
        base.execute(ordered.JUDGED)
        yield from ordered.COUNTS.of(base)
        yield from ordered.BY_ROUND.of(base)
        yield from ordered.WORST.of(base)
    if "atomic" in plan.asked:
        base.execute(atomic.WHOLE)
        yield from atomic.COUNTS.of(base)
        yield from atomic.BY_ROUND.of(base)
        yield from atomic.WORST.of(base)
