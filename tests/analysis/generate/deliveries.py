"""Deliveries: what becomes of a message on each subscription."""

from __future__ import annotations

from tests.analysis.generate.draft import MS, Draft, Row, S
from tests.analysis.generate.stores import server


def deliver(draft: Draft, message: Row, sent: int, state: str) -> None:
    """Draw what becomes of a message on each subscription of its address."""
    for subscription, consumers, begin, end in draft.readers:
        if not begin <= sent < end and not draft.chance(0.1):
            continue
        good = {"ok": 1.0, "unknown": 0.5, "fail": draft.trouble / 3}[state]
        if state == "fail" and draft.chance(good * 0.3) and draft.mapped:
            dead_letter(draft, message["address"], message["message_id"])
        if not draft.chance(good):
            continue
        fate = "processed"
        if draft.chance(draft.trouble):
            fates = ["twice", "again", "again", "possibly", "untouched", "missing", "missing", "corrupt", "both"]
            fate = draft.rng.choice([*fates, "dead", "dead"] if draft.mapped else fates)
        play(draft, message, subscription, consumers, sent, fate)


def play(draft: Draft, message: Row, subscription: str | None, consumers: list[str], sent: int, fate: str) -> None:
    at = sent + draft.within(10 * MS, 15 * MS)
    late = draft.chance(draft.disorder)
    if late:
        at += draft.within(0, 4 * S)
    results = {
        "processed": ["processed"],
        "twice": ["processed", "processed"],
        "again": ["neither", "processed"],
        "both": ["possibly", "processed"],
        "possibly": ["possibly"],
        "untouched": ["neither"],
        "missing": [],
        "corrupt": ["processed"],
        "dead": ["neither"] * draft.rng.choice((0, 1, 2)),
    }[fate]
    for number, result in enumerate(results):
        sha = message["payload_sha"]
        if fate == "corrupt":
            sha = "sha-of-something-else"
        flag = draft.rng.choice((True, True, None)) if number else draft.rng.choice((False, False, False, None))
        if late and draft.chance(0.4):
            flag = True
        columns = {"message_id": message["message_id"], "payload_sha": sha, "redelivered": flag}
        receive(draft, message["address"], subscription, draft.rng.choice(consumers), at, result, columns)
        at += draft.within(300 * MS, 1500 * MS)
    if fate == "dead":
        dead_letter(draft, message["address"], message["message_id"])


def receive(
    draft: Draft, address: str, subscription: str | None, consumer: str, at: int, result: str, columns: Row
) -> None:
    """Write one delivery and what makes it processed, possibly processed or neither."""
    instance = server(draft, draft.store_of[address], at)
    delivery = draft.name("d")
    where = {"address": address, "subscription": subscription, "delivery": delivery, "instance": instance}
    where["message_id"] = columns["message_id"]
    in_txn = draft.chance(draft.transacted)
    txn = draft.name("t") if in_txn else None
    with_ack = not in_txn or draft.chance(0.7)
    on_receive = in_txn and (not with_ack or draft.chance(0.6))
    start = at - draft.within(MS, 200 * MS)
    draft.op(consumer, "receive", start, at, "ok", **(where | columns), txn=txn if on_receive else None)
    ack = at + draft.within(1000, MS)
    if in_txn:
        if with_ack:
            outcome = "ok" if draft.chance(0.9) else draft.rng.choice(("unknown", "fail"))
            draft.op(consumer, "ack", ack, ack + 1000, outcome, **where, txn=txn)
        endings = {
            "processed": (("commit:ok",), ("prepare:ok", "commit:ok"), ("commit:fail", "commit:ok")),
            "possibly": (("commit:unknown",), ("commit:null",), ("commit:fail", "commit:unknown")),
            "neither": ((), ("rollback:ok",), ("commit:fail",), ("commit:unknown", "rollback:ok"), ("prepare:ok",)),
        }
        draft.end_transaction(consumer, txn or "", draft.rng.choice(endings[result]), ack + 2000, instance)
        return
    if result == "neither" and draft.chance(0.5):
        return
    outcome = {"processed": "ok", "possibly": "unknown", "neither": "fail"}[result]
    end = None if result == "possibly" and draft.chance(0.5) else ack + draft.within(1000, MS)
    draft.op(consumer, "ack", ack, end, outcome, **where)
    if result == "processed" and draft.chance(0.1):
        draft.op(consumer, "ack", ack + 2 * MS, ack + 3 * MS, "unknown", **where)


def dead_letter(draft: Draft, address: str, message_id: str) -> None:
    at = draft.drain[0] + draft.within(MS, S)
    op = draft.rng.choice(("browse", "browse", "receive"))
    outcome = "ok" if draft.chance(0.9) else "unknown"
    columns = {"address": "DLQ", "message_id": message_id, "delivery": draft.name("d") if op == "receive" else None}
    draft.op("inspector", op, at, at + MS, outcome, **columns)


def strangers(draft: Draft, addresses: list[str]) -> None:
    """Deliveries and dead letters that nobody ever sent, and receives that got nothing."""
    for subscription, consumers, _, _ in draft.readers:
        if draft.chance(draft.trouble / 3):
            where = draft.within(*draft.load)
            columns = {"message_id": draft.name("stranger-"), "payload_sha": "sha", "redelivered": False}
            result = draft.rng.choice(("processed", "neither"))
            receive(draft, addresses[-1], subscription, consumers[0], where, result, columns)
        for _ in range(draft.rng.choice((0, 1, 3))):
            at = draft.within(*draft.load)
            end = draft.rng.choice((None, at + S))
            columns = {"address": addresses[-1], "subscription": subscription}
            draft.op(consumers[0], "receive", at, end, draft.rng.choice(("fail", "unknown")), **columns)
    if draft.mapped and draft.chance(draft.trouble / 3):
        dead_letter(draft, addresses[-1], draft.name("stranger-"))
