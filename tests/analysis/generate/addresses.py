"""Queues and topics: who may get what is sent there, and from when to when."""

from __future__ import annotations

from tests.analysis.generate.clients import connect
from tests.analysis.generate.draft import MS, Draft, S


def draw_address(draft: Draft, address: str, topic: bool, mapped: bool) -> None:
    draft.store_of[address] = draft.rng.choice(list(draft.stores))
    draft.mapped = mapped
    draft.readers = []
    forever = draft.drain[1] + 10 * S
    for number in range(draft.rng.choice((1, 2))):
        consumers = [f"consumer-{address}-{number}-{n}" for n in range(draft.rng.choice((1, 1, 2)))]
        kind = draft.rng.choice(("durable", "shared", "own", "late", "ended", "closed")) if topic else "queue"
        begin, end = 3 * S // 2, forever
        if kind in ("own", "closed", "durable"):
            consumers = consumers[:1]
        if kind in ("late", "closed", "ended"):
            middle = draft.within(*draft.load)
            begin, end = (middle, forever) if kind == "late" else (begin, middle)
        for consumer in consumers:
            connect(draft, consumer, 0 if kind in ("own", "closed") else draft.rng.choice((0, 0, 1)))
        subscription = None if kind == "queue" else f"{kind}-{number}"
        if subscription is not None:
            subscribe(draft, address, subscription, kind, consumers, begin, end)
        draft.readers.append((subscription, consumers, begin, end))
        if not topic:
            break


def subscribe(draft: Draft, address: str, name: str, kind: str, consumers: list[str], begin: int, end: int) -> None:
    columns = {"address": address, "subscription": name}
    for consumer in consumers:
        for session, connected in enumerate(draft.sessions[consumer]):
            start = max(connected + 4 * MS, begin)
            if kind == "ended" and start > end:
                continue
            outcome = "ok" if session or draft.chance(0.9) else draft.rng.choice(("fail", "unknown"))
            durable = False if kind in ("own", "closed") else draft.rng.choice((True, None))
            extra = {"session": session, "durable": durable}
            draft.op(consumer, "subscribe", start, start + draft.within(MS, 5 * MS), outcome, **columns, **extra)
    last = consumers[0]
    if kind == "ended":
        draft.op(last, "unsubscribe", end, end + MS, "ok" if draft.chance(0.9) else "fail", **columns)
    if kind == "closed":
        draft.op(last, "close", end, end + MS, "ok")
