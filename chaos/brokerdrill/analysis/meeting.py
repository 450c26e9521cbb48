"""What the load met of each fault: clients connected to what it hit, their operations in flight and until the heal.

SQL over one partition of stage 1, which has whole clients, and over the messages of one of stage 2.
"""

from __future__ import annotations

from brokerdrill.analysis.events import NEVER
from brokerdrill.analysis.partials import declare

# A client that was served by what a fault hit so shortly before, and since by nothing else, nor refused, is connected.
JUST_BEFORE_NS = 5_000_000_000

# Operations with who served them: behind a router (`router`), whom it had connected the client to. At an address that
# routers have in turn no client knows which has it, and the router tells. Its own connects are those of its clients
# once more. Each time that a client was led lasts to its next, the last one for ever (`timeline.routed`). Who was never
# led is looked up nowhere: that sorts all operations.
_LOCATED = """
WITH led AS (SELECT * FROM routed WHERE r_from < r_until),
by_clients AS (
    SELECT o.run, o.client, o.op_id, o.op, o.outcome, o.start, o."end", o.server, w.client AS router,
           CASE WHEN o.op = 'connect' THEN o.via END AS asked
    FROM ops o LEFT JOIN routers w ON o.run = w.run AND o.server = w.client
    ANTI JOIN routers x ON x.run = o.run AND x.client = o.client)
FROM by_clients o ANTI JOIN led ON o.run = led.run AND o.client = led.client
UNION ALL
SELECT o.* REPLACE (coalesce(r.behind, o.server) AS server,
                    coalesce(o.router, CASE WHEN o.server IS NULL THEN r.router END) AS router)
FROM (FROM by_clients o SEMI JOIN led ON o.run = led.run AND o.client = led.client) o
ASOF LEFT JOIN led r ON o.run = r.run AND o.client = r.client AND coalesce(o."end", o.start) >= r.r_from
"""
# Where a router had led a client by a fault: `away` where that is not to what the fault hit.
_LED = """
SELECT f.run, f.fault, r.client, any_value(r.behind) AS behind, bool_and(m.server IS NULL) AS away
FROM struck f JOIN routed r ON f.run = r.run AND r.r_from <= f.f_at AND f.f_at < r.r_until
LEFT JOIN members m ON f.run = m.run AND f.fault = m.fault AND m.server = r.behind
GROUP BY f.run, f.fault, r.client
"""
# Of those that may have met a fault when they were over. A call that never returned lasts on if its client did nothing
# after it. A receive that got nothing met nothing.
_LASTING = f"""
SELECT o.* EXCLUDE ("end"), o.op = 'connect' AND o.outcome = 'fail' AS refused,
       coalesce(o."end", d.d_at + 1, CASE WHEN o.op_id = n.last THEN {NEVER} ELSE o.start END) AS over
FROM located o JOIN numbers n ON o.run = n.run AND o.client = n.client
LEFT JOIN deaths d ON o.run = d.run AND o.client = d.client
JOIN (SELECT run, min(f_at) AS earliest, max(f_until) AS latest FROM struck GROUP BY run) s ON o.run = s.run
WHERE o.op <> 'close' AND NOT (o.op IN ('receive', 'browse') AND o.outcome <> 'ok')
    AND o.start <= s.latest AND over >= s.earliest - {JUST_BEFORE_NS}
"""
# `struck`: fault, f_at, f_until (its heal, or the run's end), whole (it hit no broker: every client counts), only (a
# client that it killed: these alone count). `members`: fault, server (of the stores that it hit). `deaths`: client,
# d_at, which what it had begun and did not end lasted beyond.
_OPERATIONS = f"""
SELECT f.run, f.fault, o.client, any_value(f.whole) AS whole,
       coalesce(arg_max(((m.server IS NOT NULL AND NOT coalesce(l.away, false)) OR v.server IS NOT NULL)
                        AND NOT o.refused,
                        {{'over': o.over, 'op_id': o.op_id}})
                    FILTER ((o.server IS NOT NULL OR o.refused) AND o.over <= f.f_at), false)
           OR coalesce(bool_or(coalesce(m.server, v.server) IS NOT NULL AND o.start <= f.f_at AND o.over > f.f_at),
                       false) AS there,
       coalesce(bool_or(o.start <= f.f_at), false) AS before,
       count(*) FILTER (o.start <= f.f_at AND o.over > f.f_at) AS in_flight,
       count(*) FILTER (o.over > f.f_at) AS operations
FROM lasting o
JOIN struck f ON o.run = f.run AND (f.only IS NULL OR o.client = f.only) AND o.start <= f.f_until
    AND o.over >= f.f_at - {JUST_BEFORE_NS}
LEFT JOIN members m ON f.run = m.run AND f.fault = m.fault AND o.server = m.server
LEFT JOIN members v ON f.run = v.run AND f.fault = v.fault AND o.router = v.server
LEFT JOIN ({_LED}) l ON f.run = l.run AND f.fault = l.fault AND o.client = l.client
GROUP BY f.run, f.fault, o.client
"""
# The last connect of each client before a fault, unless that failed, or it closed that connection before the fault; a
# router may have led it elsewhere since.
_CONNECTED = f"""
SELECT c.run, c.fault, c.client FROM (
    SELECT f.run, f.fault, o.client, o.server, o.router, o.outcome, coalesce(o."end", o.start) AS since, f.f_at, f.whole
    FROM located o JOIN struck f ON o.run = f.run AND (f.only IS NULL OR o.client = f.only)
        AND coalesce(o."end", o.start) <= f.f_at
    WHERE o.op = 'connect' AND o.outcome <> 'unknown'
    QUALIFY row_number() OVER (PARTITION BY f.run, f.fault, o.client
                               ORDER BY coalesce(o."end", o.start) DESC, o.op_id DESC) = 1) c
LEFT JOIN ({_LED}) l ON c.run = l.run AND c.fault = l.fault AND c.client = l.client
LEFT JOIN members m ON c.run = m.run AND c.fault = m.fault AND coalesce(l.behind, c.server) = m.server
LEFT JOIN members v ON c.run = v.run AND c.fault = v.fault AND c.router = v.server
WHERE c.outcome = 'ok' AND (c.whole OR m.server IS NOT NULL OR v.server IS NOT NULL) AND NOT EXISTS (
    SELECT 1 FROM ops x WHERE x.run = c.run AND x.client = c.client AND x.op = 'close' AND x.start >= c.since
        AND coalesce(x."end", x.start) <= c.f_at)
"""
# Who asked what a fault hit whom to connect to (`via`), from then until its heal: by these connects alone.
_ASKED = """
SELECT f.run, f.fault, o.client, count(*) FILTER (o.start <= f.f_at) AS in_flight, count(*) AS operations
FROM lasting o JOIN struck f ON o.run = f.run AND (f.only IS NULL OR o.client = f.only) AND o.start <= f.f_until
    AND o.over > f.f_at
JOIN members m ON f.run = m.run AND f.fault = m.fault AND o.asked = m.server
GROUP BY f.run, f.fault, o.client
"""
MET = declare("met", "run int, fault int, clients long, in_flight long, operations long", "seen.Seen").by(f"""
WITH located AS MATERIALIZED ({_LOCATED}), lasting AS MATERIALIZED ({_LASTING})
SELECT run, fault, count(*) AS clients,
       coalesce(sum(CASE WHEN there THEN in_flight ELSE asked_in_flight END), 0)::BIGINT AS in_flight,
       coalesce(sum(CASE WHEN there THEN operations ELSE asked END), 0)::BIGINT AS operations
FROM (SELECT run, fault, client, coalesce(o.there OR (o.whole AND o.before), false) OR c.client IS NOT NULL AS there,
             a.client IS NOT NULL AS led, o.in_flight, o.operations, a.in_flight AS asked_in_flight,
             a.operations AS asked
      FROM ({_OPERATIONS}) o FULL JOIN ({_CONNECTED}) c USING (run, fault, client)
      FULL JOIN ({_ASKED}) a USING (run, fault, client))
WHERE there OR led GROUP BY run, fault
""")
