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

from brokerdrill.ledger.contract import PromiseSpec, RunInfo
from brokerdrill.promises.catalogue import PROMISES
from tests.analysis import oracle, test_oracle
from tests.analysis.batch import LEDGERS, Ledger, Row, analyse, differences, expected
from tests.analysis.generate import generate

FIRST_SEED = int(os.environ.get("BROKERDRILL_ORACLE_SEED", "0"))
# As many ledgers as one job judges at a time.
BATCH = 2000
# Their ledgers are generated (and judged below), or their point is a torn file, which is the loader's.
NOT_REPLAYED = ("test_generated", "test_a_torn_line")


@pytest.mark.parametrize("parts", [1, 5], ids=["one partition", "five partitions"])
@pytest.mark.timeout(900 + LEDGERS)
def test_generated_ledgers(spark: SparkSession, parts: int) -> None:
    seeds = range(FIRST_SEED, FIRST_SEED + LEDGERS)
    print(f"seeds {seeds.start} to {seeds.stop - 1}")
    for first in range(seeds.start, seeds.stop, BATCH):
        ledgers = {f"seed {seed}": generate(seed) for seed in range(first, min(first + BATCH, seeds.stop))}
        results = analyse(spark, ledgers, parts=parts)
        wrong = [line for key in ledgers for line in differences(key, results[key], expected(ledgers[key]))]
        assert not wrong, "\n".join(wrong[:20])


def _on_other_clocks(ledger: Ledger, rng: random.Random) -> Ledger:
    """The same run as hosts record it whose clocks began at other times: each offset takes back what its times gain."""
    run, ops, events = ledger
    # Earlier by several seconds each: a time before a clock's begin would be refused.
    late = {name: rng.randint(-20_000_000_000, 0) for name in run.clocks}

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


def _ended_by_others(ledger: Ledger) -> Ledger:
    """The same run where one client sends and receives, another acknowledges and ends its transactions."""
    run, ops, events = ledger
    others = ("prepare", "commit", "rollback", "ack")
    return run, [{**op, "client": f"other-{op['client']}"} if op["op"] in others else op for op in ops], events


@pytest.mark.parametrize("parts", [1, 5], ids=["one partition", "five partitions"])
def test_what_another_client_ended(spark: SparkSession, parts: int) -> None:
    """An acknowledgement and the end of a transaction decide, whoever made them."""
    ledgers = {f"seed {seed}": _ended_by_others(generate(seed)) for seed in range(100)}
    results = analyse(spark, ledgers, parts=parts)
    wrong = [line for key in ledgers for line in differences(key, results[key], expected(ledgers[key]))]
    assert not wrong, "\n".join(wrong[:20])


def _coarse(ledger: Ledger, tick_ns: int) -> Ledger:
    """The same run on a clock that ticks every `tick_ns` of run time.

    The oracle takes rows of equal times as they stand: they stand as docs/analysis.md orders them.
    """
    run, ops, events = ledger

    def ticked(row: Row) -> Row:
        offset = run.clocks[row["clock"]].offset_ns
        times = ("start_ns", "end_ns", "expires_ns", "t_ns")
        return {
            k: (v + offset) // tick_ns * tick_ns - offset if k in times and v is not None else v for k, v in row.items()
        }

    def whom(event: Row) -> tuple[str, ...]:
        return tuple(event.get(name) or "" for name in ("name", "instance", "target"))

    ordered = sorted(ops, key=lambda op: (op["start_ns"], op["client"], op["op_id"]))
    return run, [ticked(row) for row in ordered], [ticked(row) for row in sorted(events, key=whom)]


# So few times in a ledger of some seconds that operations, and at the second also roles and faults, share them.
@pytest.mark.parametrize("tick_ms", [50, 500])
@pytest.mark.parametrize("parts", [1, 5], ids=["one partition", "five partitions"])
def test_equal_times(spark: SparkSession, parts: int, tick_ms: int) -> None:
    """What docs/analysis.md says of them."""
    ledgers = {f"seed {seed}": _coarse(generate(seed), tick_ms * 1_000_000) for seed in range(100)}
    results = analyse(spark, ledgers, parts=parts)
    wrong = [line for key in ledgers for line in differences(key, results[key], expected(ledgers[key]))]
    assert not wrong, "\n".join(wrong[:20])


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
        unbounded = any(PROMISES[spec.name].bound and spec.bound_ms is None for spec in promises)
        if not unbounded:
            ledgers[f"ledger {len(ledgers)}"] = (replace(run, promises=tuple(promises), expect={}), [*ops], [*events])
        return result

    monkeypatch.setattr(test_oracle, "judge", recorder)
    for function, values in _calls():
        function(**values)
    return ledgers


@pytest.mark.parametrize("parts", [1, 5], ids=["one partition", "five partitions"])
def test_ledgers_judged_by_eye(spark: SparkSession, judged_by_eye: dict[str, Ledger], parts: int) -> None:
    assert len(judged_by_eye) > 100
    results = analyse(spark, judged_by_eye, parts=parts)
    wrong = [line for key, ledger in judged_by_eye.items() for line in differences(key, results[key], expected(ledger))]
    assert not wrong, "\n".join(wrong[:20])
