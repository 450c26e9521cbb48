-- All promises of a synthesized run, as DuckDB computes them from the same Parquet. What events and run.json say comes as
-- small tables from the same code for both sides: clocks, served, overlapping, hits, failbacks, loads, drained, dead.
-- One row of a result is (promise or class, count).

CREATE TEMP TABLE several AS
SELECT client, op_id FROM raw GROUP BY client, op_id HAVING count(*) > 1;

CREATE TEMP TABLE ops AS
SELECT r.client, r.op_id, r.op, r.outcome, r.session, r.start_ns + c.off AS start, r.end_ns + c.off AS "end",
       r.expires_ns + c.off AS expires, r.address, r.message_id, r.key, r.txn, r.delivery, r.redelivered, r.durable,
       r.payload_sha, coalesce(r.instance, r.broker) AS server
FROM raw r JOIN clocks c USING (clock) ANTI JOIN several USING (client, op_id)
UNION ALL
SELECT r.client, r.op_id, min(r.op),
       CASE WHEN bool_or(r.outcome = 'ok') THEN 'ok' WHEN bool_or(r.outcome = 'fail') THEN 'fail' ELSE 'unknown' END,
       max(r.session), min(r.start_ns + c.off), max(r.end_ns + c.off), max(r.expires_ns + c.off), min(r.address),
       min(r.message_id), min(r.key), min(r.txn), min(r.delivery), min(r.redelivered), min(r.durable),
       min(r.payload_sha), min(coalesce(r.instance, r.broker))
FROM raw r JOIN clocks c USING (clock) SEMI JOIN several USING (client, op_id)
GROUP BY r.client, r.op_id;

CREATE TEMP TABLE txns AS
SELECT txn, bool_or(op IN ('prepare', 'commit')) AS invoked, bool_or(op = 'commit') AS commits,
       bool_or(op = 'commit' AND outcome = 'ok') AS committed, bool_or(op = 'commit' AND outcome = 'unknown') AS opened,
       bool_or(op = 'rollback' AND outcome = 'ok') AS rolled_back,
       min(coalesce("end", start)) FILTER (WHERE op = 'commit' AND outcome = 'ok') AS ended
FROM ops WHERE txn IS NOT NULL AND op IN ('prepare', 'commit', 'rollback') GROUP BY txn;

CREATE TEMP TABLE sends AS
SELECT o.*,
       CASE WHEN o.txn IS NULL THEN o.outcome
            WHEN o.outcome = 'fail' OR t.rolled_back OR t.txn IS NULL OR NOT t.invoked
                 OR (t.commits AND NOT t.committed AND NOT t.opened) THEN 'fail'
            WHEN o.outcome = 'ok' AND t.committed THEN 'ok' ELSE 'unknown' END AS state,
       CASE WHEN o.txn IS NULL THEN coalesce(o."end", o.start) ELSE coalesce(t.ended, o."end", o.start) END AS acked_at,
       coalesce(s.home, CASE WHEN o.start <= s.span_to THEN s.e_store END) AS store,
       CASE WHEN o.start <= s.span_to THEN s.epoch END AS epoch
FROM ops o LEFT JOIN txns t USING (txn)
LEFT JOIN served s ON o.server = s.server AND coalesce(o."end", o.start) >= s.span_from
                  AND coalesce(o."end", o.start) < s.span_next
WHERE o.op = 'send';

CREATE TEMP TABLE acks AS
SELECT a.delivery, max(CASE a.outcome WHEN 'ok' THEN 2 WHEN 'unknown' THEN 1 ELSE 0 END) AS by_ack,
       max(CASE WHEN a.txn IS NULL THEN NULL WHEN t.rolled_back THEN 0 WHEN t.committed THEN 2 WHEN t.opened THEN 1
                ELSE 0 END) AS by_txn
FROM ops a LEFT JOIN txns t USING (txn) WHERE a.op = 'ack' GROUP BY a.delivery;

CREATE TEMP TABLE deliveries AS
SELECT o.address, o.message_id, coalesce(o."end", o.start) AS moment, o.start, o.client, o.session,
       coalesce(o.redelivered, false) AS redelivered, o.payload_sha,
       coalesce(CASE WHEN a.by_txn IS NULL THEN b.txn_state ELSE greatest(a.by_txn, coalesce(b.txn_state, 0)) END,
                a.by_ack, 0) AS state
