"""sticky: every connect with the same routing key reaches the same store, for as long as that store's broker is ready.

SQL over one partition of stage 2, which has all connects of a key: the tables `connect`, `unready` and `specs`.
"""

from __future__ import annotations

from brokerdrill.analysis.checks.finding import FOUND, by_round, witnesses
from brokerdrill.analysis.partials import declare

# sticky: "Each ok connect of a key is compared with the key's previous one; both must reach the same store. A move is
# excused if the old target was not ready at some time since the previous connect (± check_period_ms) or the cache entry
# had expired (cache_timeout_ms since the previous connect; absent or 0: never). moves never: nothing excuses a move;
# moves some: without any move there is nothing to judge." A key that stayed when its entry may have expired (`stale`)
# shows nothing. What is excused only if a clock was off may be (perhaps).
MOVES = """
CREATE TEMP TABLE move AS
SELECT *, moved AND widely AND NOT excused AS perhaps FROM (
SELECT p.*, s.spec, coalesce(p.store <> p.old, false) AS moved, p.store IS NOT NULL AND p.old IS NOT NULL AS known,
       s.moves = 'some' AS needed,
       s.moves <> 'never' AND s.cache_timeout > 0 AND p.moment - p.old_at + p.u + p.old_u > s.cache_timeout AS stale,
       s.moves <> 'never' AND (
           (s.cache_timeout > 0 AND p.moment - p.old_at - p.u - p.old_u > s.cache_timeout) OR EXISTS (
           FROM unready n WHERE n.run = p.run AND n.store = p.old
               AND p.old_at - s.check_period + p.old_u <= p.moment + s.check_period - p.u
               AND n.n_from <= p.moment + s.check_period - p.u AND n.n_to > p.old_at - s.check_period + p.old_u))
           AS excused,
       stale OR (s.moves <> 'never' AND EXISTS (
           FROM unready n WHERE n.run = p.run AND n.store = p.old
               AND n.n_from <= p.moment + s.check_period + p.u AND n.n_to > p.old_at - s.check_period - p.old_u))
           AS widely
FROM (SELECT run, key, client, moment, store, u, lag(store) OVER w AS old, lag(moment) OVER w AS old_at,
             lag(u) OVER w AS old_u FROM connect
      WINDOW w AS (PARTITION BY run, key ORDER BY moment, start, client, op_id)) p
JOIN specs s ON p.run = s.run AND s.name = 'sticky' WHERE p.old_at IS NOT NULL);
"""
COUNTS = FOUND.by("""
SELECT run, spec, count(*) FILTER (moved AND NOT excused AND NOT perhaps) AS n,
       count(*) FILTER (moved AND excused) AS excused,
       bool_or(known AND (moved OR NOT (needed OR stale))) AS evidence,
       bool_or(NOT known OR perhaps) AS doubt, NULL::DOUBLE AS measured, count(*) FILTER (known) AS judged
FROM move GROUP BY run, spec
""")
BY_ROUND = by_round("move WHERE moved AND NOT excused AND NOT perhaps", "'sticky'", "moment")
WORST = witnesses(
    "spec",
    """
SELECT run, spec, -moment AS weight, key, client, old AS from_store, store AS to_store, old_at AS previous_ns,
       moment AS connected_ns
FROM move WHERE moved AND NOT excused AND NOT perhaps
""",
    "key, client, old, store, old_at",
    "spec int, key string, client string, from_store string, to_store string, previous_ns long ns, "
    "connected_ns long ns",
)
# Whose keys moved, from where to where: an expected violation says of what.
_OF = "run int, spec int, from_store string, to_store string, n long, first long"
MOVED = declare("moved", _OF, "seen.Seen").by("""
SELECT run, spec, old AS from_store, store AS to_store, count(*) AS n, min(moment + u) AS first
FROM move WHERE moved AND NOT excused AND NOT perhaps GROUP BY ALL
""")
