"""sticky: every connect with the same routing key reaches the same store, for as long as that store's broker is ready.

SQL over one partition of stage 2, which has all connects of a key: the tables `connect`, `unready` and `specs`.
"""

from __future__ import annotations

from brokerdrill.analysis.checks.finding import by_round
from brokerdrill.analysis.verdict import WITNESSES

# sticky: "Each ok connect of a key is compared with the key's previous one; both must reach the same store. A move is
# excused if the old target was not ready at some time since the previous connect (± check_period_ms) or the cache entry
# had expired (cache_timeout_ms since the previous connect; absent or 0: never). moves never: nothing excuses a move;
# moves some: without any move there is nothing to judge."
MOVES = """
CREATE TEMP TABLE move AS
SELECT p.*, s.spec, coalesce(p.store <> p.old, false) AS moved, p.store IS NOT NULL AND p.old IS NOT NULL AS known,
       s.moves = 'some' AS needed,
       s.moves <> 'never' AND ((s.cache_timeout > 0 AND p.moment - p.old_at > s.cache_timeout) OR EXISTS (
           FROM unready n WHERE n.run = p.run AND n.store = p.old
               AND n.n_from <= p.moment + s.check_period AND n.n_to > p.old_at - s.check_period)) AS excused
FROM (SELECT run, key, client, moment, store, lag(store) OVER w AS old, lag(moment) OVER w AS old_at FROM connect
      WINDOW w AS (PARTITION BY run, key ORDER BY moment, start, client, op_id)) p
JOIN specs s ON p.run = s.run AND s.name = 'sticky' WHERE p.old_at IS NOT NULL;
"""
COUNTS = """
SELECT run, spec, count(*) FILTER (moved AND NOT excused) AS n, count(*) FILTER (moved AND excused) AS excused,
       bool_or(known AND (moved OR NOT needed)) AS evidence, bool_or(NOT known) AS doubt,
       NULL::DOUBLE AS measured FROM move GROUP BY run, spec
"""
BY_ROUND = by_round("move WHERE moved AND NOT excused", "'sticky'", "moment")
WORST = f"""
SELECT run, spec, -moment AS weight, key, client, old AS from_store, store AS to_store, old_at AS previous_ns,
       moment AS connected_ns
FROM move WHERE moved AND NOT excused
QUALIFY row_number() OVER (PARTITION BY run, spec ORDER BY weight DESC, key, client, old, store, old_at) <= {WITNESSES}
"""
