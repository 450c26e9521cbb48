"""atomic: of a transaction that may have been committed all messages are seen, or none.

SQL over one partition of stage 3, which has whole transactions: the table `part` (`PARTS`, of stage 2) and `specs`.
"""

from __future__ import annotations

from brokerdrill.analysis.checks.finding import FOUND, by_round, witnesses

# atomic: the units of each transaction that may have been committed. A message is seen where it was delivered or found
# on its dead-letter address; it is missing where it was not although it had to be: its address was drained, it is
# durable and had not expired. sure: no other attempt of it may have taken effect.
PARTS = """
WITH tries AS (
    SELECT DISTINCT s.run, s.address, s.message_id, s.txn, s.client
    FROM send s SEMI JOIN asked a ON s.run = a.run AND a.name = 'atomic' WHERE s.state <> 'fail'),
counted AS (SELECT *, count(*) OVER (PARTITION BY run, address, message_id) AS n FROM tries)
SELECT u.run, t.txn, t.client, u.message_id, u.address, u.sub,
       u.durable AND NOT u.too_late AS due,
       u.n > 0 OR u.class = 'dead_lettered' AS seen,
       NOT seen AND (u.class = 'lost' OR (u.class = 'unresolved' AND u.drained AND due)) AS missing,
       NOT seen AND due AND (u.class = 'unseen' OR (u.class = 'unresolved' AND NOT u.drained)) AS open,
       t.n = 1 AS sure, u.began, hash(u.run, t.txn) AS place
FROM unit u JOIN counted t ON u.run = t.run AND u.address = t.address AND u.message_id = t.message_id
WHERE t.txn IS NOT NULL
"""

# atomic: "of a transaction that may have been committed all messages are seen, or none".
WHOLE = """
CREATE TEMP TABLE whole AS
SELECT p.run, s.spec, p.txn, min(p.client) AS client, count(*) FILTER (p.seen) AS seen,
       count(*) FILTER (p.missing) AS missing, bool_or(p.seen AND p.sure) AS sure, bool_or(p.open) AS open,
       min(p.began) AS began,
       min({'message_id': p.message_id, 'address': p.address, 'sub': p.sub}) FILTER (p.missing) AS lacking,
       min({'message_id': p.message_id, 'address': p.address, 'sub': p.sub}) FILTER (p.seen AND p.sure) AS having_seen
FROM part p JOIN specs s ON p.run = s.run AND s.name = 'atomic' GROUP BY p.run, s.spec, p.txn;
"""
COUNTS = FOUND.by("""
SELECT run, spec, count(*) FILTER (sure AND missing > 0) AS n, 0::BIGINT AS excused,
       bool_or(seen + missing > 1) AS evidence,
       bool_or(sure AND open) AS doubt, NULL::DOUBLE AS measured, count(*) FILTER (seen + missing > 1) AS judged
FROM whole GROUP BY run, spec
""")
BY_ROUND = by_round("whole WHERE sure AND missing > 0", "'atomic'", "began")
WORST = witnesses(
    "spec",
    """
SELECT run, spec, missing AS weight, txn, client, seen, missing, lacking.message_id AS message_id,
       lacking.address AS address, nullif(lacking.sub, '') AS subscription,
       having_seen.message_id AS seen_message_id, having_seen.address AS seen_address
FROM whole WHERE sure AND missing > 0
""",
    "txn",
    "spec int, txn string, client string, seen long, missing long, message_id string, address string, "
    "subscription string, seen_message_id string, seen_address string",
)
