"""delivered_within: what a broker had acknowledged and not delivered when a fault hit it is delivered within the bound.

SQL over one partition of stage 2, which has all of a message: the tables `send`, `delivery`, `unit`, `got`, `hits`,
`asking` and `ticks`; and over one of stage 1, which has whole clients (`TAKERS`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from brokerdrill.analysis.checks.finding import BUSY, CLOCKS, NS_PER_MS, Finding, witnesses
from brokerdrill.analysis.events import NEVER
from brokerdrill.analysis.partials import declare
from brokerdrill.analysis.timeline import Timeline
from brokerdrill.analysis.watching import stalled

NAME = "delivered_within"
CUT_OFF = "the run ended before the bound was over, and a message had not been delivered"
PERHAPS = "of a message that came late, or not at all, it is not known for certain that it waited at what was hit"
UNASKED = "nobody asked for a message for as long as the bound before it came, or before another fault"

# When somebody asked for what waits: who receives from an address (on a topic from a subscription), from the first
# operation on, or the first after a close, until the close or the last operation's end, each for certain.
_TAKER = declare("taker", "run int, address string, sub string, a_from long ns, a_until long ns", "judge._SHARED")
TAKERS = _TAKER.by(f"""
WITH takers AS (
    SELECT DISTINCT o.run, o.client, o.address, coalesce(o.subscription, '') AS sub
    FROM ops o SEMI JOIN asked ON o.run = asked.run AND asked.name = '{NAME}'
    ANTI JOIN dead ON o.run = dead.run AND o.address = dead.dead_letter
    WHERE o.op = 'receive' AND o.address <> ''),
