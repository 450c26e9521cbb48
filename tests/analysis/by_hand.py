"""Rows of ledgers that are made by hand, and what the oracle says of these. Times are in milliseconds here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from brokerdrill.ledger.contract import (
    Clock,
    PromiseSpec,
    RunInfo,
)
from tests.analysis.oracle import judge

Row = dict[str, Any]
MS = 1_000_000


def op(client: str, kind: str, start: float, end: float | None, outcome: str = "ok", **columns: Any) -> Row:
    row = {"run_id": "r", "clock": "c", "client": client, "session": 0, "op": kind, "outcome": outcome, **columns}
    return {**row, "start_ns": int(start * MS), "end_ns": None if end is None else int(end * MS)}


def send(message: str, at: float, outcome: str = "ok", client: str = "p", **columns: Any) -> Row:
    """A send on queue `q` that takes 1 ms and carries the message's own checksum."""
    sent = {"address": "q", "message_id": message, "payload_sha": f"sha-{message}", "durable": True, "attempt": 0}
    return op(client, "send", at, at + 1, outcome, **(sent | columns))


def receive(message: str, at: float, client: str = "c", **columns: Any) -> Row:
    """A receive that ends at `at`; its delivery is named after the message and the time."""
    got = {"address": "q", "message_id": message, "payload_sha": f"sha-{message}", "delivery": f"{message}@{at}"}
    return op(client, "receive", at - 1, at, "ok", **(got | columns))


def ack(of: Row, outcome: str = "ok", **columns: Any) -> Row:
    at = of["end_ns"] / MS
    same = {name: of.get(name) for name in ("address", "message_id", "delivery", "subscription", "session")}
    return op(of["client"], "ack", at + 0.1, None if outcome == "null" else at + 0.2, outcome, **(same | columns))


def got(message: str, at: float, **columns: Any) -> list[Row]:
    """A delivery and its acknowledgement."""
    row = receive(message, at, **columns)
    return [row, ack(row)]


def end(kind: str, txn: str, at: float, outcome: str = "ok", client: str = "p", **columns: Any) -> Row:
    return op(client, kind, at, at + 1, outcome, txn=txn, **columns)


def event(kind: str, at: float, **columns: Any) -> Row:
    return {"run_id": "r", "clock": "c", "t_ns": int(at * MS), "kind": kind, **columns}


def role(instance: str, value: str, at: float, store: str = "s", **columns: Any) -> Row:
    return event("role", at, instance=instance, store=store, value=value, **columns)


def phases(load: tuple[float, float] = (0, 1000), drain: tuple[float, float] = (1000, 2000)) -> list[Row]:
    rows = []
    for name, (begin, over) in (("load", load), ("drain", drain)):
        rows += [event("phase", begin, name=name, value="begin"), event("phase", over, name=name, value="end")]
    return rows


RUN = RunInfo(
    run_id="r",
    outcome="completed",
    stores={"s": ("a", "b"), "z": ("x", "y")},
    drained={"q": True, "t": True},
    dead_letters={"q": "DLQ", "t": "DLQ"},
    clocks={"c": Clock("host")},
)


def numbered(rows: Sequence[Row | list[Row]]) -> list[Row]:
    """Flatten, and give each row an op_id of its own where it has none."""
    flat: list[Row] = []
    for row in rows:
        flat += row if isinstance(row, list) else [row]
    return [{"op_id": index, **row} for index, row in enumerate(flat)]


def classes(*rows: Row | list[Row], run: RunInfo = RUN, events: Sequence[Row] = ()) -> dict[str, int]:
    messages = judge(run, numbered(rows), list(events) or phases(), [])["messages"]
    return {name: count for name, count in messages.items() if count}


def promised(spec: PromiseSpec, *rows: Row | list[Row], events: Sequence[Row] = (), run: RunInfo = RUN) -> Row:
    result = judge(run, numbered(rows), list(events), [spec])
    return next(one for one in result["promises"] if one["name"] == spec.name)


def changed(**values: Any) -> RunInfo:
    return RunInfo(**{**{f: getattr(RUN, f) for f in RUN.__dataclass_fields__}, **values})


UNTOUCHED = receive("m", 20)  # delivered, never acknowledged
BROWSED = op("i", "browse", 1100, 1101, address="DLQ", message_id="m")


def subscribe(name: str, at: float, client: str, outcome: str = "ok", durable: bool | None = True) -> Row:
    return op(client, "subscribe", at, at + 1, outcome, address="t", subscription=name, durable=durable)


def connect(at: float, instance: str | None, session: int, key: str | None = "k", outcome: str = "ok") -> Row:
    return op("r", "connect", at - 1, at, outcome, session=session, key=key, instance=instance)


BOTH_ACTIVE = [role("a", "active", 1), role("x", "active", 1, "z")]


def sent_in(name: str, begin: float, over: float, instance: str | None, outcome: str = "ok", **more: Any) -> Row:
    times = {"start_ns": round(begin * MS), "end_ns": round(over * MS)}
    return {**send(name, 1, outcome, instance=instance, **more), **times}


BEFORE = sent_in("m1", 10, 11, "a")
