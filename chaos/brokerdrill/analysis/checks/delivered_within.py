"""delivered_within: what a broker had acknowledged and not delivered when a fault hit it is delivered within the bound.

SQL over one partition of stage 2, which has all of a message: the tables `send`, `unit`, `got`, `hits` and `ticks`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from brokerdrill.analysis.checks.finding import BUSY, CLOCKS, NS_PER_MS, WITNESS, Finding
from brokerdrill.analysis.partials import declare
from brokerdrill.analysis.timeline import Timeline
from brokerdrill.analysis.verdict import WITNESSES
from brokerdrill.analysis.watching import stalled

NAME = "delivered_within"

# Each unit that waited where a fault hit: acknowledged there before, for certain, and first delivered after it. One
# that was never delivered waits to the run's end (`never`). `u`: by how much the time may be off.
FOUND = f"""
CREATE TEMP TABLE held AS
SELECT s.run, s.spec, h.fault, h.f_at, h.server, s.bound, u.address, u.message_id, u.sub, g.moment IS NULL AS never,
       coalesce(g.moment, p.run_end) - h.f_at AS took, h.f_u + coalesce(x.u, 0) AS u
FROM unit u JOIN specs s ON u.run = s.run AND s.name = '{NAME}' JOIN phase p ON u.run = p.run
JOIN (SELECT DISTINCT a.run, a.address, a.message_id, h.fault, h.f_at, h.f_u, h.server
      FROM send a LEFT JOIN ticks t ON a.run = t.run AND a.tick = t.tick
      JOIN hits h ON a.run = h.run AND a.server = h.server AND a.acked_at < h.f_at - h.f_u - coalesce(t.u, 0)
      WHERE a.state = 'ok') h
    ON u.run = h.run AND u.address = h.address AND u.message_id = h.message_id
LEFT JOIN got g ON u.run = g.run AND u.address = g.address AND u.message_id = g.message_id AND u.sub = g.sub
LEFT JOIN ticks x ON g.run = x.run AND g.tick = x.tick
WHERE u.durable AND u.lasts AND coalesce(g.moment, p.run_end) > h.f_at AND (g.moment IS NOT NULL OR u.class IN ('lost', 'unseen'));
"""  # noqa: E501
_LATE = "took - u > bound"
COUNTED = declare(
    "held",
    "run int, spec int, fault int, n long, late long, perhaps boolean, cut_off boolean, longest long ns",
    "checks.Findings",
).by(f"""
SELECT run, spec, fault, count(*) AS n, count(*) FILTER ({_LATE}) AS late,
       bool_or(NOT never AND NOT ({_LATE}) AND took + u > bound) AS perhaps,
       bool_or(never AND NOT ({_LATE})) AS cut_off, max(took) AS longest
FROM held GROUP BY ALL
""")
WORST = WITNESS.by(
    f"""
SELECT run, spec, took AS weight, message_id, address, nullif(sub, '') AS subscription, server AS instance,
       f_at AS t_ns, took / {NS_PER_MS} AS waited_ms
FROM held WHERE {_LATE}
QUALIFY row_number() OVER (PARTITION BY run, spec ORDER BY weight DESC, message_id, address, sub, fault) <= {WITNESSES}
""",
    "spec int, message_id string, address string, subscription string, instance string, t_ns long ns, "
    "waited_ms double ms",
)


class HeldUnits(NamedTuple):
    """What stage 2 returns of the units that waited where a fault hit: how many, how many of them too long for certain
    (late), whether others may have, or were not delivered before the run ended, the longest wait (ns)."""

    fault: int
    units: int
    late: int
    perhaps: bool
    cut_off: bool
    longest: int


def find(times: Timeline, held: Iterable[HeldUnits], bound: int) -> Finding:
    """Return what the units that waited say of the promise: each that waited longer than the bound (ns) breaks it. Of a
    fault the longest wait decides whether busy hosts explain them; one that ended with the run before the bound was
    over casts doubt."""
    finding = Finding(judged=0)
    faults = {fault.number: fault for fault in times.faults}
    for one in held:
        at = faults[one.fault].at
        finding.evidence = True
        finding.judged = (finding.judged or 0) + one.units
        finding.measured = max(finding.measured or 0.0, one.longest / NS_PER_MS)
        if one.perhaps:
            finding.doubted(CLOCKS)
        if one.cut_off:
            finding.doubted("the run ended before the bound was over, and a message had not been delivered")
        if one.late and stalled(times.pressures, at, at + one.longest) >= one.longest - bound:
            finding.doubted(BUSY)
        else:
            finding.n += one.late
            finding.moments += [at] * one.late
    finding.judged_from = {"messages": finding.judged}
    return finding
