"""Which routing key reached which store, from when to when: what a report draws beside the promise sticky.

SQL over one partition of stage 2, which has all connects of a key; and what the driver makes of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import duckdb

from brokerdrill.base.statistics import evenness

# More lanes than a picture can show; of the keys those that moved most.
MOST_KEYS = 200

# A stay: successive connects of a key that reached one store.
STAYS = """
CREATE TEMP TABLE stay AS
SELECT run, key, store, part, min(moment) AS since, max(moment) AS until, count(*) AS n
FROM (SELECT *, sum(CASE WHEN part_begins THEN 1 ELSE 0 END) OVER w AS part
      FROM (SELECT *, row_number() OVER w = 1 OR store IS DISTINCT FROM lag(store) OVER w AS part_begins FROM connect
            WINDOW w AS (PARTITION BY run, key ORDER BY moment, start, client, op_id))
      WINDOW w AS (PARTITION BY run, key ORDER BY moment, start, client, op_id))
GROUP BY run, key, store, part
"""
TOTALS = """
SELECT run, coalesce(store, '') AS store, count(*) FILTER (part = 1) AS keys, sum(n)::BIGINT AS connects,
       count(*) FILTER (part > 1) AS moves FROM stay GROUP BY ALL
"""
# How many keys moved at all: of those with a move that breaks the promise, and of those whose moves are all excused.
MOVED = """
SELECT run, count(*) FILTER (broken) AS unexcused, count(*) FILTER (NOT broken) AS excused
FROM (SELECT run, key, bool_or(NOT excused AND NOT perhaps) AS broken FROM move WHERE moved
      GROUP BY run, key) GROUP BY run
"""
SHOWN = f"""
SELECT s.run, s.key, coalesce(s.store, '') AS store, s.since, s.until, s.n FROM stay s SEMI JOIN (
    SELECT run, key FROM stay GROUP BY run, key
    QUALIFY row_number() OVER (PARTITION BY run ORDER BY count(*) DESC, key) <= {MOST_KEYS}) k
ON s.run = k.run AND s.key = k.key
"""


def routes(base: duckdb.DuckDBPyConnection, pooled: Mapping[int, Collection[str]]) -> dict[int, dict[str, Any]]:
    """Return by run what its keys reached, JSON-able: keys, connects, moves (connects that reached another store than
    the key's previous one) in all; moved: {excused, unexcused}, how many keys moved at all, by whether some move of
    theirs breaks the promise; stores: {store, keys (first led there), connects, moves (to it)}, those of `pooled` (by
    run: the stores that routers may choose) among them although no key reached them; spread: {chi_square, p, most} of
    the keys' first stores against an even choice, `most` the fullest store's part over an even one, null where there is
    one store; spans: {key, store, start_ns, end_ns, connects}, of at most MOST_KEYS keys. A store that is not known is
    "".
    """
    found: dict[int, dict[str, Any]] = {}
    for run, store, keys, connects, moves in base.execute(
        "SELECT run, store, sum(keys)::BIGINT, sum(connects)::BIGINT, sum(moves)::BIGINT FROM route_total "
        "GROUP BY run, store ORDER BY run, store"
    ).fetchall():
        none = {"keys": 0, "connects": 0, "moves": 0, "moved": {"excused": 0, "unexcused": 0}}
        one = found.setdefault(run, {**none, "stores": [], "spread": None, "spans": []})
        one["stores"].append({"store": store, "keys": keys, "connects": connects, "moves": moves})
        for name, value in (("keys", keys), ("connects", connects), ("moves", moves)):
            one[name] += value
    for run, unexcused, excused in base.execute(
        "SELECT run, sum(unexcused)::BIGINT, sum(excused)::BIGINT FROM route_moved GROUP BY run"
    ).fetchall():
        found[run]["moved"] = {"excused": excused, "unexcused": unexcused}
    for run, one in found.items():
        reached = {row["store"] for row in one["stores"]}
        one["stores"] += [{"store": s, "keys": 0, "connects": 0, "moves": 0} for s in {*pooled[run]} - reached]
        one["stores"].sort(key=lambda row: row["store"])
        one["spread"] = _spread([row["keys"] for row in one["stores"] if row["store"]])
    for run, key, store, since, until, n in base.execute(
        "SELECT run, key, store, since, until, n FROM route SEMI JOIN (SELECT run, key FROM route GROUP BY run, key "
        f"QUALIFY row_number() OVER (PARTITION BY run ORDER BY count(*) DESC, key) <= {MOST_KEYS}) USING (run, key) "
        "ORDER BY run, key, since"
    ).fetchall():
        found[run]["spans"].append({"key": key, "store": store, "start_ns": since, "end_ns": until, "connects": n})
    return found


def _spread(counts: Sequence[int]) -> dict[str, float] | None:
    spread = evenness(counts)
    return spread and {"chi_square": spread[0], "p": spread[1], "most": max(counts) * len(counts) / sum(counts)}
