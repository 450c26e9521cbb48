"""A verdict says no more than was seen: ledgers in which something was not, or was known too vaguely, made by hand.

Each is the run that keeps every promise (`test_checks_can_fail.kept`), of which a part was not there to be seen. What
is said of it is the promise's verdict and a word of the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from brokerdrill.analysis import verdict
from brokerdrill.base.errors import UsageError
from brokerdrill.ledger.contract import Clock, PromiseSpec, RunInfo
from brokerdrill.ledger.coverage import Minimum
from brokerdrill.ledger.verdict import Verdict
from tests.analysis.batch import Ledger, Row, analyse
from tests.analysis.test_checks_can_fail import ACTIVE_A, FAULT, HEAL, MS, ended, event, find, kept, numbered, op

Change = Callable[[list[Row], list[Row]], None]


@dataclass(frozen=True)
class Case:
    """A change of the run that keeps every promise: of run.json's fields (`run`), of its operations and events. `told`:
    the verdict of the promises that it is about; all others pass, unless the run is `vacuous`."""

    change: Change
    told: Mapping[str, str] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    vacuous: bool = False
    all_unknown: bool = False
    renumber: bool = True


def nothing(ops: list[Row], events: list[Row]) -> None:
    """Change no row."""


def keep(ops: list[Row], wanted: Callable[[Row], bool]) -> None:
    ops[:] = [row for row in ops if wanted(row)]


# --- nothing to lose, to process, to compare ------------------------------------------------------------------------


def no_send_is_acknowledged(ops: list[Row], events: list[Row]) -> None:
    keep(ops, lambda row: row["client"] != "c")
    for row in ops:
        if row["client"] == "p":
            row["outcome"] = "unknown"


def no_message_is_durable(ops: list[Row], events: list[Row]) -> None:
    for row in ops:
        if row["op"] == "send":
            row["durable"] = False


def all_messages_expire(ops: list[Row], events: list[Row]) -> None:
    keep(ops, lambda row: row["client"] != "c")
    for row in ops:
        if row["op"] == "send":
            row["expires_ns"] = row["end_ns"] + MS


# --- the load never met the fault -----------------------------------------------------------------------------------


def load_is_over_before(ms: float) -> Change:
    """The fault and all that follows from it come so much later than the load's end."""

    def change(ops: list[Row], events: list[Row]) -> None:
        keep(ops, lambda row: row["client"] == "inspector" or row["start_ns"] < 2_000 * MS)
        for row in events:
            if row["kind"] in ("fault", "heal", "role", "ended", "alert") and row["t_ns"] >= 2_000 * MS:
                row["t_ns"] += round(ms * MS)
        find(events, kind="phase", name="load", value="end")["t_ns"] = 2_100 * MS
        find(events, kind="phase", name="drain", value="begin")["t_ns"] = 2_200 * MS
        for row in events:
            if row["t_ns"] == 9_000 * MS:
                row["t_ns"] += round(ms * MS) + 9_000 * MS
        find(events, kind="phase", name="drain", value="end")["t_ns"] = 2_900 * MS

    return change


def the_store_serves_nobody(ops: list[Row], events: list[Row]) -> None:
    for row in events:
        if row["kind"] in ("fault", "heal"):
            row |= {"instance": "x", "store": "z", "target": "host-x"}
    keep(ops, lambda row: row.get("instance") != "x")
    for row in [row for row in events if row["kind"] in ("ended", "alert") or row.get("name") == "alerts watched"]:
        events.remove(row)


def no_packet_met_it(ops: list[Row], events: list[Row]) -> None:
    events.append(event("fault", 6000, name="partition", target="b→db", value="cut off"))
    events.append(event("heal", 6500, name="partition", target="b→db", value="cut off"))
    counted = {"packets": "0", "bytes": "0"}
    events.append(event("met", 6500, name="partition", target="b→db", value="cut off", detail=counted))


def some_packets_met_it(ops: list[Row], events: list[Row]) -> None:
    no_packet_met_it(ops, events)
    find(events, kind="met")["detail"] = {"packets": "12", "bytes": "700"}


def another_effect(*, step: str = "cut off", packets: str = "12") -> Change:
    """A step cuts two links off, of which one was used."""

    def change(ops: list[Row], events: list[Row]) -> None:
        no_packet_met_it(ops, events)
        events.append(event("fault", 6000, name="partition", target="db→b", value=step))
        events.append(event("heal", 6500, name="partition", target="db→b", value=step))
        counted = {"packets": packets, "bytes": "700"}
        events.append(event("met", 6500, name="partition", target="db→b", value=step, detail=counted))

    return change


def no_fault_at_all(ops: list[Row], events: list[Row]) -> None:
    gone = [row for row in events if row["kind"] in ("fault", "heal", "ended", "alert")]
    for row in gone:
        events.remove(row)
    for row in [row for row in events if row["kind"] == "role" and row["t_ns"]]:
        events.remove(row)
    for row in ops:
        if row.get("instance") == "b":
            row["instance"] = "a"


# --- the end of a fault, of a call, of a process --------------------------------------------------------------------


def healed_by(ms: float, **detail: str) -> Change:
    """Its host healed the fault by itself, which the runner noticed so late."""

    def change(ops: list[Row], events: list[Row]) -> None:
        heal = find(events, kind="heal")
        heal |= {"t_ns": round(ms * MS), "detail": {"by": "time-to-live"}}
        if detail:
            find(events, kind="fault")["detail"] = detail

    return change


def a_producer_hangs(begun_before: float) -> Change:
    def change(ops: list[Row], events: list[Row]) -> None:
        columns = {"address": "q", "message_id": "hung", "payload_sha": "sha", "durable": True, "attempt": 0}
        ops.append(op("h", "send", 1000, 1001, **{**columns, "message_id": "first", "instance": "a"}))
        for client, delivery, message in (("c", "d-first", "first"),):
            told = {"address": "q", "message_id": message, "payload_sha": "sha", "delivery": delivery}
            ops.append(op(client, "receive", 1100, 1101, instance="a", **told))
            ops.append(op(client, "ack", 1102, 1103, address="q", delivery=delivery))
        ops.append(op("h", "send", FAULT - begun_before, None, outcome="unknown", **columns))

    return change


def a_producer_hangs_in_its_first_send(ops: list[Row], events: list[Row]) -> None:
    """Who was connected to what was hit, and had sent nothing yet."""
    columns = {"address": "q", "message_id": "hung", "payload_sha": "sha", "durable": True}
    ops.append(op("h", "connect", 1000, 1001, instance="a"))
    ops.append(op("h", "send", FAULT - 1, None, outcome="unknown", **columns))


