"""transparent: no client sees a failure, as where its library has a new connection without anybody's noticing.

SQL over one partition of stage 1, which has whole clients: the tables `ops` and `asked`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from brokerdrill.analysis.checks.finding import Finding
from brokerdrill.analysis.partials import declare

NAME = "transparent"
# The calls that fail or end in doubt where a client sees a failure. A receive that got nothing is no failure, and
# a connection that its library replaced is what it is to hide.
CALLS = ("send", "ack", "prepare", "commit", "rollback")


class FailedCall(NamedTuple):
    """A call that was not ok: times are run time in ns, `end` None where it never returned."""

    client: str
    op: str
    outcome: str
    address: str | None
    instance: str | None
    start: int
    end: int | None


# What a client that was killed had begun and did not end (`deaths`), nobody saw fail.
_ASKED = f"""FROM ops o SEMI JOIN asked a ON o.run = a.run AND a.name = '{NAME}'
LEFT JOIN deaths d ON o.run = d.run AND o.client = d.client AND o."end" IS NULL AND o.start <= d.d_at
WHERE o.op IN ({", ".join(f"'{op}'" for op in CALLS)}) AND d.client IS NULL"""
COUNTED = declare("calls", "run int, n long", "checks.Findings").by(f"""
SELECT o.run, count(*) AS n {_ASKED} GROUP BY o.run
""")
FAILED = declare(
    "failed_call",
    "run int, client string, op string, outcome string, address string, server string, begun long ns, ended long ns",
    "checks.Findings",
).by(f"""
SELECT o.run, o.client, o.op, o.outcome, o.address, o.server, o.start AS begun, o."end" AS ended
{_ASKED} AND o.outcome <> 'ok'
""")


def find(calls: int, failed: Sequence[FailedCall]) -> Finding:
    """Return what a run's clients saw: `calls` in all, those of them that `failed`."""
    finding = Finding(
        n=len(failed),
        evidence=calls > 0,
        judged=calls,
        judged_from={"calls": calls},
        moments=[one.start for one in failed],
    )
    finding.broken_by(_witness(one) for one in failed)
    return finding


def _witness(one: FailedCall) -> dict[str, Any]:
    return {
        "weight": 0 if one.end is None else one.end - one.start,
        "client": one.client,
        "op": one.op,
        "outcome": one.outcome,
        "address": one.address,
        "instance": one.instance,
        "start_ns": one.start,
        "end_ns": one.end,
    }