times AS (
    SELECT o.run, o.client, o.start + o.u AS a_from,
           CASE WHEN o.op = 'close' THEN o.start - o.u WHEN o."end" IS NOT NULL THEN o."end" - o.u
                WHEN o.op_id = n.last THEN {NEVER} ELSE o.start - o.u END AS a_until,
           count(*) FILTER (o.op = 'close') OVER (PARTITION BY o.run, o.client ORDER BY o.op_id
               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS part
    FROM ops o SEMI JOIN takers USING (run, client) JOIN numbers n ON o.run = n.run AND o.client = n.client)
SELECT t.run, t.address, t.sub, p.a_from, p.a_until
FROM takers t JOIN (SELECT run, client, min(a_from) AS a_from, max(a_until) AS a_until FROM times
                    GROUP BY run, client, part) p ON t.run = p.run AND t.client = p.client
WHERE p.a_from < p.a_until
""")
# The times of all clients put together: each in which somebody asked, once.
ASKING = f"""
SELECT run, address, sub, min(a_from) AS a_from, max(a_until) AS a_until
FROM (SELECT *, count(*) FILTER (fresh) OVER (PARTITION BY run, address, sub ORDER BY a_from, a_until
                                              ROWS UNBOUNDED PRECEDING) AS part
      FROM (SELECT *, a_from > coalesce(max(a_until) OVER (PARTITION BY run, address, sub ORDER BY a_from, a_until
                                        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), -{NEVER}) AS fresh
            FROM taker))
GROUP BY run, address, sub, part
"""

# `faced`: each unit and fault of which an attempt was acknowledged for its store (`there`: for certain) before it, but
# for those that were done with by then. `awaited`: those that were not, with the first delivery since; what was handed
# out before, also by who was halted then, and was given back, is `back`. `held`: how long each waited (one that was
# never delivered to the run's end), by how much that may be off (`u`), whether it waited there for certain, and for how
# long somebody asked for it, before another fault hit its broker.
FOUND = f"""
CREATE TEMP TABLE faced AS
SELECT u.run, s.spec, any_value(s.bound) AS bound, u.address, u.message_id, u.sub, any_value(u.class) AS class,
       any_value(u.sure) AS sure, h.fault, any_value(h.f_at) AS f_at, any_value(h.f_u) AS f_u,
       any_value(h.f_next) AS f_next, any_value(h.halted) AS halted, any_value(h.server) AS server,
       bool_or(coalesce(a.store = h.store, false) AND a.acked_at < h.f_at - h.f_u - coalesce(t.u, 0)) AS there
FROM unit u JOIN specs s ON u.run = s.run AND s.name = '{NAME}'
JOIN send a ON u.run = a.run AND u.address = a.address AND u.message_id = a.message_id AND a.state = 'ok'
LEFT JOIN ticks t ON a.run = t.run AND a.tick = t.tick
LEFT JOIN got g ON u.run = g.run AND u.address = g.address AND u.message_id = g.message_id AND u.sub = g.sub
LEFT JOIN ticks x ON g.run = x.run AND g.tick = x.tick
JOIN hits h ON u.run = h.run AND coalesce(a.store, h.store) = h.store AND a.acked_at - coalesce(t.u, 0) < h.f_at + h.f_u
WHERE u.durable AND u.lasts
  AND NOT coalesce(g.n = 1 AND g.processed + g.possibly > 0 AND g.moment + coalesce(x.u, 0) <= h.f_at - h.f_u, false)
GROUP BY u.run, s.spec, u.address, u.message_id, u.sub, h.fault;

CREATE TEMP TABLE awaited AS
SELECT f.*, d.back, d.first.moment AS moment, d.first.u AS x_u,
       d.first.server IS NULL AND d.first.moment < f.halted AS blind
FROM faced f LEFT JOIN (
    SELECT run, spec, fault, address, message_id, sub, bool_or(before) AS back, bool_or(before AND state > 0) AS done,
           min({{'moment': moment, 'client': client, 'op_id': op_id, 'server': server, 'u': u}})
               FILTER (NOT before) AS first
    FROM (SELECT f.run, f.spec, f.fault, d.address, d.message_id, d.sub, d.moment, d.client, d.op_id, d.server, d.state,
                 coalesce(t.u, 0) AS u,
                 d.moment + coalesce(t.u, 0) <= f.f_at - f.f_u
                     OR coalesce(d.server = f.server AND d.moment < f.halted, false) AS before
          FROM faced f JOIN delivery d ON f.run = d.run AND f.address = d.address AND f.message_id = d.message_id
              AND f.sub = d.sub
          LEFT JOIN ticks t ON d.run = t.run AND d.tick = t.tick)
    GROUP BY run, spec, fault, address, message_id, sub) d
ON f.run = d.run AND f.spec = d.spec AND f.fault = d.fault AND f.address = d.address AND f.message_id = d.message_id
    AND f.sub = d.sub
WHERE NOT coalesce(d.done, false) AND (d.first IS NOT NULL OR f.class IN ('lost', 'unseen', 'dead_lettered'));

CREATE TEMP TABLE held AS
SELECT w.run, w.spec, w.fault, w.f_at, w.server, w.bound, w.address, w.message_id, w.sub, w.moment AS delivered,
       w.moment IS NULL AS never, coalesce(w.moment, p.run_end) - w.f_at AS took, w.f_u + coalesce(w.x_u, 0) AS u,
       w.there AND w.sure AND NOT coalesce(w.back, false)
           AND CASE WHEN w.moment IS NULL THEN w.class <> 'dead_lettered'
                    ELSE w.moment - w.x_u > w.f_at + w.f_u AND NOT w.blind END AS certain,
       coalesce((SELECT sum(greatest(0, least(a.a_until, w.f_next, coalesce(w.moment - w.x_u, p.run_end))
                                        - greatest(a.a_from, w.f_at + w.f_u)))
                 FROM asking a WHERE a.run = w.run AND a.address = w.address AND a.sub = w.sub), 0)::BIGINT AS asked
FROM awaited w JOIN phase p ON w.run = p.run;
"""
_LATE = "certain AND asked > bound"
_SOON = "took - u <= bound"
COUNTED = declare(
    "held",
    "run int, spec int, fault int, n long, late long, longest long ns, latest long ns, cut_off boolean, "
    "clocks boolean, perhaps boolean, unasked boolean",
    "checks.Findings",
).by(f"""
SELECT run, spec, fault, count(*) FILTER (certain) AS n, count(*) FILTER ({_LATE}) AS late,
       max(took) FILTER (certain) AS longest, max(took) FILTER ({_LATE}) AS latest,
       bool_or(never AND {_SOON}) AS cut_off,
       bool_or(NOT never AND certain AND {_SOON} AND took + u > bound) AS clocks,
       bool_or(NOT certain AND took + u > bound) AS perhaps,
       bool_or(certain AND NOT ({_SOON}) AND asked <= bound) AS unasked
FROM held GROUP BY ALL
""")
WORST = witnesses(
    "spec",
    f"""
SELECT run, spec, CASE WHEN never THEN {NEVER} ELSE took END AS weight, message_id, address,
       nullif(sub, '') AS subscription, server AS instance, f_at AS t_ns, took / {NS_PER_MS} AS waited_ms,
       delivered AS delivered_ns
FROM held WHERE {_LATE}
""",
    "message_id, address, sub, fault",
    "spec int, message_id string, address string, subscription string, instance string, t_ns long ns, "
    "waited_ms double ms, delivered_ns long ns",
)


class HeldUnits(NamedTuple):
    """What stage 2 returns of the units that waited where a fault hit: how many, how many of them too long for certain
    (late), the longest wait and the longest of these (ns); and whether something casts doubt: the run's end
    (`cut_off`), the clocks, a unit that perhaps waited there, one for which nobody asked."""

    fault: int
    units: int
    late: int
    longest: int | None
    latest: int | None
    cut_off: bool
    clocks: bool
    perhaps: bool
    unasked: bool


def find(times: Timeline, held: Iterable[HeldUnits], bound: int) -> Finding:
    """Return what the units that waited say of the promise: each that waited longer than the bound (ns) breaks it. Of a
    fault the longest wait decides whether busy hosts explain them."""
    finding = Finding(judged=0)
    faults = {fault.number: fault for fault in times.faults}
    for one in held:
        at = faults[one.fault].at
        if one.longest is not None:
            finding.evidence = True
            finding.judged = (finding.judged or 0) + one.units
            finding.measured = max(finding.measured or 0.0, one.longest / NS_PER_MS)
        doubts = {CUT_OFF: one.cut_off, CLOCKS: one.clocks, PERHAPS: one.perhaps, UNASKED: one.unasked}
        for why, there in doubts.items():
            if there:
                finding.doubted(why)
        if one.latest is None:
            continue
        if stalled(times.pressures, at, at + one.latest) >= one.latest - bound:
            finding.doubted(BUSY)
        else:
            finding.n += one.late
            finding.moments += [at] * one.late
    finding.judged_from = {"messages": finding.judged}
    return finding
