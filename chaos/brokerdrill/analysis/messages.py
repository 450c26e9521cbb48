"""Stage 2, by message: the class of each unit, and what the promises ask of messages.

All attempts, deliveries and dead-letter evidence of a message id are in one partition; so are all successes of an
address in one slice of time, and all connects of a key. Rules are those of the ledger's specification ("Classes of a
unit", "Promises").
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from brokerdrill.analysis import gaps, routes
from brokerdrill.analysis.checks import atomic, delivered_within, intruders, ordered, sticky
from brokerdrill.analysis.checks.finding import by_round, witnesses
from brokerdrill.analysis.clients import POSSIBLY, PROCESSED, Plan
from brokerdrill.analysis.events import NEVER
from brokerdrill.analysis.kernel import Parcel, divide
from brokerdrill.analysis.measures import histogram
from brokerdrill.analysis.partials import declare

# What became of a message's attempts.
FAILED, UNKNOWN, ACKNOWLEDGED = 0, 1, 2
# The classes that break a promise.
BROKEN = ("corrupted", "phantom", "unexpected", "duplicated", "dead_lettered", "lost", "lost_nonpersistent")

# The columns of what stage 1 sends, for a partition that gets none.
EMPTY = {
    "send": "run INT, client TEXT, op_id BIGINT, outcome TEXT, start BIGINT, \"end\" BIGINT, handed BIGINT, "
    "address TEXT, message_id TEXT, key TEXT, txn TEXT, durable BOOL, expires BIGINT, late BIGINT, sha UBIGINT, "
    "server TEXT, tick INT, state TEXT, store TEXT, acked_at BIGINT",
    "delivery": "run INT, client TEXT, op_id BIGINT, session INT, start BIGINT, moment BIGINT, address TEXT, "
    "message_id TEXT, sub TEXT, redelivered BOOL, sha UBIGINT, server TEXT, tick INT, state INT",
    "dead": "run INT, dead_letter TEXT, message_id TEXT, sub TEXT",
    "connect": "run INT, client TEXT, op_id BIGINT, key TEXT, start BIGINT, moment BIGINT, u BIGINT, store TEXT",
    "time": "run INT, side TEXT, number INT, address TEXT, slice BIGINT, client TEXT, server TEXT, "
    "moments BIGINT[]",
}  # fmt: skip

# "A message is acknowledged when some attempt is ok, unknown when none is ok and some is unknown, failed when all are
# fail. It is durable if any attempt is durable or null; it expires at its latest expires_ns." began and over: first
# start and last end of the attempts that may have taken effect; where there is one, over is when that was handed over.
# Most messages have one attempt and one delivery, which need no grouping; those with several are found by hashes, which
# two messages may share: that only finds more.
_MESSAGES = f"""
CREATE TEMP VIEW attempt AS
SELECT run, address, message_id, hash(run, address, message_id) AS place,
       CASE state WHEN 'ok' THEN {ACKNOWLEDGED} WHEN 'unknown' THEN {UNKNOWN} ELSE {FAILED} END AS state,
       coalesce(durable, true) AS durable, coalesce(expires, {NEVER}) AS expires, sha,
       CASE WHEN state <> 'fail' THEN start END AS began,
       CASE WHEN state <> 'fail' THEN coalesce("end", {NEVER}) END AS over,
       CASE WHEN state <> 'fail' THEN coalesce(handed, {NEVER}) END AS handed,
       CASE WHEN state <> 'fail' THEN client END AS producer, CASE WHEN state <> 'fail' THEN key END AS key, late
FROM send;
CREATE TEMP TABLE several_attempts AS SELECT place FROM attempt GROUP BY place HAVING count(*) > 1;
CREATE TEMP TABLE sent_again AS
SELECT run, address, message_id, max(state) AS state, bool_or(durable) AS durable, max(expires) AS expires,
       min(sha) AS sha_lo, max(sha) AS sha_hi, min(began) AS began,
       CASE WHEN count(over) = 1 THEN max(handed) ELSE max(over) END AS over, min(producer) AS producer,
       min(key) AS key, arg_min(late, began) AS late
FROM attempt SEMI JOIN several_attempts USING (place) GROUP BY run, address, message_id;
CREATE TEMP VIEW message AS
SELECT run, address, message_id, state, durable, expires, sha AS sha_lo, sha AS sha_hi, began, handed AS over, producer,
       key, late
FROM attempt ANTI JOIN several_attempts USING (place)
UNION ALL FROM sent_again;

