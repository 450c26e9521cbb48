"""What waited at a broker when a fault hit it, and what is then said of when it was delivered. The bound is 2 s."""

from __future__ import annotations

from typing import Any

from tests.analysis.batch import Row
from tests.analysis.kept_run import FAULT, MS, event, find, op
from tests.analysis.unseen.case import Case, Change, keep
from tests.analysis.unseen.loads import traffic
from tests.analysis.unseen.records import drained
from tests.analysis.unseen.times import VAGUE, bounded, on_the_vague_clock


def message(name: str, **columns: Any) -> Row:
    return {"address": "q", "message_id": name, "payload_sha": "sha", **columns}


def sent(name: str, at: float, instance: str | None = "a", client: str = "o", **columns: Any) -> Row:
    return op(client, "send", at, at + 1, instance=instance, durable=True, **{**message(name), **columns})


def got(
    name: str, at: float, instance: str | None = "b", client: str = "c", outcome: str | None = "ok", **columns: Any
) -> list[Row]:
    """A delivery that is over at `at`, and its acknowledgement (None: there is none)."""
    told, delivery = {**message(name), **columns}, f"d-{name}-{at}"
    rows = [op(client, "receive", at - 1, at, instance=instance, delivery=delivery, redelivered=False, **told)]
    of = {name: told[name] for name in ("address", "subscription") if name in told}
    if outcome is not None:
        rows.append(op(client, "ack", at + 1, at + 2, outcome=outcome, delivery=delivery, **of))
    return rows


def waits(
    sent_at: float, got_at: float | None, instance: str | None = "a", by: str | None = "b", **columns: Any
) -> Change:
    """One more message, of another producer, is acknowledged and got by the consumer at these times."""

    def change(ops: list[Row], events: list[Row]) -> None:
        ops.append(sent("held", sent_at, instance, **columns))
        ops.extend([] if got_at is None else got("held", got_at, by, **columns))

    return change


def nothing_waits(ops: list[Row], events: list[Row]) -> None:
    keep(ops, lambda row: "waits" not in (row.get("message_id"), str(row.get("delivery"))[2:]))


def alone(*changes: Change) -> Change:
    """These changes, of a run in which nothing waits besides."""

    def change(ops: list[Row], events: list[Row]) -> None:
        nothing_waits(ops, events)
        for one in changes:
            one(ops, events)

    return change


def consumers_begin(at: float) -> Change:
    """Nobody receives before: a consumer of its own gets all that was sent until then, one after the other."""

    def change(ops: list[Row], events: list[Row]) -> None:
        for row in ops:
            if row["client"] == "c" and row["start_ns"] < at * MS:
                shift = round(at * MS) + row["start_ns"] // 100 - row["start_ns"]
                took = (row["end_ns"] - row["start_ns"]) // 100
                row["start_ns"] += shift
                row["end_ns"] = row["start_ns"] + took
        ops.append(op("c", "connect", at - 2, at - 1, instance="b"))

    return change


def the_consumer_is_away(begin: float, end: float) -> Change:
    """It closes its connection and comes again; what it got meanwhile it gets at once then."""

    def change(ops: list[Row], events: list[Row]) -> None:
        for row in ops:
            if row["client"] == "c" and begin * MS <= row["start_ns"] < end * MS:
                row["start_ns"], took = round(end * MS) + row["start_ns"] // 100, row["end_ns"] - row["start_ns"]
                row["end_ns"] = row["start_ns"] + took // 100
        ops.append(op("c", "close", begin - 2, begin - 1))
        ops.append(op("c", "connect", end - 2, end - 1, session=1, instance="b"))
        # In their order they are numbered.
        ops.sort(key=lambda row: row["start_ns"])

    return change


def heir_killed(at: float, healed: float | None) -> Change:
    """The broker that took over is killed too, and nobody serves the store until the first one is back."""

    def change(ops: list[Row], events: list[Row]) -> None:
        events.append(event("fault", at, name="kill", instance="b", store="s", target="host-b", value="kill the heir"))
        if healed is not None:
            events.append(event("heal", healed, name="kill", instance="b", store="s", target="host-b"))

    return change


def subscribed(name: str, at: float, client: str, instance: str = "a") -> Row:
    where = {"address": "t", "subscription": name, "durable": True, "instance": instance}
    return op(client, "subscribe", at, at + 1, **where)


