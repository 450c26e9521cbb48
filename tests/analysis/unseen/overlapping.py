"""Runs in which several things happened at once, or out of their turn: faults that overlap, calls of killed clients,
alerts that end roughly, roles that were told when nobody had known them, messages that came after the drain."""

from __future__ import annotations

from brokerdrill.ledger.coverage import Minimum
from tests.analysis.batch import Row
from tests.analysis.kept_run import ACTIVE_A, HEAL, MS, RUN, ended, event, find, op
from tests.analysis.unseen.case import Case, Change, keep
from tests.analysis.unseen.further import (
    A,
    F,
    P,
    U,
    also,
    back_at,
    each,
    faulted,
    hit,
    named,
    rows,
    told,
    waited,
)
from tests.analysis.unseen.instances import healed_by
from tests.analysis.unseen.loads import cut_off_by_the_loads_end, no_fault_at_all
from tests.analysis.unseen.records import silent
from tests.analysis.unseen.times import bounded, promising
from tests.analysis.unseen.waiting import got, sent

ALL = {one.name for one in RUN.promises}


# --- faults that overlap --------------------------------------------------------------------------------------------


def ends_of_b(*at: float) -> Change:
    return told(*(ended("b", one, "exited", "1") for one in at))


STOP_IN_A_KILL = also(hit(6000, 7000), hit(6100, 6400, "stop", "within"))
TWO_PAUSES = also(hit(6000, 7000, "pause"), hit(6100, 6400, "pause", "within"))


def taken_over_by_a_playbook(u: float) -> Change:
    """b takes over from a at 2500 ms, without a fault; polls saw it, give or take `u`."""

    def change(ops: list[Row], events: list[Row]) -> None:
        no_fault_at_all(ops, events)
        for row in ops:
            if row.get("instance") == "a" and row["start_ns"] >= 2_500 * MS:
                row["instance"] = "b"
        for who, value, at in (("a", "passive", 2500), ("b", "active", 2600)):
            events.append(event("role", at, instance=who, store="s", value=value, uncertainty_ns=round(u * MS)))

    return change


# --- clients that were killed ---------------------------------------------------------------------------------------

KILLED = 6000


def a_client_is_killed(call: str, ends: float | None = None) -> Change:
    """In such a call, which it began a millisecond before."""

    def change(ops: list[Row], events: list[Row]) -> None:
        ops.append(op("h", "connect", 5800, 5801, instance="a"))
        ops.append(sent("h", 5900, client="h"))
        ops.extend(got("h", 5950, client="h", instance="a", outcome=None))
        of = {"delivery": "d-h-5950"} if call == "ack" else {"message_id": "h2", "payload_sha": "sha"}
        ops.append(op("h", call, KILLED - 1, ends, outcome="unknown", address="q", **of))
        ops.extend(got("h", 6100, "a"))
        of_load = {"name": "client_killed", "target": "load1", "value": "kill a client"}
        events.extend([event("fault", KILLED, **of_load), event("heal", 6500, **of_load)])
        note = {**of_load, "name": "clients killed", "detail": {"clients": "h"}}
        events.append(event("note", KILLED, **note))

    return change


# --- what was seen roughly ------------------------------------------------------------------------------------------


def cleared(at: float, u: float = 0, heal_u: float = 0) -> Change:
    """The alert is over then; how uncertain that and the heal are."""

    def change(ops: list[Row], events: list[Row]) -> None:
        row = find(events, kind="alert", name="BrokerDown", value="cleared")
        row |= {"t_ns": round(at * MS), "uncertainty_ns": round(u * MS)}
        find(events, kind="heal")["uncertainty_ns"] = round(heal_u * MS)

    return change


def vague_role(instance: str, value: str, u: float) -> Change:
    """When a has ended, or b has begun, is known that roughly."""

    def change(ops: list[Row], events: list[Row]) -> None:
        find(events, kind="role", instance=instance, value=value)["uncertainty_ns"] = round(u * MS)

    return change


