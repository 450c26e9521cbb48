"""More runs of which a part was not there to be seen: each rule of the contract, and rules that meet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from brokerdrill.ledger.known import Known
from tests.analysis.batch import Row
from tests.analysis.kept_run import ACTIVE_A, FAULT, HEAL, MS, RUN, ended, event, find, op
from tests.analysis.unseen.case import Case, Change, keep
from tests.analysis.unseen.loads import no_fault_at_all, traffic
from tests.analysis.unseen.records import drained, nobody_looks, silent, unread
from tests.analysis.unseen.times import FINE, VAGUE, bounded
from tests.analysis.unseen.waiting import got, sent, subscribed

ALL = {one.name for one in RUN.promises}


def also(*changes: Change) -> Change:
    def change(ops: list[Row], events: list[Row]) -> None:
        for one in changes:
            one(ops, events)

    return change


def rows(*of: Row) -> Change:
    """These operations besides."""
    return lambda ops, _: ops.extend(of)


def told(*of: Row) -> Change:
    """These events besides."""
    return lambda _, events: events.extend(of)


def hit(at: float, heal: float | None, name: str = "kill", step: str = "again", **whom: Any) -> Change:
    """A further fault, on b where nothing else is said."""
    detail = {"detail": whom.pop("detail")} if "detail" in whom else {}
    places = whom or {"instance": "b", "store": "s", "target": "host-b"}
    of = [event("fault", at, name=name, value=step, **places, **detail)]
    of += [] if heal is None else [event("heal", heal, name=name, value=step, **places)]
    return told(*of)


A = {"instance": "a", "store": "s", "target": "host-a"}


# --- what became of messages ----------------------------------------------------------------------------------------


def expires(at: float, clock: str, outcome: str = "ok", delivered: bool = False) -> Change:
    """A message of the kept run's producer that nobody processes expires then, by that clock."""

    def change(ops: list[Row], events: list[Row]) -> None:
        told = {**sent("e", 4000, "b"), "expires_ns": round(at * MS), "clock": clock, "outcome": outcome}
        ops.append(op("o", "connect", 3999, 3999.5, instance="b"))
        ops.append(told)
        ops.extend(got("e", 4500, outcome=None) if delivered else [])

    return change


def subscribed_until(op_name: str, at: float, outcome: str, clock: str = "load", took: float | None = 1) -> Change:
    """A durable subscription of which a message is not got; it is said to have ended so."""

    def change(ops: list[Row], events: list[Row]) -> None:
        ops.append(subscribed("d", 500, "d"))
        ops.append(op("o", "send", 602, 603, address="t", message_id="t1", payload_sha="sha", instance="x"))
        of = {"address": "t", "subscription": "d"} if op_name == "unsubscribe" else {}
        end = None if took is None else at + took
        ops.append({**op("d", op_name, at, end, outcome=outcome, **of), "clock": clock})

    return change


def not_durable(close: str) -> Change:
    """As a subscription that is not durable, whose client's close is that."""

    def change(ops: list[Row], events: list[Row]) -> None:
        subscribed_until("close", 2000, close)(ops, events)
        find(ops, op="subscribe")["durable"] = False

    return change


def twice(ops: list[Row], events: list[Row]) -> None:
    ops.extend(got("waits", 8100, "a"))


def twice_beyond_a_hole(ops: list[Row], events: list[Row]) -> None:
    ops.extend({**row, "op_id": 7000 + number} for number, row in enumerate(got("waits", 8100, "a")))


def corrupted_beyond_a_hole(ops: list[Row], events: list[Row]) -> None:
    find(ops, op="receive", message_id="m5")["payload_sha"] = "another"
    ops.append({**sent("held", 5000, "b"), "op_id": 5})


def lost(count: int, address: str = "q") -> Change:
    """So many messages, sent when the load is over."""
    return rows(*(sent(f"lost-{address}-{n}", 8000 + n, "a", address=address) for n in range(count)))


# --- looks at dead letters ------------------------------------------------------------------------------------------


def looks(*of: tuple[float, str, str | None]) -> Change:
    """Looks (ms, instance, outcome; None: it never returned) instead of the kept run's."""

    def change(ops: list[Row], events: list[Row]) -> None:
        nobody_looks(ops, events)
        for at, instance, outcome in of:
            end = None if outcome is None else at + 1
            ops.append(
                op("inspector", "browse", at, end, outcome=outcome or "unknown", address="DLQ", instance=instance)
            )

    return change


