"""Stage 1, by client: the rows of an operation become one, and transactions, attempts and deliveries are decided.

All rows of a client are in one partition, and with them its transactions and its deliveries with their
acknowledgements. What another client ended is found by the driver (`stray`) and given to every partition (`foreign`).
Words and rules are those of the ledger's specification ("Words"); times are run time in nanoseconds. Runs have numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from brokerdrill.analysis.checks import delivered_within, transparent
from brokerdrill.analysis.completeness import NUMBERED, NUMBERS, TICKING
from brokerdrill.analysis.events import NEVER
from brokerdrill.analysis.kernel import Parcel, divide
from brokerdrill.analysis.measures import histogram
from brokerdrill.analysis.meeting import MET
from brokerdrill.analysis.partials import declare
from brokerdrill.analysis.subscriptions import TOPICS

NEITHER, POSSIBLY, PROCESSED = 0, 1, 2
# More clients are not drawn (`activity`).
MOST_CLIENTS = 16

# What an operation that has several rows keeps of its other columns: of what is not null the smallest.
_KEPT = (
    "address", "subscription", "message_id", "key", "txn", "delivery", "redelivered", "durable", "payload_sha",
    "broker", "instance", "via", "late_ns",
)  # fmt: skip
_MINIMA = ", ".join(f'min("{name}") AS "{name}"' for name in _KEPT)
# What the rules ask of them. Payloads are compared by 64-bit hashes of what the ledger has of them.
_ASKED = (
    "address, subscription, message_id, key, txn, delivery, redelivered, durable, via, late_ns, "
    "coalesce(instance, broker) AS server, CASE WHEN payload_sha IS NOT NULL THEN hash(payload_sha) END AS sha"
)

# Which stretch of its clock a row is placed by: all its times by the one in which it began.
PLACED_BY = """r.run = c.run AND r.clock = c.clock
    AND coalesce(r.start_ns, r.end_ns, 0) >= c.c_from AND coalesce(r.start_ns, r.end_ns, 0) < c.c_to"""
# What is to be added to its times.
OFFSET = "(c.off + floor((coalesce(r.start_ns, r.end_ns, 0) - c.since) * c.slope)::BIGINT)"

# "Rows of one operation (same client, op_id) merge in any order: ok or fail beats unknown, a set end beats null, other
# columns keep what is not null". Where two rows differ in a set value the earliest start, the latest end and otherwise
# the smaller value stand, so that the order of rows does not matter.
_OPERATIONS = f"""
CREATE TEMP TABLE several AS
SELECT run, client, op_id FROM raw GROUP BY run, client, op_id HAVING count(*) > 1;

CREATE TEMP TABLE merged AS
SELECT r.run, r.client, r.op_id, min(op) AS op, max(op) AS other_op, max(outcome) AS any_outcome,
       coalesce(bool_or(outcome = 'ok'), false) AS ok, coalesce(bool_or(outcome = 'fail'), false) AS fail,
       min(session) AS session, min(start_ns + coalesce({OFFSET}, 0)) AS start,
       max(end_ns + coalesce({OFFSET}, 0)) AS "end", bool_and(c.off IS NOT NULL) AS placed,
       min(expires_ns + coalesce({OFFSET}, 0)) AS expires,
       min(c.tick) AS tick, coalesce(max(c.u), 0) AS u, {_MINIMA}
FROM raw r SEMI JOIN several USING (run, client, op_id) LEFT JOIN clocks c ON {PLACED_BY}
GROUP BY r.run, r.client, r.op_id;

CREATE TEMP TABLE ops AS
SELECT r.run, r.client, r.op_id, r.op, r.outcome, r.session, r.start_ns + coalesce({OFFSET}, 0) AS start,
       r.end_ns + coalesce({OFFSET}, 0) AS "end", c.off IS NOT NULL AS placed,
       r.expires_ns + coalesce({OFFSET}, 0) AS expires, c.tick, coalesce(c.u, 0) AS u, {_ASKED}
