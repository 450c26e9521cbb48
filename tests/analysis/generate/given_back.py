"""What one consumer gives back and another gets late."""

from __future__ import annotations

import random

from tests.analysis.generate.draft import MS, Draft, Row


def draw_given_back(draft: Draft, address: str) -> None:
    """Draw two consumers of a queue, of which one gets late what the other, or nobody, gave back.

    Their story is told in so few steps that its times are often equal: sends, deliveries in some other order, and
    sessions that end, rollbacks and commits with any outcome before, between and after them.
    """
    step = draft.rng.choice((MS, 100 * MS))
    begin = draft.within(*draft.load)
    producer, names = f"sender-{address}", (f"near-{address}", f"far-{address}")
    messages = [draft.name("m") for _ in range(draft.within(2, 5))]
    key = draft.rng.choice((None, "g"))
    sent = sorted(draft.within(0, 5) for _ in messages)
    for place, (message, at) in enumerate(zip(messages, sent, strict=True)):
        columns = {"message_id": message, "producer_seq": place, "key": key, "payload_sha": f"sha-{message}"}
        start = begin + at * step
        draft.op(producer, "send", start, start + draft.rng.choice((1, step)), "ok", address=address, **columns)
    # (step, client) of each session's begin, in order of time.
    sessions = {name: [draft.within(-3, 0)] for name in names}
    for name in names:
        draft.sessions[name] = []
        if draft.chance(0.5):
            sessions[name].append(draft.within(1, 9))
        for number, at in enumerate(sessions[name]):
            start = begin + at * step
            draft.sessions[name].append(start)
            if draft.chance(0.9):
                took = draft.rng.choice((1, step, 2 * step))
                draft.op(name, "connect", start, start + took, draft.rng.choice(("ok", "ok", "fail")), session=number)
            if draft.chance(0.7):
                end = start + draft.rng.choice((1, step))
                draft.op(name, "subscribe", start, end, "ok", session=number, address=address)
    order = messages[:]
    draft.rng.shuffle(order)
    at = sent[-1] + draft.within(0, 4)
    for message in order:
        name = names[0] if draft.chance(0.8) else names[1]
        end = begin + at * step
        columns = {"address": address, "message_id": message, "payload_sha": f"sha-{message}"}
        columns |= {"delivery": draft.name("d"), "redelivered": True if draft.chance(0.1) else None}
        draft.op(name, "receive", end - draft.rng.choice((1, step)), end, "ok", **columns)
        draft.op(name, "ack", end, end + 1, "ok", address=address, delivery=columns["delivery"])
        at += draft.within(0, 4)
    _kill(draft, names, begin, at, step)
    for _ in range(draft.rng.choice((0, 1, 2))):
        name = names[1] if draft.chance(0.7) else names[0]
        start = begin + draft.within(-1, at) * step
        op = draft.rng.choice(("rollback", "rollback", "commit", "close"))
        end = None if draft.chance(0.2) else start + draft.rng.choice((1, step, 6 * step))
        outcome = "unknown" if end is None else draft.rng.choice(("ok", "ok", "fail", "unknown"))
        number = draft.rng.choice((None, None, 0))
        draft.op(name, op, start, end, outcome, session=number, txn=None if op == "close" else draft.name("t"))


def _kill(draft: Draft, names: tuple[str, str], begin: int, last: int, step: int) -> None:
    """Kill one or both of some consumers, and sometimes the load's producers, while they may be at something."""
    # Numbers of its own: what else is drawn does not depend on it.
    rng = random.Random(f"{draft.run_id}/killed/{names[0]}")
    if rng.random() < 0.6:
        return
    killed = [name for name in (*names, *draft.sessions) if rng.random() < 0.4]
    t = max(0, begin + rng.randint(-1, last) * step)
    what: Row = {"target": "load-host", "value": f"kill {names[0]}", "clock": "controller"}
    what["uncertainty_ns"] = rng.choice((None, 0, step // 2))
    draft.events.append({"kind": "fault", "t_ns": t, "name": "client_killed", **what})
    if rng.random() < 0.8:
        draft.events.append({"kind": "heal", "t_ns": t + rng.randint(1, 8) * step, "name": "client_killed", **what})
    if rng.random() < 0.9:
        note = {"kind": "note", "t_ns": t, "name": "clients killed", "detail": {"clients": ", ".join(killed)}}
        draft.events.append({**what, **note})
    if rng.random() < 0.6:
        for row in draft.rows:
            if row["client"] in killed and row["start_ns"] <= t and (row["end_ns"] or t) >= t:
                row["end_ns"], row["outcome"] = None, "unknown"
