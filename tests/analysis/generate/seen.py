"""How much of it was seen: looks, polls, logs and pressure; whom routers led clients to, and what faults met."""

from __future__ import annotations

import random
from typing import Any

from tests.analysis.generate.draft import MS, Draft, Row, S
from tests.analysis.generate.vague import blur, hit_again, keep_waiting, read_clocks


def draw_seen(draft: Draft, addresses: list[str], mapped: bool) -> None:
    """Write what says how much was seen, and change what was only roughly; the numbers are of their own, `draft.seen`.
    The order decides what is drawn."""
    instances = sorted({instance for named in draft.stores.values() for instance in named})
    if mapped and draft.seen.random() < 0.8:
        look(draft, instances)
    fall_silent(draft, instances)
    for row in draft.events:
        tell_more(draft, row, instances)
    read_logs(draft, instances)
    press(draft)
    read_clocks(draft)
    blur(draft)
    hit_again(draft)
    keep_waiting(draft, addresses)
    lead(draft, instances)
    count(draft)


def seen(draft: Draft, kind: str, t: int, **columns: Any) -> None:
    draft.events.append({"kind": kind, "t_ns": t, "clock": "controller", "uncertainty_ns": None, **columns})


def look(draft: Draft, instances: list[str]) -> None:
    """Write looks at dead letters, some of them too early or refused."""
    rng = draft.seen
    for instance in rng.sample(instances, rng.randint(1, len(instances))):
        at = draft.drain[0] + rng.randint(MS, S) if rng.random() < 0.9 else rng.randint(*draft.load)
        outcome = "ok" if rng.random() < 0.8 else rng.choice(("fail", "unknown"))
        where = instance if rng.random() < 0.7 else None
        draft.op("inspector", "browse", at, at + MS, outcome, address="DLQ", instance=where)


def fall_silent(draft: Draft, instances: list[str]) -> None:
    """Write silences and gaps of polls, with a line of the log before some."""
    rng = draft.seen
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        instance, begin = rng.choice(instances), rng.randint(draft.load[0], draft.drain[1])
        if rng.random() < 0.5:
            seen(draft, "health", begin, instance=instance, value="silent")
            if rng.random() < 0.8:
                seen(draft, "health", begin + rng.randint(MS, 3 * S), instance=instance, value="answers")
        else:
            gaps = ", ".join(f"{at}-{at + rng.randint(0, 2 * S)}" for at in (begin, begin + 2 * S))
            seen(draft, "polls", draft.drain[1], instance=instance, name="role", detail={"count": "90", "gaps": gaps})
        if rng.random() < 0.4:
            seen(draft, "role", begin - MS, instance=instance, name="log", value=rng.choice(("active", "passive")))


def tell_more(draft: Draft, row: Row, instances: list[str]) -> None:
    """Add to an event what its writer may know besides: of what time a log is, whom a playbook works on, that a host
    heals by itself, how a process ended."""
    rng = draft.seen
    detail = dict(row.get("detail") or {})
    if row.get("name") == "log read":
        if rng.random() < 0.3:
            detail |= {
                "from_ns": str(rng.choice((0, draft.load[0], draft.drain[0]))),
                "until_ns": str(row["t_ns"]),
            }
        if rng.random() < 0.1:
            detail["lost"] = rng.choice(("0", "17"))
        if rng.random() < 0.3:
            detail["instances"] = "\n".join(instances)
    elif detail.get("operation") == "begin" and rng.random() < 0.5:
        detail["instances"] = "\n".join(rng.sample(instances, rng.randint(1, len(instances))))
    elif row["kind"] == "fault" and rng.random() < 0.3:
        detail["ttl_s"] = rng.choice(("0.5", "2", "60"))
    elif row["kind"] == "heal" and rng.random() < 0.3:
        detail["by"] = rng.choice(("runner", "time-to-live"))
    elif row["kind"] == "ended" and rng.random() < 0.3:
        detail["status"] = rng.choice(("SEGV", "143", "1", "ABRT"))
    if detail:
        row["detail"] = detail


def read_logs(draft: Draft, instances: list[str]) -> None:
    """Have all logs of half of the runs read."""
    if draft.seen.random() < 0.5:
        for instance in instances:
            seen(draft, "note", draft.drain[1] + MS, name="log read", instance=instance)


def press(draft: Draft) -> None:
    """Write readings of what waited on hosts."""
    rng = draft.seen
    for _ in range(rng.choice((0, 0, 0, 1, 3))):
        begin, lasted = rng.randint(draft.load[0], draft.drain[1]), rng.randint(S // 2, 5 * S)
        detail = {"since_ns": str(begin), "stalled_ns": str(rng.choice((0, lasted // 3, lasted)))}
        host, name = rng.choice(("h1", "h2")), rng.choice(("cpu", "io"))
        seen(draft, "pressure", begin + lasted, target=host, name=name, detail=detail)


def lead(draft: Draft, instances: list[str]) -> None:
    """Have routers lead some clients to instances; a router may be called like a client."""
    rng = random.Random(f"{draft.run_id}/behind")
    clients = sorted({row["client"] for row in draft.rows})
    for _ in range(rng.choice((0, 0, 0, 0, 2, 6))):
        client, led = rng.choice(clients), rng.choice(instances)
        router = rng.choice(("router1", "router1", "router2", clients[0]))
        at = rng.randint(draft.load[0], draft.drain[1])
        seen(draft, "routed", at, target=client, instance=led, name=router)
    if rng.random() < 0.3:
        # Or its clients know whom they asked
        for row in [row for row in draft.rows if row["op"] == "connect"]:
            row["via"] = rng.choice((None, *instances))


def count(draft: Draft) -> None:
    """Write the counters of some faults."""
    rng = draft.seen
    for fault in [row for row in draft.events if row["kind"] == "fault"]:
        if rng.random() < 0.2:
            told = {name: str(rng.choice((0, 7))) for name in rng.sample(("packets", "closed", "messages"), 2)}
            same = {name: fault.get(name) for name in ("name", "instance", "target", "value")}
            seen(draft, "met", fault["t_ns"] + S, detail=told, **same)