CREATE TEMP VIEW receipt AS
SELECT *, hash(run, address, message_id, sub) AS place, (state = {PROCESSED})::BIGINT AS processed,
       (state = {POSSIBLY})::BIGINT AS possibly
FROM delivery;
CREATE TEMP TABLE several_receipts AS SELECT place FROM receipt GROUP BY place HAVING count(*) > 1;
-- The first of several deliveries by time, then by client and operation.
CREATE TEMP TABLE got_again AS
SELECT * EXCLUDE (earliest), earliest.moment, earliest.client, earliest.session, earliest.redelivered, earliest.tick
FROM (SELECT run, address, message_id, sub, count(*) AS n, sum(processed)::BIGINT AS processed,
             sum(possibly)::BIGINT AS possibly, bool_or(redelivered) AS flagged, min(sha) AS sha_lo, max(sha) AS sha_hi,
             min({{'moment': moment, 'client': client, 'op_id': op_id, 'session': session,
                   'redelivered': redelivered, 'tick': tick}}) AS earliest
      FROM receipt SEMI JOIN several_receipts USING (place) GROUP BY run, address, message_id, sub);
CREATE TEMP VIEW got AS
SELECT run, address, message_id, sub, 1 AS n, processed, possibly, redelivered AS flagged, sha AS sha_lo, sha AS sha_hi,
       moment, client, session, redelivered, tick
FROM receipt ANTI JOIN several_receipts USING (place)
UNION ALL FROM got_again;

-- Each message with what each subscription got of it; without a message or without a delivery the rest is null.
CREATE TEMP TABLE paired AS
SELECT coalesce(m.run, d.run) AS run, coalesce(m.address, d.address) AS address,
       coalesce(m.message_id, d.message_id) AS message_id, d.sub, m.state, m.durable, m.expires, m.began, m.over,
       m.producer, m.key, m.late, m.sha_lo AS sent_lo, m.sha_hi AS sent_hi, coalesce(d.n, 0) AS n,
       coalesce(d.processed, 0) AS processed, coalesce(d.possibly, 0) AS possibly,
       d.flagged, d.sha_lo, d.sha_hi, d.moment, d.client, d.session, d.redelivered, d.tick
FROM message m FULL JOIN got d ON m.run = d.run AND m.address = d.address AND m.message_id = d.message_id;
"""

# "On a queue there is one unit a message." On a topic the expected subscriptions, and those "to another subscription
# that existed at some time" whose delivery is processed; of a failed or unknown message every delivery counts.
_UNITS = f"""
-- What no address knows is another application's dead letter, and of no unit.
CREATE TEMP TABLE found AS
SELECT e.run, m.address, e.message_id, e.sub, e.dead_letter
FROM dead e JOIN dead_letters m ON e.run = m.run AND e.dead_letter = m.dead_letter;

-- sure: it was subscribed before the message's first attempt, whatever the clocks of both were off by, and to the end.
CREATE TEMP TABLE topic_unit AS
SELECT run, address, message_id, sub, bool_or(sure) AS sure FROM (
SELECT m.run, m.address, m.message_id, t.sub, coalesce(t.since + coalesce(f.u, 0) < m.began, false) AS sure
FROM message m JOIN topics t ON m.run = t.run AND m.address = t.address
LEFT JOIN (SELECT run, 2 * max(u) AS u FROM ticks GROUP BY run) f ON m.run = f.run
WHERE t.maybe - coalesce(f.u, 0) < m.began
UNION ALL
SELECT d.run, d.address, d.message_id, d.sub, false
FROM got d SEMI JOIN topics t ON d.run = t.run AND d.address = t.address
LEFT JOIN message m ON d.run = m.run AND d.address = m.address AND d.message_id = m.message_id
WHERE d.processed > 0 OR coalesce(m.state = {FAILED}, true)) GROUP BY ALL;

-- Found dead although nothing is expected of it.
CREATE TEMP TABLE nowhere AS
SELECT DISTINCT f.run, f.address, f.message_id
FROM found f SEMI JOIN topics t ON f.run = t.run AND f.address = t.address
ANTI JOIN topic_unit u ON f.run = u.run AND f.address = u.address AND f.message_id = u.message_id
JOIN message m ON f.run = m.run AND f.address = m.address AND f.message_id = m.message_id AND m.state = {FAILED};

