"""What the load did and met: nothing to lose, clients that hang, that go elsewhere, and loads that stop."""

from __future__ import annotations

from collections.abc import Callable

from tests.analysis.batch import Row
from tests.analysis.kept_run import FAULT, MS, event, find, op
from tests.analysis.unseen.case import Change, keep


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


def a_hanging_producer_is_killed(after: float) -> Change:
    """So much (ms) after the fault."""

    def change(ops: list[Row], events: list[Row]) -> None:
        a_producer_hangs(1)(ops, events)
        events.append(event("note", FAULT + after, name="clients killed", detail={"clients": "other, h"}))

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


def nothing_is_received_there(ops: list[Row], events: list[Row]) -> None:
    ops.append(op("inspector", "receive", 9002, 9003, outcome="fail", address="DLQ", instance="x"))


def a_producer_hangs_on(address: str, at: float) -> Change:
    def change(ops: list[Row], events: list[Row]) -> None:
        columns = {"address": address, "message_id": "hung", "payload_sha": "sha", "durable": True}
        ops.append(op("h", "send", at, None, outcome="unknown", **columns))

    return change


def a_topics_message_is_not_got(subscribed: float) -> Change:
    """By the subscriber's clock it was subscribed so much (ms) before the message was sent."""

    def change(ops: list[Row], events: list[Row]) -> None:
        ops.append({**op("d", "subscribe", 600 - subscribed, 600 - subscribed + 1, address="t"), "clock": "vague"})
        ops[-1] |= {"subscription": "d", "durable": True}
        sent = {"address": "t", "message_id": "on-t", "payload_sha": "sha", "durable": True, "instance": "a"}
        ops.append(op("other", "send", 602, 603, **sent))

    return change


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