def acknowledged_by_nobody_knows_whom(after_ms: float) -> Change:
    """A send of after the fault, of which the client cannot say which broker acknowledged it."""

    def change(ops: list[Row], events: list[Row]) -> None:
        message = {"address": "q", "message_id": "who", "payload_sha": "sha"}
        ops.append(op("p", "send", FAULT + after_ms, FAULT + 10, durable=True, attempt=0, **message))
        ops.append(op("c", "receive", 3450, 3451, instance="b", delivery="d-who", **message))
        ops.append(op("c", "ack", 3452, 3453, address="q", delivery="d-who"))

    return change


def without_a_drains_end(read_until: float) -> Change:
    """The run broke off in its drain; the log of `a` was read until then."""

    def change(ops: list[Row], events: list[Row]) -> None:
        events.remove(find(events, kind="phase", name="drain", value="end"))
        find(events, name="log read", instance="a")["detail"] = {"until_ns": str(round(read_until * MS))}

    return change


def unread(*instances: str) -> Change:
    def change(ops: list[Row], events: list[Row]) -> None:
        for one in instances:
            events.remove(find(events, name="log read", instance=one))

    return change


def read_in_part(**detail: str) -> Change:
    def change(ops: list[Row], events: list[Row]) -> None:
        find(events, name="log read", instance="a")["detail"] = detail

    return change


def read_around(gap_from: float, gap_until: float, fault: str) -> Change:
    """The log of `a` was read but for a gap (ms), while a `fault` was in effect on it."""

    def change(ops: list[Row], events: list[Row]) -> None:
        for hit in (one for one in events if one["kind"] in ("fault", "heal") and one.get("instance") == "a"):
            hit["name"] = fault
        note = find(events, name="log read", instance="a")
        later = {**note, "detail": {"from_ns": str(round(gap_until * MS)), "until_ns": str(9_000 * MS)}}
        note["detail"] = {"from_ns": "0", "until_ns": str(round(gap_from * MS))}
        events.append(later)

    return change


def ends(*of: tuple[str, float, str, str], **operation: str) -> Change:
    """Ends of processes (instance, ms, how, status), while a playbook runs if there is one."""

    def change(ops: list[Row], events: list[Row]) -> None:
        if operation:
            detail = {name: value for name, value in operation.items() if value}
            events.append(event("note", 6000, name="op", value="begins", detail={"operation": "begin", **detail}))
            events.append(event("note", 7500, name="op", value="is done", detail={"operation": "end"}))
        events.extend(ended(*one) for one in of)

    return change


# --- what nobody looked at ------------------------------------------------------------------------------------------


def the_browse_is_refused(ops: list[Row], events: list[Row]) -> None:
    find(ops, op="browse")["outcome"] = "fail"


def nobody_looks(ops: list[Row], events: list[Row]) -> None:
    ops.remove(find(ops, op="browse"))


def looked_too_early(ops: list[Row], events: list[Row]) -> None:
    find(ops, op="browse").update(start_ns=500 * MS, end_ns=501 * MS)


def looked_before_the_last_delivery(by: float) -> Change:
    """A message was delivered while what was left was drained; somebody looked so much earlier than that was over."""

    def change(ops: list[Row], events: list[Row]) -> None:
        last = max((row for row in ops if row["op"] == "receive"), key=lambda row: row["end_ns"])
        last |= {"start_ns": 8_200 * MS, "end_ns": 8_201 * MS, "txn": None}
        ops.append(op("c", "ack", 8202, 8203, address="q", delivery=last["delivery"]))
        find(ops, op="browse").update(start_ns=round((8_201 - by) * MS), end_ns=8_300 * MS)

    return change


def one_of_two_looks_is_refused(ops: list[Row], events: list[Row]) -> None:
    find(ops, op="browse")["instance"] = "a"
    ops.append(op("inspector", "browse", 9002, 9003, outcome="fail", address="DLQ", instance="x"))


def nobody_looks_but_something_is_acknowledged_there(ops: list[Row], events: list[Row]) -> None:
    nobody_looks(ops, events)
    ops.append(op("inspector", "ack", 9000, 9001, address="DLQ", delivery="of-somebody-else"))


def nothing_is_received_there(ops: list[Row], events: list[Row]) -> None:
    ops.append(op("inspector", "receive", 9002, 9003, outcome="fail", address="DLQ", instance="x"))


def silent(instance: str, begin: float, end: float | None) -> Change:
    def change(ops: list[Row], events: list[Row]) -> None:
        events.append(event("health", begin, instance=instance, value="silent"))
        if end is not None:
            events.append(event("health", end, instance=instance, value="answers"))

    return change


def polls_are_slow(ops: list[Row], events: list[Row]) -> None:
    detail = {"count": "20", "longest_ns": str(2_000 * MS), "gaps": f"{6_000 * MS}-{8_000 * MS}"}
    events.append(event("polls", 8900, instance="b", name="role", detail=detail))


def silent_but_its_log_tells(ops: list[Row], events: list[Row]) -> None:
    silent("b", 6000, 8000)(ops, events)
    events.append(event("role", 10, instance="b", store="s", name="log", value="passive"))


# --- an address that took nothing -----------------------------------------------------------------------------------


def a_producer_hangs_on(address: str, at: float) -> Change:
    def change(ops: list[Row], events: list[Row]) -> None:
        columns = {"address": address, "message_id": "hung", "payload_sha": "sha", "durable": True}
        ops.append(op("h", "send", at, None, outcome="unknown", **columns))

    return change


# --- rows that are missing ------------------------------------------------------------------------------------------


def holes(client: str, *of: tuple[int, int]) -> Change:
    def change(ops: list[Row], events: list[Row]) -> None:
        keep(ops, lambda row: row["client"] != client or not any(a <= row["op_id"] < b for a, b in of))

    return change


def the_first_of_one_of_two_clients(ops: list[Row], events: list[Row]) -> None:
    keep(ops, lambda row: row["client"] in "pc" and not (row["client"] == "c" and row["op_id"] < 40))


def a_spool_is_missing(client: str) -> Change:
    """The worker of this client had a clock of its own, and its rows never came home."""

    def change(ops: list[Row], events: list[Row]) -> None:
        keep(ops, lambda row: row["client"] != client)

    return change


# --- clocks ---------------------------------------------------------------------------------------------------------