CREATE TEMP TABLE on_topic AS
SELECT u.run, u.address, u.message_id, u.sub, m.state, m.durable, m.expires, m.began, m.sha_lo AS sent_lo,
       m.sha_hi AS sent_hi, coalesce(d.n, 0) AS n, coalesce(d.processed, 0) AS processed,
       coalesce(d.possibly, 0) AS possibly, d.flagged, d.sha_lo, d.sha_hi, u.sure
FROM (FROM topic_unit UNION ALL SELECT run, address, message_id, '', false FROM nowhere) u
LEFT JOIN message m ON u.run = m.run AND u.address = m.address AND u.message_id = m.message_id
LEFT JOIN got d ON u.run = d.run AND u.address = d.address AND u.message_id = d.message_id AND u.sub = d.sub;

CREATE TEMP VIEW raw_unit AS
SELECT p.run, p.address, p.message_id, '' AS sub, p.state, p.durable, p.expires, p.began, p.sent_lo, p.sent_hi, p.n,
       p.processed, p.possibly, p.flagged, p.sha_lo, p.sha_hi, true AS sure
FROM paired p ANTI JOIN topics t ON p.run = t.run AND p.address = t.address
UNION ALL FROM on_topic;

-- Evidence of a queue's message is of its one unit; of a topic's of its row's subscription, of all where that is null.
CREATE TEMP TABLE dead_unit AS
SELECT DISTINCT u.run, u.address, u.message_id, u.sub
FROM raw_unit u JOIN found f ON u.run = f.run AND u.address = f.address AND u.message_id = f.message_id
WHERE f.sub IN ('', u.sub) OR u.sub = '';

-- Of a message that was sent with several payloads a delivery must have one of them.
CREATE TEMP TABLE corrupted AS
SELECT DISTINCT d.run, d.address, d.message_id, d.sub
FROM delivery d SEMI JOIN (SELECT * FROM sent_again WHERE sha_lo <> sha_hi) USING (run, address, message_id)
ANTI JOIN send s ON d.run = s.run AND d.address = s.address AND d.message_id = s.message_id AND d.sha = s.sha
WHERE d.sha IS NOT NULL;
"""

# "exactly one: the first that applies". Without a recorded end of the drain, a drained address was so by the run's end.
# too_late: it had expired by then, whatever clocks were off by; one that had only perhaps counts as not drained, and so
# does one that was first sent after it, perhaps.
_CLASSES = f"""
CREATE TEMP TABLE unit AS
SELECT u.run, u.address, u.message_id, u.sub, u.n, u.processed, u.possibly, u.flagged, u.began, u.state, u.durable,
       u.expires, u.expires = {NEVER} AS lasts, u.sure,
       coalesce(p.drain_end, CASE WHEN w.drained THEN p.run_end END) AS looked_at,
       coalesce(u.expires + coalesce(k.u, 0) < looked_at, false) AS too_late,
       coalesce(w.drained, false) AND u.sure AND coalesce(u.began + coalesce(k.u, 0) <= looked_at, true)
           AND (too_late OR coalesce(u.expires - coalesce(k.u, 0) >= looked_at, true)) AS settled,
       looked_at AS drain_end, settled AS drained,
       u.processed = 0 AND u.possibly = 0 AS unhandled,
       (u.state = {ACKNOWLEDGED} OR (u.state = {UNKNOWN} AND u.n > 0)) AND unhandled AS gone,
       CASE
       WHEN c.run IS NOT NULL OR (u.sent_lo = u.sent_hi AND (u.sha_lo <> u.sent_lo OR u.sha_hi <> u.sent_lo))
           THEN 'corrupted'
       WHEN u.state = {FAILED} AND (u.n > 0 OR f.run IS NOT NULL) THEN 'phantom'
       WHEN u.state IS NULL THEN 'unexpected'
       WHEN u.processed > 1 THEN 'duplicated'
       WHEN u.state <> {FAILED} AND unhandled AND f.run IS NOT NULL THEN 'dead_lettered'
       WHEN gone AND too_late THEN 'expired'
       WHEN gone AND settled AND NOT u.durable THEN 'lost_nonpersistent'
       WHEN gone AND settled THEN 'lost'
       WHEN gone THEN 'unseen'
       WHEN u.n > 1 THEN 'redelivered'
       WHEN u.state = {UNKNOWN} AND u.n > 0 THEN 'recovered'
       WHEN u.state = {UNKNOWN} THEN 'unresolved'
       WHEN u.state = {FAILED} THEN 'rejected'
       ELSE 'ok' END AS class
