"""Units: what is known of each message on each subscription, and its class."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tests.analysis.oracle.facts import Facts, Unit, phase
from tests.analysis.oracle.rows import NEVER, MessageKey, Row, ended


def message_state(attempts: Sequence[Row]) -> str:
    """acknowledged, unknown, failed, or never (attempted)."""
    results = {attempt["result"] for attempt in attempts}
    if not results:
        return "never"
    # "acknowledged when some attempt is ok, unknown when none is ok and some is unknown, failed when all are fail"
    if "ok" in results:
        return "acknowledged"
    return "unknown" if "unknown" in results else "failed"


def expected_subscriptions(facts: Facts, address: str, attempts: Sequence[Row]) -> dict[str, bool]:
    """The subscriptions of a topic that must get a message, or perhaps had to (False): "On a topic those subscriptions
    are expected …" """
    began = [attempt["start_ns"] for attempt in attempts if attempt["result"] != "fail"]
    if not began:
        return {}
    off = 2 * max((clock.uncertainty for clock in facts.clocks.values()), default=0)
    drain = phase(facts, "drain", "begin")
    ends = [op for op in facts.of("unsubscribe", "close") if op["outcome"] != "fail"]
    surely = [op for op in ends if op["outcome"] == "ok" and (drain is None or ended(op) + off < drain)]
    perhaps = [
        op for op in ends if drain is None or (ended(op) if op["outcome"] == "ok" else op["start_ns"]) - off < drain
    ]
    expected: dict[str, bool] = {}
    for row in facts.of("subscribe"):
        # "whose subscribe was ok before the first attempt that is not fail began"
        if row.get("address") != address or row.get("subscription") is None or row["outcome"] != "ok":
            continue
        if ended(row) - off >= min(began):
            continue
        # "and which no unsubscribe ended before the drain (nor a close, for one whose subscribe row says durable =
        # false)"; "in doubt, or only perhaps before the drain"
        if any(ends_it(facts, op, row) for op in surely):
            continue
        sure = ended(row) + off < min(began) and not any(ends_it(facts, op, row) for op in perhaps)
        expected[row["subscription"]] = expected.get(row["subscription"], False) or sure
    return expected


def ends_it(facts: Facts, op: Row, subscribe: Row) -> bool:
    """Whether a close or an unsubscribe that takes effect ends what a subscribe had begun."""
    if op["op"] == "close":
        mine = op["client"] == subscribe["client"] and op["start_ns"] > subscribe["start_ns"]
        return mine and subscribe.get("durable") is False
    name = subscribe["address"], subscribe["subscription"]
    if (op.get("address"), op.get("subscription")) != name:
        return False
    # "after the first of its consumers had subscribed"
    firsts = [
        ended(one)
        for one in facts.of("subscribe")
        if one["outcome"] == "ok" and (one.get("address"), one.get("subscription")) == name
    ]
    return bool(op["start_ns"] > min(firsts))


def find_units(facts: Facts) -> list[Unit]:
    """Return every unit that gets a class, dead-letter evidence included."""
    # "An address is a topic if any row there has a subscription"
    topics = {op["address"] for op in facts.ops if op.get("address") and op.get("subscription") is not None}
    # "A browse or receive on a dead-letter address … is evidence for the original unit"
    evidence: dict[MessageKey, list[str | None]] = defaultdict(list)
    for op in facts.of("browse", "receive"):
        if op["outcome"] != "ok" or op.get("message_id") is None:
            continue
        if op.get("address") not in facts.run.dead_letters.values():
            continue
        mapped = [a for a, dead in facts.run.dead_letters.items() if dead == op["address"]]
        for message in ((a, op["message_id"]) for a in mapped):
            # "one that the run has neither attempted nor been delivered is another application's"
            if message in facts.attempts or message in facts.deliveries:
                evidence[message].append(op.get("subscription"))

    units = []
    for message in sorted({*facts.attempts, *facts.deliveries, *evidence}):
        address, message_id = message
        attempts = facts.attempts.get(message, [])
        state = message_state(attempts)
        by_subscription: dict[str | None, list[Row]] = defaultdict(list)
        for delivery in facts.deliveries.get(message, []):
            by_subscription[delivery.get("subscription")].append(delivery)
        names: set[str | None]
        expected: dict[str, bool] = {}
        if address not in topics:
            names = {None}  # "on a queue there is one unit a message"
        else:
            expected = expected_subscriptions(facts, address, attempts)
            names = set(expected)
            # "a delivery to another subscription … gets a class only if it is processed"
            for name, deliveries in by_subscription.items():
                # … "allowed" is said of what was sent: of a failed or unknown message every delivery counts
                if state in ("failed", "never") or any(d["result"] == "processed" for d in deliveries):
                    names.add(name)
            if message in evidence and not names and state in ("failed", "never"):
                names = {None}  # "If the message failed it is a phantom"
        for name in names:
            unit = Unit((address, message_id, name), state, attempts, by_subscription.get(name, []))
            unit.sure = address not in topics or expected.get(name or "", False)
            unit.dead = any(which is None or which == name or name is None for which in evidence.get(message, []))
            units.append(unit)
    return units


