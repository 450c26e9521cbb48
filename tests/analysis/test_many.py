"""Queries take time by their rows, and not by the square of what one client did."""

from __future__ import annotations

import time

from brokerdrill.analysis.checks import ordered
from brokerdrill.analysis.kernel import engine
from brokerdrill.analysis.meeting import MET

# Of one client behind a router.
RECONNECTS = 20_000
# Of one address, and messages of it, of which each second one is late.
CONSUMERS, MESSAGES = 400, 100_000


def test_a_client_that_a_router_led_very_often() -> None:
    with engine() as base:
        base.execute(f"""
            CREATE TABLE ops AS
            SELECT 0 AS run, 'c' AS client, i * 3 + j AS op_id, ['connect', 'send', 'close'][j + 1] AS op,
                   'ok' AS outcome, (i * 10 + j * 3)::BIGINT AS start, (i * 10 + j * 3 + 1)::BIGINT AS "end",
                   'r' AS server, NULL::TEXT AS via
            FROM range({RECONNECTS}) t (i), range(3) u (j);
            CREATE TABLE routers AS SELECT 0 AS run, 'r' AS client;
            -- The first half of the time to one broker, then to the other; and twice at one time.
            CREATE TABLE routed AS
            SELECT 0 AS run, 'c' AS client, (i * 10)::BIGINT AS r_from, (i * 10 + k * 10)::BIGINT AS r_until,
                   CASE WHEN k = 0 THEN 'none' WHEN i < {RECONNECTS // 2} THEN 'a' ELSE 'b' END AS behind, 'r' AS router
            FROM range({RECONNECTS}) t (i), range(2) u (k);
            CREATE TABLE struck AS
            SELECT 0 AS run, f::INT AS fault, {RECONNECTS * 5 + 3}::BIGINT AS f_at,
                   {RECONNECTS * 10}::BIGINT AS f_until,
                   false AS whole, NULL::TEXT AS only FROM range(3) t (f);
            CREATE TABLE members AS SELECT 0 AS run, f::INT AS fault, ['a', 'b', 'none'][f + 1] AS server
            FROM range(3) t (f);
            CREATE TABLE deaths (run INT, client TEXT, d_at BIGINT);
            CREATE TABLE numbers AS SELECT run, client, max(op_id) AS last FROM ops GROUP BY ALL;
            SET threads = 1""")
        begin = time.process_time()
        found = base.execute(MET.sql).fetchall()
        took = time.process_time() - begin
    # At the fault it was connected to `b`, with one send in flight, and with two operations in each session to come.
    assert found == [(0, 1, 1, 1, RECONNECTS - 1)]
    assert took < 5


def test_many_late_messages_where_many_clients_give_back() -> None:
    with engine() as base:
        base.execute(f"""
            CREATE TABLE specs AS SELECT 0 AS run, 'ordered' AS name, 0 AS spec, 'key' AS scope;
            CREATE TABLE ticks AS SELECT 0 AS run, 't' AS tick, 0::BIGINT AS u;
            CREATE TABLE first AS
            SELECT 0 AS run, 'q' AS address, 'm' || i AS message_id, '' AS sub, i * 10 AS began, i * 10 + 5 AS over,
                   'p' AS producer, (i // 2 % 10)::TEXT AS key, (i + 1 - i % 2 * 2) * 10 + 7 AS moment,
                   false AS redelivered, 'c' || (i % {CONSUMERS}) AS consumer, 0 AS session, 't' AS tick, 0 AS place
            FROM range({MESSAGES}) t (i);
            -- Nobody gives back as a message comes but `c1`, from 0 to 100.
            CREATE TABLE sessions AS
            SELECT 0 AS run, 'q' AS address, '' AS sub, 'c' || c AS client, s AS session, 0::BIGINT AS since,
                   (s * {CONSUMERS} + c) * 1000 + CASE WHEN s = 0 AND c = 1 THEN -1000 ELSE 1 END AS begun,
                   (s * {CONSUMERS} + c) * 1000 + CASE WHEN s = 0 AND c = 1 THEN -900 ELSE 3 END AS e_at
            FROM range({CONSUMERS}) t (c), range(20) u (s);
            SET threads = 1""")
        base.execute(ordered.LATE)
        begin = time.process_time()
        base.execute(ordered.JUDGED)
        took = time.process_time() - begin
        found = base.execute("SELECT message_id FROM judged WHERE excused ORDER BY moment").fetchall()
        assert base.execute("SELECT count(*) FROM judged").fetchall() == [(MESSAGES // 2,)]
    assert found == [("m0",), ("m2",), ("m4",), ("m6",), ("m8",)]
    assert took < 4
