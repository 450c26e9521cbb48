"""What was known too vaguely: clocks, roles by polls, and hosts that were busy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from brokerdrill.ledger.contract import Clock, PromiseSpec
from tests.analysis.batch import Row
from tests.analysis.kept_run import ACTIVE_A, FAULT, MS, event, find, kept, op
from tests.analysis.unseen.case import Change

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


def busy(stalled_ms: float) -> Change:
    def change(ops: list[Row], events: list[Row]) -> None:
        detail = {"since_ns": str(FAULT * MS), "stalled_ns": str(round(stalled_ms * MS))}
        events.append(event("pressure", FAULT + 500, target="host-b", name="cpu", detail=detail))

    return change


SHORT = {"failover_within": 300.0, "failback_within": 700.0, "available": 700.0}


def bounded(**bounds: float) -> dict[str, Any]:
    """The promises with these bounds."""
    return promising(**{name: {"bound_ms": bound} for name, bound in bounds.items()})


def promising(**changed: dict[str, Any]) -> dict[str, Any]:
    """The promises with these fields."""
    run, _, _ = kept()
    return {
        "promises": tuple(
            PromiseSpec(one.name, **{**one.values, **changed[one.name]}) if one.name in changed else one
            for one in run.promises
        )
    }
