"""Stores: who serves when, the faults that hit who does, and what is seen of both."""

from __future__ import annotations

from tests.analysis.generate.draft import MS, Draft, Row, S


def draw_stores(draft: Draft) -> None:
    letters = iter("abcd")
    for index in range(draft.rng.choice((1, 2, 2))):
        draft.stores[f"s{index}"] = (next(letters), next(letters))
    for store in draft.stores:
        draw_store(draft, store)
    if len(draft.stores) == 2 and draft.chance(0.1):
        draft.stores["s1"] = (*draft.stores["s1"], "a")  # may serve, and never does
    for _ in range(draft.rng.choice((0, 0, 1))):
        begin = draft.within(*draft.load)
        store = draft.rng.choice((None, *draft.stores))
        detail = {"toward": ", ".join(draft.stores[store])} if store else None
        draft.event("fault", begin, name="cut", target="client→broker", detail=detail)
        if draft.chance(0.7):
            draft.event("heal", begin + draft.within(S // 10, 2 * S), name="cut", target="client→broker")


def draw_store(draft: Draft, store: str) -> None:
    x, y = draft.stores[store]
    story = draft.rng.choice(
        ("steady", "failover", "failback", "failback", "never_back", "no_takeover", "pause", "split", "blind")
    )
    up = draft.within(6 * S // 10, S)
    forever = draft.drain[1] + 10 * S
    draft.serving[store] = [(0, forever, x)]
    if story == "blind":  # no role is seen
        return
    draft.role(store, x, "active", up)
    if draft.chance(0.8):
        draft.role(store, y, "passive", up + draft.within(MS, 300 * MS))
    if story == "steady":
        return
    fault = draft.load[0] + draft.within(3 * S, 5 * S)
    took_over = fault + draft.within(S, 2 * S)
    healed = took_over + draft.within(S // 2, 3 * S // 2)
    back = healed + draft.within(S // 2, 2 * S)
    uncertainty = draft.rng.choice((None, 0, draft.within(0, 20 * MS)))
    what: Row = {"name": "kill" if story != "pause" else "pause", "instance": x, "target": f"host-{x}"}
    if draft.chance(0.7):
        what["store"] = store
    draft.event("fault", fault, uncertainty, **what)
    if story == "pause":
        draft.event("heal", fault + draft.within(S // 10, S), **what)
        return
    if story != "split":
        draft.role(store, x, "down", fault + draft.within(50 * MS, 500 * MS))
    if story == "no_takeover":
        draft.serving[store] = [(0, fault, x)]
        return
    draft.role(store, y, "active", took_over)
    draft.serving[store] = [(0, fault, x), (took_over, forever, y)]
    if story == "split":
        draft.serving[store] = [(0, forever, x), (took_over, forever, y)]
    if story == "failover":
        return
    draft.event("heal", healed, **what)
    draft.role(store, x, "starting" if story != "split" else "active", healed + draft.within(10 * MS, 200 * MS))
    if story == "never_back":
        draft.role(store, x, "passive", healed + draft.within(300 * MS, 400 * MS))
    elif story == "failback":
        draft.role(store, y, "passive", back - draft.within(100 * MS, 200 * MS))
        draft.role(store, x, "active", back)
        draft.serving[store] = [(0, fault, x), (took_over, back - 200 * MS, y), (back, forever, x)]


def server(draft: Draft, store: str, t: int) -> str | None:
    who = [instance for begin, end, instance in draft.serving[store] if begin <= t < end]
    if draft.chance(draft.trouble / 10):
        who = list(draft.stores[store])
    return draft.rng.choice(who) if who else None