def looked_by_a_vague_clock(ops: list[Row], events: list[Row]) -> None:
    find(ops, op="browse").update(start_ns=8_500 * MS, end_ns=8_501 * MS, clock="vague")


def delivered_by_a_vague_clock(ops: list[Row], events: list[Row]) -> None:
    """In the drain, half a second before somebody looked."""
    ops.append(sent("late", 7_990, "a", client="p"))
    ops.extend({**row, "clock": "vague"} for row in got("late", 8500, "a", client="c9"))


def no_phases(ops: list[Row], events: list[Row]) -> None:
    events[:] = [row for row in events if row["kind"] != "phase"]


# --- roles, failovers and failbacks ---------------------------------------------------------------------------------


def faulted(**columns: Any) -> Change:
    """The kept run's fault and its heal with other columns."""

    def change(ops: list[Row], events: list[Row]) -> None:
        for row in events:
            if row["kind"] in ("fault", "heal"):
                row.update(columns)

    return change


def named(name: str) -> Change:
    """The kept run's fault is another one."""
    return faulted(name=name)


def cut_off(since: float = FAULT + 10, gaps: bool = False) -> Change:
    """a was cut off, and nobody could ask it from then until it is found down; its last word was that it is active."""

    def change(ops: list[Row], events: list[Row]) -> None:
        named("partition")(ops, events)
        find(events, kind="role", instance="a", value="down")["t_ns"] = 4_900 * MS
        if gaps:
            detail = {"gaps": f"{round(since * MS)}-{4_900 * MS}"}
            events.append(event("polls", 8900, instance="a", name="role", detail=detail))
        else:
            silent("a", since, 4_900)(ops, events)

    return change


def back_at(ms: float) -> Change:
    """The original is active again then; until then the other one serves."""

    def change(ops: list[Row], events: list[Row]) -> None:
        for row in events:
            if row["kind"] == "role" and row["t_ns"] in ((ACTIVE_A - 100) * MS, ACTIVE_A * MS):
                row["t_ns"] += round((ms - ACTIVE_A) * MS)
        for row in ops:
            if row.get("instance") == "a" and ACTIVE_A * MS <= row["start_ns"] < ms * MS:
                row["instance"] = "b"

    return change


def commits_after(ms: float) -> Change:
    """A client sends just before the fault in a transaction, which it commits then, and the heir takes it."""

    def change(ops: list[Row], events: list[Row]) -> None:
        ops.append(op("v", "connect", 1000, 1001, instance="a"))
        ops.append(sent("st", 2990, client="v", txn="st"))
        ops.append(op("v", "commit", ms, ms + 5, txn="st", instance="b"))
        ops.extend(got("st", ms + 20))

    return change


def connects_after(ms: float, outcome: str) -> Change:
    """A client that was served before tries nothing more after the fault than to connect once, then."""

    def change(ops: list[Row], events: list[Row]) -> None:
        traffic(ops, "v", lambda _: "a", range(200, 2900, 100))
        ops.append(op("v", "connect", ms, ms + 1, outcome=outcome, instance="b"))

    return change


def waited(*readings: tuple[float, float, float], name: str = "cpu", **detail: str) -> Change:
    """Of b's host: from, to, for how long of that something waited (ms)."""
    return told(
        *(
            event(
                "pressure",
                until,
                target="host-b",
                name=name,
                detail={"since_ns": str(round(since * MS)), "stalled_ns": str(round(stalled * MS)), **detail},
            )
            for since, until, stalled in readings
        )
    )


# --- routers, playbooks, and what is missing ------------------------------------------------------------------------


def with_router(run: Any = RUN) -> dict[str, Any]:
    return {"stores": {**RUN.stores, "router": ("rt",)}, **drained("q2")}