FROM ops o
LEFT JOIN (SELECT txn, CASE WHEN rolled_back THEN 0 WHEN committed THEN 2 WHEN opened THEN 1 ELSE 0 END AS txn_state
           FROM txns) b USING (txn)
LEFT JOIN acks a USING (delivery)
WHERE o.op = 'receive' AND o.outcome = 'ok' AND o.address NOT IN (SELECT dead_letter FROM dead);

CREATE TEMP TABLE messages AS
WITH s AS (
    SELECT address, message_id,
           CASE WHEN bool_or(state = 'ok') THEN 'acknowledged' WHEN bool_or(state = 'unknown') THEN 'unknown'
                ELSE 'failed' END AS state,
           max(coalesce(durable, true)) AS durable, nullif(max(coalesce(expires, 1::BIGINT << 62)), 1::BIGINT << 62)
               AS expires,
           min(start) FILTER (WHERE state <> 'fail') AS began,
           max(coalesce("end", 1::BIGINT << 62)) FILTER (WHERE state <> 'fail') AS over,
           min(client) FILTER (WHERE state <> 'fail') AS producer, min(key) FILTER (WHERE state <> 'fail') AS key,
           list(DISTINCT payload_sha) FILTER (WHERE payload_sha IS NOT NULL) AS shas
    FROM sends GROUP BY address, message_id),
d AS (
    SELECT address, message_id, count(*) AS n, count(*) FILTER (WHERE state = 2) AS processed,
           count(*) FILTER (WHERE state = 1) AS possibly, list(DISTINCT payload_sha) FILTER (WHERE payload_sha IS NOT NULL)
               AS shas,
           arg_min({'moment': moment, 'client': client, 'session': session, 'redelivered': redelivered}, moment) AS first
    FROM deliveries GROUP BY address, message_id),
f AS (
    SELECT DISTINCT d.address, o.message_id FROM ops o JOIN dead d ON o.address = d.dead_letter
    WHERE o.op IN ('browse', 'receive') AND o.outcome = 'ok')
SELECT coalesce(s.address, d.address) AS address, coalesce(s.message_id, d.message_id) AS message_id, s.state, s.durable,
       s.expires, s.began, s.over, s.producer, s.key, s.shas, coalesce(d.n, 0) AS n, coalesce(d.processed, 0) AS processed,
       coalesce(d.possibly, 0) AS possibly, d.shas AS got, d.first, f.message_id IS NOT NULL AS dead
FROM s FULL JOIN d ON s.address = d.address AND s.message_id = d.message_id
LEFT JOIN f ON f.address = coalesce(s.address, d.address) AND f.message_id = coalesce(s.message_id, d.message_id);

CREATE TEMP TABLE classes AS
SELECT CASE
    WHEN n > 0 AND len(shas) > 0 AND len(list_filter(got, lambda x: NOT list_contains(shas, x))) > 0 THEN 'corrupted'
    WHEN state = 'failed' AND (n > 0 OR dead) THEN 'phantom'
    WHEN state IS NULL THEN 'unexpected'
    WHEN processed > 1 THEN 'duplicated'
    WHEN state <> 'failed' AND processed + possibly = 0 AND dead THEN 'dead_lettered'
    WHEN state = 'acknowledged' AND processed + possibly = 0 AND expires < (SELECT drain_end FROM phase) THEN 'expired'
    WHEN (state = 'acknowledged' OR (state = 'unknown' AND n > 0)) AND processed + possibly = 0 THEN
        CASE WHEN NOT coalesce(d.drained, false) THEN 'unseen' WHEN durable THEN 'lost' ELSE 'lost_nonpersistent' END
    WHEN n > 1 AND processed <= 1 THEN 'redelivered'
    WHEN state = 'unknown' AND n > 0 THEN 'recovered'
    WHEN state = 'unknown' THEN 'unresolved'
    WHEN state = 'failed' THEN 'rejected'
    ELSE 'ok' END AS class, count(*) AS n
FROM messages m LEFT JOIN drained d USING (address) GROUP BY 1;