FROM raw r ANTI JOIN several USING (run, client, op_id) LEFT JOIN clocks c ON {PLACED_BY}
UNION ALL
SELECT run, client, op_id, op,
       CASE WHEN ok THEN 'ok' WHEN fail THEN 'fail' WHEN any_outcome IS NOT NULL THEN 'unknown' END, session, start,
       "end", placed, expires, tick, u, {_ASKED}
FROM merged;
"""

# What is wrong with an operation whose rows are each valid: "ok against fail is bad input", and a column that none has.
_CONFLICTS = declare(
    "conflict", "run int, client string, op_id long, problem string", "problems.refused", as_table=False
).by("""
WITH clashing AS (
    SELECT run, client, op_id, CASE
        WHEN ok AND fail THEN 'outcome is ok in one row and fail in another'
        WHEN op <> other_op THEN 'op is ' || op || ' and ' || other_op END AS clash
    FROM merged WHERE clash IS NOT NULL)
SELECT run, client, op_id, CASE
    WHEN c.clash IS NOT NULL THEN c.clash
    WHEN o.op IS NULL THEN 'op is missing'
    WHEN o.outcome IS NULL THEN 'outcome is missing'
    WHEN o.session IS NULL THEN 'session is missing'
    WHEN o.start IS NULL THEN 'start_ns is missing'
    WHEN (o.op = 'send' OR (o.op = 'receive' AND o.outcome = 'ok')) AND o.address IS NULL THEN 'address is missing'
    WHEN (o.op = 'send' OR (o.op = 'receive' AND o.outcome = 'ok')) AND o.message_id IS NULL
        THEN 'message_id is missing'
    WHEN o.op = 'ack' AND o.delivery IS NULL THEN 'delivery is missing' END AS problem
FROM ops o LEFT JOIN clashing c USING (run, client, op_id) WHERE problem IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY run ORDER BY client, op_id) <= 20
""")

# "An attempt is a send row. Outside a transaction it has its row's outcome. In one it is fail if its row is fail, a
# rollback is ok, neither prepare nor commit was ever invoked, or every commit invoked is fail; ok if its row and some
# commit are ok; else unknown." "A delivery is a receive that is ok. With a txn on the receive or the ack, only the
# commit decides: ok is processed, unknown or without end possibly processed, a rollback that is ok or no commit is
# neither. Without a txn the ack decides in the same way."
_DECIDED = f"""
CREATE TEMP TABLE txns AS
SELECT run, txn, bool_or(invoked) AS invoked, bool_or(commits) AS commits, bool_or(committed) AS committed,
       bool_or(opened) AS opened, bool_or(rolled_back) AS rolled_back, min(ended) AS ended
FROM (SELECT run, txn, op IN ('prepare', 'commit') AS invoked, op = 'commit' AS commits,
             op = 'commit' AND outcome = 'ok' AS committed, op = 'commit' AND outcome = 'unknown' AS opened,
             op = 'rollback' AND outcome = 'ok' AS rolled_back,
             CASE WHEN op = 'commit' AND outcome = 'ok' THEN coalesce("end", start) END AS ended
      FROM ops WHERE txn IS NOT NULL AND op IN ('prepare', 'commit', 'rollback')
      UNION ALL SELECT run, txn, invoked, commits, committed, opened, rolled_back, ended FROM foreign_txns)
GROUP BY run, txn;

CREATE TEMP TABLE decided AS
SELECT run, txn, CASE WHEN rolled_back OR NOT invoked OR (commits AND NOT committed AND NOT opened) THEN 'fail'
                      WHEN committed THEN 'ok' ELSE 'unknown' END AS attempt,
       CASE WHEN rolled_back THEN {NEITHER} WHEN committed THEN {PROCESSED} WHEN opened THEN {POSSIBLY}
            ELSE {NEITHER} END AS delivery, ended
FROM txns;

