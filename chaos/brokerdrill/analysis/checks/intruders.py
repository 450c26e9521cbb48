"""single_active: sends served by one instance wholly between the first end and the last start of another's one epoch.

SQL over one partition of stage 2, which has all sends of a message: the tables `send`, `serving` and `ticks`.
"""

from __future__ import annotations

from brokerdrill.analysis.checks.finding import by_round, witnesses
from brokerdrill.analysis.partials import declare

# For certain (sure) where that holds whatever the clocks of the three were off by: not at all among times of one clock.
# Where it holds only if they were off, it may be (perhaps).
FOUND = """
CREATE TEMP TABLE between_sends AS
SELECT y.run, y.client, y.op_id, y.message_id, y.address, y.store, y.server, y.start,
       coalesce(y."end", y.start) AS "end", y.tick, w.instance, w.e_start
FROM send y JOIN (SELECT run, store, instance, e_start, min(after) AS after, max(before) AS before FROM serving
                  GROUP BY ALL) w ON y.run = w.run AND y.store = w.store AND y.server <> w.instance
LEFT JOIN (SELECT run, 2 * max(u) AS u FROM ticks GROUP BY run) f ON y.run = f.run
WHERE y.outcome = 'ok' AND y.start > w.after - coalesce(f.u, 0)
    AND coalesce(y."end", y.start) < w.before + coalesce(f.u, 0);
CREATE TEMP TABLE between_times AS
SELECT run, client, op_id, message_id, address, store, server, start, "end", instance, e_start,
       bool_or(start > after + u) AND bool_or("end" < before - u) AS sure,
       bool_or(start > after - u) AND bool_or("end" < before + u) AS perhaps
FROM (SELECT b.*, w.after, w.before,
             CASE WHEN b.tick = w.tick THEN 0 ELSE coalesce(x.u, 0) + coalesce(y.u, 0) END AS u
      FROM between_sends b JOIN serving w USING (run, store, instance, e_start)
      LEFT JOIN ticks x ON b.run = x.run AND b.tick = x.tick LEFT JOIN ticks y ON w.run = y.run AND w.tick = y.tick)
GROUP BY ALL;
CREATE TEMP TABLE intruder AS
SELECT run, client, op_id, message_id, address, store, server, start, "end", min(instance) AS other
FROM between_times WHERE sure GROUP BY ALL;
"""
COUNTED = declare("intruders", "run int, n long, perhaps boolean", "checks.Findings").by("""
SELECT run, count(DISTINCT {'client': client, 'op_id': op_id}) FILTER (sure) AS n,
       bool_or(perhaps AND NOT sure) AS perhaps
FROM between_times GROUP BY run
""")
WORST = witnesses(
    "rule",
    """
SELECT run, 'single_active' AS rule, -start AS weight, message_id, address, client, store, server AS instance,
       other AS other_instance, start AS start_ns, "end" AS end_ns
FROM intruder
""",
    "message_id, address, client, op_id",
    "rule string, message_id string, address string, client string, store string, instance string, "
    "other_instance string, start_ns long ns, end_ns long ns",
)

BY_ROUND = by_round("intruder", "'single_active'", "start")