FINE = {"clocks": {"load": Clock("load1"), "vague": Clock("load2", 0, MS), "controller": Clock("controller")}}
VAGUE = {"clocks": {"load": Clock("load1"), "vague": Clock("load2", 0, 1_000 * MS), "controller": Clock("controller")}}


def on_the_vague_clock(ops: list[Row], wanted: Callable[[Row], bool]) -> None:
    for row in ops:
        if wanted(row):
            row["clock"] = "vague"


def an_intruder(ops: list[Row], events: list[Row]) -> None:
    """A send that b served ended 0.2 s after the fault by a clock that may be a second off."""
    at = {"start_ns": (FAULT - 400) * MS, "end_ns": (FAULT - 399) * MS}
    columns = {"address": "q", "message_id": "i", "payload_sha": "sha", "durable": True, "instance": "b"}
    ops.append({**op("other", "send", 0, 1, **columns), **at, "clock": "vague"})
    told = {"address": "q", "message_id": "i", "payload_sha": "sha", "delivery": "d-i"}
    ops.append(op("c", "receive", 8005, 8006, instance="a", **told))
    ops.append(op("c", "ack", 8007, 8008, address="q", delivery="d-i"))


def a_topics_message_is_not_got(subscribed: float) -> Change:
    """By the subscriber's clock it was subscribed so much (ms) before the message was sent."""

    def change(ops: list[Row], events: list[Row]) -> None:
        ops.append({**op("d", "subscribe", 600 - subscribed, 600 - subscribed + 1, address="t"), "clock": "vague"})
        ops[-1] |= {"subscription": "d", "durable": True}
        sent = {"address": "t", "message_id": "on-t", "payload_sha": "sha", "durable": True, "instance": "a"}
        ops.append(op("other", "send", 602, 603, **sent))

    return change


def late_by_another_clock(ops: list[Row], events: list[Row]) -> None:
    """A message that another consumer got 0.5 s after its successor, by a clock that may be a second off."""
    row = find(ops, op="receive", message_id="m100")
    row |= {"client": "c9", "clock": "vague", "txn": None}
    row |= {"start_ns": row["start_ns"] + 500 * MS, "end_ns": row["end_ns"] + 500 * MS}
    at = row["end_ns"] / MS
    ops.append({**op("c9", "ack", at + 1, at + 2, address="q", delivery=row["delivery"]), "clock": "vague"})


def an_intruder_among_sends_by_a_vague_clock(ops: list[Row], events: list[Row]) -> None:
    """Its own clock is known well; those of the sends that it lies between are not."""
    an_intruder(ops, events)
    for row in ops:
        row["clock"] = "vague" if row["clock"] == "load" else "load" if row["clock"] == "vague" else row["clock"]


def drifted(ops: list[Row], events: list[Row]) -> None:
    """As `an_intruder`; the clock's uncertainty is small in run.json, but a reading at the end was 0.9 s off."""
    an_intruder(ops, events)
    reading = {"offset_ns": str(900 * MS), "uncertainty_ns": str(MS)}
    events.append(event("clock", 8900, name="vague", detail=reading))


def read_as(*readings: tuple[float, float, float]) -> Change:
    """As `an_intruder`, by a clock that was read at these times (ms) to have such an offset (ms), give or take."""

    def change(ops: list[Row], events: list[Row]) -> None:
        an_intruder(ops, events)
        for at, offset, u in readings:
            detail = {"offset_ns": str(round(offset * MS)), "uncertainty_ns": str(round(u * MS))}
            events.append(event("clock", at, name="vague", detail=detail))

    return change


