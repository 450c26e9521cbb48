"""A producer with several messages in flight, and what becomes of them when its connection is lost."""

from __future__ import annotations

import random

from tests.analysis.generate.draft import MS, Draft, Row


def draw_in_flight(draft: Draft, address: str) -> None:
    """Draw a producer's sends on a queue that overlap, in one session or two, and their deliveries in some order.

    It is told in so few steps that its times are often equal: sends begin while others are not answered, answers come
    in any order or never, before the client begins its next session, just then, or later; what was in doubt may be
    sent again there.
    """
    # Numbers of its own: what else is drawn does not depend on it.
    rng = random.Random(f"{draft.run_id}/in flight")
    if rng.random() < 0.5:
        return
    step = rng.choice((MS, 100 * MS))
    begin = rng.randint(*draft.load)
    producer, consumer = f"windowed-{address}", f"reader-{address}"
    for client in (producer, consumer):
        draft.clock_of[client] = rng.choice(("load1", "load2"))
    key = rng.choice((None, "g"))
    left = rng.choice((None, rng.randint(3, 8)))
    messages: list[Row] = []
    for number in range(rng.randint(2, 5)):
        name = f"in-flight-{address}-{number}"
        messages.append({"address": address, "message_id": name, "producer_seq": number, "payload_sha": f"sha-{name}"})
    in_doubt = []
    for number, message in enumerate(messages):
        session = 1 if left is not None and number >= left - 2 else 0
        at = number + (left or 0) * session
        outcome = _attempt(draft, rng, producer, message | {"key": key, "attempt": 0}, session, begin, at, step)
        if outcome == "unknown":
            in_doubt.append(message)
    if left is not None:
        start = begin + left * step
        draft.op(producer, "connect", start, start + rng.choice((1, step)), "ok", session=1)
        again = in_doubt if rng.random() < 0.6 else []
        for number, message in enumerate(again):
            at = left + rng.randint(0, 1) + number
            _attempt(draft, rng, producer, message | {"key": key, "attempt": 1}, 1, begin, at, step)
    order = messages[:]
    if rng.random() < 0.7:
        rng.shuffle(order)
    at = rng.randint(1, 12)
    for message in order:
        if rng.random() < 0.1:
            continue
        end = begin + at * step
        same = {name: message[name] for name in ("address", "message_id", "payload_sha")}
        name = f"{consumer}-{message['message_id']}"
        draft.op(consumer, "receive", end - rng.choice((1, step)), end, "ok", session=0, delivery=name, **same)
        draft.op(consumer, "ack", end, end + 1, "ok", session=0, address=address, delivery=name)
        at += rng.randint(0, 2)


def _attempt(
    draft: Draft, rng: random.Random, producer: str, columns: Row, session: int, begin: int, at: int, step: int
) -> str:
    """Write one attempt, which begins at the step `at`; return its outcome."""
    outcome = rng.choice(("ok", "ok", "ok", "unknown", "unknown", "fail"))
    end = None if outcome == "unknown" and rng.random() < 0.4 else begin + (at + rng.randint(0, 6)) * step + 1
    draft.op(producer, "send", begin + at * step, end, outcome, session=session, **columns)
    return outcome
