"""What may have been one or the other: subscriptions that somebody perhaps ended, readings of one time by two, clients
that routers led away while they did nothing."""

from __future__ import annotations

import random

from tests.analysis.generate.draft import MS, Draft, S


def draw_doubtful(draft: Draft, instances: list[str]) -> None:
    """Add it to some ledgers; the numbers are of their own."""
    rng = random.Random(f"{draft.run_id}/doubtful")
    if rng.random() < 0.5:
        end_perhaps(draft, rng)
    if rng.random() < 0.3:
        press_twice(draft, rng)
    if rng.random() < 0.3:
        lead_about(draft, rng, instances)


def end_perhaps(draft: Draft, rng: random.Random) -> None:
    """Leave unsubscribes in doubt, and let some come before the subscription, near the drain's begin, or again."""
    for row in [row for row in draft.rows if row["op"] == "unsubscribe"]:
        if rng.random() < 0.4:
            row["outcome"] = "unknown"
            row["end_ns"] = rng.choice((None, row["end_ns"]))
    subscribed = [
        row
        for row in draft.rows
        if row["op"] == "subscribe" and row.get("subscription") and row.get("durable") is not False
    ]
    for row in rng.sample(subscribed, min(len(subscribed), rng.choice((0, 0, 1)))):
        at = rng.choice((row["start_ns"] - S, draft.drain[0] + rng.randint(-MS, MS), draft.drain[0] - 2 * S))
        outcome = rng.choice(("ok", "unknown", "fail"))
        where = {name: row[name] for name in ("address", "subscription")}
        draft.op(row["client"], "unsubscribe", max(0, at), max(0, at) + MS, outcome, **where)


def press_twice(draft: Draft, rng: random.Random) -> None:
    """Write readings of one time after the other of a host, of what waited for services and for anything there."""
    faults = [row["t_ns"] for row in draft.events if row["kind"] == "fault"] or [draft.load[0]]
    begin = max(0, rng.choice(faults) + rng.randint(-S, S))
    host, name, lasted = rng.choice(("h1", "h2")), rng.choice(("cpu", "io")), rng.choice((100 * MS, S))
    for number in range(rng.randint(1, 8)):
        since = begin + number * (lasted - rng.choice((0, 0, MS, lasted // 2)))
        for scope in rng.choice((("services",), ("host",), ("services", "host"))):
            stalled = rng.choice((0, lasted // 2 - 1, lasted // 2, lasted * 3 // 4, lasted))
            detail = {"since_ns": str(since), "stalled_ns": str(stalled), "scope": scope}
            row = {"kind": "pressure", "t_ns": since + lasted, "clock": "controller", "uncertainty_ns": None}
            draft.events.append({**row, "target": host, "name": name, "detail": detail})


def lead_about(draft: Draft, rng: random.Random, instances: list[str]) -> None:
    """Have a router lead clients to one instance and then to another, around faults; some do nothing meanwhile."""
    faults = [row["t_ns"] for row in draft.events if row["kind"] == "fault"] or [draft.load[0]]
    clients = sorted({row["client"] for row in draft.rows})
    for client in rng.sample(clients, min(len(clients), rng.randint(1, 3))):
        fault = rng.choice(faults)
        for at in (fault - rng.randint(S, 3 * S), fault + rng.choice((-200 * MS, -1, 0, 1, 300 * MS))):
            row = {"kind": "routed", "t_ns": max(0, at), "clock": "controller", "uncertainty_ns": None}
            draft.events.append({**row, "target": client, "instance": rng.choice(instances), "name": "router1"})
