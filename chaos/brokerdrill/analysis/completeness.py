"""Whether a ledger has all rows: each client's operations without holes, rows of each clock, files of their sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from brokerdrill.analysis.partials import declare

# Of each client how many operations it has, and the first and the last one's number.
NUMBERS = """
CREATE TEMP TABLE numbers AS
SELECT run, client, count(*) AS n, min(op_id) AS first, max(op_id) AS last FROM ops GROUP BY run, client
"""
NUMBERED = declare("numbered", "run int, client string, n long, first long, last long", "seen.Seen").by("FROM numbers")
# The clocks (`clocks.tick`) of which a partition has rows.
TICKING = declare("ticking", "run int, tick int", "seen.Seen").by(
    "SELECT DISTINCT run, tick FROM ops WHERE tick IS NOT NULL"
)


class Numbered(NamedTuple):
    """A client's operations: how many there are, and the first and the last one's `op_id`."""

    client: str
    n: int
    first: int
    last: int


def holes(clients: Sequence[Numbered]) -> dict[str, int]:
    """Return how many operations are missing of each client that lacks some.

    A client counts its operations from 0 (or 1). Where no two clients begin with the same number, and there are no more
    operations than numbers, the writer has numbered the whole run's operations in one row, and nothing follows for a
    client.
    """
    if len(clients) > 1 and len({one.first for one in clients}) == len(clients):
        numbers = max(one.last for one in clients) - min(one.first for one in clients) + 1
        if sum(one.n for one in clients) <= numbers:
            return {}
    lacking = {one.client: one.last - (one.first if one.first <= 1 else 0) + 1 - one.n for one in clients}
    return {client: n for client, n in sorted(lacking.items()) if n > 0}


def silent_clocks(clocks: Mapping[str, object], ticked: Iterable[str]) -> tuple[str, ...]:
    """Return the clocks of run.json of which there is no row at all: what their recorder saw did not come home."""
    return tuple(sorted({*clocks} - {*ticked}))


def lacking(clients: Sequence[Numbered], clocks: Mapping[str, object], ticked: Iterable[str]) -> list[str]:
    """Return why rows are missing, a sentence each; none: no sign says so."""
    found = []
    if lost := holes(clients):
        worst = max(lost, key=lambda client: lost[client])
        found.append(
            f"{sum(lost.values())} operations of {len(lost)} client(s) are missing, by the numbers of the others "
            f"({worst} lacks {lost[worst]})"
        )
    if silent := silent_clocks(clocks, ticked):
        found.append(
            f"there is no row of {', '.join(silent)}, which run.json names: what was recorded there is missing"
        )
    return found