FROM raw_unit u JOIN phase p ON u.run = p.run
LEFT JOIN drains w ON u.run = w.run AND u.address = w.address
LEFT JOIN (SELECT run, 2 * max(u) AS u FROM ticks GROUP BY run) k ON u.run = k.run
LEFT JOIN dead_unit f ON u.run = f.run AND u.address = f.address AND u.message_id = f.message_id AND u.sub = f.sub
LEFT JOIN corrupted c ON u.run = c.run AND u.address = c.address AND u.message_id = c.message_id AND u.sub = c.sub;
"""

_COUNTS = declare("class", "run int, class string, flagged boolean, in_doubt boolean, n long", "judge._verdicts").by("""
SELECT run, class, flagged, possibly > 0 AS in_doubt, count(*) AS n FROM unit GROUP BY ALL
""")
_BROKEN = ", ".join(f"'{name}'" for name in BROKEN)
_CLASS_WITNESSES = witnesses(
    "rule",
    f"""
SELECT run, class AS rule, n AS weight, message_id, address, nullif(sub, '') AS subscription, class, n AS deliveries,
       processed
FROM unit WHERE class IN ({_BROKEN})
""",
    "message_id, address, sub",
    "rule string, message_id string, address string, subscription string, class string, deliveries long, "
    "processed long",
)

# Evidence of the promises that go by class, by address: units that were delivered or found dead (seen), that were
# processed for certain (processed), that no loss would be allowed of (owed): taken, durable, and not expired, and that
# are the same but for being durable (passing).
JUDGED = declare(
    "judged",
    "run int, address string, units long, seen long, processed long, owed long, passing long",
    "checks.Findings",
).by(f"""
SELECT run, address, count(*) AS units, count(*) FILTER (n > 0 OR class IN ('phantom', 'dead_lettered')) AS seen,
       count(*) FILTER (processed > 0) AS processed,
       count(*) FILTER ((state = {ACKNOWLEDGED} OR (state = {UNKNOWN} AND n > 0)) AND durable
                        AND class <> 'expired') AS owed,
       count(*) FILTER ((state = {ACKNOWLEDGED} OR (state = {UNKNOWN} AND n > 0)) AND NOT durable
                        AND class <> 'expired') AS passing
FROM unit GROUP BY run, address
""")

# The addresses to which something was sent, and whether it may have taken effect.
SENT = declare("sent", "run int, address string, live boolean", "checks.Findings").by(
    "SELECT run, address, bool_or(state <> 'fail') AS live FROM send GROUP BY run, address"
)

# From when the send was due (where no rate is kept: from its start) to the message's first delivery; before the send
# began, as clocks disagree, is no time.
_WAITS = histogram("""
SELECT run, 'receive' AS kind, moment, greatest(moment - began, 0) + late AS took, 0 AS counted FROM paired
WHERE began IS NOT NULL
""")

# What broke under which fault, at which broker and for which client: who served and who did the unit's last delivery;
# of what was never delivered its acknowledged send, else the last. A unit that was delivered falls under the last
# fault in effect from its first attempt to its last delivery; another under the first from its first attempt on.
_ATTRIBUTION = f"""
CREATE TEMP TABLE broken AS
WITH wanted AS (SELECT run, address, message_id, sub, class FROM unit WHERE class IN ({_BROKEN})),
seen AS (
    SELECT w.*, false AS delivered, s.start, s.state = 'ok' AS sure, coalesce(s."end", s.start) AS moment, s.client,
           s.server
    FROM send s JOIN wanted w ON s.run = w.run AND s.address = w.address AND s.message_id = w.message_id
    UNION ALL
    SELECT w.*, true, d.start, true, d.moment, d.client, d.server
    FROM delivery d JOIN wanted w ON d.run = w.run AND d.address = w.address AND d.message_id = w.message_id
        AND d.sub = w.sub)
SELECT run, address, message_id, sub, class, delivered, moment, client, server AS instance,
       min(start) OVER (PARTITION BY run, address, message_id, sub) AS began
FROM seen
QUALIFY row_number() OVER (PARTITION BY run, address, message_id, sub
                           ORDER BY delivered DESC, sure DESC, moment DESC, client DESC, server DESC NULLS LAST) = 1;
