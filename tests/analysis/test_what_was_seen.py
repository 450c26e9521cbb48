"""A verdict says no more than was seen: ledgers in which something was not, or was known too vaguely, made by hand.

Each is the run that keeps every promise (`kept_run.kept`), of which a part was not there to be seen. What
is said of it is the promise's verdict and a word of the reason.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from brokerdrill.analysis import verdict
from brokerdrill.base.errors import UsageError
from brokerdrill.ledger.contract import RunInfo
from brokerdrill.ledger.verdict import Verdict
from tests.analysis.batch import Ledger, analyse
from tests.analysis.kept_run import kept, numbered
from tests.analysis.unseen.case import Case
from tests.analysis.unseen.cases import ALSO, CASES

EVENTS_ALONE = {"failback_within", "stays_up", "alerted_within"}


def ledger(case: Case) -> Ledger:
    run, ops, events = kept()
    case.change(ops, events)
    return replace(run, **case.run), numbered(ops) if case.renumber else ops, events


@pytest.fixture(scope="module")
def results(spark: SparkSession) -> dict[str, dict[str, Any]]:
    return analyse(spark, {name: ledger(case) for name, case in CASES.items()})


@pytest.mark.parametrize("name", CASES)
def test_no_more_is_said_than_was_seen(results: dict[str, dict[str, Any]], name: str) -> None:
    case, result = CASES[name], results[name]
    told = {one["name"]: one["verdict"] for one in result["promises"]}
    assert bool(result["vacuous"]) == case.vacuous, result["vacuous"]
    if case.vacuous:
        assert set(told.values()) <= {"unknown"}, told
        assert not result["as_expected"]
        assert verdict.exit_status(Verdict.from_json(result)) == 2
        return
    if case.all_unknown:
        assert {name: word for name, word in told.items() if name not in EVENTS_ALONE and word != "unknown"} == {}
        return
    assert {name: word or told[name] for name, word in case.told.items()} == {name: told[name] for name in case.told}, [
        (one["name"], one.get("reason")) for one in result["promises"]
    ]
    others = {one: word for one, word in told.items() if one not in {*case.told, *ALSO.get(name, set())}}
    assert {one: word for one, word in others.items() if word != "pass"} == {}
    if case.as_expected is not None:
        asked = [one for one in result["promises"] if one["expected"] != "kept"]
        assert [one["as_expected"] for one in asked] == [case.as_expected] * len(asked) != []
        assert all(bool(one.get("beyond")) != case.as_expected for one in asked)


def test_what_is_unknown_says_why(results: dict[str, dict[str, Any]]) -> None:
    said = {
        (name, one["name"]): one.get("reason", "")
        for name, case in CASES.items()
        for one in results[name]["promises"]
        if case.told.get(one["name"]) == "unknown" and one["name"] not in ("no_loss", "no_duplicates", "no_phantoms")
        # That nothing waited at all is what the promise's own words say.
        if one["name"] != "delivered_within" or one["judged_from"]["messages"]
    }
    assert said
    assert [key for key, why in said.items() if not why] == []


def test_coverage_stands_beside_the_verdict(results: dict[str, dict[str, Any]]) -> None:
    (met,) = results["a log was read whole"]["coverage"]
    assert {name: met[name] for name in ("fault", "instance", "role", "in_flight")} == {
        "fault": "kill",
        "instance": "a",
        "role": "active",
        "in_flight": 0,
    }
    # Producer, consumer and the client that connects by a key were served by it.
    assert met["clients"] == 3
    assert met["operations"] > 100
    (flying,) = results["a producer hangs since 1 ms before the fault"]["coverage"]
    assert flying["in_flight"] == 1


@pytest.mark.parametrize("outcome", ["aborted", "crashed", "running"])
def test_a_run_that_did_not_complete_passes_never(outcome: str) -> None:
    """Whoever reads the folder does not know whether its runner still lives; it has not seen the end, either way."""
    told = RunInfo("r", outcome=outcome)
    assert verdict.of_run(told, ["pass", "pass"]) == "unknown"
    assert verdict.of_run(told, ["pass", "fail"]) == "fail"


def test_what_is_expected_of_a_promise_is_one_of_three_words() -> None:
    from brokerdrill.ledger.contract import run_from_json

    value = {"run_id": "r", "schema_version": 1, "expect": {"no_loss": "investigated"}}
    with pytest.raises(UsageError, match="expect's no_loss"):
        run_from_json(value, "run.json")
