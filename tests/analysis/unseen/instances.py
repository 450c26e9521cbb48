"""What became of instances and hosts: ends, heals, further faults, starts anew, roles that nobody knew."""

from __future__ import annotations

from typing import Any

from tests.analysis.batch import Row
from tests.analysis.kept_run import ACTIVE_A, FAULT, HEAL, MS, ended, event, find, op
from tests.analysis.unseen.case import Change, keep
from tests.analysis.unseen.loads import no_fault_at_all, traffic
from tests.analysis.unseen.records import read_around, silent


def healed_by(ms: float, **detail: str) -> Change:
    """Its host healed the fault by itself, which the runner noticed so late."""

    def change(ops: list[Row], events: list[Row]) -> None:
        heal = find(events, kind="heal")
        heal |= {"t_ns": round(ms * MS), "detail": {"by": "time-to-live"}}
        if detail:
            find(events, kind="fault")["detail"] = detail

    return change


def ends(*of: tuple[str, float, str, str], **operation: str) -> Change:
    """Ends of processes (instance, ms, how, status), while a playbook runs if there is one."""

    def change(ops: list[Row], events: list[Row]) -> None:
        if operation:
            detail = {name: value for name, value in operation.items() if value}
            events.append(event("note", 6000, name="op", value="begins", detail={"operation": "begin", **detail}))
            events.append(event("note", 7500, name="op", value="is done", detail={"operation": "end"}))
        events.extend(ended(*one) for one in of)

    return change


def silent_while_its_host_restarts(ops: list[Row], events: list[Row]) -> None:
    """Its log tells its roles, and has nothing to say of that time."""
    read_around(FAULT + 50, FAULT + 900, "restart_host")(ops, events)
    silent("a", FAULT + 10, HEAL + 50)(ops, events)
    events.append(event("role", 10, instance="a", store="s", name="log", value="active"))


def struck_again(at: float, name: str = "kill", instance: str = "a", store: str = "s") -> list[Row]:
    return [
        event("fault", at, name=name, instance=instance, store=store, target=f"host-{instance}", value="again"),
        event("heal", 7_900, name=name, instance=instance, store=store, target=f"host-{instance}"),
    ]


def paused_and_later_taken_over(ops: list[Row], events: list[Row]) -> None:
    """Its pause was over long before a playbook stopped it."""
    find(events, kind="fault").update(name="pause", t_ns=1500 * MS)
    find(events, kind="heal").update(name="pause", t_ns=1550 * MS)
    events.append(event("note", 2990, name="op", detail={"operation": "begin", "instances": "a"}))
    events.append(event("note", 5600, name="op", detail={"operation": "end"}))


def another_fault_lasts(name: str, until: float, **whom: str) -> Change:
    """The kill is healed as ever; another fault on the original lasts longer, and it is back 100 ms after that."""

    def change(ops: list[Row], events: list[Row]) -> None:
        places: dict[str, Any] = {"name": name, **(whom or {"instance": "a", "store": "s", "target": "host-a"})}
        if "toward" in places:
            places["detail"] = {"toward": places.pop("toward")}
        events.append(event("fault", 4000, **places))
        events.append(event("heal", until, **{key: value for key, value in places.items() if key != "detail"}))
        for row in events:
            if row["kind"] == "role" and row["t_ns"] in ((ACTIVE_A - 100) * MS, ACTIVE_A * MS):
                row["t_ns"] += (7_100 - ACTIVE_A) * MS
        for row in ops:
            if row.get("instance") == "a" and ACTIVE_A * MS <= row["start_ns"] < 7_100 * MS:
                row["instance"] = "b"

    return change


def roles_without(*instances: str, until: float | None = None) -> Change:
    """Nobody knew the role of these, at all or until then (ms); there is no fault."""

    def change(ops: list[Row], events: list[Row]) -> None:
        no_fault_at_all(ops, events)
        for row in [row for row in events if row["kind"] == "role" and row["instance"] in instances]:
            if until is None:
                events.remove(row)
            else:
                row["t_ns"] = round(until * MS)

    return change


def active_again_though_not_healed(ops: list[Row], events: list[Row]) -> None:
    """The heal failed, and something else started the process."""
    events.remove(find(events, kind="heal"))
    events.remove(find(events, kind="role", instance="b", value="passive", t_ns=(ACTIVE_A - 100) * MS))


def a_host_starts_anew(at: float, fault_at: float | None = None, **playbook: str) -> Change:
    """Roles say where instances are; a fault, or a playbook, may be why."""

    def change(ops: list[Row], events: list[Row]) -> None:
        for row in events:
            if row["kind"] == "role":
                row["target"] = f"host-{row['instance']}"
        events.append(event("health", at, target="host-x", name="host", value="restarted"))
        events.append(event("health", at, target="load1", name="host", value="restarted"))
        if fault_at is not None:
            traffic(ops, "w", lambda _: "x", range(200, 7900, 100))
            hit = {"name": "restart_host", "instance": "x", "store": "z", "target": "host-x"}
            events.extend([event("fault", fault_at, **hit), event("heal", 7_950, **hit)])
        if playbook:
            events.append(event("note", at - 100, name="op", detail={"operation": "begin", **playbook}))
            events.append(event("note", at + 100, name="op", detail={"operation": "end"}))

    return change


def hit_when_it_was_down(*, tried: bool) -> Change:
    """A first fault on x was not healed; a second hits it, whose clients are refused since."""

    def change(ops: list[Row], events: list[Row]) -> None:
        traffic(ops, "w", lambda _: "x", range(200, 1400, 100))
        first = {"name": "kill", "instance": "x", "store": "z", "target": "host-x"}
        events.append(event("fault", 1450, value="first", **first))
        events.append(event("role", 1500, instance="x", store="z", value="down"))
        events.append(ended("x", 1451, "killed", "KILL"))
        events.extend(struck_again(7000, instance="x", store="z"))
        for at in range(1500, 7900, 200) if tried else (1500,):
            ops.append(op("w", "connect", at, at + 1, outcome="fail"))

    return change


def nobody_sends_after_the_second_fault(ops: list[Row], events: list[Row]) -> None:
    events += struck_again(7000)
    events.append(event("role", 7050, instance="a", store="s", value="down"))
    events.append(event("role", 7200, instance="b", store="s", value="active"))
    keep(ops, lambda row: row["client"] != "p" or row["start_ns"] < 7000 * MS)
    sent = {row["message_id"] for row in ops if row["op"] == "send"}
    keep(ops, lambda row: row["op"] != "receive" or row["message_id"] in sent)
    for row in ops:
        if row["client"] == "c" and row["start_ns"] >= 7000 * MS:
            row["instance"] = "b"
