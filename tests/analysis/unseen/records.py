"""What was looked at and what came home: drains, logs, looks at dead letters, polls, operations that are missing."""

from __future__ import annotations

from typing import Any

from tests.analysis.batch import Row
from tests.analysis.kept_run import FAULT, HEAL, MS, event, find, op
from tests.analysis.unseen.case import Change, keep


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


def another_applications_dead_letter(ops: list[Row], events: list[Row]) -> None:
    ops.append(op("inspector", "browse", 9002, 9003, address="DLQ", message_id="of-somebody-else"))


def drained(*addresses: str) -> dict[str, Any]:
    return {"drained": dict.fromkeys(("q", *addresses), True), "dead_letters": dict.fromkeys(("q", *addresses), "DLQ")}


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