def behind_a_router(*led: tuple[float, str], target: str = "a", said: str = "rt", idle: bool = False) -> Change:
    """All clients are behind a router, which led them so (ms, to whom); a pause hits `target`."""

    def change(ops: list[Row], events: list[Row]) -> None:
        no_fault_at_all(ops, events)
        keep(ops, lambda row: row["client"] == "inspector")
        traffic(ops, "w", lambda _: said, range(200, 2800 if idle else 7900, 100), address="q2")
        if idle:
            traffic(ops, "y", lambda _: "x", range(2800, 7900, 100), address="q2")
        for at, to in led:
            events.extend(event("routed", at, name="rt", target=client, instance=to) for client in ("w", "c-w"))
        store = {"a": "s", "rt": "router"}[target]
        for at, value in ((FAULT + 300, "firing"), (HEAL + 200, "cleared")):
            events.append(event("alert", at, name="BrokerDown", value=value))
        events.append(event("role", 0, instance="rt", store="router", value="active"))
        events.append(event("note", 9000, name="log read", instance="rt"))
        hit(FAULT, HEAL, "pause", instance=target, store=store, target=f"host-{target}")(ops, events)

    return change


def playbook(begin: float, end: float, on: str) -> Change:
    return told(
        event("note", begin, name="op", detail={"operation": "begin", "instances": on}),
        event("note", end, name="op", detail={"operation": "end"}),
    )


def defects(promise: str, **at_most: float) -> dict[str, Any]:
    return {"expect": {promise: "known"}, "known": (Known(promise, at_most, "Product 1.0"),)}


def gap_of_q2(ops: list[Row], events: list[Row]) -> None:
    traffic(ops, "w", lambda _: "x", range(100, 3000, 100), address="q2")
    traffic(ops, "w", lambda _: "x", range(3900, 7900, 100), address="q2")


def overlapping(ops: list[Row], events: list[Row]) -> None:
    for at, value in ((6000, "active"), (6100, "passive")):
        events.append(event("role", at, instance="b", store="s", value=value))


T, Q2, U, P, F = drained("t"), drained("q2"), "unknown", "pass", "fail"


def each(promise: str, verdict: str, of: Mapping[str, Change], run: Mapping[str, Any] | None = None) -> dict[str, Case]:
    return {name: Case(change, {promise: verdict}, run or {}) for name, change in of.items()}


