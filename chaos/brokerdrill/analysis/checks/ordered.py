"""ordered: messages of one producer, address and key are first delivered in the order in which they were sent.

SQL over one partition of stage 3, which has whole groups: the table `first` (`FIRST`, of stage 2), `sessions`, `specs`.
"""

from __future__ import annotations

from brokerdrill.analysis.checks.finding import by_round
from brokerdrill.analysis.timeline import NEVER
from brokerdrill.analysis.verdict import WITNESSES

# ordered: "First deliveries, by end_ns, must follow": of each message that may have been sent, in each subscription.
FIRST = """
SELECT d.run, d.address, d.message_id, d.sub, m.began, m.over, m.producer, m.key, d.moment, d.redelivered,
       d.client AS consumer, d.session, hash(d.run, d.address, d.sub, m.producer, m.key) AS place
FROM got d JOIN message m ON d.run = m.run AND d.address = m.address AND d.message_id = m.message_id
SEMI JOIN asked a ON d.run = a.run AND a.name = 'ordered'
WHERE m.state <> 'failed'
"""
# "m1 precedes m2 (same address, same producer, same key) if m1's last attempt that may have taken effect ended before
# m2's first such attempt began. First deliveries, by end_ns, must follow. A message is late when one that it precedes
# was delivered before it, so a running maximum decides it." Scope session compares within one consumer session.
LATE = """
CREATE TEMP TABLE compared AS
SELECT f.*, s.spec, s.scope, CASE WHEN s.scope = 'session' THEN f.consumer END AS of_consumer,
       CASE WHEN s.scope = 'session' THEN f.session END AS of_session,
       max(f.began) OVER (PARTITION BY f.run, s.spec, f.address, f.sub, f.producer, f.key, of_consumer, of_session
                          ORDER BY f.moment RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS newest
FROM first f JOIN specs s ON f.run = s.run AND s.name = 'ordered';
CREATE TEMP TABLE late AS SELECT * FROM compared WHERE newest > over;
"""
_PAIRS = """
SELECT DISTINCT run, spec FROM (
    SELECT run, spec, min(over) < max(began) AS comparable FROM compared
    GROUP BY run, spec, address, sub, producer, key, of_consumer, of_session) WHERE comparable
"""

# "A late message is excused, and counted as such, if it is flagged redelivered or another session of that subscription
# ended between": after a message that it precedes was delivered, and before it was.
JUDGED = f"""
CREATE TEMP TABLE line AS
SELECT row_number() OVER () AS g, * FROM (
    SELECT DISTINCT run, spec, address, sub, producer, key, of_consumer, of_session FROM late);
CREATE TEMP TABLE step AS
SELECT l.g, c.moment, max(max(c.began)) OVER (PARTITION BY l.g ORDER BY c.moment) AS newest
FROM compared c JOIN line l ON c.run = l.run AND c.spec = l.spec AND c.address = l.address AND c.sub = l.sub
    AND c.producer IS NOT DISTINCT FROM l.producer AND c.key IS NOT DISTINCT FROM l.key
    AND c.of_consumer IS NOT DISTINCT FROM l.of_consumer AND c.of_session IS NOT DISTINCT FROM l.of_session
GROUP BY l.g, c.moment;
CREATE TEMP TABLE ends AS
SELECT run, address, sub, e_at, client, session, e_before FROM (
    SELECT *, lag(e_at) OVER (PARTITION BY run, address, sub ORDER BY e_at, client, session) AS e_before FROM sessions)
QUALIFY row_number() OVER (PARTITION BY run, address, sub, e_at ORDER BY client DESC, session DESC) = 1;
CREATE TEMP TABLE judged AS
WITH asked AS (
    SELECT l.*, n.g, coalesce(CASE WHEN e.client = l.consumer AND e.session = l.session THEN e.e_before ELSE e.e_at END,
                              -{NEVER}) AS other_end
    FROM late l JOIN line n ON l.run = n.run AND l.spec = n.spec AND l.address = n.address AND l.sub = n.sub
        AND l.producer IS NOT DISTINCT FROM n.producer AND l.key IS NOT DISTINCT FROM n.key
        AND l.of_consumer IS NOT DISTINCT FROM n.of_consumer AND l.of_session IS NOT DISTINCT FROM n.of_session
    ASOF LEFT JOIN ends e ON l.run = e.run AND l.address = e.address AND l.sub = e.sub AND l.moment > e.e_at)
SELECT a.* EXCLUDE (newest), a.newest, a.redelivered OR coalesce(s.newest > a.over, false) AS excused
FROM asked a ASOF LEFT JOIN step s ON a.g = s.g AND a.other_end > s.moment;
"""
COUNTS = """
SELECT run, spec, count(*) FILTER (NOT excused) AS n, count(*) FILTER (excused) AS excused, false AS evidence,
       false AS doubt, NULL::DOUBLE AS measured FROM judged GROUP BY run, spec
"""
EVIDENCE = f"""
SELECT run, spec, 0 AS n, 0 AS excused, true AS evidence, false AS doubt, NULL::DOUBLE AS measured FROM ({_PAIRS})
"""
BY_ROUND = by_round("judged WHERE NOT excused", "'ordered'", "moment")
WORST = f"""
SELECT run, spec, newest - over AS weight, message_id, address, nullif(sub, '') AS subscription, producer, key,
       consumer, session, moment AS delivered_ns, newest - over AS behind_ns
FROM judged WHERE NOT excused
QUALIFY row_number() OVER (PARTITION BY run, spec ORDER BY weight DESC, message_id, address, sub) <= {WITNESSES}
"""