-- "An attempt that was in flight with others (outside a transaction, another send of its session that is outside one
-- began while it was under way)", that "is ok, and ended before its client began a later session".
CREATE TEMP TABLE overtaken AS
SELECT run, client, session, op_id, outcome, "end" FROM (
    SELECT run, client, session, op_id, outcome, "end", min(start) OVER (
               PARTITION BY run, client, session ORDER BY start RANGE BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)
               AS follower
    FROM ops SEMI JOIN asked ON ops.run = asked.run AND asked.name = 'ordered' WHERE op = 'send' AND txn IS NULL)
WHERE follower < "end";
CREATE TEMP TABLE in_flight AS
WITH sequels AS (
    SELECT run, client, session, min(min(start)) OVER (
               PARTITION BY run, client ORDER BY session ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS left_at
    FROM ops SEMI JOIN overtaken USING (run, client) GROUP BY run, client, session)
SELECT run, client, op_id FROM overtaken JOIN sequels USING (run, client, session)
WHERE outcome = 'ok' AND coalesce("end" < left_at, true);

CREATE TEMP TABLE sends AS
SELECT o.run, o.client, o.op_id, o.outcome, o.start, o."end",
       CASE WHEN f.op_id IS NULL THEN o."end" ELSE o.start END AS handed, o.address, o.message_id, o.key, o.txn,
       o.durable, o.expires, coalesce(o.late_ns, 0) AS late, o.sha, o.server, o.tick, o.u,
       CASE WHEN o.txn IS NULL THEN o.outcome
            WHEN o.outcome = 'fail' OR coalesce(t.attempt, 'fail') = 'fail' THEN 'fail'
            WHEN o.outcome = 'ok' AND t.attempt = 'ok' THEN 'ok' ELSE 'unknown' END AS state,
       coalesce(t.ended, o."end", o.start) AS acked_at,
       CASE WHEN o.start <= s.span_to THEN s.epoch END AS epoch,
       coalesce(s.home, CASE WHEN o.start <= s.span_to THEN s.e_store END) AS store
FROM ops o LEFT JOIN decided t ON o.run = t.run AND o.txn = t.txn
LEFT JOIN in_flight f ON o.run = f.run AND o.client = f.client AND o.op_id = f.op_id
LEFT JOIN served s ON o.run = s.run AND o.server = s.server
    AND coalesce(o."end", o.start) >= s.span_from AND coalesce(o."end", o.start) < s.span_next
WHERE o.op = 'send';

CREATE TEMP TABLE acks AS
SELECT run, delivery, max(by_ack) AS by_ack, max(by_txn) AS by_txn
FROM (SELECT a.run, a.delivery,
             CASE a.outcome WHEN 'ok' THEN {PROCESSED} WHEN 'unknown' THEN {POSSIBLY} ELSE {NEITHER} END AS by_ack,
             CASE WHEN a.txn IS NOT NULL THEN coalesce(t.delivery, {NEITHER}) END AS by_txn
      FROM ops a LEFT JOIN decided t ON a.run = t.run AND a.txn = t.txn
      WHERE a.op = 'ack' AND a.delivery IS NOT NULL
      UNION ALL SELECT run, delivery, by_ack, by_txn FROM foreign_acks)
GROUP BY run, delivery;

CREATE TEMP TABLE deliveries AS
SELECT o.run, o.client, o.op_id, o.session, o.start, o."end", coalesce(o."end", o.start) AS moment, o.address,
       o.message_id, coalesce(o.subscription, '') AS sub, coalesce(o.redelivered, false) AS redelivered,
       o.sha, o.server, o.txn, o.delivery, o.tick,
       coalesce(greatest(CASE WHEN o.txn IS NOT NULL THEN coalesce(t.delivery, {NEITHER}) END, a.by_txn), a.by_ack,
                {NEITHER}) AS state
FROM ops o LEFT JOIN decided t ON o.run = t.run AND o.txn = t.txn
LEFT JOIN acks a ON o.run = a.run AND o.delivery = a.delivery
ANTI JOIN dead ON o.run = dead.run AND o.address = dead.dead_letter
WHERE o.op = 'receive' AND o.outcome = 'ok';

CREATE TEMP VIEW acked AS
SELECT run, client, server, store, address, acked_at AS moment, start, "end", late, txn FROM sends WHERE state = 'ok';
"""

# Ends of transactions and acknowledgements of which another client did the work, and transactions whose end this client
# lacks.
_STRAYS = declare(
    "stray",
    "run int, name string, what string, invoked boolean, commits boolean, committed boolean, opened boolean, "
    "rolled_back boolean, ended long ns, by_ack int, by_txn int",
    "judge._foreign",
    as_table=False,
).by("""
SELECT e.run, e.txn AS name, 'txn' AS what, e.invoked, e.commits, e.committed, e.opened, e.rolled_back, e.ended,
       NULL::INT AS by_ack, NULL::INT AS by_txn
FROM txns e ANTI JOIN (
    SELECT run, txn FROM ops WHERE op IN ('send', 'receive')
    UNION ALL SELECT o.run, o.txn FROM ops o SEMI JOIN deliveries d USING (run, delivery) WHERE o.op = 'ack') w
USING (run, txn)
UNION ALL
SELECT a.run, a.delivery, 'ack', NULL, NULL, NULL, NULL, NULL, NULL, a.by_ack, a.by_txn
FROM acks a ANTI JOIN deliveries d USING (run, delivery)
""")
_OPEN = declare("open", "run int, txn string", "judge._foreign", as_table=False).by("""
SELECT DISTINCT o.run, o.txn
FROM ops o ANTI JOIN (SELECT run, txn FROM txns WHERE committed OR rolled_back) t USING (run, txn)
WHERE o.op IN ('send', 'receive', 'ack') AND o.txn IS NOT NULL
""")

_ENDS = declare("end", "run int, ops_end long ns, unplaced boolean", "judge.Judging.finish").by("""
SELECT run, max(coalesce("end", start)) AS ops_end, bool_or(NOT placed) AS unplaced FROM ops WHERE start IS NOT NULL
GROUP BY run
""")

# ordered: of each consumer session of a subscription when it gave messages back that it had not taken, from `begun`
# (null: at once) to `e_at`: when it was seen to end (its close, else the start of the next connect, else its death),
# and its rollbacks, and its commits that were not ok, since a client's library may have rolled back (one without an end
# lasts to the session's end); null where it gave nothing back. `since`: when it had connected.
_SESSIONS = declare(
    "session",
    "run int, address string, sub string, begun long ns, e_at long ns, client string, session int, since long ns",
    "judge._SHARED",
).by(f"""
WITH readers AS (
    SELECT DISTINCT run, address, coalesce(subscription, '') AS sub, client, session
    FROM ops SEMI JOIN asked ON ops.run = asked.run AND asked.name = 'ordered'
    WHERE op IN ('subscribe', 'receive', 'ack') AND address IS NOT NULL),
own AS (
    SELECT run, client, session,
           min(start) FILTER (op = 'close' AND outcome <> 'fail') AS closing,
           min(coalesce("end", start)) FILTER (op = 'close' AND outcome <> 'fail') AS closed,
           min(start) FILTER (op = 'connect') AS connected,
           min(coalesce("end", start)) FILTER (op = 'connect' AND outcome = 'ok') AS since
    FROM (SELECT run, client, session, op, outcome, start, "end" FROM ops WHERE op IN ('connect', 'close')
          UNION ALL SELECT run, client, session, NULL, NULL, NULL, NULL FROM readers)
    GROUP BY run, client, session),
ended AS (
    SELECT run, client, session, since, closing, coalesce(closed, min(connected) OVER (
        PARTITION BY run, client ORDER BY session ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING), d_at) AS e_at
    FROM own LEFT JOIN deaths USING (run, client)),
gave_back AS (
    SELECT run, client, session, since, closing AS begun, e_at FROM ended
    UNION ALL
    SELECT o.run, o.client, o.session, NULL, o.start, coalesce(o."end", greatest(coalesce(e.e_at, {NEVER}), o.start))
    FROM ops o SEMI JOIN asked ON o.run = asked.run AND asked.name = 'ordered'
    LEFT JOIN ended e ON o.run = e.run AND o.client = e.client AND o.session = e.session
    WHERE (o.op = 'rollback' AND o.outcome <> 'fail') OR (o.op = 'commit' AND o.outcome <> 'ok'))
SELECT DISTINCT r.run, r.address, r.sub, b.begun, b.e_at, r.client, r.session, b.since
FROM readers r JOIN gave_back b ON r.run = b.run AND r.client = b.client AND r.session = b.session
WHERE b.e_at IS NOT NULL OR b.since IS NOT NULL
""")

# single_active: "an ok send served by Y lies wholly between two ok sends served by X for the same store within one
# epoch of X": of each epoch the first end and the last start of the sends that lie in it; of all others whether a
# store is not known.
_SERVING = declare(
    "serving",
    "run int, store string, instance string, e_start long ns, tick int, after long ns, before long ns, "
    "homeless boolean",
    "judge._SHARED",
    "checks.Findings",
).by("""
SELECT x.run, e.e_store AS store, e.server AS instance, e.epoch AS e_start, x.tick,
       min(coalesce(x."end", x.start)) AS after, max(x.start) AS before, bool_or(x.store IS NULL) AS homeless
FROM sends x SEMI JOIN asked ON x.run = asked.run AND asked.name = 'single_active'
LEFT JOIN (SELECT * FROM served WHERE epoch IS NOT NULL) e ON x.run = e.run AND x.server = e.server
    AND x.store = e.e_store AND x.start >= e.epoch AND coalesce(x."end", x.start) <= e.e_end
WHERE x.outcome = 'ok' GROUP BY ALL
""")

# failover_within: of each fault on an active instance and each client that sends: sends (it sent at all), joined (its
# first connect), before (where it was served last before the fault is that store: a send was acknowledged, or a connect
# reached it), success (when it was served again), elsewhere (when another store served it), nameless (its first
# acknowledged send after the fault whose store is not known), last_try (its last operation that needs a broker and did
# not succeed, of a client that was killed until then; the fault, where there is none; NEVER, which stands for the run's
# end, of a call of after the fault that never returned, and of one of before it after which the client did nothing),
# as_before (the epoch that was hit served it after the fault), unseen (when that store served it, and no epoch that
# began after the fault is known, nor the one that was hit), u (its clock's).
_FAILOVERS = declare(
    "failover",
    "run int, fault int, client string, joined long ns, before boolean, success long ns, elsewhere long ns, "
    "nameless long ns, last_try long ns, as_before boolean, unseen long ns, u long ns",
    "checks.Findings",
).by(f"""
SELECT r.run, h.fault, r.client, min(r.start) FILTER (r.op = 'connect') AS joined,
       coalesce(arg_max(r.store, {{'at': coalesce(r.acked_at, r."end", r.start), 'store': r.store}})
               FILTER (r.ok AND r.op IN ('send', 'connect') AND coalesce(r.acked_at, r."end", r.start) <= h.f_at)
               = any_value(h.hit_store), false) AS before,
       min(r.acked_at) FILTER (r.ok AND r.start > h.f_at + h.f_u AND r.store = h.hit_store AND r.epoch > h.f_at)
           AS success,
       min(r.acked_at) FILTER (r.op = 'send' AND r.ok AND r.start > h.f_at + h.f_u AND r.store <> h.hit_store)
           AS elsewhere,
       min(r.acked_at) FILTER (r.op = 'send' AND r.ok AND r.start > h.f_at + h.f_u AND r.store IS NULL) AS nameless,
       CASE WHEN max(r.start) FILTER (r."end" IS NULL) >= max(r.start) THEN {NEVER}
            ELSE coalesce(max(coalesce(r."end", CASE WHEN r.start > h.f_at THEN {NEVER} ELSE r.start END))
                          FILTER (NOT r.ok), any_value(h.f_at)) END AS last_try,
       max(r.u) AS u,
       coalesce(bool_or(r.op = 'send' AND r.ok AND r.start > h.f_at + h.f_u AND r.store = h.hit_store
                        AND r.epoch = h.hit), false)
           AS as_before,
       min(r.acked_at) FILTER (r.op = 'send' AND r.ok AND r.start > h.f_at + h.f_u AND r.store = h.hit_store
                               AND coalesce(r.epoch <= h.f_at AND r.epoch <> h.hit, true)) AS unseen
FROM (SELECT run, client, 'send' AS op, state = 'ok' AS ok, start, coalesce("end", d_at) AS "end", acked_at, store,
             epoch, u
      FROM sends LEFT JOIN deaths USING (run, client)
      UNION ALL
      SELECT o.run, o.client, o.op, o.outcome = 'ok', o.start, coalesce(o."end", d.d_at), NULL,
             coalesce(s.home, CASE WHEN o.start <= s.span_to THEN s.e_store END), NULL, o.u
      FROM ops o LEFT JOIN served s ON o.run = s.run AND o.server = s.server AND o.op = 'connect'
          AND coalesce(o."end", o.start) >= s.span_from AND coalesce(o."end", o.start) < s.span_next
      LEFT JOIN deaths d ON o.run = d.run AND o.client = d.client
      WHERE o.op IN ('connect', 'prepare', 'commit')) r
JOIN hits h ON r.run = h.run
GROUP BY r.run, h.fault, r.client HAVING bool_or(r.op = 'send')
""")

# The first delivery after a fault, of any consumer that an epoch of that store which began after the fault served.
_RECEIVED = declare("received", "run int, fault int, received_at long ns", "checks.Findings").by("""
SELECT d.run, h.fault, min(d."end") AS received_at
FROM deliveries d JOIN hits h ON d.run = h.run AND d."end" > h.f_at + h.f_u
JOIN served s ON d.run = s.run AND d.server = s.server AND d.moment >= s.span_from AND d.moment < s.span_next
WHERE coalesce(s.home, CASE WHEN d.start <= s.span_to THEN s.e_store END) = h.hit_store
  AND CASE WHEN d.start <= s.span_to THEN s.epoch END > h.f_at
GROUP BY d.run, h.fault
""")

# Where a load keeps a rate a call counts from when its batch was due: who waits behind one that hangs waits, too.
_MEASURED = histogram("""
SELECT run, 'send' AS kind, moment, CASE WHEN txn IS NULL THEN "end" - start + late END AS took, 1 AS counted FROM acked
UNION ALL SELECT run, 'commit', "end", "end" - start + coalesce(late_ns, 0), 0 FROM ops
WHERE op = 'commit' AND outcome = 'ok' AND "end" IS NOT NULL
UNION ALL SELECT run, 'receive', moment, NULL, 1 FROM deliveries
""")

# When clients were served and when their operations failed: of the clients with most failures, then of those with the
# longest time without an end of an operation. A receive that got nothing and a one-way acknowledgement are no failures.
_ACTIVITY = f"""
CREATE TEMP TABLE active AS
SELECT o.run, o.client, coalesce(o."end", o.start) // w.width * w.width AS start_ns,
       bool_or(o.outcome = 'ok' AND o.op IN ('connect', 'send', 'receive', 'ack', 'commit')) AS served,
       count(*) FILTER (o.outcome <> 'ok') AS failed
FROM ops o JOIN widths w ON o.run = w.run
WHERE ((o.outcome = 'ok' AND o.op IN ('connect', 'send', 'receive', 'ack', 'commit'))
       OR (o.outcome <> 'ok' AND o.op IN ('connect', 'send', 'prepare', 'commit', 'rollback')))
  AND coalesce(o."end", o.start) >= 0
GROUP BY ALL;
CREATE TEMP TABLE busiest AS
SELECT *, count(*) OVER (PARTITION BY run) AS clients, min(client) OVER (PARTITION BY run) AS place
FROM (SELECT run, client, sum(failed)::BIGINT AS failures, max(gap) AS gap
      FROM (SELECT *, start_ns - lag(start_ns) OVER (PARTITION BY run, client ORDER BY start_ns) AS gap FROM active)
      GROUP BY run, client)
QUALIFY row_number() OVER (PARTITION BY run ORDER BY failures DESC, gap DESC NULLS LAST, client) <= {MOST_CLIENTS};
"""

BUSIEST = declare(
    "busiest",
    "run int, client string, failures long, gap long ns, clients long, place string",
    "activity.clients",
).by("FROM busiest")
ACTIVE = declare(
    "active", "run int, client string, start_ns long ns, served boolean, failed long", "activity.clients"
).by("SELECT a.* FROM active a SEMI JOIN busiest USING (run, client)")

# available: successes within the load, in slices of time; failback_within: acknowledged sends from heal to epoch. Of
# each client and server in a slice one list.
_TIMES = """
SELECT run, side, number, address, slice, client, server, list(moment) AS moments,
       hash(run, side, number, address, slice) AS place
FROM (SELECT w.run, w.side, w.place AS number, x.address, (x.moment - w.begins) // w.width AS slice, x.client, x.server,
             x.moment
      FROM (SELECT run, 'send' AS side, address, moment, client, server FROM acked
            UNION ALL SELECT run, 'receive', address, moment, client, server FROM deliveries) x
      JOIN windows w ON x.run = w.run AND x.side = w.side AND x.moment >= w.begins AND x.moment <= w.ends
      UNION ALL
      SELECT w.run, w.side, w.place, '', (x.moment - w.begins) // w.width, NULL, NULL, x.moment
      FROM acked x JOIN windows w ON x.run = w.run AND w.side = 'failback' AND x.store = w.store
          AND x.moment >= w.begins AND x.moment <= w.ends)
GROUP BY ALL
"""
# An address is used in a load by a send (receive) that was under way in it: one that never returned still is.
_USED = declare("used", "run int, side string, place int, address string", "checks.Findings").by(f"""
SELECT DISTINCT w.run, w.side, w.place, x.address
FROM (SELECT run, 'send' AS side, address, start, "end" FROM sends
      UNION ALL
      SELECT o.run, 'receive', o.address, o.start, o."end" FROM ops o
      ANTI JOIN dead ON o.run = dead.run AND o.address = dead.dead_letter
      WHERE o.op = 'receive') x
JOIN windows w ON x.run = w.run AND x.side = w.side AND coalesce(x."end", {NEVER}) >= w.begins AND x.start <= w.ends
-- A row that says the address may have been refused.
WHERE x.address <> ''
""")

# When the last delivery on an address was over: what is given back after it may still be dead-lettered.
DELIVERED = declare("delivered", "run int, address string, tick int, moment long ns", "checks.Findings").by(
    "SELECT run, address, tick, max(moment) AS moment FROM deliveries GROUP BY run, address, tick"
)

# "A browse or receive on a dead-letter address is evidence for the original unit, never its delivery".
_DEAD = """
SELECT DISTINCT o.run, o.address AS dead_letter, o.message_id, coalesce(o.subscription, '') AS sub,
       hash(o.run, o.message_id) AS place
FROM ops o SEMI JOIN dead ON o.run = dead.run AND o.address = dead.dead_letter
WHERE o.op IN ('browse', 'receive') AND o.outcome = 'ok' AND o.message_id IS NOT NULL
"""

# Looks at dead-letter addresses: a browse (or a receive) that was refused has seen nothing.
_LOOKS = declare(
    "looks",
    "run int, dead_letter string, server string, ok boolean, tick int, begun long ns",
    "checks.Findings",
)
LOOKS = _LOOKS.by("""
SELECT o.run, o.address AS dead_letter, o.server, o.outcome = 'ok' AS ok, o.tick, max(o.start) AS begun
FROM ops o SEMI JOIN dead ON o.run = dead.run AND o.address = dead.dead_letter
WHERE o.op = 'browse' OR (o.op = 'receive' AND o.outcome = 'ok') GROUP BY ALL
""")

_CONNECTS = """
SELECT o.run, o.client, o.op_id, o.key, o.start, coalesce(o."end", o.start) AS moment, o.u,
       coalesce(s.home, CASE WHEN o.start <= s.span_to THEN s.e_store END) AS store, hash(o.run, o.key) AS place
FROM ops o SEMI JOIN asked ON o.run = asked.run AND asked.name = 'sticky'
LEFT JOIN served s ON o.run = s.run AND o.server = s.server
    AND coalesce(o."end", o.start) >= s.span_from AND coalesce(o."end", o.start) < s.span_next
WHERE o.op = 'connect' AND o.outcome = 'ok' AND o.key IS NOT NULL
"""


@dataclass(frozen=True)
class Plan:
    """What the stages are to find: `parts` partitions of the next stages, `asked` names of promises, `series` whether
    what a report draws is wanted."""

    parts: int
    asked: frozenset[str]
    series: bool


def by_client(base: duckdb.DuckDBPyConnection, plan: Plan) -> Iterator[Parcel]:
    """Judge the rows of the view `raw`, of the table `parsed` and of files, as far as a client's own rows show; yield
    parcels for the driver and for `messages.by_message`."""
    base.execute(_OPERATIONS)
    base.execute("DROP VIEW raw; DROP TABLE parsed")
    yield from _CONFLICTS.of(base)
    base.execute("DROP TABLE merged")
    yield from _ENDS.of(base)
    base.execute(NUMBERS)
    for query in (NUMBERED, TICKING, MET, LOOKS):
        yield from query.of(base)
    base.execute(_DECIDED)
    yield from DELIVERED.of(base)
    yield from _STRAYS.of(base)
    yield from _OPEN.of(base)
    yield from TOPICS.of(base)
    if transparent.NAME in plan.asked:
        yield from transparent.COUNTED.of(base)
        yield from transparent.FAILED.of(base)
    if "ordered" in plan.asked:
        yield from _SESSIONS.of(base)
    if "single_active" in plan.asked:
        yield from _SERVING.of(base)
    if delivered_within.NAME in plan.asked:
        yield from delivered_within.TAKERS.of(base)
    yield from _FAILOVERS.of(base)
    yield from _RECEIVED.of(base)
    yield from _MEASURED.of(base)
    if plan.series:
        base.execute(_ACTIVITY)
        yield from BUSIEST.of(base)
        yield from ACTIVE.of(base)
    if plan.asked & {"available", "failback_within"}:
        yield from _USED.of(base)
        yield from divide(base, "time", _TIMES, plan.parts)
    yield from divide(base, "dead", _DEAD, plan.parts)
    if "sticky" in plan.asked:
        yield from divide(base, "connect", _CONNECTS, plan.parts)
    base.execute("DROP TABLE ops")
    # What no promise asks for stays behind.
    unasked = {"txn": "atomic", "acked_at": delivered_within.NAME}
    left = ", ".join(["epoch", "u", *(column for column, promise in unasked.items() if promise not in plan.asked)])
    sends = f"SELECT * EXCLUDE ({left}), hash(run, message_id) AS place FROM sends"
    yield from divide(
        base, "send", sends, plan.parts, ("client", "outcome", "address", "key", "server", "state", "store")
    )
    received = 'SELECT * EXCLUDE ("end", txn, delivery), hash(run, message_id) AS place FROM deliveries'
    yield from divide(base, "delivery", received, plan.parts, ("client", "address", "sub", "server"))


def conflicts(base: duckdb.DuckDBPyConnection) -> pa.Table:
    """Return what is wrong with operations of the view `raw` and the table `clocks` whose rows are each valid: run,
    client, op_id, problem."""
    base.execute(_OPERATIONS)
    return base.sql(_CONFLICTS.sql).to_arrow_table()


def empty_foreign(base: duckdb.DuckDBPyConnection, tables: Mapping[str, bytes]) -> None:
    """Make the tables of what other clients ended where there is nothing."""
    if "foreign_txns" not in tables:
        base.execute(
            "CREATE TEMP TABLE foreign_txns (run INT, txn TEXT, invoked BOOL, commits BOOL, committed BOOL, "
            "opened BOOL, rolled_back BOOL, ended BIGINT)"
        )
    if "foreign_acks" not in tables:
        base.execute("CREATE TEMP TABLE foreign_acks (run INT, delivery TEXT, by_ack INT, by_txn INT)")
