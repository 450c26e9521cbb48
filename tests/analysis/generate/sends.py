"""Sends: in groups that are transactions or single ones, tried again until they are meant to be through."""

from __future__ import annotations

from tests.analysis.generate.deliveries import deliver
from tests.analysis.generate.draft import MS, Draft, Row, S
from tests.analysis.generate.stores import server


def draw_sends(
    draft: Draft, address: str, producer: str, messages: int, expiring: bool, durable: list[bool | None]
) -> None:
    """Draw `producer`'s messages on `address`, one group (a transaction or a single send) after the other."""
    times = sorted(draft.within(*draft.load) for _ in range(messages))
    key = draft.rng.choice((None, None, "g"))
    position = 0
    while position < len(times):
        size = draft.rng.randint(1, 3) if draft.chance(draft.transacted) else 0
        group = []
        for _ in range(max(1, size)):
            message: Row = {"address": address, "message_id": draft.name("m"), "producer_seq": position, "key": key}
            message["payload_sha"] = None if draft.chance(0.05) else f"sha-{message['message_id']}"
            message["durable"] = draft.rng.choice(durable)
            message["expires_ns"] = times[position] + draft.within(S, 30 * S) if expiring else None
            group.append(message)
            position += 1
            if position >= len(times):
                break
        send_group(draft, producer, group, times[position - 1], bool(size))


def send_group(draft: Draft, producer: str, group: list[Row], t: int, transacted: bool) -> None:
    fates: dict[str, set[str]] = {message["message_id"]: set() for message in group}
    for attempt in range(draft.rng.choice((1, 2, 3))):
        instance = server(draft, draft.store_of[group[0]["address"]], t)
        t, result = send_attempt(draft, producer, group, t, transacted, attempt, instance)
        for message in group:
            fates[message["message_id"]].add(result)
        if result == "ok" and not draft.chance(draft.trouble / 3):
            break
        t += draft.within(200 * MS, 1500 * MS)
    for place, message in enumerate(group):
        fate = fates[message["message_id"]]
        state = "ok" if "ok" in fate else "unknown" if "unknown" in fate else "fail"
        deliver(draft, message, t + place * 6 * MS, state)


def send_attempt(
    draft: Draft, producer: str, group: list[Row], t: int, transacted: bool, attempt: int, instance: str | None
) -> tuple[int, str]:
    """Write one attempt of the group; return when it was over, and ok, fail or unknown as far as it was meant."""
    good = instance is not None and not draft.chance(draft.trouble)
    if not transacted:
        outcome = "ok" if good else draft.rng.choice(("unknown", "unknown", "fail"))
        for message in group:
            start, t = t, t + draft.within(MS, 9 * MS if outcome == "ok" else 800 * MS)
            end = None if outcome == "unknown" and draft.chance(0.3) else t
            error = None if outcome == "ok" else "JMSException: connection lost"
            draft.op(producer, "send", start, end, outcome, **message, attempt=attempt, instance=instance, error=error)
            t += 1
        return t, outcome
    txn = draft.name("t")
    row_fails = not good and draft.chance(0.15)
    for message in group:
        start, t = t, t + draft.within(MS, 3 * MS)
        outcome = "fail" if row_fails else "ok" if good or draft.chance(0.8) else "unknown"
        draft.op(producer, "send", start, t, outcome, **message, txn=txn, attempt=attempt, instance=instance)
        t += 1
    ending: tuple[str, ...]
    if good:
        ending = draft.rng.choice((("commit:ok",),) * 5 + (("prepare:ok", "commit:ok"), ("commit:fail", "commit:ok")))
        result = "ok"
    else:
        ending, result = draft.rng.choice(
            (
                (("commit:unknown",), "unknown"),
                (("commit:null",), "unknown"),
                (("prepare:ok",), "unknown"),
                (("prepare:unknown",), "unknown"),
                (("commit:fail", "commit:unknown"), "unknown"),
                (("commit:fail",), "fail"),
                (("rollback:ok",), "fail"),
                (("commit:fail", "rollback:ok"), "fail"),
                (("commit:unknown", "rollback:ok"), "fail"),
                (("rollback:unknown",), "fail"),
                ((), "fail"),
            )
        )
    t = draft.end_transaction(producer, txn, ending, t, instance)
    return t, "fail" if row_fails else result