"""
_BROKEN_BY = declare(
    "attribution",
    "run int, class string, fault string, fault_ns long ns, target string, instance string, client string, n long",
    "details.explained",
).by(f"""
SELECT b.run, b.class, f.name AS fault, f.f_at AS fault_ns, f.target, b.instance, b.client, count(*) AS n
FROM broken b LEFT JOIN (
    SELECT b.run, b.address, b.message_id, b.sub, f.name, f.f_at, f.target
    FROM broken b JOIN faults f ON b.run = f.run AND f.healed >= b.began
        AND f.f_at <= CASE WHEN b.delivered THEN b.moment ELSE {NEVER} END
    QUALIFY row_number() OVER (PARTITION BY b.run, b.address, b.message_id, b.sub ORDER BY
        CASE WHEN b.delivered THEN -f.f_at ELSE f.f_at END, CASE WHEN b.delivered THEN -f.fault ELSE f.fault END) = 1) f
ON b.run = f.run AND b.address = f.address AND b.message_id = f.message_id AND b.sub = f.sub
GROUP BY ALL
""")

_BROKEN_IN = by_round("broken", "class", "began")

# Deliveries after a unit's first, each with the last fault in effect from the message's first attempt to it.
_AGAIN = """
CREATE TEMP TABLE again AS
SELECT d.run, d.address, d.message_id, d.sub, d.op_id, d.client, d.server, d.moment, d.redelivered,
       u.possibly > 0 AS in_doubt,
       coalesce(u.began, d.before) AS began
FROM (SELECT *, lag(moment) OVER (PARTITION BY run, address, message_id, sub ORDER BY moment, client, op_id) AS before
      FROM delivery SEMI JOIN (SELECT * FROM unit WHERE n > 1) USING (run, address, message_id, sub)) d
JOIN unit u ON d.run = u.run AND d.address = u.address AND d.message_id = u.message_id AND d.sub = u.sub
WHERE d.before IS NOT NULL;
"""
_REDELIVERED = declare(
    "redeliveries",
    "run int, flagged boolean, in_doubt boolean, client string, instance string, fault string, fault_ns long ns, "
    "target string, n long",
    "details.explained",
).by("""
SELECT a.run, a.redelivered AS flagged, a.in_doubt, a.client, a.server AS instance, f.name AS fault,
       f.f_at AS fault_ns, f.target, count(*) AS n
FROM again a LEFT JOIN (
    SELECT a.run, a.client, a.op_id, a.sub, f.name, f.f_at, f.target
    FROM again a JOIN faults f ON a.run = f.run AND f.f_at <= a.moment AND f.healed >= a.began
    QUALIFY row_number() OVER (PARTITION BY a.run, a.client, a.op_id, a.sub ORDER BY f.f_at DESC, f.fault DESC) = 1) f
ON a.run = f.run AND a.client = f.client AND a.op_id = f.op_id AND a.sub = f.sub
GROUP BY ALL
""")


def by_message(base: duckdb.DuckDBPyConnection, plan: Plan) -> Iterator[Parcel]:
    """Judge the tables send, delivery, dead, connect and time of one partition; yield parcels for the driver and for
    `groups.by_group`."""
    base.execute(_MESSAGES)
    base.execute(_UNITS)
    base.execute(_CLASSES)
    yield from _COUNTS.of(base)
    yield from _CLASS_WITNESSES.of(base)
    for query in (JUDGED, SENT):
        yield from query.of(base)
    yield from _WAITS.of(base)
    base.execute(_ATTRIBUTION)
    yield from _BROKEN_BY.of(base)
    yield from _BROKEN_IN.of(base)
    base.execute(_AGAIN)
    yield from _REDELIVERED.of(base)
    if "single_active" in plan.asked:
        base.execute(intruders.FOUND)
        yield from intruders.COUNTED.of(base)
        yield from intruders.BY_ROUND.of(base)
        yield from intruders.WORST.of(base)
    if delivered_within.NAME in plan.asked:
        base.execute(delivered_within.FOUND)
        yield from delivered_within.COUNTED.of(base)
        yield from delivered_within.WORST.of(base)
    if "sticky" in plan.asked:
        base.execute(sticky.MOVES)
        yield from sticky.COUNTS.of(base)
        yield from sticky.MOVED.of(base)
        yield from sticky.BY_ROUND.of(base)
        yield from sticky.WORST.of(base)
        if plan.series:
            base.execute(routes.STAYS)
            yield from routes.TOTALS.of(base)
            yield from routes.MOVED.of(base)
            yield from routes.SHOWN.of(base)
    if plan.asked & {"available", "failback_within"}:
        yield from gaps.by_slice(base)
    if "ordered" in plan.asked:
        yield from divide(base, "first", ordered.FIRST, plan.parts, ("address", "sub", "producer", "key", "consumer"))
    if "atomic" in plan.asked:
        yield from divide(base, "part", atomic.PARTS, plan.parts)