FURTHER: dict[str, Case] = {
    "expires after the drain's end, by a vague clock": Case(expires(9100, "vague"), {"no_loss": U}, VAGUE),
    "expires before the drain's end, by a vague clock": Case(expires(8900, "vague"), {"no_loss": U}, VAGUE),
    "expires after the drain's end": Case(expires(9100, "vague"), {"no_loss": F}, FINE),
    "expires before the drain's end": Case(expires(8900, "vague"), {"no_loss": P}, FINE),
    "in doubt, delivered, given back, and expired": Case(
        expires(6000, "load", "unknown", delivered=True), {"no_loss": P}
    ),
    "in doubt, delivered, given back, and not expired": Case(
        expires(9100, "load", "unknown", delivered=True), {"no_loss": F}
    ),
    **each(
        "no_loss",
        U,
        {
            "unsubscribed, in doubt": subscribed_until("unsubscribe", 2000, "unknown"),
            "an unsubscribe never returned": subscribed_until("unsubscribe", 2000, "unknown", took=None),
            "a close in doubt of one that is not durable": not_durable("unknown"),
        },
        T,
    ),
    **each(
        "no_loss",
        F,
        {
            "an unsubscribe failed": subscribed_until("unsubscribe", 2000, "fail"),
            "an unsubscribe before the subscribe": subscribed_until("unsubscribe", 100, "ok"),
            "a durable one closed": subscribed_until("close", 2000, "ok"),
        },
        T,
    ),
    **each(
        "no_loss",
        P,
        {
            "unsubscribed": subscribed_until("unsubscribe", 2000, "ok"),
            "one that is not durable closed": not_durable("ok"),
        },
        T,
    ),
    "unsubscribed after the drain's begin, by a vague clock": Case(
        subscribed_until("unsubscribe", 8100, "ok", "vague"), {"no_loss": U}, {**T, **VAGUE}
    ),
    "unsubscribed before the drain's begin, by a vague clock": Case(
        subscribed_until("unsubscribe", 7890, "ok", "vague"), {"no_loss": U}, {**T, **VAGUE}
    ),
    "unsubscribed after the drain's begin": Case(
        subscribed_until("unsubscribe", 8100, "ok", "vague"), {"no_loss": F}, {**T, **FINE}
    ),
    "refused after somebody had looked": Case(looks((9000, "x", "ok"), (9002, "x", "fail")), {"no_dead_letters": U}),
    "refused, and then looked": Case(looks((9000, "x", "fail"), (9002, "x", "ok")), {"no_dead_letters": P}),
    "a look that never returned": Case(looks((9000, "x", None), (9001, "a", "ok")), {"no_dead_letters": U}),
    "refused in the load, and never again there": Case(
        looks((4000, "x", "fail"), (9002, "a", "ok")), {"no_dead_letters": U}
    ),
    "looked perhaps before the load's end": Case(looked_by_a_vague_clock, {"no_dead_letters": U}, VAGUE),
    "looked after the load's end": Case(looked_by_a_vague_clock, {"no_dead_letters": P}, FINE),
    "delivered perhaps after somebody looked": Case(delivered_by_a_vague_clock, {"no_dead_letters": U}, VAGUE),
    "delivered before somebody looked": Case(delivered_by_a_vague_clock, {"no_dead_letters": P}, FINE),
    "nobody says when the load was": Case(no_phases, {"no_dead_letters": U, "available": U}),
    "nobody could ask who was cut off": Case(cut_off(), {"single_active": U}),
    "polls missed who was cut off": Case(cut_off(gaps=True), {"single_active": U}),
    "nobody could ask who was cut off, but its log tells": Case(
        also(cut_off(), told(event("role", 1, instance="a", store="s", name="log", value="active"))),
        {"single_active": F},
    ),
    "nobody could ask who was cut off, after a while": Case(cut_off(3600), {"single_active": F}),
    "nobody could ask who was cut off, and it acknowledged": Case(
        also(cut_off(), rows(sent("between", 4000, "a", client="i"), *got("between", 8100, "a"))), {"single_active": F}
    ),
    "nobody could ask a broker under two kills in a row": Case(
        also(hit(6000, 7000), hit(7000, 7500, step="and again"), silent("b", 6000, 7500)), {"single_active": P}
    ),
    "nobody could ask a broker between two kills": Case(
        also(hit(6000, 7000), hit(7001, 7500, step="and again"), silent("b", 6000, 7500)), {"single_active": U}
    ),
    "nobody could ask either of two": Case(
        also(silent("a", 6000, 8000), silent("b", 6000, 8000)), {"single_active": U}
    ),
    "nobody could ask the active one": Case(silent("a", 6000, 8000), {"single_active": P}),
    "late only because of another fault": Case(
        also(hit(4900, 5600, "pause", **A), back_at(6100)), {"failback_within": U}
    ),
    "late even without another fault": Case(also(hit(4900, 5600, "pause", **A), back_at(6400)), {"failback_within": F}),
    "late already when another fault came": Case(
        also(hit(5750, 5800, "pause", **A), back_at(6400)), {"failback_within": F}
    ),
    "late because of one fault after the other": Case(
        also(hit(4900, 5600, "pause", **A), hit(6200, 6250, "pause", **A), back_at(6900)), {"failback_within": U}
    ),
    "committed long after by the heir": Case(commits_after(3900), {"failover_within": P}),
    "connects long after, and no more": Case(connects_after(4500, "ok"), {"failover_within": P}),
    "connects long after in vain": Case(connects_after(4500, "fail"), {"failover_within": F}),
    **each(
        "failover_within",
        F,
        {
            "busy by two readings of one time": waited((3000, 3110, 60), (3000, 3110, 61)),
            "busy for services, and so the host": also(
                waited((3000, 3110, 60), scope="services"), waited((3000, 3110, 60), scope="host")
            ),
            "busy for two things": also(waited((3000, 3110, 60)), waited((3110, 3220, 60), name="io")),
            "busy less than half of each time": waited(*((3000 + n, 3100 + n, 49) for n in (0, 100, 200, 300))),
            "busy mostly before": waited((1000, 3100, 1200)),
        },
        bounded(failover_within=300),
    ),
    **each(
        "failover_within",
        U,
        {
            "busy one time after the other": waited((3000, 3110, 60), (3110, 3220, 60)),
            "busy by readings that overlap a little": waited((3000, 3111, 60), (3110, 3220, 60)),
            "busy half of each time": waited(*((3000 + n, 3100 + n, 50) for n in (0, 100, 200, 300))),
        },
        bounded(failover_within=300),
    ),
    "an arm is all that was planned": Case(
        also(no_fault_at_all, hit(3000, 3500, "arm", "arm it", **A)),
        dict.fromkeys(("failover_within", "delivered_within", "failback_within", "alerted_within"), U),
        {"planned": ("arm it",)},
    ),
    **{
        name: Case(change, dict.fromkeys(ALL, ""), with_router(), vacuous=vacuous)
        for name, change, vacuous in (
            ("a router led its clients there", behind_a_router((100, "a")), False),
            ("a router had led its clients away", behind_a_router((100, "a"), (2900, "x")), True),
            ("a router had led idle clients away", behind_a_router((100, "a"), (2900, "x"), idle=True), True),
            (
                "a router led its clients away during a playbook",
                also(behind_a_router((100, "a"), (2900, "x")), playbook(2850, 3100, "a")),
                True,
            ),
            ("a router led its clients there later", behind_a_router((100, "x"), (3100, "a")), True),
            ("a router was hit", behind_a_router((100, "x"), target="rt"), False),
            ("a router led its clients there, whatever they say", behind_a_router((100, "a"), said="x"), False),
            ("a router led its clients elsewhere, whatever they say", behind_a_router((100, "x"), said="a"), True),
        )
    },
    "a crash of one that a playbook works on": Case(
        also(playbook(2900, 5000, "b"), told(ended("b", 3100, "dumped", "SEGV"))), {"stays_up": F}
    ),
    "an exit of one that a playbook works on": Case(
        also(playbook(2900, 5000, "b"), told(ended("b", 3100, "exited", "1"))), {"stays_up": P}
    ),
    "two exits under two kills": Case(
        also(
            hit(6000, 6900),
            hit(6100, 6800, step="and again"),
            told(*(ended("b", at, "killed", "KILL") for at in (6010, 6500))),
        ),
        {"stays_up": P},
    ),
    "three exits under two kills": Case(
        also(
            hit(6000, 6900),
            hit(6100, 6800, step="and again"),
            told(*(ended("b", at, "killed", "KILL") for at in (6010, 6500, 6600))),
        ),
        {"stays_up": F},
    ),
    "twice, as is known": Case(twice, {"no_duplicates": F}, defects("no_duplicates", count=1), as_expected=True),
    "twice, as is known, and operations are missing": Case(
        twice_beyond_a_hole, {"no_duplicates": F}, defects("no_duplicates", count=1), renumber=False, as_expected=False
    ),
    "corrupted, and operations are missing": Case(
        corrupted_beyond_a_hole, {"no_phantoms": F, "no_loss": U}, renumber=False
    ),
    "lost, as is known": Case(lost(1), {"no_loss": F}, defects("no_loss", count=1), as_expected=True),
    "lost, as is known, and more was not seen": Case(
        also(lost(1), lost(5, "q2")),
        {"no_loss": F},
        {**defects("no_loss", count=1), **Q2, "drained": {"q": True, "q2": False}},
        as_expected=False,
    ),
    "out, as is known, and another address was not used": Case(
        gap_of_q2, {"available": F}, {**defects("available", count=1), **drained("q2", "q3")}, as_expected=False
    ),
    "an end, as is known, and another log was not read": Case(
        also(told(ended("b", 6500, "exited", "1")), unread("x")),
        {"stays_up": F},
        defects("stays_up", count=1),
        as_expected=False,
    ),
    "an overlap, as is known, and then nobody could ask": Case(
        also(overlapping, silent("b", 6200, 7900)),
        {"single_active": F},
        defects("single_active", count=1),
        as_expected=False,
    ),
}


def _besides(name: str, case: Case) -> set[str]:
    """What else is said of a case, by its nature."""
    if not case.renumber:
        return ALL
    if "no_loss" in case.told or "drained" in case.run:
        return {"available", "failover_within", "no_nonpersistent_loss", "transparent"}
    if case.run.get("clocks") == VAGUE["clocks"]:
        return {"available"}
    return {"alerted_within"} if "failback_within" in case.told or "two kills" in name else set()


FURTHER_ALSO = {name: _besides(name, case) for name, case in FURTHER.items()}
