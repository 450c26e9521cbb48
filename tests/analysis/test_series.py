"""What a report draws, from the stages' partial results: clients, routes and buckets of several runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from brokerdrill.analysis.activity import Active, clients
from brokerdrill.analysis.clients import MOST_CLIENTS
from brokerdrill.analysis.judge import _EMPTY, database
from brokerdrill.analysis.tables import table

S = 1_000_000_000


def partials(**rows: Sequence[Sequence[Any]]) -> Mapping[str, Any]:
    """Partial results of the stages, by kind."""
    return {kind: [table(of, _EMPTY[kind])] for kind, of in rows.items()}


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
