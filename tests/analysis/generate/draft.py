"""The draft of a ledger: its clocks, knobs and rows so far, and small draws."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from brokerdrill.ledger.contract import Clock

Row = dict[str, Any]
MS = 1_000_000
S = 1_000_000_000


class Draft:
    """What is drawn of one ledger so far, from `rng`; `rows` and `events` are on run time until they are written."""

    def __init__(self, rng: random.Random, run_id: str, tick: int) -> None:
        self.rng = rng
        self.run_id = run_id
        self.tick = tick
        self.rows: list[Row] = []
        self.events: list[Row] = []
        self.names = 0
        self.clocks = {
            name: Clock(host=host, offset_ns=rng.randint(-400 * MS, 400 * MS), uncertainty_ns=rng.randint(0, 3 * MS))
            for name, host in (("controller", "controller"), ("load1", "load1"), ("load2", "load2"))
        }
        self.clock_of: dict[str, str] = {}
        # Numbers of its own, as for rounds.
        self.seen = random.Random(f"{run_id}/seen")
        if self.seen.random() < 0.15:
            name = self.seen.choice(("controller", "load1", "load2"))
            self.clocks[name] = replace(self.clocks[name], uncertainty_ns=self.seen.choice((S // 5, S)))
        self.load = (2 * S + self.within(0, S), 0)
        self.load = (self.load[0], self.load[0] + self.within(12 * S, 18 * S))
        self.drain = (self.load[1] + self.within(S // 5, S), 0)
        self.drain = (self.drain[0], self.drain[0] + self.within(2 * S, 4 * S))
        # How wild this ledger is, one knob a kind of trouble; often none.
        self.trouble = rng.choice((0.0, 0.05, 0.3))
        self.disorder = rng.choice((0.0, 0.0, 0.2))
        self.nameless = rng.choice((0.0, 0.0, 0.0, 0.1))
        self.transacted = rng.choice((0.0, 0.4, 0.9))
        self.silent = rng.random() < 0.06  # nothing is sent
        self.sessions: dict[str, list[int]] = {}
        self.store_of: dict[str, str] = {}  # by address
        self.serving: dict[str, list[tuple[int, int, str]]] = {}  # store -> (from, to, instance)
        self.stores: dict[str, tuple[str, ...]] = {}
        # Of the address that is drawn: whether its dead letters go somewhere, and (subscription, consumers, from, to),
        # who may get what is sent meanwhile.
        self.mapped = False
        self.readers: list[tuple[str | None, list[str], int, int]] = []

    def within(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def op(self, client: str, op: str, start: int, end: int | None, outcome: str, **columns: Any) -> None:
        if client not in self.clock_of:
            self.clock_of[client] = self.rng.choice(("load1", "load2"))
        if "instance" in columns and (columns["instance"] is None or self.chance(self.nameless)):
            columns["instance"] = None
        if columns.get("instance") is not None:
            columns["broker"] = f"host-{columns['instance']}"
        session = columns.pop("session", None)
        if session is None:
            session = max(0, sum(begin <= start for begin in self.sessions.get(client, [0])) - 1)
        row = {"client": client, "session": session, "op": op, "start_ns": start, "end_ns": end, "outcome": outcome}
        self.rows.append({**row, **columns, "protocol": "core"})

    def event(self, kind: str, t: int, uncertainty: int | None = None, **columns: Any) -> None:
        clock = "controller" if self.chance(0.8) else "load1"
        self.events.append({"kind": kind, "t_ns": t, "clock": clock, "uncertainty_ns": uncertainty, **columns})

    def role(self, store: str, instance: str, value: str, t: int, uncertainty: int | None = None) -> None:
        if uncertainty is None:
            uncertainty = self.rng.choice((None, 0, self.within(0, 200 * MS)))
        self.event("role", t, uncertainty, instance=instance, store=store, value=value, target=f"host-{instance}")
        if self.chance(0.2):  # "repeats continue it"
            self.event("role", t + self.within(MS, 40 * MS), None, instance=instance, store=store, value=value)

    def end_transaction(self, client: str, txn: str, ending: tuple[str, ...], t: int, instance: str | None) -> int:
        for step in ending:
            op, outcome = step.split(":")
            start, t = t + self.within(1000, MS), t + MS + self.within(MS, 30 * MS)
            end = None if outcome == "null" else t
            outcome = "unknown" if outcome == "null" else outcome
            self.op(client, op, start, end, outcome, txn=txn, instance=instance)
        return t
