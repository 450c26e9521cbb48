"""A synthesized ledger is found to have exactly the anomalies that were put into it, where they were put."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from brokerdrill.analysis.analyze import analyze
from brokerdrill.analysis.load import load
from brokerdrill.analysis.sources import source_of
from brokerdrill.base.errors import UsageError
from brokerdrill.synthesize.plan import KINDS, MESSAGE_KINDS, parse_anomalies, plan, truth
from brokerdrill.synthesize.write import TRUTH, synthesize

# The promise whose witnesses name the messages of an anomaly, and the class that they are told to be of.
_WITNESSED = {
    "lost": "no_loss",
    "duplicated": "no_duplicates",
    "phantom": "no_phantoms",
    "unexpected": "no_phantoms",
    "corrupted": "no_phantoms",
    "dead_lettered": "no_dead_letters",
    "out_of_order": "ordered",
    "intruder": "single_active",
}


def _check(found: dict[str, Any], known: dict[str, Any]) -> None:
    assert found["messages"] == known["classes"]
    counts: Counter[str] = Counter()
    for promise in found["promises"]:
        counts[promise["name"]] += promise["count"]
    assert dict(counts) == known["counts"]
    assert found["as_expected"]
    for kind, name in _WITNESSED.items():
        told = {
            (witness["message_id"], witness["address"])
            for promise in found["promises"]
            if promise["name"] == name
            for witness in promise["witnesses"]
            if "message_id" in witness and witness.get("class", kind) == kind
        }
        assert told == {(place["message_id"], place["address"]) for place in known["placed"].get(kind, ())}, kind


@pytest.mark.parametrize(
    ("rows", "share", "tasks"),
    [(1 << 20, 32 << 20, "one"), (3000, 1 << 17, "apart"), (1 << 20, 1 << 14, "spread")],
    ids=["one task", "clients in files of their own", "clients spread"],
)
def test_all_anomalies_are_found_and_no_others(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, share: int, tasks: str
) -> None:
    """In one task, in tasks that read whole clients, and where the rows of a client are brought together first."""
    monkeypatch.setattr("brokerdrill.synthesize.write.ROWS_A_PARTITION", rows)
    monkeypatch.setattr("brokerdrill.analysis.sources.PARQUET_BYTES", share)
    known = synthesize(tmp_path / "run", 12_000, dict.fromkeys(KINDS, 2), seed=7)
    assert json.loads((tmp_path / "run" / TRUTH).read_text()) == known
    source, parts = source_of(spark, load(spark, [tmp_path / "run"])[0])
    assert (len(source.tasks) > 1, source.whole, parts > 1) == {
        "one": (False, True, False),
        "apart": (True, True, True),
        "spread": (False, False, True),
    }[tasks]
    found = analyze([tmp_path / "run"]).to_json()
    _check(found, known)
    assert found["verdict"] == "fail"


def test_a_run_without_anomalies_keeps_everything(spark: SparkSession, tmp_path: Path) -> None:
    known = synthesize(tmp_path / "run", 10_000, {}, seed=1)
    found = analyze([tmp_path / "run"]).to_json()
    _check(found, known)
    assert found["verdict"] == "pass"
    assert all(promise["verdict"] == "pass" for promise in found["promises"])


def test_an_existing_directory_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        synthesize(tmp_path, 10_000, {})
    assert [path.name for path in tmp_path.iterdir()] == ["note"]


@given(st.dictionaries(st.sampled_from(KINDS), st.integers(1, 3)), st.integers(0, 1000))
def test_a_plan_puts_each_anomaly_on_a_message_of_its_own(anomalies: dict[str, int], seed: int) -> None:
    made = plan(60_000, anomalies, seed)
    assert made == plan(60_000, anomalies, seed)
    assert Counter(site.kind for site in made.sites) == {k: n for k, n in anomalies.items() if k in MESSAGE_KINDS}
    assert len({site.index // 10 for site in made.sites}) == len(made.sites)
    undrained = made.address(made.addresses - 1)
    if anomalies.get("unseen"):
        assert {s.kind for s in made.sites if made.message(s.index)[1] == undrained} == {"unseen"}
    assert sum(truth(made)["classes"].values()) == made.messages


@pytest.mark.parametrize("text", ["lots=3", "lost=many", "lost=-1"])
def test_a_wrong_anomaly_is_one_sentence(text: str) -> None:
    with pytest.raises(UsageError):
        parse_anomalies(text)


def test_too_few_operations_say_how_many_are_enough() -> None:
    with pytest.raises(UsageError, match="enough"):
        plan(100, {"outage": 1})
