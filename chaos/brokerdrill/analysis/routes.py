"""Which routing key reached which store, from when to when: what a report draws beside the promise sticky.

SQL over one partition of stage 2, which has all connects of a key; and what the driver makes of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import duckdb

from brokerdrill.analysis.partials import declare
from brokerdrill.base.statistics import evenness
from brokerdrill.ledger.series import RoutedStore, Routes, Spread, Stay

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
TOTALS = declare("route_total", "run int, store string, keys long, connects long, moves long", "routes.routes").by("""
SELECT run, coalesce(store, '') AS store, count(*) FILTER (part = 1) AS keys, sum(n)::BIGINT AS connects,
       count(*) FILTER (part > 1) AS moves FROM stay GROUP BY ALL
""")
# How many keys moved at all: of those with a move that breaks the promise, and of those whose moves are all excused.
MOVED = declare("route_moved", "run int, unexcused long, excused long", "routes.routes").by("""
SELECT run, count(*) FILTER (broken) AS unexcused, count(*) FILTER (NOT broken) AS excused
FROM (SELECT run, key, bool_or(NOT excused AND NOT perhaps) AS broken FROM move WHERE moved
      GROUP BY run, key) GROUP BY run
""")
_ROUTE = declare("route", "run int, key string, store string, since long ns, until long ns, n long", "routes.routes")
SHOWN = _ROUTE.by(f"""
SELECT s.run, s.key, coalesce(s.store, '') AS store, s.since, s.until, s.n FROM stay s SEMI JOIN (
    SELECT run, key FROM stay GROUP BY run, key
    QUALIFY row_number() OVER (PARTITION BY run ORDER BY count(*) DESC, key) <= {MOST_KEYS}) k
ON s.run = k.run AND s.key = k.key
""")


def routes(base: duckdb.DuckDBPyConnection, pooled: Mapping[int, Collection[str]]) -> dict[int, Routes]:
    """Return by run whom its keys were led to; runs in which nobody was are left out. The stores that routers may
    choose (`pooled`, by run) are there although no key reached them; stays are of at most MOST_KEYS keys."""
    stores: dict[int, list[RoutedStore]] = defaultdict(list)
    for run, *of in base.execute(
        "SELECT run, store, sum(keys)::BIGINT, sum(connects)::BIGINT, sum(moves)::BIGINT FROM route_total "
        "GROUP BY run, store"
    ).fetchall():
        stores[run].append(RoutedStore(*of))
    moved = {
        run: (excused, unexcused)
        for run, excused, unexcused in base.execute(
            "SELECT run, sum(excused)::BIGINT, sum(unexcused)::BIGINT FROM route_moved GROUP BY run"
        ).fetchall()
    }
    stays: dict[int, list[Stay]] = defaultdict(list)
    for run, *of in base.execute(
        "SELECT run, key, store, since, until, n FROM route SEMI JOIN (SELECT run, key FROM route GROUP BY run, key "
        f"QUALIFY row_number() OVER (PARTITION BY run ORDER BY count(*) DESC, key) <= {MOST_KEYS}) USING (run, key) "
        "ORDER BY run, key, since"
    ).fetchall():
        stays[run].append(Stay(*of))
    return {run: _routes(reached, pooled[run], moved.get(run, (0, 0)), stays[run]) for run, reached in stores.items()}


def _routes(
    reached: Sequence[RoutedStore], pooled: Collection[str], moved: tuple[int, int], stays: Sequence[Stay]
) -> Routes:
    never = [RoutedStore(store) for store in {*pooled} - {one.store for one in reached}]
    stores = sorted([*reached, *never], key=lambda one: one.store)
    return Routes(
        keys=sum(one.keys for one in stores),
        connects=sum(one.connects for one in stores),
        moves=sum(one.moves for one in stores),
        excused=moved[0],
        unexcused=moved[1],
        stores=tuple(stores),
        spread=_spread([one.keys for one in stores if one.store]),
        stays=tuple(stays),
    )


def _spread(counts: Sequence[int]) -> Spread | None:
    spread = evenness(counts)
    return spread and Spread(*spread, most=max(counts) * len(counts) / sum(counts))