def two_subscriptions(second_comes_again: float | None) -> Change:
    """A topic's message waits for two durable subscribers, of which the second one goes before it is sent."""

    def change(ops: list[Row], events: list[Row]) -> None:
        for name in ("s1", "s2"):
            ops.append(subscribed(name, 500, name))
        ops.append(op("s2", "close", 600, 601))
        ops.append(sent("held", 2450, address="t"))
        ops.extend(got("held", 3450, client="s1", address="t", subscription="s1"))
        ops.append(op("s1", "receive", 3460, 7990, outcome="fail", address="t", subscription="s1"))
        if second_comes_again is not None:
            at = second_comes_again
            ops.append(op("s2", "connect", at, at + 1, session=1, instance="b"))
            ops.extend(got("held", at + 10, client="s2", address="t", subscription="s2"))

    return change


def committed(at: float, ended: float) -> Change:
    """Sent in a transaction, prepared before the fault, and committed at that time; delivered after 3 s."""

    def change(ops: list[Row], events: list[Row]) -> None:
        ops.append(sent("held", 2400, txn="late"))
        ops.append(op("o", "prepare", 2402, 2403, txn="late", instance="a"))
        ops.append(op("o", "commit", at, ended, txn="late", instance="b"))
        ops.extend(got("held", max(ended, FAULT) + 3000))

    return change


def given_back(first: float, outcome: str | None, again: float | None) -> Change:
    """It was delivered, and given back; delivered again at another time, or never."""

    def change(ops: list[Row], events: list[Row]) -> None:
        ops.append(sent("held", 2300))
        ops.extend(got("held", first, "a" if first < FAULT else "b", outcome=outcome))
        ops.extend([] if again is None else got("held", again))

    return change


def dead(ops: list[Row], events: list[Row]) -> None:
    """It is never delivered, but found among the dead letters."""
    ops.append(sent("held", 2450))
    find(ops, client="inspector")["start_ns"] = 9_010 * MS
    find(ops, client="inspector")["end_ns"] = 9_020 * MS
    ops.append(op("inspector", "browse", 9000, 9001, address="DLQ", message_id="held"))


def by_the_vague_clock(client: str, then: Change) -> Change:
    """Of what `then` adds, the rows of that client are on a clock of its own."""

    def change(ops: list[Row], events: list[Row]) -> None:
        before = {id(row) for row in ops}
        then(ops, events)
        on_the_vague_clock(ops, lambda row: row["client"] == client and id(row) not in before)

    return change


def taken_by(client: str, sent_at: float, got_at: float) -> Change:
    """A message that waits and is got by another consumer, who asks all the while."""

    def change(ops: list[Row], events: list[Row]) -> None:
        ops.append(op(client, "connect", 1000, 1001, instance="a"))
        ops.append(sent("held", sent_at))
        ops.extend(got("held", got_at, client=client))

    return change


def two_stores(back: bool) -> Change:
    """What b acknowledged while it had taken over waits when the fault hits a, which is active again since."""

    def change(ops: list[Row], events: list[Row]) -> None:
        ops.append(sent("held", 5000, "b"))
        ops.extend(got("held", 7990 if back else 6600, "a"))
        events.append(event("fault", 5800, name="pause", instance="a", store="s", target="host-a"))
        events.append(event("heal", 6400, name="pause", instance="a", store="s", target="host-a"))

    return change


def another_store_serves(ops: list[Row], events: list[Row]) -> None:
    traffic(ops, "w", lambda _: "x", range(200, 7900, 100), address="q2")


def in_one_step(ops: list[Row], events: list[Row]) -> None:
    for row in events:
        if row["kind"] == "fault":
            row["value"] = "kill both"


def cut(target: str, toward: str) -> Change:
    """A link is cut half a second after the fault, and whole again when what waits has come."""

    def change(ops: list[Row], events: list[Row]) -> None:
        detail = {"toward": toward}
        events.append(event("fault", FAULT + 500, name="partition", target=target, value="cut", detail=detail))
        events.append(event("heal", 5700, name="partition", target=target, value="cut"))

    return change