def active_when_it_answers(instance: str, since: float, at: float, gaps: bool = False) -> Change:
    """Nobody could ask it, or did, from then on; that it is active is told as it answers again, or is asked."""

    def change(ops: list[Row], events: list[Row]) -> None:
        row = find(events, kind="role", instance=instance, value="active", t_ns=round(_ACTIVE[instance] * MS))
        row["t_ns"] = round(at * MS)
        if gaps:
            detail = {"gaps": f"{round(since * MS)}-{round(at * MS)}"}
            events.append(event("polls", 8900, instance=instance, name="role", detail=detail))
        else:
            silent(instance, since, at)(ops, events)

    return change


_ACTIVE = {"a": ACTIVE_A, "b": 3400}


def healed_roughly(u: float, fault_u: float = 0) -> Change:
    """How uncertain the pause and its heal are."""

    def change(ops: list[Row], events: list[Row]) -> None:
        named("pause")(ops, events)
        find(events, kind="fault")["uncertainty_ns"] = round(fault_u * MS)
        find(events, kind="heal")["uncertainty_ns"] = round(u * MS)

    return change


def says_nothing_until(at: float) -> Change:
    """Until then a's last word is that it is active."""

    def change(ops: list[Row], events: list[Row]) -> None:
        find(events, kind="role", instance="a", value="down")["t_ns"] = round(at * MS)
        events.remove(find(events, kind="role", instance="a", value="passive"))

    return change


def nobody_saw_the_heir(ops: list[Row], events: list[Row]) -> None:
    """Its clients are served, and it answers nobody who asks for its role."""
    events.remove(find(events, kind="role", instance="b", value="active"))
    silent("b", 3300, 5300)(ops, events)


def taken_over_at_once(u: float) -> Change:
    """The polls that saw that came before the fault, give or take `u`."""

    def change(ops: list[Row], events: list[Row]) -> None:
        find(events, kind="role", instance="b", value="active").update(t_ns=2980 * MS, uncertainty_ns=round(u * MS))
        find(events, kind="role", instance="a", value="down").update(t_ns=2990 * MS, uncertainty_ns=round(u * MS))

    return change


def fails_once(ops: list[Row], events: list[Row]) -> None:
    """The original is never active again, and one call fails long after the fault."""
    find(events, kind="role", instance="a", value="active", t_ns=ACTIVE_A * MS)["value"] = "passive"
    ops.append(sent("doubted", 5200, "b", client="p", outcome="fail"))


def fired_until(at: float, u: float) -> Change:
    """The alert fired long before the fault, until then, and never again."""

    def change(ops: list[Row], events: list[Row]) -> None:
        find(events, kind="alert", name="BrokerDown", value="firing")["t_ns"] = 500 * MS
        cleared(at, u)(ops, events)

    return change


def the_load_ends_soon_after(last: float, u: float) -> Change:
    """The load ends 200 ms after the fault, give or take `u`; a send that began before it was answered last then."""

    def change(ops: list[Row], events: list[Row]) -> None:
        cut_off_by_the_loads_end(bound_is_over=False)(ops, events)
        keep(ops, lambda row: row["outcome"] == "ok")
        find(events, kind="fault")["uncertainty_ns"] = round(u * MS)
        ops.append({**sent("last", 2980, "a", client="w"), "end_ns": round(last * MS)})
        ops.extend(got("last", 3990, client="w"))

    return change


def committed_after_the_drain(ops: list[Row], events: list[Row]) -> None:
    """Of two messages one has come."""
    ops.extend(
        [op("o", "connect", 8998, 8999, instance="a"), sent("l1", 9100, txn="late"), sent("l2", 9102, txn="late")]
    )
    ops.append(op("o", "commit", 9104, 9105, txn="late", instance="a"))
    ops.extend(got("l1", 9200, "a"))


def after_the_drain(at: float, durable: bool = True) -> Change:
    return rows(op("o", "connect", at - 2, at - 1, instance="a"), {**sent("late", at), "durable": durable})


# Nobody is at the heir by then.
SOON_AND_MEANWHILE = bounded(failover_within=300) | {
    "minimum": dict.fromkeys(("pause the heir", "slow", "kill all"), Minimum(operations=0))
}

