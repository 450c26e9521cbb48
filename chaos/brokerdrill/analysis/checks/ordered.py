"""ordered: messages of one producer, address and key are first delivered in the order in which they were sent.

SQL over one partition of stage 3, which has whole groups: the table `first` (`FIRST`, of stage 2), `sessions`, `specs`.
"""

from __future__ import annotations

from brokerdrill.analysis.checks.finding import FOUND, by_round, witnesses
from brokerdrill.analysis.events import NEVER
from brokerdrill.analysis.partials import declare

# ordered: "First deliveries, by end_ns, must follow": of each message that may have been sent, in each subscription.
FIRST = """
SELECT p.run, p.address, p.message_id, p.sub, p.began, p.over, p.producer, p.key, p.moment, p.redelivered,
       p.client AS consumer, p.session, p.tick, hash(p.run, p.address, p.sub, p.producer, p.key) AS place
FROM paired p SEMI JOIN asked a ON p.run = a.run AND a.name = 'ordered'
WHERE p.n > 0 AND p.began IS NOT NULL
"""
# "m1 precedes m2 (same address, same producer, same key) if m1's last attempt that may have taken effect was over
# before m2's first such attempt began. First deliveries, by end_ns, must follow. A message is late when one that it
# precedes was delivered before it, so a running maximum decides it." Scope session compares within one consumer
# session. Most groups have no late message: in the order of their deliveries no attempt began before the one in front
# of it, which then is the newest so far. Groups that may have one are found by their hashes, which two groups may
# share, and with rows of one time in any order: both only find more.
LATE = """
CREATE TEMP VIEW grouped AS
SELECT f.*, s.spec, s.scope, CASE WHEN s.scope = 'session' THEN f.consumer END AS of_consumer,
       CASE WHEN s.scope = 'session' THEN f.session END AS of_session,
       hash(f.run, s.spec, f.address, f.sub, f.producer, f.key, of_consumer, of_session) AS place
FROM first f JOIN specs s ON f.run = s.run AND s.name = 'ordered';
CREATE TEMP TABLE suspect AS
SELECT DISTINCT place FROM (
    SELECT place, began, over, lag(began) OVER (PARTITION BY place ORDER BY moment) AS before FROM grouped)
WHERE before > least(began, over);
CREATE TEMP TABLE compared AS
SELECT *, max(began) OVER (PARTITION BY run, spec, address, sub, producer, key, of_consumer, of_session
                           ORDER BY moment RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS newest
FROM grouped SEMI JOIN suspect USING (place);
CREATE TEMP TABLE late AS SELECT * FROM compared WHERE newest > over;
"""
_PAIRS = """
SELECT run, spec, count(*) AS lines FROM (
    SELECT run, spec, min(over) < max(began) AS comparable FROM grouped
    GROUP BY run, spec, address, sub, producer, key, of_consumer, of_session) WHERE comparable GROUP BY run, spec
"""

