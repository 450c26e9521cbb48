"""The Spark analysis against the oracle: thousands of generated ledgers, and every ledger that was judged by eye.

BROKERDRILL_ORACLE_LEDGERS says how many are generated (default 300), BROKERDRILL_ORACLE_SEED the first seed.
"""

from __future__ import annotations

import inspect
import itertools
import os
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from brokerdrill.analysis.judge import WHOLE
from brokerdrill.analysis.promises import available
from brokerdrill.ledger import BOUNDED_PROMISES, PromiseSpec, RunInfo
from tests.analysis import oracle, test_oracle
from tests.analysis.batch import LEDGERS, Ledger, Row, analyse, differences, expected
from tests.analysis.generate import generate

FIRST_SEED = int(os.environ.get("BROKERDRILL_ORACLE_SEED", "0"))
# As many ledgers as one job judges at a time.
BATCH = 2000
# Their ledgers are generated (and judged below), or their point is a torn file, which is the loader's.
NOT_REPLAYED = ("test_generated", "test_a_torn_line")


def _without(names: Collection[str], ledger: Ledger) -> Ledger:
    run, ops, events = ledger
    return replace(run, promises=tuple(spec for spec in run.promises if spec.name not in names)), ops, events


def test_the_longest_gap_is_found_within_a_stretch_too(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few stretches hide most gaps, which are then looked into."""
    monkeypatch.setattr(available, "STRETCHES", 2)
    ledgers = {f"seed {seed}": _without(WHOLE, generate(seed)) for seed in range(FIRST_SEED, FIRST_SEED + 40)}
    results = analyse(spark, ledgers, large=True)
    wrong = [line for key in ledgers for line in differences(key, results[key], expected(ledgers[key]))]
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.timeout(900 + LEDGERS)
def test_generated_ledgers(spark: SparkSession, large: bool) -> None:
    """By the way of small ledgers and by that of large ones, there without the promises that ask for the whole."""
    seeds = range(FIRST_SEED, FIRST_SEED + LEDGERS)
    print(f"seeds {seeds.start} to {seeds.stop - 1}")
    for first in range(seeds.start, seeds.stop, BATCH):
        ledgers = {
            f"seed {seed}": _without(WHOLE if large else (), generate(seed))
            for seed in range(first, min(first + BATCH, seeds.stop))
        }
        results = analyse(spark, ledgers, large=large)
        wrong = [line for key in ledgers for line in differences(key, results[key], expected(ledgers[key]))]
        assert not wrong, "\n".join(wrong[:20])


def _on_other_clocks(ledger: Ledger, rng: random.Random) -> Ledger:
    """The same run as hosts record it whose clocks began at other times: each offset takes back what its times gain."""
    run, ops, events = ledger
    late = {name: rng.randint(-10_000_000_000, 10_000_000_000) for name in run.clocks}

    def moved(row: Row) -> Row:
        times = ("start_ns", "end_ns", "expires_ns", "t_ns")
        return {k: v - late[row["clock"]] if k in times and v is not None else v for k, v in row.items()}

    clocks = {name: replace(clock, offset_ns=clock.offset_ns + late[name]) for name, clock in run.clocks.items()}
    return replace(run, clocks=clocks), [moved(row) for row in ops], [moved(row) for row in events]


def test_several_hosts_with_clocks_of_their_own(spark: SparkSession) -> None:
    """Two load hosts and a controller: when their clocks began makes no difference, as long as run.json says it."""
    rng = random.Random(5)
    ledgers = {f"seed {seed}": generate(seed) for seed in range(20)}
    assert all(len(run.clocks) == 3 for run, _, _ in ledgers.values())
    results = analyse(spark, {key: _on_other_clocks(ledger, rng) for key, ledger in ledgers.items()})
    wrong = [line for key in ledgers for line in differences(key, results[key], expected(ledgers[key]))]
    assert not wrong, "\n".join(wrong)


def _calls() -> Iterator[tuple[Any, dict[str, Any]]]:
    """The test functions of `test_oracle` with each set of their parameters."""
    for name, function in vars(test_oracle).items():
        if not name.startswith("test_") or name.startswith(NOT_REPLAYED):
            continue
        choices = []
        for mark in getattr(function, "pytestmark", []):
            names = mark.args[0] if not isinstance(mark.args[0], str) else mark.args[0].replace(" ", "").split(",")
            values = [value if len(names) > 1 else (value,) for value in mark.args[1]]
            choices.append([dict(zip(names, value, strict=True)) for value in values])
        assert set(inspect.signature(function).parameters) == {key for choice in choices for key in choice[0]}
        for picked in itertools.product(*choices):
            yield function, {key: value for one in picked for key, value in one.items()}


@pytest.fixture
def judged_by_eye(monkeypatch: pytest.MonkeyPatch) -> dict[str, Ledger]:
    """The ledgers that `test_oracle` gives the oracle and asserts the verdicts of."""
    ledgers: dict[str, Ledger] = {}

    def recorder(
        run: RunInfo,
        ops: Sequence[Row],
        events: Sequence[Row],
        promises: Sequence[PromiseSpec],
        torn: Collection[str] = (),
    ) -> dict[str, Any]:
        assert not torn
        result = oracle.judge(run, ops, events, promises)  # bad input raises here, and is the loader's to find
        unbounded = any(spec.name in BOUNDED_PROMISES and spec.bound_ms is None for spec in promises)
        if not unbounded:
            ledgers[f"ledger {len(ledgers)}"] = (replace(run, promises=tuple(promises), expect={}), [*ops], [*events])
        return result

    monkeypatch.setattr(test_oracle, "judge", recorder)
    for function, values in _calls():
        function(**values)
    return ledgers


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_ledgers_judged_by_eye(spark: SparkSession, judged_by_eye: dict[str, Ledger], large: bool) -> None:
    assert len(judged_by_eye) > 100
    results = analyse(spark, judged_by_eye, large=large)
    wrong = [line for key, ledger in judged_by_eye.items() for line in differences(key, results[key], expected(ledger))]
    assert not wrong, "\n".join(wrong[:20])
