"""What breaks a run that keeps every promise: each change must be caught by its promise, and only there.

All ledgers are judged in one Spark job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from brokerdrill.ledger.contract import PROMISES
from tests.analysis.batch import Ledger, Row, analyse
from tests.analysis.kept_run import ACTIVE_A, FAULT, HEAL, MS, ended, find, kept, numbered, op

Change = Callable[[list[Row], list[Row]], None]


def without(ops: list[Row], **columns: Any) -> None:
    ops.remove(find(ops, **columns))


def a_message_is_lost(ops: list[Row], events: list[Row]) -> None:
    without(ops, op="receive", message_id="m5")


def a_message_vanishes(ops: list[Row], events: list[Row]) -> None:
    without(ops, op="receive", message_id="m7")


def a_call_has_no_answer(ops: list[Row], events: list[Row]) -> None:
    ops.append(op("p", "rollback", 8100, None, txn="t-x", outcome="unknown"))


def a_delivery_is_never_committed(ops: list[Row], events: list[Row]) -> None:
    without(ops, op="commit", txn="r1000")


def a_delivery_is_rolled_back(ops: list[Row], events: list[Row]) -> None:
    find(ops, op="commit", txn="r1000")["op"] = "rollback"


def a_message_comes_twice(ops: list[Row], events: list[Row]) -> None:
    again = {**find(ops, op="receive", message_id="m5"), "delivery": "again", "txn": None}
    ops.append({**again, "start_ns": 8100 * MS, "end_ns": 8101 * MS})
    ops.append(op("c", "ack", 8102, 8103, delivery="again", address="q"))


def a_payload_is_changed(ops: list[Row], events: list[Row]) -> None:
    find(ops, op="receive", message_id="m5")["payload_sha"] = "another"


def a_refused_transaction_is_delivered(ops: list[Row], events: list[Row]) -> None:
    find(ops, op="commit", txn="t1000")["outcome"] = "fail"


def a_stranger_is_delivered(ops: list[Row], events: list[Row]) -> None:
    find(ops, op="receive", message_id="m5")["message_id"] = "stranger"
    ops.append({**find(ops, op="receive", message_id="stranger"), "message_id": "m5", "delivery": "d-x"})


def a_message_is_dead(ops: list[Row], events: list[Row]) -> None:
    without(ops, op="receive", message_id="m5")
    find(ops, op="browse")["message_id"] = "m5"


def two_messages_change_places(ops: list[Row], events: list[Row]) -> None:
    one, other = find(ops, op="receive", message_id="m5"), find(ops, op="receive", message_id="m6")
    for name in ("message_id", "payload_sha"):
        one[name], other[name] = other[name], one[name]


def a_key_moves(ops: list[Row], events: list[Row]) -> None:
    find(ops, op="connect", start_ns=2000 * MS)["instance"] = "x"


def two_are_active(ops: list[Row], events: list[Row]) -> None:
    find(events, kind="role", instance="b", value="active")["t_ns"] = 2500 * MS


def a_passive_one_serves(ops: list[Row], events: list[Row]) -> None:
    row = find(ops, op="send", start_ns=2000 * MS)
    row["instance"] = "b"


def the_failover_is_late(ops: list[Row], events: list[Row]) -> None:
    find(events, kind="fault")["t_ns"] -= 350 * MS
    find(events, kind="role", value="down")["t_ns"] -= 350 * MS
    for row in ops:
        if row["start_ns"] >= (FAULT - 350) * MS and row.get("instance") == "a" and row["start_ns"] < FAULT * MS:
            row["outcome"] = "fail" if row["op"] in ("send", "commit") else "unknown"


def what_waits_is_delivered_late(ops: list[Row], events: list[Row]) -> None:
    for row in (find(ops, op="receive", message_id="waits"), find(ops, op="ack", delivery="d-waits")):
        row["start_ns"] += 1550 * MS
        row["end_ns"] += 1550 * MS


def the_failback_is_late(ops: list[Row], events: list[Row]) -> None:
    find(events, kind="heal")["t_ns"] -= 400 * MS


def it_never_comes_back(ops: list[Row], events: list[Row]) -> None:
    events.remove(find(events, kind="role", instance="b", value="passive", t_ns=(ACTIVE_A - 100) * MS))
    events.remove(find(events, kind="role", instance="a", value="active", t_ns=ACTIVE_A * MS))
    for row in ops:
        if row["start_ns"] >= ACTIVE_A * MS and row.get("instance") == "a":
            row["instance"] = "b"


def sends_stop(ops: list[Row], events: list[Row]) -> None:
    gone = [row for row in ops if 6000 * MS <= row["start_ns"] < 6800 * MS and row["client"] in ("p", "c")]
    for row in gone:
        ops.remove(row)


def a_process_dies_by_itself(ops: list[Row], events: list[Row]) -> None:
    events.append(ended("b", 2000, "out of memory", "3"))


def a_process_dies_again_after_the_heal(ops: list[Row], events: list[Row]) -> None:
    events.append(ended("a", HEAL + 50, "exited", "1"))


def the_alert_is_of_another_instance(ops: list[Row], events: list[Row]) -> None:
    find(events, kind="alert", name="BrokerDown")["instance"] = "b"


def the_alert_fires_late(ops: list[Row], events: list[Row]) -> None:
    find(events, kind="alert", name="BrokerDown")["t_ns"] += 401 * MS


def the_alert_does_not_clear(ops: list[Row], events: list[Row]) -> None:
    events.remove(find(events, kind="alert", name="BrokerDown", value="cleared"))


def a_transaction_comes_apart(ops: list[Row], events: list[Row]) -> None:
    find(ops, op="commit", txn="t1000")["outcome"] = "unknown"
    for send in [row for row in ops if row["op"] == "send" and row.get("txn") == "t1000"][:2]:
        without(ops, op="receive", message_id=send["message_id"])


def a_commit_has_no_answer(ops: list[Row], events: list[Row]) -> None:
    find(ops, op="commit", txn="r1000")["outcome"] = "unknown"


# Of what is delivered together some is durable and some is not.
BOTH_LOST = {"no_loss": "lost", "no_nonpersistent_loss": "lost_nonpersistent"}
BREAKS: dict[str, tuple[Change, dict[str, str]]] = {
    "a message is lost": (a_message_is_lost, {"no_loss": "lost"}),
    "a delivery is never committed": (a_delivery_is_never_committed, BOTH_LOST),
    "a delivery is rolled back": (a_delivery_is_rolled_back, BOTH_LOST),
    "a message vanishes": (a_message_vanishes, {"no_nonpersistent_loss": "lost_nonpersistent"}),
    "a call has no answer": (a_call_has_no_answer, {"transparent": ""}),
    "a message comes twice": (a_message_comes_twice, {"no_duplicates": "duplicated"}),
    "a payload is changed": (a_payload_is_changed, {"no_phantoms": "corrupted"}),
    "a refused transaction is delivered": (a_refused_transaction_is_delivered, {"no_phantoms": "phantom"}),
    "a stranger is delivered": (a_stranger_is_delivered, {"no_phantoms": "unexpected"}),
    "a message is dead": (a_message_is_dead, {"no_dead_letters": "dead_lettered"}),
    "a transaction comes apart": (a_transaction_comes_apart, {"atomic": ""}),
    "two messages change places": (two_messages_change_places, {"ordered": ""}),
    "a key moves": (a_key_moves, {"sticky": ""}),
    "two are active": (two_are_active, {"single_active": ""}),
    "a passive one serves": (a_passive_one_serves, {"single_active": ""}),
    "a process dies by itself": (a_process_dies_by_itself, {"stays_up": ""}),
    "a process dies again after the heal": (a_process_dies_again_after_the_heal, {"stays_up": ""}),
    "the failover is late": (the_failover_is_late, {"failover_within": ""}),
    "what waits is delivered late": (what_waits_is_delivered_late, {"delivered_within": ""}),
    "the failback is late": (the_failback_is_late, {"failback_within": ""}),
    "it never comes back": (it_never_comes_back, {"failback_within": ""}),
    "sends stop": (sends_stop, {"available": ""}),
    "the alert is of another instance": (the_alert_is_of_another_instance, {"alerted_within": ""}),
    "the alert fires late": (the_alert_fires_late, {"alerted_within": ""}),
    "the alert does not clear": (the_alert_does_not_clear, {"alerted_within": ""}),
}
# What a change breaks besides: a lost message leaves its transaction incomplete; the same outage is seen from another
# side; an epoch that began before the fault is not the next one after it; a commit that failed was told.
ALSO = {
    "a message is lost": {"atomic", "delivered_within"},
    "the failover is late": {"available", "transparent"},
    "two are active": {"failover_within"},
    "a refused transaction is delivered": {"transparent"},
    "a transaction comes apart": {"transparent"},
}


def changed(change: Change) -> Ledger:
    run, ops, events = kept()
    change(ops, events)
    return run, numbered(ops), events


def cut_off(at_ms: float) -> Ledger:
    """The run as it stood when its consumer was killed in the middle of a transaction: what it had begun has no end,
    nothing of it comes later, and the messages it held are delivered to another consumer and processed there."""
    run, ops, events = kept()
    at = round(at_ms * MS)
    left: list[Row] = []
    held: list[Row] = []
    for row in ops:
        if row["client"] != "c" or row["end_ns"] <= at:
            left.append(row)
        elif row["start_ns"] <= at:
            left.append({**row, "end_ns": None, "outcome": "unknown"})
        if row["client"] == "c" and row["op"] == "receive" and (row["start_ns"] > at or row.get("txn") == "r1000"):
            held.append(row)
    for row in held:
        begin = max(row["start_ns"], at) + 200 * MS
        who = {
            "client": "c2",
            "delivery": f"{row['delivery']}-2",
            "txn": None,
            "redelivered": row.get("txn") == "r1000",
        }
        left.append({**row, **who, "start_ns": begin, "end_ns": begin + MS})
        ack = {"address": "q", "delivery": who["delivery"]}
        left.append(op("c2", "ack", begin / MS + 1, begin / MS + 2, **ack))
    return replace(run, outcome="crashed"), numbered(left), events


@pytest.fixture(scope="module")
def results(spark: SparkSession) -> dict[str, dict[str, Any]]:
    ledgers = {name: changed(change) for name, (change, _) in BREAKS.items()}
    ledgers["kept"] = kept()
    ledgers["a commit has no answer"] = changed(a_commit_has_no_answer)
    # Within the consumer's transaction of 1000 ms: after its receives, within its commit, and after its commit.
    ledgers |= {f"cut off at {at}": cut_off(at) for at in (1016, 1021, 1030)}
    return analyse(spark, ledgers)


def broken(result: dict[str, Any]) -> set[str]:
    return {promise["name"] for promise in result["promises"] if promise["verdict"] == "fail"}


def test_a_run_that_keeps_every_promise(results: dict[str, dict[str, Any]]) -> None:
    verdicts = {promise["name"]: promise["verdict"] for promise in results["kept"]["promises"]}
    assert verdicts == dict.fromkeys(PROMISES, "pass")
    measured = {promise["name"]: promise["measured"] for promise in results["kept"]["promises"]}
    assert measured["failover_within"] == 407.0
    assert measured["failback_within"] == 500.0
    assert results["kept"]["failover"] == [
        {
            "fault": "kill",
            "instance": "a",
            "store": "s",
            "t_ns": FAULT * MS,
            "client": "p",
            "detection_ms": 50.0,
            "activation_ms": 400.0,
            "first_send_ms": 407.0,
            "first_delivery_ms": 410.5,
        }
    ]


def test_every_promise_is_broken_by_some_change() -> None:
    assert {name for _, promises in BREAKS.values() for name in promises} == set(PROMISES)


@pytest.mark.parametrize("name", BREAKS)
def test_each_change_breaks_its_promise_and_no_other(results: dict[str, dict[str, Any]], name: str) -> None:
    result, promises = results[name], BREAKS[name][1]
    assert broken(result) - ALSO.get(name, set()) == set(promises)
    assert result["verdict"] == "fail"
    for promise, unit_class in promises.items():
        told = next(one for one in result["promises"] if one["name"] == promise)
        assert told["count"] >= 1
        assert told["witnesses"]
        if unit_class:
            assert result["messages"][unit_class] == told["count"]
            assert told["witnesses"][0]["class"] == unit_class


def test_a_consumer_killed_before_its_commit_left_nothing_undone(results: dict[str, dict[str, Any]]) -> None:
    result = results["cut off at 1016"]
    assert broken(result) == set()
    # 4 messages were delivered twice, and processed once.
    assert result["messages"]["redelivered"] == 4
    assert result["redelivered"] == {"flagged": 4, "unflagged": 0, "in_doubt": 0, "not_in_doubt": 4}


def test_a_consumer_killed_within_its_commit_is_in_doubt_and_no_duplicate(results: dict[str, dict[str, Any]]) -> None:
    result = results["cut off at 1021"]
    assert broken(result) == {"transparent"}
    assert result["messages"]["redelivered"] == 4
    assert result["redelivered"]["in_doubt"] == 4


def test_what_nobody_may_have_is_told_beside_a_promise_that_is_kept(results: dict[str, dict[str, Any]]) -> None:
    assert results["kept"]["notes"] == []
    result = results["a commit has no answer"]
    assert broken(result) == {"transparent"}
    assert [note.split()[0] for note in result["notes"]] == ["4"]


def test_a_consumer_killed_after_its_commit_whose_messages_come_again(results: dict[str, dict[str, Any]]) -> None:
    result = results["cut off at 1030"]
    assert broken(result) == {"no_duplicates"}
    assert result["messages"]["duplicated"] == 4