def settled(facts: Facts, unit: Unit) -> tuple[bool, bool]:
    """Whether a unit had expired by the drain's end for certain; and whether, if nobody got it, it was lost or expired
    for certain: its address was drained, it had to be got, and not only the clocks say whether it had expired."""
    # "it expires at its latest expires_ns", "null: never"
    expires = max((NEVER if a.get("expires_ns") is None else a["expires_ns"] for a in unit.attempts), default=NEVER)
    off = 2 * max((clock.uncertainty for clock in facts.clocks.values()), default=0)
    drained = facts.run.drained.get(unit.key[0], False)
    over = phase(facts, "drain", "end")
    if over is None and drained:
        over = facts.end
    too_late = over is not None and expires + off < over
    # "first sent before the drain's end"
    began = min((a["start_ns"] for a in unit.attempts if a["result"] != "fail"), default=-NEVER)
    in_time = over is None or began + off <= over
    return too_late, drained and unit.sure and in_time and (too_late or over is None or expires - off >= over)


def classify(facts: Facts, unit: Unit) -> str:
    """The class of a unit: "exactly one: the first that applies"."""
    state, deliveries = unit.state, unit.deliveries
    processed = [d for d in deliveries if d["result"] == "processed"]
    possibly = [d for d in deliveries if d["result"] == "possibly"]
    untouched = not processed and not possibly
    sent = {a["payload_sha"] for a in unit.attempts if a.get("payload_sha") is not None}
    got = {d["payload_sha"] for d in deliveries if d.get("payload_sha") is not None}
    # "It is durable if any attempt is durable or null"
    durable = any(a.get("durable") is not False for a in unit.attempts)
    too_late, drained = settled(facts, unit)
    # "acknowledged, or unknown and delivered; no delivery processed or possibly processed"
    missing = (state == "acknowledged" or (state == "unknown" and bool(deliveries))) and untouched

    # "a delivery's payload_sha is not the send's"
    if sent and got - sent:
        return "corrupted"
    # "failed, yet delivered"; "if the message failed it is a phantom"
    if state == "failed" and (deliveries or unit.dead):
        return "phantom"
    # "delivered, never attempted"
    if state == "never":
        return "unexpected"
    # "processed more than once"
    if len(processed) > 1:
        return "duplicated"
    # "acknowledged or unknown, never processed or possibly processed, found on the dead-letter address"
    if state in ("acknowledged", "unknown") and untouched and unit.dead:
        return "dead_lettered"
    # "acknowledged, or unknown and delivered; never (possibly) processed; expired before the drain's end"
    if missing and too_late:
        return "expired"
    # "as lost, but not durable"
    if missing and drained and not durable:
        return "lost_nonpersistent"
    # "…; drained"
    if missing and drained:
        return "lost"
    # "as lost, not drained"
    if missing:
        return "unseen"
    # "delivered more than once, processed at most once"
    if len(deliveries) > 1:
        return "redelivered"
    # "unknown, delivered"
    if state == "unknown" and deliveries:
        return "recovered"
    # "unknown, never delivered"
    if state == "unknown":
        return "unresolved"
    # "failed, never delivered"
    if state == "failed":
        return "rejected"
    # "acknowledged, processed or possibly processed"
    assert state == "acknowledged" and not untouched, unit
    return "ok"