CREATE TEMP TABLE late AS
SELECT count(*) AS n FROM (
    SELECT over, redelivered, max(began) OVER (
        PARTITION BY address, producer, key, client, session ORDER BY moment
        RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS newest
    FROM (SELECT address, producer, key, first.client AS client, first.session AS session, first.moment AS moment,
                 first.redelivered AS redelivered, began, over
          FROM messages WHERE state IN ('acknowledged', 'unknown') AND n > 0))
WHERE newest > over AND NOT redelivered;

CREATE TEMP TABLE moves AS
SELECT count(*) AS n FROM (
    SELECT key, store, moment, lag(store) OVER w AS old, lag(moment) OVER w AS old_at FROM (
        SELECT o.key, coalesce(o."end", o.start) AS moment, s.home AS store FROM ops o
        LEFT JOIN (SELECT DISTINCT server, home FROM served) s USING (server)
        WHERE o.op = 'connect' AND o.outcome = 'ok' AND o.key IS NOT NULL)
    WINDOW w AS (PARTITION BY key ORDER BY moment)) p
WHERE old <> store AND NOT EXISTS (
    SELECT 1 FROM unready u, specs WHERE specs.name = 'sticky' AND u.store = p.old AND u.n_from < u.n_to
        AND u.n_from <= p.moment + specs.check_period AND u.n_to > p.old_at - specs.check_period);

CREATE TEMP TABLE intruders AS
WITH within AS (
    SELECT e.e_store AS store, e.server, e.epoch, min(x."end") AS after, max(x.start) AS before
    FROM sends x JOIN served e ON x.server = e.server AND x.store = e.e_store AND x.start >= e.epoch AND x."end" <= e.e_end
    WHERE x.outcome = 'ok' GROUP BY ALL)
SELECT count(DISTINCT (y.client, y.op_id)) + (SELECT count(*) FROM overlapping) AS n
FROM sends y JOIN within w ON y.store = w.store AND y.server <> w.server AND y.start > w.after AND y."end" < w.before
WHERE y.outcome = 'ok';

CREATE TEMP TABLE failovers AS
SELECT count(*) FILTER (WHERE took > bound OR (success IS NULL AND served_before AND last_try > f_at + bound)) AS n FROM (
    SELECT h.fault, s.client, h.f_at, min(acked_at) FILTER (WHERE state = 'ok' AND s.start > h.f_at + h.f_u
               AND s.store = h.hit_store AND s.epoch > h.f_at) AS success, success - h.f_at AS took,
           bool_or(state = 'ok' AND s.store = h.hit_store AND acked_at <= h.f_at) AS served_before,
           max(coalesce(s."end", s.start)) AS last_try
    FROM sends s CROSS JOIN hits h GROUP BY h.fault, s.client, h.f_at), specs
WHERE specs.name = 'failover_within';

CREATE TEMP TABLE failbacks_late AS
SELECT count(*) FILTER (WHERE back_at IS NULL OR until - healed_at > bound) AS n FROM failbacks, specs
WHERE specs.name = 'failback_within';

CREATE TEMP TABLE client_gaps AS
SELECT failback, max(moment - before) AS gap FROM (
    SELECT failback, moment, lag(moment) OVER (PARTITION BY failback ORDER BY moment) AS before FROM (
        SELECT b.failback, s.acked_at AS moment FROM sends s JOIN failbacks b ON s.store = b.store
        WHERE s.state = 'ok' AND s.acked_at BETWEEN b.healed_at AND b.until
        UNION ALL SELECT failback, unnest([healed_at, until]) FROM failbacks))
GROUP BY failback;

CREATE TEMP TABLE outages AS
SELECT count(*) AS n, max(gap) AS longest FROM (
    SELECT side, moment - lag(moment) OVER (PARTITION BY side, address, load_begin ORDER BY moment) AS gap FROM (
        SELECT 'send' AS side, address, acked_at AS moment, load_begin FROM sends, loads
        WHERE state = 'ok' AND acked_at BETWEEN load_begin AND load_end
        UNION ALL SELECT 'receive', address, moment, load_begin FROM deliveries, loads WHERE moment BETWEEN load_begin AND load_end
        UNION ALL SELECT DISTINCT 'send', address, unnest([load_begin, load_end]), load_begin FROM sends, loads
        UNION ALL SELECT DISTINCT 'receive', address, unnest([load_begin, load_end]), load_begin FROM deliveries, loads)),
    specs
WHERE specs.name = 'available' AND specs.side = 'send' AND gap > bound;

SELECT class, n FROM classes
UNION ALL SELECT 'ordered', n FROM late
UNION ALL SELECT 'sticky', n FROM moves
UNION ALL SELECT 'single_active', n FROM intruders
UNION ALL SELECT 'failover_within', n FROM failovers
UNION ALL SELECT 'failback_within', n FROM failbacks_late
UNION ALL SELECT 'available', n FROM outages;