def all_but_one_by_a_fast_clock(ops: list[Row], events: list[Row]) -> None:
    """The consumer's clock gains 100 ms each second, as is read each second: by it, each message came at its time."""
    for row in ops:
        if row["client"] == "c":
            row["clock"] = "vague"
            for name in ("start_ns", "end_ns"):
                row[name] = row[name] * 11 // 10
    for at in range(1000, 10_000, 1000):
        detail = {"offset_ns": str(-at * MS // 10), "uncertainty_ns": "10000"}
        events.append(event("clock", at, name="vague", detail=detail))


def roles_are_vague(ops: list[Row], events: list[Row]) -> None:
    """Who was asked so seldom may have been active beside the other."""
    find(events, kind="role", value="active", instance="b")["uncertainty_ns"] = 600 * MS


def the_end_is_vague(log_at: float | None) -> Change:
    """A poll says that b is passive, and may be late by 300 ms, when a is active; its log says it so much after."""

    def change(ops: list[Row], events: list[Row]) -> None:
        find(events, kind="role", instance="b", value="passive", t_ns=(ACTIVE_A - 100) * MS)["uncertainty_ns"] = (
            300 * MS
        )
        if log_at is not None:
            at = ACTIVE_A - 100 + log_at
            events.append(event("role", at, instance="b", store="s", name="log", value="down"))

    return change


def the_end_came_before_the_fault(by: float, u: float) -> Change:
    """The poll that saw a's end was asked `by` ms before the fault was said to be, and is uncertain."""

    def change(ops: list[Row], events: list[Row]) -> None:
        row = find(events, kind="role", instance="a", value="down")
        row |= {"t_ns": round((FAULT - by) * MS), "uncertainty_ns": round(u * MS)}

    return change


def silent_while_its_host_restarts(ops: list[Row], events: list[Row]) -> None:
    """Its log tells its roles, and has nothing to say of that time."""
    read_around(FAULT + 50, FAULT + 900, "restart_host")(ops, events)
    silent("a", FAULT + 10, HEAL + 50)(ops, events)
    events.append(event("role", 10, instance="a", store="s", name="log", value="active"))


# --- busy hosts -----------------------------------------------------------------------------------------------------


def busy(stalled_ms: float) -> Change:
    def change(ops: list[Row], events: list[Row]) -> None:
        detail = {"since_ns": str(FAULT * MS), "stalled_ns": str(round(stalled_ms * MS))}
        events.append(event("pressure", FAULT + 500, target="host-b", name="cpu", detail=detail))

    return change


def another_applications_dead_letter(ops: list[Row], events: list[Row]) -> None:
    ops.append(op("inspector", "browse", 9002, 9003, address="DLQ", message_id="of-somebody-else"))


SHORT = {"failover_within": 300.0, "failback_within": 700.0, "available": 700.0}


def bounded(**bounds: float) -> dict[str, Any]:
    """The promises with these bounds."""
    run, _, _ = kept()
    return {
        "promises": tuple(
            PromiseSpec(one.name, **{**one.values, "bound_ms": bounds[one.name]}) if one.name in bounds else one
            for one in run.promises
        )
    }


def drained(*addresses: str) -> dict[str, Any]:
    return {"drained": dict.fromkeys(("q", *addresses), True), "dead_letters": dict.fromkeys(("q", *addresses), "DLQ")}


# --- at the joints: several faults, stores, rounds, loads ------------------------------------------------------------


def traffic(ops: list[Row], client: str, served: Callable[[float], str], times: range, address: str = "q") -> None:
    """A client that connects, and at each time (ms) sends a message that another one gets."""
    ops.append(op(client, "connect", times[0] - 1, times[0] - 0.5, instance=served(times[0])))
    for at in times:
        message = {"address": address, "message_id": f"{client}-{at}", "payload_sha": "sha", "instance": served(at)}
        ops.append(op(client, "send", at, at + 1, durable=True, **message))
        ops.append(op(f"c-{client}", "receive", at + 2, at + 3, delivery=f"d-{client}-{at}", **message))
        ops.append(op(f"c-{client}", "ack", at + 4, at + 5, address=address, delivery=f"d-{client}-{at}"))


def a_client_goes_to_another_store(at: float) -> Change:
    def change(ops: list[Row], events: list[Row]) -> None:
        traffic(ops, "w", lambda when: "a" if when < at else "x", range(200, 7900, 100))

    return change


def a_client_comes_from_another_store(at: float) -> Change:
    """It was not on the store that was hit, and comes long after the failover."""

    def change(ops: list[Row], events: list[Row]) -> None:
        traffic(ops, "w", lambda when: "x" if when < at else "a", range(200, 7900, 100))

    return change


def a_client_waits_and_goes_to_another_store(ops: list[Row], events: list[Row]) -> None:
    traffic(ops, "w", lambda _: "a", range(200, FAULT, 100))
    traffic(ops, "w", lambda _: "x", range(FAULT + 900, 7900, 100))


def everybody_had_gone_to_another_store(ops: list[Row], events: list[Row]) -> None:
    keep(ops, lambda row: row["client"] != "k")
    for row in ops:
        if row["start_ns"] >= 200 * MS and "instance" in row:
            row["instance"] = "x"


def struck_again(at: float, name: str = "kill", instance: str = "a", store: str = "s") -> list[Row]:
    return [
        event("fault", at, name=name, instance=instance, store=store, target=f"host-{instance}", value="again"),
        event("heal", 7_900, name=name, instance=instance, store=store, target=f"host-{instance}"),
    ]


def nobody_sends_after_the_second_fault(ops: list[Row], events: list[Row]) -> None:
    events += struck_again(7000)
    events.append(event("role", 7050, instance="a", store="s", value="down"))
    events.append(event("role", 7200, instance="b", store="s", value="active"))
    keep(ops, lambda row: row["client"] != "p" or row["start_ns"] < 7000 * MS)
    sent = {row["message_id"] for row in ops if row["op"] == "send"}
    keep(ops, lambda row: row["op"] != "receive" or row["message_id"] in sent)
    for row in ops:
        if row["client"] == "c" and row["start_ns"] >= 7000 * MS:
            row["instance"] = "b"


def paused_and_later_taken_over(ops: list[Row], events: list[Row]) -> None:
    """Its pause was over long before a playbook stopped it."""
    find(events, kind="fault").update(name="pause", t_ns=1500 * MS)
    find(events, kind="heal").update(name="pause", t_ns=1550 * MS)
    events.append(event("note", 2990, name="op", detail={"operation": "begin", "instances": "a"}))
    events.append(event("note", 5600, name="op", detail={"operation": "end"}))


def another_fault_lasts(name: str, until: float, **whom: str) -> Change:
    """The kill is healed as ever; another fault on the original lasts longer, and it is back 100 ms after that."""

    def change(ops: list[Row], events: list[Row]) -> None:
        places: dict[str, Any] = {"name": name, **(whom or {"instance": "a", "store": "s", "target": "host-a"})}
        if "toward" in places:
            places["detail"] = {"toward": places.pop("toward")}
        events.append(event("fault", 4000, **places))
        events.append(event("heal", until, **{key: value for key, value in places.items() if key != "detail"}))
        for row in events:
            if row["kind"] == "role" and row["t_ns"] in ((ACTIVE_A - 100) * MS, ACTIVE_A * MS):
                row["t_ns"] += (7_100 - ACTIVE_A) * MS
        for row in ops:
            if row.get("instance") == "a" and ACTIVE_A * MS <= row["start_ns"] < 7_100 * MS:
                row["instance"] = "b"

    return change


def roles_without(*instances: str, until: float | None = None) -> Change:
    """Nobody knew the role of these, at all or until then (ms); there is no fault."""

    def change(ops: list[Row], events: list[Row]) -> None:
        no_fault_at_all(ops, events)
        for row in [row for row in events if row["kind"] == "role" and row["instance"] in instances]:
            if until is None:
                events.remove(row)
            else:
                row["t_ns"] = round(until * MS)

    return change


def active_again_though_not_healed(ops: list[Row], events: list[Row]) -> None:
    """The heal failed, and something else started the process."""
    events.remove(find(events, kind="heal"))
    events.remove(find(events, kind="role", instance="b", value="passive", t_ns=(ACTIVE_A - 100) * MS))


def cut_off_by_the_loads_end(bound_is_over: bool) -> Change:
    def change(ops: list[Row], events: list[Row]) -> None:
        end = FAULT + (800 if bound_is_over else 200)
        keep(
            ops,
            lambda row: (
                row["client"] == "inspector" or row["start_ns"] < FAULT * MS or row.get("delivery") == "d-waits"
            ),
        )
        find(events, kind="phase", name="load", value="end")["t_ns"] = end * MS
        find(events, kind="phase", name="drain", value="begin")["t_ns"] = end * MS
        columns = {"address": "q", "message_id": "hung", "payload_sha": "sha", "durable": True}
        ops.append(op("p", "send", FAULT + 50, FAULT + 60, outcome="unknown", **columns))

    return change


def the_load_stops_and_goes_on(ops: list[Row], events: list[Row]) -> None:
    events.append(event("phase", 6000, name="load", value="end"))
    events.append(event("phase", 7000, name="load", value="begin"))
    keep(ops, lambda row: not 6000 * MS <= row["start_ns"] < 7000 * MS)


def an_address_is_used_before_the_load_goes_on(ops: list[Row], events: list[Row]) -> None:
    the_load_stops_and_goes_on(ops, events)
    traffic(ops, "w", lambda _: "x", range(200, 6000, 100), address="q2")


def a_host_starts_anew(at: float, fault_at: float | None = None, **playbook: str) -> Change:
    """Roles say where instances are; a fault, or a playbook, may be why."""

    def change(ops: list[Row], events: list[Row]) -> None:
        for row in events:
            if row["kind"] == "role":
                row["target"] = f"host-{row['instance']}"
        events.append(event("health", at, target="host-x", name="host", value="restarted"))
        events.append(event("health", at, target="load1", name="host", value="restarted"))
        if fault_at is not None:
            traffic(ops, "w", lambda _: "x", range(200, 7900, 100))
            hit = {"name": "restart_host", "instance": "x", "store": "z", "target": "host-x"}
            events.extend([event("fault", fault_at, **hit), event("heal", 7_950, **hit)])
        if playbook:
            events.append(event("note", at - 100, name="op", detail={"operation": "begin", **playbook}))
            events.append(event("note", at + 100, name="op", detail={"operation": "end"}))

    return change


def watched(begin: float, end: float, fired: float = FAULT + 300, cleared: float = HEAL + 200) -> Change:
    def change(ops: list[Row], events: list[Row]) -> None:
        find(events, name="alerts watched", value="begin")["t_ns"] = round(begin * MS)
        find(events, name="alerts watched", value="end")["t_ns"] = round(end * MS)
        find(events, kind="alert", name="BrokerDown", value="firing")["t_ns"] = round(fired * MS)
        find(events, kind="alert", name="BrokerDown", value="cleared")["t_ns"] = round(cleared * MS)

    return change


def rounds(*ended: int, begun: int = 3) -> Change:
    """The fault is injected in the first of several rounds; those named came to their end."""

    def change(ops: list[Row], events: list[Row]) -> None:
        find(events, kind="fault")["value"] = "kill it (round 1)"
        for number in range(1, begun + 1):
            events.append(event("note", 1900 + 1000 * number, name=str(number), detail={"round": "begin"}))
        for number in ended:
            events.append(event("note", 2800 + 1000 * number, name=str(number), detail={"round": "end"}))

    return change


def hit_when_it_was_down(*, tried: bool) -> Change:
    """A first fault on x was not healed; a second hits it, whose clients are refused since."""

    def change(ops: list[Row], events: list[Row]) -> None:
        traffic(ops, "w", lambda _: "x", range(200, 1400, 100))
        first = {"name": "kill", "instance": "x", "store": "z", "target": "host-x"}
        events.append(event("fault", 1450, value="first", **first))
        events.append(event("role", 1500, instance="x", store="z", value="down"))
        events.append(ended("x", 1451, "killed", "KILL"))
        events.extend(struck_again(7000, instance="x", store="z"))
        for at in range(1500, 7900, 200) if tried else (1500,):
            ops.append(op("w", "connect", at, at + 1, outcome="fail"))

    return change


def without_promises(*names: str) -> dict[str, Any]:
    return {"promises": tuple(one for one in kept()[0].promises if one.name not in names)}


UNTIMED = without_promises("failover_within", "failback_within", "alerted_within")
CASES: dict[str, Case] = {
    "nothing acknowledged, nothing delivered": Case(
        no_send_is_acknowledged,
        {"no_loss": "unknown", "no_duplicates": "unknown", "no_phantoms": "unknown"},
    ),
    "no message is durable": Case(no_message_is_durable, {"no_loss": "unknown"}),
    "all messages expire": Case(all_messages_expire, {"no_loss": "unknown", "no_phantoms": "unknown"}),
    "the load is over 27 s before the fault": Case(load_is_over_before(27_000), vacuous=True),
    "the load is over a second before the fault": Case(load_is_over_before(0), vacuous=True),
    "the fault hits a store that serves nobody": Case(the_store_serves_nobody, vacuous=True),
    "no packet met the partition": Case(
        no_packet_met_it, vacuous=True, run={"minimum": {"cut off": Minimum(packets=1)}}
    ),
    "some packets met the partition": Case(
        some_packets_met_it, {"alerted_within": "unknown"}, run={"minimum": {"cut off": Minimum(packets=1)}}
    ),
    "packets met another effect of the step": Case(
        another_effect(), {"alerted_within": "unknown"}, run={"minimum": {"cut off": Minimum(packets=1)}}
    ),
    "packets met no effect of the step": Case(
        another_effect(packets="0"), vacuous=True, run={"minimum": {"cut off": Minimum(packets=1)}}
    ),
    "fewer packets met all effects of the step than the drill asks for": Case(
        another_effect(), vacuous=True, run={"minimum": {"cut off": Minimum(packets=13)}}
    ),
    "packets met another step's partition": Case(
        another_effect(step="another"), vacuous=True, run={"minimum": {"cut off": Minimum(packets=1)}}
    ),
    "fewer operations than the drill asks for": Case(
        lambda _, events: find(events, kind="fault").update(value="kill it"),
        vacuous=True,
        run={"minimum": {"kill it": Minimum(operations=100_000)}},
    ),
    "fewer clients than the drill asks for": Case(
        lambda _, events: find(events, kind="fault").update(value="kill it"),
        vacuous=True,
        run={"minimum": {"kill it": Minimum(clients=9)}},
    ),
    "a planned fault that was never injected": Case(nothing, vacuous=True, run={"planned": ("kill it",)}),
    "crashed, and no fault at all": Case(no_fault_at_all, vacuous=True, run={"outcome": "crashed"}),
    "aborted, and no fault at all": Case(no_fault_at_all, vacuous=True, run={"outcome": "aborted"}),
    "running, and no fault at all": Case(no_fault_at_all, vacuous=True, run={"outcome": "running"}),
    "healed by its host, nobody knows when": Case(
        healed_by(6000), {"failback_within": "unknown", "alerted_within": "unknown"}
    ),
    "healed by its host in time": Case(healed_by(6000, ttl_s="2"), {"failback_within": "pass"}),
    "healed by its host too early": Case(
        healed_by(6000, ttl_s="1"), {"failback_within": "fail", "alerted_within": "fail"}
    ),
    "active before its heal": Case(
        lambda _, events: find(events, kind="heal").update(t_ns=(ACTIVE_A + 10) * MS),
        {"failback_within": "unknown", "alerted_within": "pass"},
    ),
    "a producer hangs since 1 ms before the fault": Case(a_producer_hangs(1), {"failover_within": "fail"}),
    "a producer hangs since 900 ms before the fault": Case(a_producer_hangs(900), {"failover_within": "fail"}),
    "a producer hangs in its first send": Case(a_producer_hangs_in_its_first_send, {"failover_within": "fail"}),
    "a producer hangs, and the run ends within the bound": Case(
        a_producer_hangs(1), {"failover_within": "unknown"}, run=bounded(failover_within=60_000)
    ),
    "acknowledged as the fault began, nobody knows by whom": Case(
        acknowledged_by_nobody_knows_whom(0), {"failover_within": "pass"}
    ),
    "acknowledged after the fault, nobody knows by whom": Case(
        acknowledged_by_nobody_knows_whom(0.001), {"failover_within": "unknown"}
    ),
    "the dead broker's log was not read": Case(unread("a"), {"stays_up": "unknown"}),
    "another broker's log was not read": Case(unread("b"), {"stays_up": "unknown"}),
    "no log was read": Case(unread("a", "b", "x"), {"stays_up": "unknown"}),
    "a log was read from the drain on": Case(
        read_in_part(from_ns=str(8_000 * MS), until_ns=str(9_000 * MS)), {"stays_up": "unknown"}
    ),
    "a log was read up to the fault": Case(
        read_in_part(from_ns="0", until_ns=str(FAULT * MS)), {"stays_up": "unknown"}
    ),
    "a log was read up to the load's end": Case(
        read_in_part(from_ns="0", until_ns=str(8_500 * MS)), {"stays_up": "unknown"}
    ),
    "a log had lost lines": Case(
        read_in_part(from_ns="0", until_ns=str(9_000 * MS), lost="17"), {"stays_up": "unknown"}
    ),
    "a log was read but for the time in which its host started anew": Case(
        read_around(FAULT + 50, FAULT + 900, "restart_host"), {"stays_up": "pass"}
    ),
    "a log lacks what came before its host started anew": Case(
        read_around(FAULT - 500, FAULT + 900, "restart_host"), {"stays_up": "unknown"}
    ),
    "a log lacks some time of a kill": Case(read_around(FAULT + 50, FAULT + 900, "kill"), {"stays_up": "unknown"}),
    "a log was read up to the load's end, where nobody knows the drain's": Case(
        without_a_drains_end(8_000), {"stays_up": "pass"}
    ),
    "a log was read up to before the load's end, where nobody knows the drain's": Case(
        without_a_drains_end(7_999), {"stays_up": "unknown"}
    ),
    "a log was read whole": Case(read_in_part(from_ns="0", until_ns=str(9_000 * MS), lost="0"), {"stays_up": "pass"}),
    "a broker crashes during a playbook": Case(ends(("b", 6500, "dumped", "SEGV"), of=""), {"stays_up": "fail"}),
    "a broker aborts during a playbook that works on it": Case(
        ends(("b", 6500, "killed", "ABRT"), instances="b"), {"stays_up": "fail"}
    ),
    "a broker is stopped by a playbook that works on another one": Case(
        ends(("b", 6500, "exited", "143"), instances="a"), {"stays_up": "fail"}
    ),
    "a broker is stopped by a playbook that works on it": Case(
        ends(("b", 6500, "exited", "143"), instances="b"), {"stays_up": "pass"}
    ),
    "a broker exits during a playbook, nobody knows on which it works": Case(
        ends(("b", 6500, "exited", "1"), of=""), {"stays_up": "unknown"}
    ),
    "four crashes under one kill": Case(
        ends(*(("a", FAULT + 200 * n, "dumped", "SEGV") for n in range(1, 5))), {"stays_up": "fail"}
    ),
    "four exits under one kill": Case(
        ends(*(("a", FAULT + 200 * n, "exited", "1") for n in range(1, 5))), {"stays_up": "fail"}
    ),
    "a broker that a shell had started crashes under a kill": Case(
        ends(("a", FAULT + 600, "exited", "139")), {"stays_up": "fail"}
    ),
    "killed for memory under a kill": Case(ends(("a", FAULT + 600, "killed for memory", "KILL")), {"stays_up": "fail"}),
    "the browse was refused": Case(the_browse_is_refused, {"no_dead_letters": "unknown"}),
    "nobody looked at the dead letters": Case(nobody_looks, {"no_dead_letters": "unknown"}),
    "the dead letters were looked at before the load": Case(looked_too_early, {"no_dead_letters": "unknown"}),
    "the dead letters were looked at before the last delivery": Case(
        looked_before_the_last_delivery(1), {"no_dead_letters": "unknown"}
    ),
    "the dead letters were looked at after the last delivery": Case(
        looked_before_the_last_delivery(0), {"no_dead_letters": "pass"}
    ),
    "one of two looks was refused": Case(one_of_two_looks_is_refused, {"no_dead_letters": "unknown"}),
    "nobody looked at the dead letters, of which one was acknowledged": Case(
        nobody_looks_but_something_is_acknowledged_there, {"no_dead_letters": "unknown"}
    ),
    "the dead letters were looked at, and none received": Case(nothing_is_received_there, {"no_dead_letters": "pass"}),
    "nobody could ask a broker beside the active one": Case(silent("b", 6000, 8000), {"single_active": "unknown"}),
    "nobody could ask a broker to the end": Case(silent("b", 6000, None), {"single_active": "unknown"}),
    "a broker was asked too seldom": Case(polls_are_slow, {"single_active": "unknown"}),
    "nobody could ask a broker while it was halted": Case(
        silent("a", FAULT + 100, HEAL - 100), {"single_active": "pass"}
    ),
    "nobody could ask a broker since before it was halted": Case(
        silent("a", FAULT - 100, HEAL - 100), {"single_active": "unknown"}
    ),
    "nobody could ask a broker, but its log tells": Case(silent_but_its_log_tells, {"single_active": "pass"}),
    "nobody could ask the broker of another store": Case(silent("x", 6000, 8000), {"single_active": "pass"}),
    "an address's producer hangs since before the load": Case(
        a_producer_hangs_on("q2", 0), {"available": "fail"}, run=drained("q2")
    ),
    "an address's producer hangs": Case(a_producer_hangs_on("q2", 200), {"available": "fail"}, run=drained("q2")),
    "an address's producer never connected": Case(nothing, {"available": "unknown"}, run=drained("q2")),
    "an address of the load that nobody used": Case(nothing, {"available": "unknown"}, run={"addresses": ("q", "q3")}),
    "holes among the consumer's operations": Case(holes("c", (100, 150), (200, 260)), all_unknown=True, renumber=False),
    "holes among the producer's operations": Case(holes("p", (100, 150), (200, 260)), all_unknown=True, renumber=False),
    "the first operations are missing": Case(holes("c", (0, 40)), all_unknown=True, renumber=False),
    "the first operations of one of two clients are missing": Case(
        the_first_of_one_of_two_clients, all_unknown=True, renumber=False
    ),
    "the producer's spool never came home": Case(
        a_spool_is_missing("p"),
        all_unknown=True,
        run={"clocks": {**kept()[0].clocks, "worker-1": Clock("load2")}},
    ),
    "the consumer's spool never came home": Case(
        a_spool_is_missing("c"),
        all_unknown=True,
        run={"clocks": {**kept()[0].clocks, "worker-1": Clock("load2")}},
    ),
    "an intruder by a vague clock": Case(an_intruder, {"single_active": "unknown"}, run=VAGUE),
    "an intruder among sends by a vague clock": Case(
        an_intruder_among_sends_by_a_vague_clock, {"single_active": "unknown"}, run=VAGUE
    ),
    "a topic's message is not got, and was due by vague clocks": Case(
        a_topics_message_is_not_got(500), {"no_loss": "unknown"}, run=VAGUE | drained("t")
    ),
    "a topic's message is not got, and was not due by vague clocks": Case(
        a_topics_message_is_not_got(-500), {"no_loss": "unknown"}, run=VAGUE | drained("t")
    ),
    "a topic's message is not got, and was due": Case(
        a_topics_message_is_not_got(500), {"no_loss": "fail"}, run=FINE | drained("t")
    ),
    "a topic's message is not got, and was not due": Case(
        a_topics_message_is_not_got(-500), {"no_loss": "pass"}, run=FINE | drained("t")
    ),
    "an intruder by a clock that drifted": Case(
        drifted,
        {"single_active": "unknown"},
        run={"clocks": {**VAGUE["clocks"], "vague": Clock("load2", 0, MS)}},
    ),
    "an intruder by a clock that drifted evenly": Case(
        read_as((2654, 654, 1), (5308, 1308, 1)), {"single_active": "pass"}, run=FINE
    ),
    "an intruder by a clock that was set back and forth": Case(
        read_as((3000, 900, 1), (6000, 0, 1)), {"single_active": "unknown"}, run=FINE
    ),
    "an intruder by a clock that drifted a little": Case(
        read_as((3000, 0.1, 0.1), (9000, 0.3, 0.1)), {"single_active": "fail"}, run=FINE
    ),
    "an intruder by a clock that was read while its host was busy": Case(
        read_as((1000, 0, 1), (5000, 300, 900), (9000, 0, 1)), {"single_active": "fail"}, run=FINE
    ),
    "all by a clock that gains, and is read": Case(all_but_one_by_a_fast_clock, run=FINE),
    "late by a vague clock": Case(late_by_another_clock, {"ordered": "unknown"}, run=VAGUE),
    "active beside another one by vague roles": Case(roles_are_vague, {"single_active": "unknown"}),
    "active beside another one by a vague end": Case(the_end_is_vague(None), {"single_active": "unknown"}),
    "not active beside another one by its log": Case(the_end_is_vague(50), {"single_active": "pass"}),
    "perhaps active beside another one by its log": Case(the_end_is_vague(150), {"single_active": "unknown"}),
    "its end was seen before the fault, vaguely": Case(
        the_end_came_before_the_fault(80, 100), {"failover_within": "pass"}
    ),
    "its end was seen before the fault": Case(the_end_came_before_the_fault(80, 70), {"failover_within": "unknown"}),
    "silent while its host restarts": Case(silent_while_its_host_restarts, {"single_active": "pass"}),
    "the bound is kept or not, by vague clocks": Case(
        nothing,
        {"failover_within": "unknown"},
        run={**bounded(failover_within=400), "clocks": {**kept()[0].clocks, "load": Clock("load1", 0, 50 * MS)}},
    ),
    "too late on a busy host": Case(busy(450), {"failover_within": "unknown"}, run=bounded(failover_within=200)),
    "too late on a host that was at work": Case(
        busy(240), {"failover_within": "fail"}, run=bounded(failover_within=200)
    ),
    "too late on a host that was not that busy": Case(
        busy(50), {"failover_within": "fail"}, run=bounded(failover_within=200)
    ),
    "a client had gone to another store long before": Case(
        a_client_goes_to_another_store(1000), {"failover_within": "pass"}
    ),
    "a client goes to another store when its own is hit": Case(
        a_client_goes_to_another_store(FAULT), {"failover_within": "pass"}
    ),
    "a client comes from another store long after the failover": Case(
        a_client_comes_from_another_store(6000), {"failover_within": "pass"}
    ),
    "a client waits too long and goes to another store": Case(
        a_client_waits_and_goes_to_another_store, {"failover_within": "fail"}
    ),
    "all clients had gone to another store": Case(everybody_had_gone_to_another_store, vacuous=True),
    "a fault on a broker that is down since one that was not healed": Case(
        hit_when_it_was_down(tried=True), vacuous=True, run=UNTIMED
    ),
    "a fault on a broker that is down, and nobody tries": Case(
        hit_when_it_was_down(tried=False), vacuous=True, run=UNTIMED
    ),
    "nobody sends after the second fault": Case(nobody_sends_after_the_second_fault, {"failover_within": "unknown"}),
    "what was active outlasted its fault": Case(
        paused_and_later_taken_over, {"failover_within": "unknown", "alerted_within": "unknown"}
    ),
    "another fault on the original lasts": Case(another_fault_lasts("pause", 7000), {"failback_within": "unknown"}),
    "another fault on the original's host lasts": Case(
        another_fault_lasts("disk_full", 7000, target="host-a"), {"failback_within": "unknown"}
    ),
    "a link of the original is cut for longer": Case(
        another_fault_lasts("partition", 7000, target="db→a", toward="a, b"), {"failback_within": "unknown"}
    ),
    "another fault on the original was over long ago": Case(
        another_fault_lasts("pause", 6300), {"failback_within": "fail"}
    ),
    "a link of another one is cut for longer": Case(
        another_fault_lasts("partition", 7000, target="db→b", toward="b"), {"failback_within": "fail"}
    ),
    "nobody knew the role of one of two": Case(roles_without("b"), {"single_active": "unknown"}),
    "nobody knew the role of one of two for long": Case(roles_without("b", until=6000), {"single_active": "unknown"}),
    "the role of one of two is known from the load's begin on": Case(
        roles_without("b", until=0), {"single_active": "pass"}
    ),
    "nobody knew the role of any instance of a store": Case(roles_without("a", "b"), {"single_active": "unknown"}),
    "nobody knew the role of the only instance of a store": Case(roles_without("x"), {"single_active": "pass"}),
    "active beside another one under a kill that was not healed": Case(
        active_again_though_not_healed, {"single_active": "fail"}
    ),
    "the load ends before the bound is over": Case(
        cut_off_by_the_loads_end(bound_is_over=False), {"available": "unknown", "failover_within": "unknown"}
    ),
    "the load ends after the bound is over": Case(
        cut_off_by_the_loads_end(bound_is_over=True), {"available": "fail", "failover_within": "unknown"}
    ),
    "the load stops and goes on": Case(the_load_stops_and_goes_on, {"available": "pass"}),
    "an address is not used since the load went on": Case(
        an_address_is_used_before_the_load_goes_on, {"available": "unknown"}, run=drained("q2")
    ),
    "a host starts anew by itself": Case(a_host_starts_anew(6500), {"stays_up": "unknown"}),
    "a host starts anew by a fault": Case(
        a_host_starts_anew(6500, 6000), {"stays_up": "pass", "alerted_within": "fail"}
    ),
    "a host starts anew before the fault that does so": Case(
        a_host_starts_anew(6500, 6600), {"stays_up": "unknown", "alerted_within": "fail"}
    ),
    "a host starts anew during a playbook": Case(a_host_starts_anew(6500, instances="x"), {"stays_up": "pass"}),
    "nobody knows where the dead letters of an address go": Case(
        lambda ops, _: traffic(ops, "w", lambda _: "x", range(200, 7900, 100), address="q2"),
        {"no_dead_letters": "unknown"},
        run={"drained": {"q": True, "q2": True}},
    ),
    "nobody watched the alerts when the fault came": Case(
        watched(FAULT + 250, 9000, fired=FAULT + 250), {"alerted_within": "unknown"}
    ),
    "somebody watched the alerts since the fault came": Case(watched(FAULT, 9000), {"alerted_within": "pass"}),
    "nobody watched the alerts when the fault was healed": Case(
        watched(0, HEAL - 1, cleared=4500), {"alerted_within": "unknown"}
    ),
    "an alert is over when the fault is healed": Case(watched(0, HEAL, cleared=4500), {"alerted_within": "pass"}),
    "a planned fault was injected in the first round alone": Case(
        rounds(1, 2, 3), vacuous=True, run={"planned": ("kill it",)}
    ),
    "a planned fault was not injected in a round that did not end": Case(
        rounds(1, begun=2), run={"planned": ("kill it",)}
    ),
    "another application's dead letter": Case(another_applications_dead_letter, {"no_phantoms": "pass"}),
}
# What a change says besides, by its nature.
ALSO = {
    "acknowledged as the fault began, nobody knows by whom": {"single_active"},
    "acknowledged after the fault, nobody knows by whom": {"single_active"},
    "nothing acknowledged, nothing delivered": {
        *("available", "failover_within", "atomic", "ordered", "transparent", "no_nonpersistent_loss"),
    },
    "all messages expire": {"no_duplicates", "atomic", "ordered", "no_nonpersistent_loss"},
    "no message is durable": {"atomic"},
    "late by a vague clock": {"no_loss", "atomic", "available", "failover_within"},
    "an intruder by a vague clock": {"failover_within", "failback_within", "available", "ordered"},
    "an intruder among sends by a vague clock": {"failover_within", "available"},
    "an intruder by a clock that drifted": {"failover_within", "failback_within", "available", "ordered"},
    "an intruder by a clock that was set back and forth": {
        "failover_within",
        "failback_within",
        "available",
        "ordered",
    },
    "the bound is kept or not, by vague clocks": {"available", "sticky", "ordered"},
    "active beside another one by vague roles": {"failover_within"},
    "active beside another one under a kill that was not healed": {"failback_within"},
    "what was active outlasted its fault": {"failback_within"},
    "nobody sends after the second fault": {"failback_within", "available", "alerted_within"},
    "a topic's message is not got, and was due by vague clocks": {
        *("available", "failover_within", "ordered", "no_nonpersistent_loss"),
    },
    "a topic's message is not got, and was not due by vague clocks": {
        *("available", "failover_within", "ordered", "no_nonpersistent_loss"),
    },
    "a topic's message is not got, and was due": {"available"},
    "a topic's message is not got, and was not due": {"available"},
}
# Whoever hangs in a call is not answered.
ALSO |= {name: {"transparent"} for name in CASES if name.startswith("the load ends ") or "producer hangs" in name}
ALSO |= {
    name: {"alerted_within"}
    for name, case in CASES.items()
    if "failback_within" in case.told and ("another" in name or "of the original" in name)
}
ALSO |= {
    name: {"failover_within", "failback_within", "alerted_within"}
    for name, case in CASES.items()
    if "knew the role" in name or "is known from the load's begin" in name
}
# What waits at a broker that was hit: nothing was acknowledged there, it is lost, or it is not known that it was hit.
NOTHING_WAITS = (
    *("nothing acknowledged, nothing delivered", "no message is durable", "all messages expire"),
    *("an intruder among sends by a vague clock", "its end was seen before the fault"),
    "what was active outlasted its fault",
)
ALSO |= {
    name: ALSO.get(name, set()) | {"delivered_within"}
    for name in CASES
    if name in NOTHING_WAITS
    or name.startswith(("a topic's message is not got", "nobody knew the role", "the role of one of two"))
}
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
    assert {name: told[name] for name in case.told} == dict(case.told), [
        (one["name"], one.get("reason")) for one in result["promises"]
    ]
    others = {one: word for one, word in told.items() if one not in {*case.told, *ALSO.get(name, set())}}
    assert set(others.values()) == {"pass"}, others


def test_what_is_unknown_says_why(results: dict[str, dict[str, Any]]) -> None:
    said = {
        (name, one["name"]): one.get("reason", "")
        for name, case in CASES.items()
        for one in results[name]["promises"]
        if case.told.get(one["name"]) == "unknown" and one["name"] not in ("no_loss", "no_duplicates", "no_phantoms")
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
