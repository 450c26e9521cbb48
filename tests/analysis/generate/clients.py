"""Clients: their sessions, and those that connect by a key."""

from __future__ import annotations

from brokerdrill.ledger.contract import PromiseSpec
from tests.analysis.generate.draft import MS, Draft, S
from tests.analysis.generate.stores import server


def connect(draft: Draft, client: str, reconnects: int, key: str | None = None) -> None:
    begins = [draft.within(S, 3 * S // 2)]
    for _ in range(reconnects):
        begins.append(draft.within(*draft.load))
    begins.sort()
    draft.sessions[client] = begins
    store = draft.rng.choice(list(draft.stores))
    for session, begin in enumerate(begins):
        instance = server(draft, store, begin) or draft.stores[store][0]
        took = draft.within(MS, 3 * MS)
        columns = {"session": session, "key": key, "instance": instance}
        draft.op(client, "connect", begin, begin + took, "ok", **columns)
        if session + 1 < len(begins) and draft.chance(0.3):
            end = begins[session + 1] - draft.within(1000, MS)
            draft.op(client, "close", end - 500, end, "ok", session=session)
    if draft.chance(0.5):
        end = draft.drain[1] + draft.within(MS, 300 * MS)
        draft.op(client, "close", end, end + MS, draft.rng.choice(("ok", "unknown")), session=len(begins) - 1)


def draw_keys(draft: Draft) -> list[PromiseSpec]:
    """Draw clients that connect by key; return the `sticky` promise."""
    faithful = 1 - draft.rng.choice((0.0, 0.3, 0.8))
    hits = [event["t_ns"] for event in draft.events if event["kind"] == "fault"]
    for number in range(draft.rng.choice((0, 1, 2))):
        client, key = f"router-{number}", f"k{number}"
        begins = [draft.within(S * 3 // 2, draft.drain[0]) for _ in range(draft.rng.randint(1, 5))]
        if hits and draft.chance(0.7):
            # Soon before a fault, and soon after it, when nobody has said yet what it did
            hit = draft.rng.choice(hits)
            begins += [max(hit - draft.within(0, S), S * 3 // 2), hit + draft.within(0, S // 2)]
        begins.sort()
        draft.sessions[client] = begins
        store = draft.rng.choice(list(draft.stores))
        for session, begin in enumerate(begins):
            if not draft.chance(faithful):
                store = draft.rng.choice(list(draft.stores))
            instance = server(draft, store, begin) or draft.rng.choice(draft.stores[store][:2])
            columns = {"session": session, "key": key, "instance": instance}
            outcome = draft.rng.choice(("ok",) * 8 + ("fail", "unknown"))
            draft.op(client, "connect", begin, begin + draft.within(MS, 3 * MS), outcome, **columns)
    with_roles = {event.get("store") for event in draft.events if event["kind"] == "role"}
    if draft.chance(0.5) or len(with_roles) < len(draft.stores):
        for instances in draft.stores.values():
            named = instances[:2]
            for instance in named:
                draft.event("pool", draft.within(S // 2, 9 * S // 10), instance=instance, value="ready")
            if draft.chance(0.5):
                begin = draft.rng.choice(hits) if hits and draft.chance(0.7) else draft.within(*draft.load)
                for instance in named if draft.chance(0.7) else named[:1]:
                    draft.event("pool", begin + draft.within(0, 2 * S), instance=instance, value="not_ready")
                    if draft.chance(0.7):
                        draft.event("pool", begin + draft.within(2 * S, 4 * S), instance=instance, value="ready")
    period, timeout = draft.rng.choice((None, 0.0, 300.0)), draft.rng.choice((None, None, 0.0, 1500.0))
    moves = draft.rng.choice((None, "excused", "never", "some"))
    return [PromiseSpec("sticky", check_period_ms=period, cache_timeout_ms=timeout, moves=moves)]
