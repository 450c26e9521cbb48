"""The Spark analysis against the oracle: thousands of generated ledgers, and every ledger that was judged by eye.

BROKERDRILL_ORACLE_LEDGERS says how many are generated (default 300), BROKERDRILL_ORACLE_SEED the first seed.
"""

from __future__ import annotations

import os
import random

import pytest
from pyspark.sql import SparkSession

from tests.analysis.batch import LEDGERS, analyse, differences, expected
from tests.analysis.generate import generate
from tests.analysis.ledgers import coarse, ended_by_others, judged_by_eye, on_other_clocks

FIRST_SEED = int(os.environ.get("BROKERDRILL_ORACLE_SEED", "0"))
# As many ledgers as one job judges at a time.
BATCH = 2000


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


def test_several_hosts_with_clocks_of_their_own(spark: SparkSession) -> None:
    """Two load hosts and a controller: when their clocks began makes no difference, as long as run.json says it."""
    rng = random.Random(5)
    ledgers = {f"seed {seed}": generate(seed) for seed in range(20)}
    assert all(len(run.clocks) == 3 for run, _, _ in ledgers.values())
    results = analyse(spark, {key: on_other_clocks(ledger, rng) for key, ledger in ledgers.items()})
    wrong = [line for key in ledgers for line in differences(key, results[key], expected(ledgers[key]))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("parts", [1, 5], ids=["one partition", "five partitions"])
def test_what_another_client_ended(spark: SparkSession, parts: int) -> None:
    """An acknowledgement and the end of a transaction decide, whoever made them."""
    ledgers = {f"seed {seed}": ended_by_others(generate(seed)) for seed in range(100)}
    results = analyse(spark, ledgers, parts=parts)
    wrong = [line for key in ledgers for line in differences(key, results[key], expected(ledgers[key]))]
    assert not wrong, "\n".join(wrong[:20])


# So few times in a ledger of some seconds that operations, and at the second also roles and faults, share them.
@pytest.mark.parametrize("tick_ms", [50, 500])
@pytest.mark.parametrize("parts", [1, 5], ids=["one partition", "five partitions"])
def test_equal_times(spark: SparkSession, parts: int, tick_ms: int) -> None:
    """What docs/analysis.md says of them."""
    ledgers = {f"seed {seed}": coarse(generate(seed), tick_ms * 1_000_000) for seed in range(100)}
    results = analyse(spark, ledgers, parts=parts)
    wrong = [line for key in ledgers for line in differences(key, results[key], expected(ledgers[key]))]
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.parametrize("parts", [1, 5], ids=["one partition", "five partitions"])
def test_ledgers_judged_by_eye(spark: SparkSession, parts: int) -> None:
    ledgers = judged_by_eye()
    assert len(ledgers) > 100
    results = analyse(spark, ledgers, parts=parts)
    wrong = [line for key, ledger in ledgers.items() for line in differences(key, results[key], expected(ledger))]
    assert not wrong, "\n".join(wrong[:20])
