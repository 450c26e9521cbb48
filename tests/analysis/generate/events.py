"""What happens beside the load: phases, rounds, ends of processes, operations, alerts."""

from __future__ import annotations

import random

from tests.analysis.generate.draft import MS, Draft, Row, S


def draw_phases(draft: Draft) -> bool:
    """Write the phases; return whether the drain's end is among them."""
    seen = [draft.chance(0.93) for _ in range(3)]
    if seen[0]:
        draft.event("phase", draft.load[0], name="load", value="begin")
    if seen[1]:
        draft.event("phase", draft.load[1], name="load", value="end")
    if draft.chance(0.05):
        return False
    draft.event("phase", draft.drain[0], name="drain", value="begin")
    if seen[2]:
        draft.event("phase", draft.drain[1], name="drain", value="end")
    if draft.chance(0.3):
        draft.event("note", draft.within(S, draft.drain[1]), name="remark", detail={"text": "nothing"})
    return seen[2]


def draw_rounds(draft: Draft) -> None:
    """Write the rounds of some runs: their begins anywhere, and most of their ends."""
    # Numbers of its own: what else is drawn does not depend on it.
    rng = random.Random(f"{draft.run_id}/rounds")
    begins = sorted(rng.randrange(S, draft.drain[1]) for _ in range(rng.choice((0, 0, 1, 2, 4))))
    edges = [(begin, number, "begin") for number, begin in enumerate(begins, start=1)]
    nexts = [*begins, draft.drain[1]][1:]
    for (begin, number, _), until in zip(list(edges), nexts, strict=True):
        if rng.random() < 0.8:
            end = rng.choice((begin, until)) if rng.random() < 0.3 else rng.randint(begin, until)
            edges.append((end, number, "end"))
    for at, number, edge in edges:
        clock = rng.choice(("controller", "load1"))
        note = {"kind": "note", "t_ns": at, "clock": clock, "uncertainty_ns": None, "name": str(number)}
        draft.events.append({**note, "value": f"round {number} {edge}s", "detail": {"round": edge}})


def draw_endings(draft: Draft) -> None:
    """Write ends of processes, most of them near a fault, a heal or the edges of a playbook, and what logs were
    read."""
    instances = sorted({instance for named in draft.stores.values() for instance in named})
    edges = [event["t_ns"] for event in draft.events if event["kind"] in ("fault", "heal")]
    for _ in range(draft.rng.choice((0, 0, 1, 2))):
        name, begin = draft.name("operation"), draft.within(*draft.load)
        draft.event("note", begin, name=name, value="playbook x begins", detail={"operation": "begin"})
        edges.append(begin)
        if draft.chance(0.7):
            end = begin + draft.within(S // 2, 3 * S)
            draft.event("note", end, name=name, value="playbook x is done", detail={"operation": "end"})
            edges.append(end)
    for _ in range(draft.rng.choice((0, 0, 1, 2, 3))):
        if edges and draft.chance(0.8):
            at = max(S, draft.rng.choice(edges) + draft.within(-50 * MS, 50 * MS))
        else:
            at = draft.within(*draft.load)
        instance = draft.rng.choice(instances) if draft.chance(0.95) else None
        detail = {"status": draft.rng.choice(("KILL", "3")), "last": "java.lang.OutOfMemoryError: Java heap space"}
        target = draft.rng.choice(("client→broker", None)) if draft.chance(0.2) else f"host-{instance}"
        if draft.chance(0.2):
            detail["with"] = "\n".join(draft.rng.sample(instances, draft.rng.randint(1, len(instances))))
        draft.event(
            "ended",
            at,
            draft.rng.choice((None, 0, draft.within(0, 20 * MS))),
            instance=instance,
            target=target,
            name="broker.service",
            value=draft.rng.choice(("exited", "killed", "out of memory")),
            detail=detail,
        )
    for instance in instances:
        if draft.chance(0.7):
            draft.event("note", draft.drain[1] + draft.within(MS, S), name="log read", instance=instance)


def draw_alerts(draft: Draft) -> None:
    """Write alerts, most of them soon after a fault and over soon after a heal, and when Prometheus was watched."""
    faults = [event for event in draft.events if event["kind"] in ("fault", "heal")]
    for _ in range(draft.rng.choice((0, 1, 2, 3, 4))):
        near = draft.rng.choice(faults) if faults and draft.chance(0.85) else None
        at = draft.within(*draft.load) if near is None else max(S, near["t_ns"] + draft.within(-100 * MS, S))
        of: Row = {}
        if near is not None and draft.chance(0.8):
            of = {name: near.get(name) for name in ("instance", "store") if draft.chance(0.8)}
        elif draft.chance(0.5):
            of = {"store": draft.rng.choice(sorted(draft.stores))}
        name = draft.rng.choice(("BrokerDown", "BrokerDown", "BrokerDown", "Other"))
        for value in draft.rng.choice((("firing", "cleared"),) * 4 + (("firing",), ("cleared",), ("firing", "firing"))):
            u = draft.rng.choice((None, 0, draft.within(0, 500 * MS)))
            draft.event("alert", at, u, name=name, value=value, **of)
            at += draft.within(1, 3 * S)
    # A second at least, so that no clock that is behind makes it negative.
    begin = max(S, draft.within(0, draft.load[0]) if draft.chance(0.8) else draft.within(*draft.load))
    for _ in range(draft.rng.choice((0, 1, 1, 1, 2))):
        draft.event("note", begin, name="alerts watched", value="begin")
        if draft.chance(0.2):
            return
        end = draft.drain[1] if draft.chance(0.7) else begin + draft.within(S, 5 * S)
        draft.event("note", end, name="alerts watched", value="end")
        begin = end + draft.within(1, S)
