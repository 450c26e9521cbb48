"""What the load met of each fault, and whether that is too little for a verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from tests.analysis.oracle.facts import Facts, deaths
from tests.analysis.oracle.faults import healed_at
from tests.analysis.oracle.rows import MS, NEVER, Row, detail, ended


def coverage(facts: Facts) -> list[Row]:
    """ "What the load met of each fault" """
    found = []
    dead = deaths(facts)
    faults = [e for e in facts.events if e["kind"] == "fault" and e.get("name") != "arm"]
    routers = routers_of(facts)
    for fault in sorted(
        faults, key=lambda e: (e["t_ns"], *(e.get(word) or "" for word in ("name", "instance", "target")))
    ):
        at = fault["t_ns"] - fault["uncertainty_ns"]  # "its moment is the earliest"
        heal = healed_at(facts, fault)
        members = hit_by(facts, fault)
        clients = flying = meeting = 0
        killed = victims(facts, fault)
        for client in {op["client"] for op in facts.ops} - routers:
            if killed and client not in killed:
                continue
            own = [op for op in facts.ops if op["client"] == client]
            near = near_to(own, at, NEVER if heal is None else heal, dead.get(client))
            if was_there(facts, own, near, members, at):
                clients += 1
                flying += sum(op["start_ns"] <= at < over for op, over in near)
                meeting += sum(over > at for _, over in near)
                continue
            # "a client that asked what it hit whom to connect to", "by these connects alone"
            asked = [(op, over) for op, over in near if op["op"] == "connect" and op.get("via") in members]
            if any(over > at for _, over in asked):
                clients += 1
                flying += sum(op["start_ns"] <= at < over for op, over in asked)
                meeting += sum(over > at for _, over in asked)
        found.append(
            {
                "fault": fault.get("name"),
                "step": fault.get("value"),
                "instance": fault.get("instance"),
                "target": fault.get("target"),
                "t_ns": fault["t_ns"],
                "clients": clients,
                "in_flight": flying,
                "operations": meeting,
            }
        )
    return found


def hit_stores(facts: Facts, fault: Row) -> set[str]:
    """The stores that a fault hit: "of its instance, of those it leads `toward`, and its own"."""
    named: set[Any] = {fault.get("instance"), *str(detail(fault, "toward") or "").split(", ")} - {None, ""}
    hit: set[str] = {fault["store"]} if fault.get("store") is not None else set()
    hit |= {store for store, instances in facts.run.stores.items() if named & {*instances}}
    return hit | {epoch.store for epoch in facts.epochs if epoch.instance in named}


def hit_by(facts: Facts, fault: Row) -> set[str]:
    """The routers and the instances of all stores that a fault hit; none: it is not known of which."""
    named: set[Any] = {fault.get("instance"), *str(detail(fault, "toward") or "").split(", ")} - {None, ""}
    hit = hit_stores(facts, fault)
    members = {instance for store in hit for instance in facts.run.stores.get(store, ())}
    members |= {epoch.instance for epoch in facts.epochs if epoch.store in hit}
    return members | (named & routers_of(facts))


def victims(facts: Facts, fault: Row) -> set[str]:
    """The clients that a fault killed: "target, instance and value are the fault's" """
    found: set[str] = set()
    for event in facts.events:
        same = all(event.get(word) == fault.get(word) for word in ("target", "instance", "value"))
        if same and (event["kind"], event.get("name")) == ("note", "clients killed"):
            found |= set((detail(event, "clients") or "").split(", ")) - {""}
    return found


def near_to(own: Sequence[Row], at: int, heal: float, death: int | None) -> list[tuple[Row, float]]:
    """A client's operations from 5 s before a fault to its heal, and when each was over; idle receives are none."""
    last = max(op["op_id"] for op in own)
    near = []
    for op in own:
        over = op.get("end_ns")
        if over is None:
            over = NEVER if op["op_id"] == last else op["start_ns"]
            if death is not None:  # "lasted beyond its death"
                over = death + 1
        idle = op["op"] in ("receive", "browse") and op["outcome"] != "ok"
        if op["op"] == "close" or idle or op["start_ns"] > heal:
            continue
        if over >= at - 5_000 * MS:
            near.append((op, over))
    return near


def was_there(facts: Facts, own: Sequence[Row], near: Sequence[tuple[Row, float]], members: set[str], at: int) -> bool:
    """Whether a fault met a client: what it hit served the client, as far as is known."""
    if members:
        # "served it in the 5 s before the fault, and since then was neither served elsewhere nor refused"
        there = any(op["start_ns"] <= at < over and served_by(facts, op, members) for op, over in near)
        # "From a `routed` of a client until its next the instance that it names serves": it has moved by then
        led = led_to(facts, own[0]["client"], at)
        still = members if led in (None, *members) else members & routers_of(facts)
        past = [
            (
                over,
                op["op_id"],
                not refused(op) and served_by(facts, op, still),
            )
            for op, over in near
            if over <= at and (refused(op) or server_of(facts, op) is not None)
        ]
        there |= bool(past) and max(past)[2]
    else:
        there = any(op["start_ns"] <= at for op, _ in near)
    # "the client's last connect": whether that is known to have failed, or reached one
    connects = [op for op in own if op["op"] == "connect" and op["outcome"] != "unknown" and ended(op) <= at]
    newest = max(connects, key=lambda op: (ended(op), op["op_id"]), default=None)
    if newest is not None and not refused(newest) and (not members or reached(facts, newest, members, at)):
        there |= not any(op["op"] == "close" and ended(newest) <= op["start_ns"] and ended(op) <= at for op in own)
    return there


