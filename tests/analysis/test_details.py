"""What explains a verdict, on ledgers whose every number can be told by hand: stories, phases, redeliveries, blame."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from brokerdrill.analysis.activity import Active, client_spans
from brokerdrill.analysis.details import explained as explained_by
from brokerdrill.analysis.events import Event, Fault
from brokerdrill.analysis.judge import Judging, database
from brokerdrill.analysis.measures import bucket_ns, lengths, segments
from brokerdrill.analysis.series import series_of
from brokerdrill.analysis.stories import events_around, wanted, with_stories
from brokerdrill.analysis.timeline import Timeline
from tests.analysis import kept_run
from tests.analysis import test_checks_can_fail as ledgers
from tests.analysis.batch import Ledger, ledger_of, source_of
from tests.analysis.kept_run import ACTIVE_B, FAULT, HEAL, MS

S = 1_000_000_000
Results = dict[str, dict[str, Any]]


def explain(spark: SparkSession, given: dict[str, Ledger]) -> tuple[Results, Results]:
    """The verdicts of the ledgers with what explains them, and their series."""
    source = source_of(spark, {key: rows for key, (_, rows, _) in given.items()})
    with Judging(spark, source, ledger_of(given, parts=2, series=True)) as judging:
        judging.check()
        found = judging.finish()
        widths = {run: bucket_ns(one.run_end) for run, one in found.times.items()}
        with database(found.partials, widths) as base:
            results = explained_by(base, found.results, found.times)
            series = series_of(base, found.times, results)
        runs = dict(enumerate(run for run, _, _ in given.values()))
        results = with_stories(results, runs, found.times, judging.look_up)
    told = {key: results[n].to_json() for n, key in enumerate(given)}
    return told, {key: series[n].to_json() for n, key in enumerate(given)}


def a_send_fails_first(ops: list[dict[str, Any]], events: list[dict[str, Any]]) -> None:
    """m5 is tried once more before, without success; and comes twice."""
    ledgers.a_message_comes_twice(ops, events)
    first = kept_run.find(ops, op="send", message_id="m5")
    times = {"start_ns": first["start_ns"] - 50 * MS, "end_ns": first["start_ns"] - 20 * MS}
    failed = {"outcome": "unknown", "txn": "t-first", "op_id": 9100, "error": "JMSException: no answer"}
    ops.append({**first, **times, **failed})
    first["attempt"] = 1


def several_come_twice(ops: list[dict[str, Any]], events: list[dict[str, Any]]) -> None:
    """Eight of them before the fault, whatever partition they are in; another one was sent before it, and comes again
    while it is in effect."""
    for message, at in (*((f"m{number}", 1500 + 4 * number) for number in range(8)), ("m116", 4150)):
        first = kept_run.find(ops, op="receive", message_id=message)
        again = {"delivery": f"again-{message}", "txn": None, "start_ns": at * MS, "end_ns": (at + 1) * MS}
        ops.append({**first, **again, "instance": kept_run.server(at)})
        ops.append(kept_run.op("c", "ack", at + 2, at + 3, address="q", delivery=f"again-{message}"))


def a_batch_begins_late(ops: list[dict[str, Any]], events: list[dict[str, Any]]) -> None:
    """That of t0, by 3 s."""
    for row in ops:
        if row["op"] in ("send", "commit") and row.get("txn") == "t0":
            row["late_ns"] = 3000 * MS


def a_key_moves_with_an_excuse(ops: list[dict[str, Any]], events: list[dict[str, Any]]) -> None:
    """There and back, each time after the router had the store not ready that it came from."""
    ledgers.a_key_moves(ops, events)
    for at, value, who in (
        (0, "ready", "abx"),
        (1500, "not_ready", "ab"),
        (1600, "ready", "ab"),
        (3000, "not_ready", "x"),
    ):
        events += [kept_run.event("pool", at, instance=one, value=value) for one in who]


def a_store_is_never_chosen(ops: list[dict[str, Any]], events: list[dict[str, Any]]) -> None:
    events += [kept_run.event("pool", 0, instance=one, value="ready") for one in "abx"]


CHANGES = {
    "twice": a_send_fails_first,
    "several twice": several_come_twice,
    "lost": ledgers.a_message_is_lost,
    "apart": ledgers.a_transaction_comes_apart,
    "moved": ledgers.a_key_moves,
    "excused": a_key_moves_with_an_excuse,
    "never chosen": a_store_is_never_chosen,
    "late": ledgers.the_failover_is_late,
    "stopped": ledgers.sends_stop,
    "held up": a_batch_begins_late,
}


def given() -> dict[str, Ledger]:
    """The ledgers that are explained, by name."""
    changed = {name: ledgers.changed(change) for name, change in CHANGES.items()}
    return {**changed, "kept": kept_run.kept(), "again": ledgers.cut_off(1016)}


@pytest.fixture(scope="module")
def explained(spark: SparkSession) -> tuple[Results, Results]:
    return explain(spark, given())


@pytest.fixture(scope="module")
def results(explained: tuple[Results, Results]) -> Results:
    return explained[0]


def story(result: dict[str, Any], promise: str, place: int = 0) -> list[dict[str, Any]]:
    found = next(one for one in result["promises"] if one["name"] == promise)
    steps: list[dict[str, Any]] = found["witnesses"][place]["story"]
    return steps


def told(steps: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(s["t_ns"] // MS, s.get("op") or s.get("value") or s["name"], s.get("outcome")) for s in steps]


def test_a_message_that_came_twice_is_told_from_its_first_attempt_on(results: Results) -> None:
    steps = story(results["twice"], "no_duplicates")
    ops = [step for step in steps if step["kind"] == "op"]
    assert told(ops) == [
        (51, "send", "unknown"),
        (101, "send", "ok"),
        (105, "commit", "ok"),
        (111, "receive", "ok"),
        (120, "commit", "ok"),
        (8100, "receive", "ok"),
        (8102, "ack", "ok"),
    ]
    assert ops[0]["error"] == "JMSException: no answer"
    assert [step["attempt"] for step in ops[:2]] == [0, 1]
    assert ops[-1]["delivery"] == ops[-2]["delivery"] == "again"
    # What happened to the brokers meanwhile is there as well, and all of it in the order of time.
    assert [step["t_ns"] for step in steps] == sorted(step["t_ns"] for step in steps)
    around = {(step["kind"], step.get("instance"), step.get("value") or step.get("name")) for step in steps}
    assert {("role", "a", "active"), ("fault", "a", "kill"), ("heal", "a", "kill"), ("role", "b", "active")} <= around


def test_a_lost_message_is_told_up_to_its_commit(results: Results) -> None:
    ops = [step for step in story(results["lost"], "no_loss") if step["kind"] == "op"]
    assert told(ops) == [(101, "send", "ok"), (105, "commit", "ok")]


def test_a_transaction_seen_in_part_is_told_with_a_message_of_either_kind(results: Results) -> None:
    promise = next(one for one in results["apart"]["promises"] if one["name"] == "atomic")
    assert promise["count"] == 1
    witness = promise["witnesses"][0]
    assert (witness["txn"], witness["seen"], witness["missing"], witness["client"]) == ("t1000", 2, 2, "p")
    ops = [step for step in witness["story"] if step["kind"] == "op"]
    assert [step["op"] for step in ops] == ["send", "send", "commit", "receive", "commit"]
    assert ops[2]["outcome"] == "unknown"
    assert {step["message_id"] for step in ops if step["op"] == "send"} == {
        witness["message_id"],
        witness["seen_message_id"],
    }


def test_a_key_that_moved_is_told_by_its_connects(results: Results) -> None:
    ops = [step for step in story(results["moved"], "sticky") if step["kind"] == "op"]
    assert [(step["op"], step["instance"]) for step in ops] == [("connect", "a"), ("connect", "x")]


def test_the_series_say_whom_a_key_was_led_to(explained: tuple[Results, Results]) -> None:
    _, series = explained
    kept, moved = series["kept"]["routes"], series["moved"]["routes"]
    assert (kept["keys"], kept["connects"], kept["moves"]) == (1, 5, 0)
    assert [(row["store"], row["keys"], row["connects"]) for row in kept["stores"]] == [("s", 1, 5)]
    assert kept["spread"] is None, "one store is no choice"
    (stay,) = kept["spans"]
    assert (stay["key"], stay["connects"], stay["start_ns"] // MS, stay["end_ns"] // MS) == ("k", 5, 101, 7001)
    assert moved["moves"] == 2, "there and back"
    assert (kept["moved"], moved["moved"]) == ({"excused": 0, "unexcused": 0}, {"excused": 0, "unexcused": 1})
    assert [stay["connects"] for stay in moved["spans"]] == [2, 1, 2]
    assert sum(row["moves"] for row in moved["stores"]) == moved["moves"]


def test_the_series_say_whether_moves_were_excused_and_who_was_never_chosen(explained: tuple[Results, Results]) -> None:
    results, series = explained
    excused, never = series["excused"]["routes"], series["never chosen"]["routes"]
    promise = next(one for one in results["excused"]["promises"] if one["name"] == "sticky")
    assert (promise["count"], promise["excused"], excused["moves"]) == (0, 2, 2)
    assert excused["moved"] == {"excused": 1, "unexcused": 0}, "one key, twice"
    assert [(row["store"], row["keys"]) for row in never["stores"]] == [("s", 1), ("z", 0)]
    assert never["spread"] == {"chi_square": 1.0, "p": pytest.approx(0.3173, abs=1e-4), "most": 2.0}


def test_a_client_that_waited_is_told_from_its_last_success_to_its_next(results: Results) -> None:
    steps = story(results["late"], "failover_within")
    assert ("fault", "kill") in [(step["kind"], step.get("name")) for step in steps]
    ops = [step for step in steps if step["kind"] == "op"]
    assert ops[0]["outcome"] == ops[-1]["outcome"] == "ok"
    assert any(step["outcome"] != "ok" for step in ops[1:-1])
    assert {step["client"] for step in ops} == {"p"}


def test_a_run_that_keeps_its_promises_has_no_story_to_tell(results: Results) -> None:
    kept = results["kept"]
    assert all(promise["witnesses"] == [] for promise in kept["promises"])
    assert kept["attribution"] == kept["redeliveries"] == kept["outages"] == []


def test_quantiles_by_phase(results: Results) -> None:
    phases = {row["phase"]: row for row in results["kept"]["phases"]}
    assert list(phases) == ["before_fault", "during_fault", "after_heal", "drain"]
    assert phases["before_fault"]["seconds"] == FAULT / 1000
    assert phases["during_fault"]["seconds"] == (HEAL - FAULT) / 1000
    # 30 transactions of 4 messages before the fault, and the message that waits; both sides commit.
    before = phases["before_fault"]
    assert (before["send"]["count"], before["commit"]["count"], before["receive"]["count"]) == (121, 60, 120)
    assert before["send"]["per_s"] == pytest.approx(121 / 3)
    # In a transaction the client waits for its commit: the one that waits was sent without.
    assert (before["send"]["p50_ms"], before["send"]["max_ms"]) == (1.0, 1.0)
    assert (before["commit"]["p50_ms"], before["commit"]["max_ms"]) == (2.0, 2.0)
    # A message is delivered 10.5 ms after its send began.
    assert before["receive"]["p50_ms"] == before["receive"]["p99_ms"] == before["receive"]["max_ms"] == 10.5
    down = [at for at in range(0, 8000, 100) if kept_run.server(at) == "b"]
    assert phases["during_fault"]["send"]["count"] == 4 * len([at for at in down if at < HEAL])
    everything = sum(row["send"]["count"] for row in phases.values() if "send" in row)
    assert everything == results["kept"]["messages"]["ok"]


def test_latencies_count_from_when_a_send_was_due(results: Results) -> None:
    """Its commit took 2 ms, and its first message was delivered after 10.5 ms."""
    phases = {row["phase"]: row for row in results["held up"]["phases"]}
    before = phases["before_fault"]
    assert (before["commit"]["p50_ms"], before["commit"]["max_ms"]) == (2.0, 3002.0)
    assert (before["receive"]["p50_ms"], before["receive"]["max_ms"]) == (10.5, 3010.5)
    assert results["held up"]["verdict"] == results["kept"]["verdict"]


def test_buckets_and_phases_count_the_same(explained: tuple[Results, Results]) -> None:
    results, series = explained
    for key in results:
        phases = results[key]["phases"]
        for kind, name in (("send", "sends"), ("receive", "deliveries")):
            by_phase = sum(row[kind]["count"] for row in phases if kind in row)
            assert by_phase == sum(bucket.get(name, 0) for bucket in series[key]["buckets"]), (key, kind)
    top = max(bucket.get("send_max_ms") or 0 for bucket in series["kept"]["buckets"])
    assert top == 2.0


def test_clients_are_served_but_for_the_failover(explained: tuple[Results, Results]) -> None:
    series = explained[1]["kept"]
    assert series["client_count"] == 3
    own = [span for span in series["clients"] if span["client"] == "p"]
    # The failover takes 400 ms: too short for a client to be seen waiting.
    assert [(span["value"], span["start_ns"]) for span in own] == [("served", 0)]
    late = [span for span in explained[1]["late"]["clients"] if span["client"] == "p"]
    assert {span["value"] for span in late} == {"served", "failed"}
    failed = next(span for span in late if span["value"] == "failed")
    assert failed["start_ns"] >= (FAULT - 400) * MS and failed["failures"] > 4


def test_what_broke_has_a_fault_a_broker_and_a_client(results: Results) -> None:
    assert results["twice"]["attribution"] == [
        {
            "class": "duplicated",
            # From the first attempt before the fault to the delivery after its heal.
            "fault": "kill",
            "fault_ns": FAULT * MS,
            "target": "a",
            "instance": "a",
            "client": "c",
            "count": 1,
        }
    ]
    lost = results["lost"]["attribution"]
    assert [(row["class"], row["fault"], row["instance"], row["client"]) for row in lost] == [
        ("lost", "kill", "a", "p")
    ]


def test_redeliveries_by_flag_doubt_consumer_broker_and_fault(results: Results) -> None:
    rows = results["again"]["redeliveries"]
    assert sum(row["count"] for row in rows) == 4
    assert {(row["flagged"], row["in_doubt"], row["client"], row["instance"]) for row in rows} == {
        (True, False, "c2", "a")
    }
    # Delivered again at 1.2 s, before any fault.
    assert {row["fault"] for row in rows} == {None}


def test_a_redelivery_is_of_the_fault_that_was_in_effect_since_its_message_was_sent(results: Results) -> None:
    rows = results["several twice"]["redeliveries"]
    assert sorted((str(row["fault"]), row["instance"], row["count"]) for row in rows) == [
        ("None", "a", 8),
        ("kill", "b", 1),
    ]


def test_outages_name_who_was_served_before_and_after(results: Results) -> None:
    outage = results["stopped"]["outages"][0]
    assert (outage["client"], outage["instance"]) == ("p", "a")
    assert (outage["next_client"], outage["next_instance"]) == ("p", "a")
    assert outage["fault"] is None


def test_segments_of_a_run() -> None:
    def fault(number: int, at: int, healed: int | None, name: str = "kill") -> Fault:
        return Fault(number, name, "a", "host", "s", at, 0, healed)

    times = Timeline(
        run_end=100, drain_begin=80, drain_end=90, loads=((10, 70),), faults=(fault(1, 20, 30), fault(2, 25, 40))
    )
    assert segments(times)[1:] == [
        (10, "before_fault"),
        (20, "during_fault"),
        (40, "after_heal"),
        (71, "outside"),
        (80, "drain"),
        (91, "outside"),
    ]
    # 0 to 10, 71 to 80 and 91 to 100 are outside.
    assert lengths(times) == {
        "outside": 28, "before_fault": 10, "during_fault": 20, "after_heal": 31, "drain": 11
    }  # fmt: skip
    # Arming a link disturbs nothing; a fault that is never healed lasts to the end, but for the drain.
    armed = replace(times, faults=(fault(1, 5, 60, "arm"),))
    assert [name for _, name in segments(armed)] == ["outside", "load", "outside", "drain", "outside"]
    never = replace(times, faults=(fault(1, 20, None),))
    assert [name for _, name in segments(never)[2:]] == ["during_fault", "drain", "during_fault", "outside"]
    assert segments(Timeline(run_end=5)) == [(segments(Timeline(run_end=5))[0][0], "outside")]


def test_events_around_say_what_was_already_so() -> None:
    roles = tuple(
        Event("role", at, instance=who, store="s", value=value)
        for at, who, value in ((1, "a", "active"), (2, "b", "passive"), (50, "b", "active"), (90, "a", "passive"))
    )
    faults = (Fault(1, "cut", None, "link", None, 10, 0, 45), Fault(2, "kill", "a", "host", "s", 200, 0, None))
    times = Timeline(run_end=300, roles=roles, faults=faults)
    steps = events_around(times, 40, 60)
    assert sorted((s.t_ns, s.kind, s.value or s.name) for s in steps) == [
        (1, "role", "active"),
        (2, "role", "passive"),
        (10, "fault", "cut"),
        (45, "heal", "cut"),
        (50, "role", "active"),
    ]


def test_what_a_witness_is_looked_up_by() -> None:
    assert wanted({"message_id": "m", "address": "q", "client": "p"}).messages == {("q", "m")}
    client = wanted({"client": "p", "t_ns": 5 * MS, "first_send_ms": 2.0, "last_try_ms": 9.0})
    assert (client.client, client.start, client.end) == ("p", 5 * MS, 14 * MS)
    assert wanted({"key": "k", "client": "p", "connected_ns": 7}).key == "k"
    assert wanted({"store": "s", "start_ns": 3, "end_ns": 8})[-2:] == (3, 8)


def test_the_failover_is_where_the_stories_say(results: Results) -> None:
    steps = story(results["late"], "failover_within")
    roles = [(step["t_ns"] // MS, step["instance"], step["value"]) for step in steps if step["kind"] == "role"]
    assert (ACTIVE_B, "b", "active") in roles


def test_a_client_that_does_little_is_not_taken_for_one_that_waits() -> None:
    def rows(*starts: int, failed: int = 0) -> list[Active]:
        return [Active("p", at * S, not failed, failed) for at in starts]

    assert [(s.start_ns, s.end_ns) for s in client_spans(rows(0, 5, 10, 15, 40, 45), S)] == [
        (0, 16 * S),
        (40 * S, 46 * S),
    ]
    often = client_spans([*rows(*range(10)), *rows(12, 13), *rows(10, 11, failed=2)], S // 10)
    assert [(s.value, s.start_ns // S, s.failures) for s in often] == [
        ("served", 0, 0),
        ("failed", 10, 2),
        ("failed", 11, 2),
    ]