OVERLAPPING: dict[str, Case] = {
    "two ends under a kill and a stop within it": Case(also(STOP_IN_A_KILL, ends_of_b(6150, 6500)), {"stays_up": P}),
    "three ends under a kill and a stop within it": Case(
        also(STOP_IN_A_KILL, ends_of_b(6150, 6300, 6500)), {"stays_up": F}
    ),
    "an end under the longer one of two pauses": Case(also(TWO_PAUSES, ends_of_b(6600)), {"stays_up": P}),
    "an end after both of two pauses": Case(also(TWO_PAUSES, ends_of_b(7100)), {"stays_up": F}),
    "healed by its host while another fault lasted": Case(
        also(healed_by(6000, ttl_s="2"), hit(4900, 5600, "pause", **A), back_at(6100)), {"failback_within": U}
    ),
    "healed by its host, and late even without another fault": Case(
        also(healed_by(6000, ttl_s="2"), hit(4900, 5600, "pause", **A), back_at(6400)), {"failback_within": F}
    ),
    "an arm of what is killed then": Case(
        hit(2950, 7900, "arm", "arm it", **A), {"failover_within": P}, bounded(failover_within=430)
    ),
    **each(
        "failover_within",
        U,
        {
            "late, and the heir was paused meanwhile": hit(3200, 3210, "pause", "pause the heir"),
            "late, and all clients were cut off meanwhile": hit(3200, 3210, "latency", "slow", target="db1"),
        },
        SOON_AND_MEANWHILE,
    ),
    **each(
        "failover_within",
        F,
        {
            "late, and the heir was paused when the bound was over": hit(3310, 3320, "pause", "pause the heir"),
            "late, and the same step had another effect meanwhile": also(
                faulted(value="kill all"), hit(3200, 3210, step="kill all")
            ),
        },
        SOON_AND_MEANWHILE,
    ),
    "an arm of what a playbook stops is undone": Case(
        also(taken_over_by_a_playbook(0), hit(1000, 5000, "arm", "arm it", **A)),
        dict.fromkeys(("failover_within", "failback_within"), U),
    ),
    **each(
        "transparent",
        P,
        {
            "a client is killed while it sends": a_client_is_killed("send"),
            "a client is killed while it acknowledges": a_client_is_killed("ack"),
        },
        {"minimum": {"kill a client": Minimum(clients=1, operations=0)}},
    ),
    "a client is killed after it saw a failure": Case(
        a_client_is_killed("send", KILLED - 0.5),
        {"transparent": F},
        {"minimum": {"kill a client": Minimum(clients=1, operations=0)}},
    ),
    **each(
        "alerted_within",
        U,
        {
            "cleared too late on a busy host": also(cleared(5900), waited((5000, 5600, 400))),
            "cleared too late, perhaps": cleared(5710, 20),
            "cleared in time, perhaps": cleared(5690, 20),
            "cleared too late after a heal that is vague": cleared(5710, 0, 20),
        },
    ),
    **each(
        "alerted_within",
        F,
        {
            "cleared too late on a host that had been busy": also(cleared(5900), waited((4300, 4900, 400))),
            "cleared too late on a host that was a little busy": also(cleared(5900), waited((5000, 5600, 190))),
            "cleared too late, for certain": cleared(5721, 20),
        },
    ),
    "nobody could ask one beside another one that had ended, vaguely": Case(
        also(named("partition"), vague_role("a", "down", 200), silent("b", 3100, 3390)), {"single_active": U}
    ),
    "nobody could ask one beside another one that had ended": Case(
        also(named("partition"), vague_role("a", "down", 20), silent("b", 3100, 3390)), {"single_active": P}
    ),
    "nobody could ask one beside another one that was killed, and had ended, vaguely": Case(
        also(vague_role("a", "down", 200), silent("b", 3100, 3390)), {"single_active": P}
    ),
    "nobody could ask one beside another one that began, vaguely": Case(
        also(named("partition"), vague_role("b", "active", 200), silent("a", 3060, 3390)), {"single_active": U}
    ),
    **each(
        "failover_within",
        P,
        {
            "the heir answers long after it has begun to serve": active_when_it_answers("b", 3060, 4200),
            "the heir is asked long after it has begun to serve": active_when_it_answers("b", 3060, 4200, gaps=True),
        },
    ),
    "the heir answers as it begins to serve": Case(
        also(active_when_it_answers("b", 3060, 3400), told(event("note", 9000))),
        {"failover_within": F},
        bounded(failover_within=300),
    ),
    "the original answers again, and is active": Case(
        active_when_it_answers("a", HEAL + 150, 5900), {"failback_within": U}
    ),
    "the original answers again, too late to have been active in time": Case(
        active_when_it_answers("a", HEAL + 750, 5900), {"failback_within": F}
    ),
    "an alert was over before the fault, perhaps": Case(fired_until(2990, 20), {"alerted_within": U}),
    "an alert was over before the fault, and none came": Case(fired_until(2970, 20), {"alerted_within": F}),
    "the load ends soon after the fault, and the last send was answered before it, perhaps": Case(
        the_load_ends_soon_after(3010, 20), {"available": U, "failover_within": U}
    ),
    "the load ends soon after the fault, and the last send was answered after it": Case(
        the_load_ends_soon_after(3030, 20), {"available": P, "failover_within": U}
    ),
    "the heir serves, and nobody knew its role": Case(nobody_saw_the_heir, {"failover_within": U}),
    "the heir serves, nobody knew its role, and one call fails": Case(
        also(nobody_saw_the_heir, fails_once), {"failover_within": U, "failback_within": "", "transparent": F}
    ),
    "the heir serves, and had taken over before the fault, perhaps": Case(
        taken_over_at_once(100), {"failover_within": U, "single_active": U}
    ),
    "active by its last word beside the heir, and healed perhaps before that ended": Case(
        also(healed_roughly(500), says_nothing_until(5300)), {"single_active": U, "failback_within": U}
    ),
    "active by its last word beside the heir, and healed before that ended": Case(
        also(healed_roughly(50), says_nothing_until(5300)), {"single_active": F, "failback_within": U}
    ),
    "nobody could ask one that was paused, perhaps later": Case(
        also(healed_roughly(0, 200), silent("a", 3100, 4900)), {"single_active": U}
    ),
    "nobody could ask one that was paused, and healed perhaps sooner": Case(
        also(healed_roughly(200), silent("a", 3100, 4900)), {"single_active": U}
    ),
    "nobody could ask one that was paused, give or take": Case(
        also(healed_roughly(100, 100), silent("a", 3100, 4900)), {"single_active": P}
    ),
    "nobody could ask one that its host healed, nobody knows when": Case(
        also(healed_by(6000), named("pause"), silent("a", 3100, 5400)),
        {"single_active": U, "failback_within": U, "alerted_within": U},
    ),
    "an end when its pause was over, perhaps": Case(
        also(healed_roughly(500), told(ended("a", 5400, "exited", "1"))), {"stays_up": P}
    ),
    "an end when its pause was over": Case(
        also(healed_roughly(300), told(ended("a", 5400, "exited", "1"))), {"stays_up": F}
    ),
    "lost, and sent when the drain was over": Case(after_the_drain(9100), {"no_loss": U}),
    "lost, and sent before the drain was over": Case(after_the_drain(8900), {"no_loss": F}),
    "lost, not durable, and sent when the drain was over": Case(
        after_the_drain(9100, durable=False), {"no_nonpersistent_loss": U}
    ),
    # The key comes every 0.9 s at the soonest
    "a key comes when its router has forgotten it": Case(
        told(), {"sticky": U}, promising(sticky={"cache_timeout_ms": 890})
    ),
    "a key comes before its router has forgotten it": Case(
        told(), {"sticky": P}, promising(sticky={"cache_timeout_ms": 910})
    ),
    "a transaction of after the drain, of which one has come": Case(
        committed_after_the_drain, {"atomic": U, "no_loss": U}
    ),
}


def _besides(name: str, case: Case) -> set[str]:
    """What else is said of a case, by its nature."""
    if name.startswith("late, and"):
        return {"alerted_within"}
    if "playbook" in name:
        return {"failover_within", "failback_within", "delivered_within", "alerted_within", "single_active"}
    if "drain" in name:
        return {"failover_within", "no_dead_letters", "no_loss", "no_nonpersistent_loss"} - {*case.told}
    if "answer" in name or "asked" in name or "could ask" in name:
        return {"single_active", "failback_within", "delivered_within"} - {*case.told}
    if "clear" not in name:
        return {"alerted_within", "failback_within"} - {*case.told}
    return {"failback_within"}


OVERLAPPING_ALSO = {name: _besides(name, case) for name, case in OVERLAPPING.items()}
