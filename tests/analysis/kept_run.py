"""A run that keeps every promise, to be changed. Times are in milliseconds here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from brokerdrill.ledger.contract import Clock, PromiseSpec, RunInfo
from tests.analysis.batch import Ledger, Row

MS = 1_000_000
RUN = RunInfo(
    run_id="r",
    outcome="completed",
    stores={"s": ("a", "b"), "z": ("x",)},
    drained={"q": True},
    dead_letters={"q": "DLQ"},
    clocks={"load": Clock("load1"), "controller": Clock("controller")},
    promises=(
        *(PromiseSpec(name) for name in ("no_phantoms", "no_loss", "no_nonpersistent_loss", "transparent")),
        *(PromiseSpec(name) for name in ("no_duplicates", "no_dead_letters", "atomic")),
        PromiseSpec("ordered", scope="key"),
        PromiseSpec("sticky", check_period_ms=10),
        PromiseSpec("single_active"),
        PromiseSpec("stays_up"),
        PromiseSpec("failover_within", bound_ms=700),
        PromiseSpec("delivered_within", bound_ms=2000),
        PromiseSpec("failback_within", bound_ms=700),
        PromiseSpec("available", bound_ms=700),
        PromiseSpec("alerted_within", bound_ms=700, alert="BrokerDown"),
    ),
)
FAULT, ACTIVE_B, HEAL, ACTIVE_A = 3000, 3400, 5000, 5500


def op(client: str, kind: str, start: float, end: float | None, **columns: Any) -> Row:
    common = {"run_id": "r", "clock": "load", "client": client, "session": 0, "op": kind, "outcome": "ok"}
    times = {"start_ns": round(start * MS), "end_ns": None if end is None else round(end * MS)}
    return {**common, **times, "protocol": "core", **columns}


def event(kind: str, at: float, **columns: Any) -> Row:
    return {"run_id": "r", "clock": "controller", "t_ns": round(at * MS), "kind": kind, **columns}


def ended(instance: str, at: float, how: str, status: str) -> Row:
    detail = {"status": status, "last": "Java heap space"}
    return event("ended", at, instance=instance, target=f"host-{instance}", value=how, detail=detail)


def server(at: float) -> str | None:
    """Who serves store s; nobody during the failover and the failback."""
    if at < FAULT or at >= ACTIVE_A:
        return "a"
    return "b" if ACTIVE_B <= at < ACTIVE_A - 100 else None


def kept() -> Ledger:
    """4 messages a transaction, the last of them not durable, each 100 ms from 0 to 8 s, in order, through a failover
    and a failback. Another message waits from before the failover until after it."""
    ops, number = [], 0
    for at in range(0, 8000, 100):
        instance = server(at)
        if instance is None:
            continue
        txn = {"txn": f"t{at}", "instance": instance}
        for place in range(4):
            message = {"address": "q", "message_id": f"m{number}", "payload_sha": f"sha{number}", "instance": instance}
            sent = {**message, "durable": place < 3, "attempt": 0, "key": "k", "producer_seq": number, "txn": f"t{at}"}
            ops.append(op("p", "send", at + place, at + place + 0.5, **sent))
            received = {**message, "delivery": f"d{number}", "redelivered": False, "txn": f"r{at}"}
            ops.append(op("c", "receive", at + 10 + place, at + 10 + place + 0.5, **received))
            number += 1
        ops.append(op("p", "commit", at + 5, at + 7, **txn))
        ops.append(op("c", "commit", at + 20, at + 22, txn=f"r{at}", instance=instance))
    waiting = {"address": "q", "message_id": "waits", "payload_sha": "sha"}
    ops.append(op("p", "send", 2450, 2451, instance="a", durable=True, attempt=0, **waiting))
    ops.append(op("c", "receive", 3450, 3451, instance="b", delivery="d-waits", redelivered=False, **waiting))
    ops.append(op("c", "ack", 3452, 3453, instance="b", delivery="d-waits", address="q"))
    ops += [op("k", "connect", at, at + 1, key="k", instance=server(at)) for at in (100, 1000, 2000, 4000, 7000)]
    ops += [op("inspector", "browse", 9000, 9001, address="DLQ")]
    events = [
        *(event("phase", at, name="load", value=value) for at, value in ((0, "begin"), (8000, "end"))),
        *(event("phase", at, name="drain", value=value) for at, value in ((8000, "begin"), (9000, "end"))),
        *(event("role", 0, instance=who, store="s", value=value) for who, value in (("a", "active"), ("b", "passive"))),
        event("role", 0, instance="x", store="z", value="active"),
        event("fault", FAULT, name="kill", instance="a", store="s", target="host-a"),
        event("role", FAULT + 50, instance="a", store="s", value="down"),
        event("role", ACTIVE_B, instance="b", store="s", value="active"),
        event("heal", HEAL, name="kill", instance="a", store="s", target="host-a"),
        event("role", HEAL + 100, instance="a", store="s", value="passive"),
        event("role", ACTIVE_A - 100, instance="b", store="s", value="passive"),
        event("role", ACTIVE_A, instance="a", store="s", value="active"),
        ended("a", FAULT + 20, "killed", "KILL"),
        *(event("note", 9000, name="log read", instance=who) for who in "abx"),
        event("note", 0, name="alerts watched", value="begin"),
        event("alert", FAULT + 300, name="BrokerDown", instance="a", store="s", value="firing"),
        event("alert", FAULT + 310, name="NoActiveBroker", store="s", value="firing"),
        event("alert", HEAL + 200, name="BrokerDown", instance="a", store="s", value="cleared"),
        event("note", 9000, name="alerts watched", value="end"),
    ]
    return RUN, numbered(ops), events


def numbered(ops: Iterable[Row]) -> list[Row]:
    """The operations, each client's counted from 0."""
    counts: Counter[str] = Counter()
    found = []
    for row in ops:
        found.append({**row, "op_id": counts[row["client"]]})
        counts[row["client"]] += 1
    return found


def find(rows: list[Row], **columns: Any) -> Row:
    """The first row with these values."""
    return next(row for row in rows if all(row.get(name) == value for name, value in columns.items()))
