"""Whether the details of an event are what they may be: all are texts, and what is measured are numbers in them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from brokerdrill.ledger.contract import LOG_READ
from brokerdrill.ledger.evidence import (
    BYTES,
    GAPS,
    LONGEST,
    MET_COUNTS,
    OFFSET,
    POLLS,
    READ_BOOTS,
    READ_FROM,
    READ_LOST,
    READ_UNTIL,
    SINCE,
    STALLED,
    TTL,
    UNCERTAINTY,
)

# By the event's kind.
_WHOLE = {
    "met": MET_COUNTS,
    "pressure": (SINCE, STALLED),
    "clock": (OFFSET, UNCERTAINTY),
    "polls": (POLLS, LONGEST),
    "piece": (BYTES,),
}
_OF_LOGS = (READ_FROM, READ_UNTIL, READ_BOOTS, READ_LOST)


def _is_whole(text: str) -> bool:
    with suppress(ValueError):
        int(text)
        return True
    return False


def _is_time(text: str) -> bool:
    """Whether a text says for how many seconds."""
    with suppress(ValueError):
        return 0 <= float(text) < math.inf
    return False


def _are_gaps(text: str) -> bool:
    return all(_is_whole(time) for gap in filter(None, text.split(", ")) for time in gap.partition("-")[::2])


def detail_problem(event: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the details of an event (None: nothing): what cannot be read is not as good as what is
    not there, of which nothing is assumed."""
    detail = {name: str(value) for name, value in (event["detail"] or {}).items() if value is not None}
    kind = event["kind"]
    whole = _OF_LOGS if (kind, event["name"]) == ("note", LOG_READ) else _WHOLE.get(kind, ())
    for name in whole:
        if name in detail and not _is_whole(detail[name]):
            return f"{name} in detail is '{detail[name]}', no whole number"
    if kind == "fault" and TTL in detail and not _is_time(detail[TTL]):
        return f"{TTL} in detail is '{detail[TTL]}', no number of seconds"
    if kind == "polls" and not _are_gaps(detail.get(GAPS, "")):
        return f"{GAPS} in detail is '{detail[GAPS]}', not BEGIN-END, joined by ', '"
    return None