# "A late message is excused, and counted so, if it is flagged redelivered or if another session of that subscription
# gave back in between": before the late message was delivered, and after one that it precedes was (`step`) or, within
# one consumer session and where another client gave back, was sent while that session was connected (`handed`). What
# another client was giving back as the late message was delivered (`giving`) may have come just before it. Else the
# last such time before the late message decides, for an earlier one excuses nothing that it does not. `e_before` is
# when another session (`ends`) or client (`others`) last gave back, at `e_at` or before. `sure`: it was late whatever
# the clocks were off by.
JUDGED = f"""
CREATE TEMP TABLE line AS
SELECT row_number() OVER () AS g, l.*, coalesce(s.since, -{NEVER}) AS since
FROM (SELECT DISTINCT run, spec, address, sub, producer, key, of_consumer, of_session FROM late) l
LEFT JOIN (SELECT run, client, session, min(since) AS since FROM sessions GROUP BY ALL) s
    ON l.run = s.run AND l.of_consumer = s.client AND l.of_session = s.session;
CREATE TEMP TABLE member AS
SELECT l.g, l.since, c.run, c.address, c.sub, c.of_consumer, c.moment, c.began, c.tick, coalesce(t.u, 0) AS u
FROM compared c LEFT JOIN ticks t ON c.run = t.run AND c.tick = t.tick
JOIN line l ON c.run = l.run AND c.spec = l.spec AND c.address = l.address AND c.sub = l.sub
    AND c.producer IS NOT DISTINCT FROM l.producer AND c.key IS NOT DISTINCT FROM l.key
    AND c.of_consumer IS NOT DISTINCT FROM l.of_consumer AND c.of_session IS NOT DISTINCT FROM l.of_session;
CREATE TEMP TABLE step AS
SELECT g, moment, max(max(began)) OVER (PARTITION BY g ORDER BY moment) AS newest FROM member GROUP BY g, moment;
-- What was delivered before, for certain: by the same clock, or by another one whatever the two were off by.
CREATE TEMP TABLE by_clock AS
SELECT g, tick, moment, max(max(began)) OVER (PARTITION BY g, tick ORDER BY moment) AS newest
FROM member WHERE tick IS NOT NULL GROUP BY g, tick, moment;
CREATE TEMP TABLE across AS
SELECT g, moment + u AS moment, max(max(began)) OVER (PARTITION BY g ORDER BY moment + u) AS newest
FROM member GROUP BY g, moment + u;
-- Another client is one whose number differs in a binary digit: so many are asked, and not each client.
CREATE TEMP TABLE numbered AS
SELECT *, row_number() OVER (PARTITION BY run, address, sub ORDER BY client) - 1 AS n,
       count(*) OVER (PARTITION BY run, address, sub) AS of_them
FROM (SELECT DISTINCT run, address, sub, client FROM sessions WHERE begun IS NOT NULL);
CREATE TEMP TABLE giver AS
SELECT run, address, sub, bit, (n >> bit) & 1 AS digit, begun,
       max(max(e_at)) OVER (PARTITION BY run, address, sub, bit, digit ORDER BY begun) AS until
FROM sessions JOIN numbered USING (run, address, sub, client) JOIN range(32) b (bit) ON bit = 0 OR (1 << bit) < of_them
WHERE begun IS NOT NULL GROUP BY run, address, sub, bit, digit, begun;
CREATE TEMP TABLE giving AS
SELECT DISTINCT l.run, l.spec, l.address, l.sub, l.message_id
FROM (SELECT l.*, c.bit, c.digit
      FROM late l LEFT JOIN numbered o ON l.run = o.run AND l.address = o.address AND l.sub = o.sub
          AND l.consumer = o.client
      JOIN (SELECT DISTINCT run, address, sub, bit, digit FROM giver) c ON l.run = c.run AND l.address = c.address
          AND l.sub = c.sub AND CASE WHEN o.n IS NULL THEN c.bit = 0 ELSE c.digit <> ((o.n >> c.bit) & 1) END) l
ASOF JOIN giver g ON l.run = g.run AND l.address = g.address AND l.sub = g.sub AND l.bit = g.bit AND l.digit = g.digit
    AND l.moment > g.begun
WHERE l.moment <= g.until;
CREATE TEMP TABLE gave AS SELECT DISTINCT run, address, sub, e_at, client, session FROM sessions WHERE e_at IS NOT NULL;
CREATE TEMP TABLE ends AS
SELECT run, address, sub, e_at, client, session, last_value(other_at IGNORE NULLS) OVER (
           PARTITION BY run, address, sub ORDER BY e_at, client, session ROWS UNBOUNDED PRECEDING) AS e_before
FROM (SELECT *, CASE WHEN lag(client) OVER by_time IS DISTINCT FROM client
                       OR lag(session) OVER by_time IS DISTINCT FROM session THEN lag(e_at) OVER by_time END AS other_at
      FROM gave WINDOW by_time AS (PARTITION BY run, address, sub ORDER BY e_at, client, session))
QUALIFY row_number() OVER (PARTITION BY run, address, sub, e_at ORDER BY client DESC, session DESC) = 1;
CREATE TEMP TABLE others AS
SELECT run, address, sub, e_at, client, last_value(other_at IGNORE NULLS) OVER (
           PARTITION BY run, address, sub ORDER BY e_at, client ROWS UNBOUNDED PRECEDING) AS e_before
FROM (SELECT *, CASE WHEN lag(client) OVER by_time IS DISTINCT FROM client THEN lag(e_at) OVER by_time END AS other_at
      FROM (SELECT DISTINCT run, address, sub, e_at, client FROM gave)
      WINDOW by_time AS (PARTITION BY run, address, sub ORDER BY e_at, client))
QUALIFY row_number() OVER (PARTITION BY run, address, sub, e_at ORDER BY client DESC) = 1;
CREATE TEMP TABLE handed AS
SELECT g, back_at, moment, max(max(began)) OVER (PARTITION BY g, back_at ORDER BY moment) AS newest
FROM (SELECT m.*, CASE WHEN o.client = m.of_consumer THEN o.e_before ELSE o.e_at END AS back_at
      FROM member m ASOF JOIN others o ON m.run = o.run AND m.address = o.address AND m.sub = o.sub
          AND m.moment >= o.e_at
      WHERE m.of_consumer IS NOT NULL)
WHERE began < back_at AND since < back_at GROUP BY g, back_at, moment;
CREATE TEMP TABLE judged AS
WITH asked AS (
    SELECT l.*, n.g, coalesce(CASE WHEN e.client = l.consumer AND e.session = l.session THEN e.e_before ELSE e.e_at END,
                              -{NEVER}) AS other_end,
           coalesce(CASE WHEN o.client = l.consumer THEN o.e_before ELSE o.e_at END, -{NEVER}) AS back_at
    FROM late l JOIN line n ON l.run = n.run AND l.spec = n.spec AND l.address = n.address AND l.sub = n.sub
        AND l.producer IS NOT DISTINCT FROM n.producer AND l.key IS NOT DISTINCT FROM n.key
        AND l.of_consumer IS NOT DISTINCT FROM n.of_consumer AND l.of_session IS NOT DISTINCT FROM n.of_session
    ASOF LEFT JOIN ends e ON l.run = e.run AND l.address = e.address AND l.sub = e.sub AND l.moment > e.e_at
    ASOF LEFT JOIN others o ON l.run = o.run AND l.address = o.address AND l.sub = o.sub AND l.moment > o.e_at)
SELECT a.* EXCLUDE (newest), a.newest,
       a.redelivered OR y.message_id IS NOT NULL OR coalesce(s.newest > a.over, false)
           OR coalesce(h.newest > a.over, false) AS excused,
       coalesce(b.newest > a.over, false) OR coalesce(x.newest > a.over, false) AS sure
FROM (SELECT a.*, a.moment - coalesce(t.u, 0) AS soonest
      FROM asked a LEFT JOIN ticks t ON a.run = t.run AND a.tick = t.tick) a
LEFT JOIN giving y ON a.run = y.run AND a.spec = y.spec AND a.address = y.address AND a.sub = y.sub
    AND a.message_id = y.message_id
ASOF LEFT JOIN by_clock b ON a.g = b.g AND a.tick = b.tick AND a.moment > b.moment
ASOF LEFT JOIN across x ON a.g = x.g AND a.soonest > x.moment
ASOF LEFT JOIN step s ON a.g = s.g AND a.other_end > s.moment
ASOF LEFT JOIN handed h ON a.g = h.g AND a.back_at = h.back_at AND a.moment > h.moment;
"""
COUNTS = FOUND.by("""
SELECT run, spec, count(*) FILTER (NOT excused AND sure) AS n, count(*) FILTER (excused) AS excused, false AS evidence,
       bool_or(NOT excused AND NOT sure) AS doubt, NULL::DOUBLE AS measured, 0::BIGINT AS judged
FROM judged GROUP BY run, spec
""")
EVIDENCE = FOUND.by(f"""
SELECT run, spec, 0::BIGINT AS n, 0::BIGINT AS excused, true AS evidence, false AS doubt, NULL::DOUBLE AS measured,
       lines AS judged
FROM ({_PAIRS})
""")
BY_ROUND = by_round("judged WHERE NOT excused AND sure", "'ordered'", "moment")
WORST = witnesses(
    "spec",
    """
SELECT run, spec, newest - over AS weight, message_id, address, nullif(sub, '') AS subscription, producer, key,
       consumer, session, moment AS delivered_ns, newest - over AS behind_ns
FROM judged WHERE NOT excused AND sure
""",
    "message_id, address, sub",
    "spec int, message_id string, address string, subscription string, producer string, key string, consumer string, "
    "session int, delivered_ns long ns, behind_ns long ns",
)
# Across the consumers of a key: whether a message that did not come late by the clocks of two consumers may have, if
# these were off. Messages of one consumer have one clock, and so have most lines.
PERHAPS = declare("perhaps_late", "run int, spec int", "checks.Findings").by("""
WITH mixed AS (
    SELECT run, spec, place FROM grouped WHERE scope = 'key' GROUP BY run, spec, place HAVING min(tick) <> max(tick)),
one AS (
    SELECT f.*, t.u FROM grouped f SEMI JOIN mixed USING (run, spec, place) JOIN ticks t USING (run, tick)),
soonest AS (
    SELECT place, tick, moment - u AS at, max(max(began)) OVER (PARTITION BY place, tick ORDER BY moment - u) AS newest
    FROM one GROUP BY place, tick, moment - u),
latest AS (
    SELECT o.run, o.spec, o.place, o.over, o.moment + o.u AS at, t.tick
    FROM one o ANTI JOIN late USING (run, spec, address, sub, message_id) JOIN ticks t ON o.run = t.run
    WHERE o.tick <> t.tick AND t.u + o.u > 0 AND NOT o.redelivered)
SELECT DISTINCT l.run, l.spec FROM latest l ASOF JOIN soonest s ON l.place = s.place AND l.tick = s.tick AND l.at > s.at
WHERE s.newest > l.over
""")
