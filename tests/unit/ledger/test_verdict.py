"""What the analysis writes becomes typed values, also what an older version wrote, or another one will."""

from __future__ import annotations

import pytest

from brokerdrill.ledger.verdict import FAIL, UNKNOWN, Failover, Numbers, RunVerdict, Verdict


def test_an_empty_object_is_an_unknown_verdict() -> None:
    found = RunVerdict.from_json({})
    assert (found.verdict, found.as_expected, found.run_id, found.promises) == (UNKNOWN, False, None, ())
    assert found.count() == 0 and found.failovers() == {}


@pytest.mark.parametrize("word", ["", None, "PASS", 3])
def test_a_word_that_is_none_is_no_pass(word: object) -> None:
    assert (
        RunVerdict.from_json({"verdict": word, "promises": [{"name": "no_loss", "verdict": word}]}).verdict == UNKNOWN
    )
    assert RunVerdict.from_json({"promises": [{"name": "no_loss", "verdict": word}]}).promises[0].verdict == UNKNOWN


def test_what_is_not_known_here_is_kept() -> None:
    found = RunVerdict.from_json(
        {"lucky": {"seven": 7}, "promises": [{"name": "ordered", "scope": "key", "reason": "so"}]}
    )
    assert found.more == {"lucky": {"seven": 7}}
    assert (found.promises[0].values, found.promises[0].reason) == ({"scope": "key"}, "so")


def test_null_is_as_good_as_nothing() -> None:
    found = RunVerdict.from_json(
        {
            "messages": {"ok": 3, "lost": None},
            "failover": [{"fault": "kill", "t_ns": None, "first_send_ms": None}],
            "phases": [{"phase": "load", "seconds": 2, "send": {"count": 1, "p50_ms": None}, "receive": {}}],
        }
    )
    assert (found.count(), found.count("lost")) == (3, 0)
    assert found.failover == (Failover(fault="kill"),)
    assert found.phases[0].kinds == {"send": Numbers(count=1)}


def test_a_failover_is_as_slow_as_its_slowest_client_and_never_is_slowest() -> None:
    def row(at: int, client: str, first: float | None) -> dict[str, object]:
        return {"fault": "kill", "instance": "a1", "t_ns": at, "client": client, "first_send_ms": first}

    found = RunVerdict.from_json(
        {"failover": [row(1, "p1", 5.0), row(1, "p2", 7.0), row(2, "p1", 9.0), row(2, "p2", None)]}
    )
    assert found.failovers() == {("kill a1", 1): 7.0, ("kill a1", 2): None}
    assert found.slowest()["kill a1", 2].client == "p2"


def test_several_runs_and_one_are_read_alike() -> None:
    one = {"run_id": "r1", "verdict": "fail", "as_expected": True}
    assert (
        Verdict.from_json(one).runs
        == Verdict.from_json({"runs": [one], "verdict": "fail"}).runs
        == (RunVerdict.from_json(one),)
    )
    assert Verdict.from_json(one).verdict == FAIL
