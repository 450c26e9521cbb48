"""Which subscriptions a topic had, from when to when: SQL over one partition of stage 1."""

from __future__ import annotations

from brokerdrill.analysis.events import NEVER
from brokerdrill.analysis.partials import declare

# "An address is a topic if any row there has a subscription." "On a topic those subscriptions are expected whose
# subscribe was ok before the first attempt that is not fail began, and which no unsubscribe ended before the drain (nor
# a close, for one whose subscribe row says durable = false)". Without a recorded drain every time is before it. first:
# the first subscribe; since: the first that no close ended; maybe: the first that none ended for certain; gone_at: the
# last unsubscribe that ended it for certain; maybe_at: the last one that may have.
TOPICS = declare(
    "topic",
    "run int, address string, sub string, first long ns, since long ns, maybe long ns, gone_at long ns, "
    "maybe_at long ns",
    "judge._SHARED",
).by(f"""
WITH ending AS (
    SELECT o.*, o.outcome = 'ok' AND coalesce(o."end", o.start) + s.u < coalesce(p.drain_begin, {NEVER}) AS surely
    FROM ops o JOIN phase p USING (run) JOIN (
        SELECT run, 2 * max(u) AS u FROM (SELECT run, u FROM clocks UNION ALL SELECT run, 0 FROM phase) GROUP BY run) s
    USING (run)
    WHERE o.op IN ('close', 'unsubscribe') AND o.outcome <> 'fail'
      AND (CASE WHEN o.outcome = 'ok' THEN coalesce(o."end", o.start) ELSE o.start END) - s.u
          < coalesce(p.drain_begin, {NEVER})),
closed AS (
    SELECT run, client, max(start) AS maybe_at, max(start) FILTER (surely) AS closed_at FROM ending
    WHERE op = 'close' GROUP BY run, client),
left_by AS (
    SELECT run, address, subscription, max(start) AS maybe_at, max(start) FILTER (surely) AS gone_at FROM ending
    WHERE op = 'unsubscribe' GROUP BY run, address, subscription)
SELECT o.run, o.address, o.subscription AS sub,
       min(coalesce(o."end", o.start)) FILTER (o.op = 'subscribe' AND o.outcome = 'ok') AS first,
       min(coalesce(o."end", o.start)) FILTER (o.op = 'subscribe' AND o.outcome = 'ok'
           AND NOT (coalesce(o.durable, true) = false AND coalesce(c.maybe_at > o.start, false))) AS since,
       min(coalesce(o."end", o.start)) FILTER (o.op = 'subscribe' AND o.outcome = 'ok'
           AND NOT (coalesce(o.durable, true) = false AND coalesce(c.closed_at > o.start, false))) AS maybe,
       max(l.gone_at) AS gone_at, max(l.maybe_at) AS maybe_at
FROM ops o LEFT JOIN closed c ON o.run = c.run AND o.client = c.client
LEFT JOIN left_by l ON o.run = l.run AND o.address = l.address AND o.subscription = l.subscription
ANTI JOIN dead ON o.run = dead.run AND o.address = dead.dead_letter
WHERE o.subscription IS NOT NULL AND o.address IS NOT NULL
GROUP BY o.run, o.address, o.subscription
""")
