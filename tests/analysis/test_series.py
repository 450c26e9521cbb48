"""What a report draws, from the stages' partial results: clients, routes and buckets of several runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from brokerdrill.analysis import routes
from brokerdrill.analysis.activity import Active, clients
from brokerdrill.analysis.clients import MOST_CLIENTS
from brokerdrill.analysis.columns import table
from brokerdrill.analysis.judge import database
from brokerdrill.analysis.kernel import add
from brokerdrill.analysis.partials import declared

S = 1_000_000_000


def partials(**rows: Sequence[Sequence[Any]]) -> Mapping[str, Any]:
    """Partial results of the stages, by kind."""
    return {kind: [table(of, declared()[kind].text)] for kind, of in rows.items()}


def test_a_run_shows_the_clients_that_failed_most_and_waited_longest() -> None:
    """Of one client more than there is room for the last by name is left out; another run's is shown all the same."""
    names = [f"c{number:02}" for number in range(MOST_CLIENTS + 1)]
    busiest = [(0, name, 1, 5, len(names), "c00") for name in names] + [(1, names[-1], 0, None, 1, names[-1])]
    active = [(run, name, 0, True, 1) for run, name, *_ in busiest]
    with database(partials(active=active, busiest=busiest)) as base:
        found = clients(base, {0: 100, 1: 100})
    assert sorted(row.client for row in found[0].rows) == names[:-1]
    assert [row.client for row in found[1].rows] == names[-1:]
    assert (found[0].count, found[1].count) == (len(names), 1)


def test_a_client_was_served_in_a_bucket_if_it_was_at_some_time_in_it() -> None:
    """What stage 1 counted by its own narrower buckets."""
    active = [(0, "p", 0, True, 0), (0, "p", 100, False, 2), (0, "p", 200, False, 3), (1, "p", 100, False, 4)]
    busiest = [(0, "p", 5, 100, 1, "p"), (1, "p", 4, None, 1, "p")]
    with database(partials(active=active, busiest=busiest)) as base:
        found = clients(base, {0: 200, 1: 100})
    assert sorted(found[0].rows) == [Active("p", 0, True, 2), Active("p", 200, False, 3)]
    assert found[1].rows == [Active("p", 100, False, 4)]


def test_a_bin_adds_up_what_narrower_buckets_and_several_partitions_counted() -> None:
    """Of a send of 2 ms and one of 3, and of one of 4 in another run; two that have no latency are counted."""
    histogram = [
        (0, "send", "load", 0, 7, 2, 1, 2e6, 2_000_000),
        (0, "send", "load", 100, 7, 2, 1, 3e6, 3_000_000),
        (0, "send", "load", 200, 7, 1, 0, None, None),
        (1, "receive", "load", 100, 7, 1, 1, 4e6, 4_000_000),
    ]
    with database(partials(histogram=histogram), {0: 200, 1: 100}) as base:
        found = base.execute(
            "SELECT run, kind, side, phase, start_ns, bin, n, calls, took, longest FROM bins ORDER BY ALL"
        ).fetchall()
    assert found == [
        (0, "send", "send", "load", 0, 7, 4, 2, 2.5, 3.0),
        (0, "send", "send", "load", 200, 7, 1, 0, None, None),
        (1, "receive", "delivery", "load", 100, 7, 1, 1, 4.0, 4.0),
    ]


KEYS = [f"k{number:03}" for number in range(routes.MOST_KEYS + 1)]


def test_a_partition_tells_the_stays_of_the_keys_that_moved_most() -> None:
    """Of one key more than there is room for the last of those that never moved is left out; another run's is told."""
    stays = [(0, key, "s", 1, 5, 6, 1) for key in KEYS[:-1]]
    stays += [(0, KEYS[-1], store, part, 5 + part, 6 + part, 1) for part, store in ((1, "s"), (2, None))]
    stays += [(1, KEYS[-2], "z", 1, 5, 6, 2)]
    base = duckdb.connect()
    schema = "run int, key string, store string, part long, since long, until long, n long"
    add(base, "stay", table(stays, schema))
    found = base.execute(routes.SHOWN.sql).fetchall()
    assert sorted({key for run, key, *_ in found if run == 0}) == [*KEYS[:-2], KEYS[-1]]
    assert sorted(row for row in found if row[1] in KEYS[-2:]) == [
        (0, KEYS[-1], "", 7, 8, 1),
        (0, KEYS[-1], "s", 6, 7, 1),
        (1, KEYS[-2], "z", 5, 6, 2),
    ]


def test_of_the_keys_of_all_partitions_those_that_moved_most_are_drawn() -> None:
    told = [(0, key, "s", 5, 6, 1) for key in KEYS[:-1]]
    told += [(0, KEYS[-1], store, at, at + 1, 1) for at, store in ((5, "s"), (7, "z"))]
    told += [(1, KEYS[-2], "z", 5, 6, 2)]
    totals = [(0, "s", len(KEYS), len(KEYS), 0), (0, "z", 0, 1, 1), (1, "z", 1, 2, 0)]
    with database(partials(route=told, route_total=totals)) as base:
        found = routes.routes(base, {0: (), 1: ()})
    assert sorted({stay.key for stay in found[0].stays}) == [*KEYS[:-2], KEYS[-1]]
    assert [stay.store for stay in found[0].stays if stay.key == KEYS[-1]] == ["s", "z"]
    assert [stay.key for stay in found[1].stays] == [KEYS[-2]]