KEPT, BROKEN, UNKNOWN = ({"delivered_within": word} for word in ("pass", "fail", "unknown"))
NEITHER = UNKNOWN | {"no_loss": "fail"}
WAITING: dict[str, Case] = {
    "it came late": Case(waits(2450, 6000), BROKEN),
    "it came late, nobody knows who took it": Case(waits(2450, 6000, None), UNKNOWN),
    "it never came, nobody knows who took it": Case(waits(2450, None, None), NEITHER),
    "it came in time, nobody knows who took it": Case(waits(2450, 4000, None), KEPT),
    "nothing waited": Case(nothing_waits, UNKNOWN),
    "nothing waited, and the bound is 0": Case(nothing_waits, UNKNOWN, bounded(delivered_within=0)),
    "it waited, and the bound is longer than any run": Case(waits(2450, 6000), KEPT, bounded(delivered_within=1e14)),
    "consumers began late": Case(alone(waits(2450, 6010), consumers_begin(5900)), UNKNOWN),
    "consumers began after the fault, longer than the bound before it came": Case(
        alone(waits(2450, 7000), consumers_begin(3450)), BROKEN
    ),
    "the consumer was away": Case(alone(the_consumer_is_away(3300, 6000), waits(2450, 6010)), UNKNOWN),
    "the consumer had been away long before it came": Case(
        alone(the_consumer_is_away(3300, 3500), waits(2450, 6010)), BROKEN
    ),
    "the halted broker had handed it out before": Case(alone(waits(2995, 3004, by="a")), UNKNOWN),
    "perhaps the halted broker had handed it out before": Case(alone(waits(2995, 3004, by=None)), UNKNOWN),
    "the broker delivers it when it is back": Case(alone(waits(2450, 5600, by="a")), BROKEN),
    "the heir is killed long after": Case(heir_killed(6500, None), KEPT),
    "the heir is killed before the bound is over": Case(alone(heir_killed(4000, None), waits(2450, 5800)), UNKNOWN),
    "the heir is killed after the bound is over": Case(alone(heir_killed(5100, None), waits(2450, 5800)), BROKEN),
    "the heir is killed in the same step": Case(alone(heir_killed(4000, None), waits(2450, 5800), in_one_step), BROKEN),
    "the consumers' link is cut meanwhile": Case(alone(cut("client→broker", "a, b"), waits(2450, 5800)), UNKNOWN),
    "another store's link is cut meanwhile": Case(
        alone(cut("client→x", "x"), waits(2450, 5800), another_store_serves), BROKEN, drained("q2")
    ),
    "another subscriber never comes again": Case(two_subscriptions(None), NEITHER, drained("t")),
    "another subscriber comes again late": Case(two_subscriptions(6500), UNKNOWN, drained("t")),
    "another subscriber comes again in time": Case(two_subscriptions(4500), KEPT, drained("t")),
    "prepared before, and committed after": Case(alone(committed(3500, 3501)), UNKNOWN),
    "prepared and committed before": Case(alone(committed(2500, 2501)), BROKEN),
    "given back before, and it came again late": Case(given_back(2400, None, 6500), UNKNOWN),
    "given back before, and it came again in time": Case(given_back(2400, "fail", 4000), KEPT),
    "given back before, and it never came again": Case(given_back(2400, "fail", None), NEITHER),
    "given back after the fault": Case(alone(given_back(2900, None, 3600)), UNKNOWN),
    "delivered after the fault, and given back": Case(alone(given_back(3500, "fail", 6500)), KEPT),
    "it was found dead": Case(dead, UNKNOWN | {"no_dead_letters": "fail"}),
    "it was acknowledged before, perhaps, and came late": Case(
        by_the_vague_clock("o", waits(2450, 6000)), UNKNOWN, VAGUE
    ),
    "it was acknowledged after, perhaps, and came late": Case(
        by_the_vague_clock("o", waits(3300, 6000)), UNKNOWN, VAGUE
    ),
    "it came late by a vague clock": Case(by_the_vague_clock("c9", taken_by("c9", 2450, 5500)), UNKNOWN, VAGUE),
    "it came very late by a vague clock": Case(by_the_vague_clock("c9", taken_by("c9", 2450, 6500)), BROKEN, VAGUE),
    "it came before, perhaps": Case(alone(by_the_vague_clock("c9", taken_by("c9", 2450, 3400))), UNKNOWN, VAGUE),
    "another instance of the store had taken it": Case(alone(two_stores(back=False)), KEPT),
    "another instance of the store had taken it, and it came late": Case(alone(two_stores(back=True)), BROKEN),
}
# What else is said of these, by their nature.
WAITING_ALSO = {
    **{name: {"ordered"} for name in WAITING if name.startswith(("consumers began late", "the consumer "))},
    **{name: {"single_active"} for name in WAITING if "nobody knows who took it" in name},
    **{name: {"available", "single_active"} for name in WAITING if "vague" in name or "perhaps" in name},
    # Its sender was served by the heir before it was its turn, perhaps.
    "it was acknowledged after, perhaps, and came late": {"available", "single_active", "failover_within"},
    **{name: {"alerted_within", "failover_within"} for name in WAITING if "heir" in name or "another instance" in name},
    **{name: {"alerted_within"} for name in WAITING if "link is cut" in name},
    **{name: {"available"} for name in WAITING if "another subscriber" in name},
    **{name: {"transparent"} for name in WAITING if "given back" in name},
}