def refused(op: Row) -> bool:
    return (op["op"], op["outcome"]) == ("connect", "fail")


def served_by(facts: Facts, op: Row, members: set[str]) -> bool:
    """ "by the router as well" """
    return server_of(facts, op) in members or router_of(facts, op) in members & routers_of(facts)


def router_of(facts: Facts, op: Row) -> str | None:
    """By which router it went: its own instance, or, where that is not told, the one that led its client."""
    return op.get("instance") or op.get("broker") or (led_by(facts, op["client"], ended(op)) or (None, None))[1]


def reached(facts: Facts, connect: Row, members: set[str], at: int) -> bool:
    """Whether a client's last connect leads to what was hit: a router may have led it elsewhere since."""
    led = led_to(facts, connect["client"], at)
    through = router_of(facts, connect) in members & routers_of(facts)
    return through or (server_of(facts, connect) if led is None else led) in members


def routers_of(facts: Facts) -> set[str]:
    return {event["name"] for event in facts.events if event["kind"] == "routed" and event.get("name")}


def server_of(facts: Facts, op: Row) -> str | None:
    """ "From a `routed` of a client until its next the instance that it names serves what the client ends then" """
    return led_to(facts, op["client"], ended(op)) or op.get("instance") or op.get("broker")


def led_to(facts: Facts, client: str, at: int) -> str | None:
    """To whom a router had led a client by then."""
    return (led_by(facts, client, at) or (None, None))[0]


def led_by(facts: Facts, client: str, at: int) -> tuple[str, str | None] | None:
    """To whom which router had led a client by then."""
    led = [
        (event["t_ns"] - event["uncertainty_ns"], event["instance"], event.get("name") or "")
        for event in facts.events
        if event["kind"] == "routed" and event.get("instance") and event.get("target") == client
        if event["t_ns"] - event["uncertainty_ns"] <= at
    ]
    return (max(led)[1], max(led)[2] or None) if led else None


def is_vacuous(facts: Facts, told: Sequence[Row]) -> bool:
    """ "Less than the minimum", "a planned fault that was never injected", "nothing was done to it" """
    steps = set()
    for row in told:
        step = str(row["step"] or "").split(" (round ")[0]
        steps.add(step)
        least = facts.run.minimum.get(step)
        asked = least.to_json() if least else {"operations": 1}
        if any(row[name] < asked.get(name, 0) for name in ("clients", "in_flight", "operations")):
            return True
        counted: dict[str, int] = defaultdict(int)
        known = set()
        # "of all effects of the step together", but what was stored is of its own
        effects = [
            one
            for one in told
            if one is not row and step and (one["fault"], one["step"]) == (row["fault"], row["step"])
        ]
        for effect in [row, *effects]:
            for event in facts.events:
                if event["kind"] != "met" or event.get("name") != effect["fault"] or event["t_ns"] < effect["t_ns"]:
                    continue
                if (event.get("instance"), event.get("target")) != (effect["instance"], effect["target"]):
                    continue
                if event.get("value") is not None and effect["step"] is not None and event["value"] != effect["step"]:
                    continue
                for name in ("packets", "connections", "closed", *(("messages",) if effect is row else ())):
                    if detail(event, name) is not None:
                        known.add(name)
                        counted[name] += int(detail(event, name) or 0)
        if known - {"messages"} and counted["packets"] + counted["connections"] + counted["closed"] < asked.get(
            "packets", 0
        ):
            return True
        if "messages" in known and counted["messages"] < asked.get("messages", 0):
            return True
    steps |= {str(e.get("value") or "").split(" (round ")[0] for e in facts.events if e["kind"] == "fault"}
    if set(facts.run.planned) - steps:
        return True
    # "a planned fault that was never injected", of a method that is repeated: in each round that came to its end
    injected = {row["step"] for row in told}
    for note in facts.events:
        if note["kind"] != "note" or detail(note, "round") != "end":
            continue
        for planned in facts.run.planned:
            named = [step for step in injected if step and step.split(" (round ")[0] == planned and step != planned]
            if named and f"{planned} (round {note.get('name')})" not in injected:
                return True
    worked = any(e["kind"] == "note" and detail(e, "operation") is not None for e in facts.events)
    return facts.run.outcome != "completed" and not told and not worked and not facts.run.planned
