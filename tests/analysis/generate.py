"""Seeded small random ledgers: valid input that together reaches every class and every verdict of every promise.

A ledger is told like a run (stores with two instances, a load, faults, takeovers, a drain), but each message's fate is
drawn, not simulated: what a broker must never do is the interesting part. How wild it gets differs from ledger to
ledger, so that kept promises are as common as broken ones. In a third of the ledgers all times are whole ticks, so few
that it is common for two things to have one time; in the others times are to the nanosecond. Not drawn, because the
contract does not say what they mean: a transaction with both a commit and a rollback that are ok, a subscription that
is made again after its end, an unsubscribe in doubt, a drained address in a run whose drain has no end.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from brokerdrill.ledger.contract import EVENT_COLUMNS, OP_COLUMNS, PROMISES, Clock, PromiseSpec, RunInfo, ScenarioText
from brokerdrill.ledger.coverage import Minimum
from tests.analysis.oracle import judge

Row = dict[str, Any]
MS = 1_000_000
S = 1_000_000_000

# Of each third ledger, in turn: a coarse clock, and one that is coarser than most operations are long.
TICKS = (50 * MS, 250 * MS)

_DURABLE: list[list[bool | None]] = [[True], [True, None], [False], [True, False]]
_REQUIRED = {column.name for column in OP_COLUMNS if column.required}
# Columns that a writer may know only when the call has returned, or only before: either row may lack them.
_OPTIONAL = [column.name for column in OP_COLUMNS if not column.required and column.name != "end_ns"]


class _Maker:
    """Draws one ledger from `rng`; `rows` and `events` are on run time until `finish`."""

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

    # -- small draws --

    def within(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    # -- rows --

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

    # -- stores: who serves when, faults and what is seen of them --

    def draw_stores(self) -> None:
        letters = iter("abcd")
        for index in range(self.rng.choice((1, 2, 2))):
            self.stores[f"s{index}"] = (next(letters), next(letters))
        for store in self.stores:
            self.draw_store(store)
        if len(self.stores) == 2 and self.chance(0.1):
            self.stores["s1"] = (*self.stores["s1"], "a")  # may serve, and never does
        for _ in range(self.rng.choice((0, 0, 1))):
            begin = self.within(*self.load)
            store = self.rng.choice((None, *self.stores))
            detail = {"toward": ", ".join(self.stores[store])} if store else None
            self.event("fault", begin, name="cut", target="client→broker", detail=detail)
            if self.chance(0.7):
                self.event("heal", begin + self.within(S // 10, 2 * S), name="cut", target="client→broker")

    def draw_store(self, store: str) -> None:
        x, y = self.stores[store]
        story = self.rng.choice(
            ("steady", "failover", "failback", "failback", "never_back", "no_takeover", "pause", "split", "blind")
        )
        up = self.within(6 * S // 10, S)
        forever = self.drain[1] + 10 * S
        self.serving[store] = [(0, forever, x)]
        if story == "blind":  # no role is seen
            return
        self.role(store, x, "active", up)
        if self.chance(0.8):
            self.role(store, y, "passive", up + self.within(MS, 300 * MS))
        if story == "steady":
            return
        fault = self.load[0] + self.within(3 * S, 5 * S)
        took_over = fault + self.within(S, 2 * S)
        healed = took_over + self.within(S // 2, 3 * S // 2)
        back = healed + self.within(S // 2, 2 * S)
        uncertainty = self.rng.choice((None, 0, self.within(0, 20 * MS)))
        what: Row = {"name": "kill" if story != "pause" else "pause", "instance": x, "target": f"host-{x}"}
        if self.chance(0.7):
            what["store"] = store
        self.event("fault", fault, uncertainty, **what)
        if story == "pause":
            self.event("heal", fault + self.within(S // 10, S), **what)
            return
        if story != "split":
            self.role(store, x, "down", fault + self.within(50 * MS, 500 * MS))
        if story == "no_takeover":
            self.serving[store] = [(0, fault, x)]
            return
        self.role(store, y, "active", took_over)
        self.serving[store] = [(0, fault, x), (took_over, forever, y)]
        if story == "split":
            self.serving[store] = [(0, forever, x), (took_over, forever, y)]
        if story == "failover":
            return
        self.event("heal", healed, **what)
        self.role(store, x, "starting" if story != "split" else "active", healed + self.within(10 * MS, 200 * MS))
        if story == "never_back":
            self.role(store, x, "passive", healed + self.within(300 * MS, 400 * MS))
        elif story == "failback":
            self.role(store, y, "passive", back - self.within(100 * MS, 200 * MS))
            self.role(store, x, "active", back)
            self.serving[store] = [(0, fault, x), (took_over, back - 200 * MS, y), (back, forever, x)]

    def server(self, store: str, t: int) -> str | None:
        who = [instance for begin, end, instance in self.serving[store] if begin <= t < end]
        if self.chance(self.trouble / 10):
            who = list(self.stores[store])
        return self.rng.choice(who) if who else None

    # -- clients --

    def connect(self, client: str, reconnects: int, key: str | None = None) -> None:
        begins = [self.within(S, 3 * S // 2)]
        for _ in range(reconnects):
            begins.append(self.within(*self.load))
        begins.sort()
        self.sessions[client] = begins
        store = self.rng.choice(list(self.stores))
        for session, begin in enumerate(begins):
            instance = self.server(store, begin) or self.stores[store][0]
            took = self.within(MS, 3 * MS)
            columns = {"session": session, "key": key, "instance": instance}
            self.op(client, "connect", begin, begin + took, "ok", **columns)
            if session + 1 < len(begins) and self.chance(0.3):
                end = begins[session + 1] - self.within(1000, MS)
                self.op(client, "close", end - 500, end, "ok", session=session)
        if self.chance(0.5):
            end = self.drain[1] + self.within(MS, 300 * MS)
            self.op(client, "close", end, end + MS, self.rng.choice(("ok", "unknown")), session=len(begins) - 1)

    def draw_keys(self) -> list[PromiseSpec]:
        """Draw clients that connect by key; return the `sticky` promise."""
        faithful = 1 - self.rng.choice((0.0, 0.3, 0.8))
        hits = [event["t_ns"] for event in self.events if event["kind"] == "fault"]
        for number in range(self.rng.choice((0, 1, 2))):
            client, key = f"router-{number}", f"k{number}"
            begins = [self.within(S * 3 // 2, self.drain[0]) for _ in range(self.rng.randint(1, 5))]
            if hits and self.chance(0.7):
                # Soon before a fault, and soon after it, when nobody has said yet what it did
                hit = self.rng.choice(hits)
                begins += [max(hit - self.within(0, S), S * 3 // 2), hit + self.within(0, S // 2)]
            begins.sort()
            self.sessions[client] = begins
            store = self.rng.choice(list(self.stores))
            for session, begin in enumerate(begins):
                if not self.chance(faithful):
                    store = self.rng.choice(list(self.stores))
                instance = self.server(store, begin) or self.rng.choice(self.stores[store][:2])
                columns = {"session": session, "key": key, "instance": instance}
                outcome = self.rng.choice(("ok",) * 8 + ("fail", "unknown"))
                self.op(client, "connect", begin, begin + self.within(MS, 3 * MS), outcome, **columns)
        with_roles = {event.get("store") for event in self.events if event["kind"] == "role"}
        if self.chance(0.5) or len(with_roles) < len(self.stores):
            for instances in self.stores.values():
                named = instances[:2]
                for instance in named:
                    self.event("pool", self.within(S // 2, 9 * S // 10), instance=instance, value="ready")
                if self.chance(0.5):
                    begin = self.rng.choice(hits) if hits and self.chance(0.7) else self.within(*self.load)
                    for instance in named if self.chance(0.7) else named[:1]:
                        self.event("pool", begin + self.within(0, 2 * S), instance=instance, value="not_ready")
                        if self.chance(0.7):
                            self.event("pool", begin + self.within(2 * S, 4 * S), instance=instance, value="ready")
        period, timeout = self.rng.choice((None, 0.0, 300.0)), self.rng.choice((None, None, 0.0, 1500.0))
        moves = self.rng.choice((None, "excused", "never", "some"))
        return [PromiseSpec("sticky", check_period_ms=period, cache_timeout_ms=timeout, moves=moves)]

    # -- sends --

    def draw_sends(
        self, address: str, producer: str, messages: int, expiring: bool, durable: list[bool | None]
    ) -> None:
        """Draw `producer`'s messages on `address`, one group (a transaction or a single send) after the other."""
        times = sorted(self.within(*self.load) for _ in range(messages))
        key = self.rng.choice((None, None, "g"))
        position = 0
        while position < len(times):
            size = self.rng.randint(1, 3) if self.chance(self.transacted) else 0
            group = []
            for _ in range(max(1, size)):
                message: Row = {"address": address, "message_id": self.name("m"), "producer_seq": position, "key": key}
                message["payload_sha"] = None if self.chance(0.05) else f"sha-{message['message_id']}"
                message["durable"] = self.rng.choice(durable)
                message["expires_ns"] = times[position] + self.within(S, 30 * S) if expiring else None
                group.append(message)
                position += 1
                if position >= len(times):
                    break
            self.send_group(producer, group, times[position - 1], bool(size))

    def send_group(self, producer: str, group: list[Row], t: int, transacted: bool) -> None:
        fates: dict[str, set[str]] = {message["message_id"]: set() for message in group}
        for attempt in range(self.rng.choice((1, 2, 3))):
            instance = self.server(self.store_of[group[0]["address"]], t)
            t, result = self.send_attempt(producer, group, t, transacted, attempt, instance)
            for message in group:
                fates[message["message_id"]].add(result)
            if result == "ok" and not self.chance(self.trouble / 3):
                break
            t += self.within(200 * MS, 1500 * MS)
        for place, message in enumerate(group):
            fate = fates[message["message_id"]]
            state = "ok" if "ok" in fate else "unknown" if "unknown" in fate else "fail"
            self.deliver(message, t + place * 6 * MS, state)

    def send_attempt(
        self, producer: str, group: list[Row], t: int, transacted: bool, attempt: int, instance: str | None
    ) -> tuple[int, str]:
        """Write one attempt of the group; return when it was over, and ok, fail or unknown as far as it was meant."""
        good = instance is not None and not self.chance(self.trouble)
        if not transacted:
            outcome = "ok" if good else self.rng.choice(("unknown", "unknown", "fail"))
            for message in group:
                start, t = t, t + self.within(MS, 9 * MS if outcome == "ok" else 800 * MS)
                end = None if outcome == "unknown" and self.chance(0.3) else t
                error = None if outcome == "ok" else "JMSException: connection lost"
                self.op(
                    producer, "send", start, end, outcome, **message, attempt=attempt, instance=instance, error=error
                )
                t += 1
            return t, outcome
        txn = self.name("t")
        row_fails = not good and self.chance(0.15)
        for message in group:
            start, t = t, t + self.within(MS, 3 * MS)
            outcome = "fail" if row_fails else "ok" if good or self.chance(0.8) else "unknown"
            self.op(producer, "send", start, t, outcome, **message, txn=txn, attempt=attempt, instance=instance)
            t += 1
        ending: tuple[str, ...]
        if good:
            ending = self.rng.choice(
                (("commit:ok",),) * 5 + (("prepare:ok", "commit:ok"), ("commit:fail", "commit:ok"))
            )
            result = "ok"
        else:
            ending, result = self.rng.choice(
                (
                    (("commit:unknown",), "unknown"),
                    (("commit:null",), "unknown"),
                    (("prepare:ok",), "unknown"),
                    (("prepare:unknown",), "unknown"),
                    (("commit:fail", "commit:unknown"), "unknown"),
                    (("commit:fail",), "fail"),
                    (("rollback:ok",), "fail"),
                    (("commit:fail", "rollback:ok"), "fail"),
                    (("commit:unknown", "rollback:ok"), "fail"),
                    (("rollback:unknown",), "fail"),
                    ((), "fail"),
                )
            )
        t = self.end_transaction(producer, txn, ending, t, instance)
        return t, "fail" if row_fails else result

    def end_transaction(self, client: str, txn: str, ending: tuple[str, ...], t: int, instance: str | None) -> int:
        for step in ending:
            op, outcome = step.split(":")
            start, t = t + self.within(1000, MS), t + MS + self.within(MS, 30 * MS)
            end = None if outcome == "null" else t
            outcome = "unknown" if outcome == "null" else outcome
            self.op(client, op, start, end, outcome, txn=txn, instance=instance)
        return t

    # -- topics, consumers, deliveries --

    def draw_address(self, address: str, topic: bool, mapped: bool) -> None:
        self.store_of[address] = self.rng.choice(list(self.stores))
        self.mapped = mapped
        # (subscription, consumers, from, to): who may get what is sent meanwhile
        self.readers: list[tuple[str | None, list[str], int, int]] = []
        forever = self.drain[1] + 10 * S
        for number in range(self.rng.choice((1, 2))):
            consumers = [f"consumer-{address}-{number}-{n}" for n in range(self.rng.choice((1, 1, 2)))]
            kind = self.rng.choice(("durable", "shared", "own", "late", "ended", "closed")) if topic else "queue"
            begin, end = 3 * S // 2, forever
            if kind in ("own", "closed", "durable"):
                consumers = consumers[:1]
            if kind in ("late", "closed", "ended"):
                middle = self.within(*self.load)
                begin, end = (middle, forever) if kind == "late" else (begin, middle)
            for consumer in consumers:
                self.connect(consumer, 0 if kind in ("own", "closed") else self.rng.choice((0, 0, 1)))
            subscription = None if kind == "queue" else f"{kind}-{number}"
            if subscription is not None:
                self.subscribe(address, subscription, kind, consumers, begin, end)
            self.readers.append((subscription, consumers, begin, end))
            if not topic:
                break

    def subscribe(self, address: str, name: str, kind: str, consumers: list[str], begin: int, end: int) -> None:
        columns = {"address": address, "subscription": name}
        for consumer in consumers:
            for session, connected in enumerate(self.sessions[consumer]):
                start = max(connected + 4 * MS, begin)
                if kind == "ended" and start > end:
                    continue
                outcome = "ok" if session or self.chance(0.9) else self.rng.choice(("fail", "unknown"))
                durable = False if kind in ("own", "closed") else self.rng.choice((True, None))
                extra = {"session": session, "durable": durable}
                self.op(consumer, "subscribe", start, start + self.within(MS, 5 * MS), outcome, **columns, **extra)
        last = consumers[0]
        if kind == "ended":
            self.op(last, "unsubscribe", end, end + MS, "ok" if self.chance(0.9) else "fail", **columns)
        if kind == "closed":
            self.op(last, "close", end, end + MS, "ok")

    def deliver(self, message: Row, sent: int, state: str) -> None:
        """Draw what becomes of a message on each subscription of its address."""
        for subscription, consumers, begin, end in self.readers:
            if not begin <= sent < end and not self.chance(0.1):
                continue
            good = {"ok": 1.0, "unknown": 0.5, "fail": self.trouble / 3}[state]
            if state == "fail" and self.chance(good * 0.3) and self.mapped:
                self.dead_letter(message["address"], message["message_id"])
            if not self.chance(good):
                continue
            fate = "processed"
            if self.chance(self.trouble):
                fates = ["twice", "again", "again", "possibly", "untouched", "missing", "missing", "corrupt", "both"]
                fate = self.rng.choice([*fates, "dead", "dead"] if self.mapped else fates)
            self.play(message, subscription, consumers, sent, fate)

    def play(self, message: Row, subscription: str | None, consumers: list[str], sent: int, fate: str) -> None:
        at = sent + self.within(10 * MS, 15 * MS)
        late = self.chance(self.disorder)
        if late:
            at += self.within(0, 4 * S)
        results = {
            "processed": ["processed"],
            "twice": ["processed", "processed"],
            "again": ["neither", "processed"],
            "both": ["possibly", "processed"],
            "possibly": ["possibly"],
            "untouched": ["neither"],
            "missing": [],
            "corrupt": ["processed"],
            "dead": ["neither"] * self.rng.choice((0, 1, 2)),
        }[fate]
        for number, result in enumerate(results):
            sha = message["payload_sha"]
            if fate == "corrupt":
                sha = "sha-of-something-else"
            flag = self.rng.choice((True, True, None)) if number else self.rng.choice((False, False, False, None))
            if late and self.chance(0.4):
                flag = True
            columns = {"message_id": message["message_id"], "payload_sha": sha, "redelivered": flag}
            self.receive(message["address"], subscription, self.rng.choice(consumers), at, result, columns)
            at += self.within(300 * MS, 1500 * MS)
        if fate == "dead":
            self.dead_letter(message["address"], message["message_id"])

    def draw_given_back(self, address: str) -> None:
        """Draw two consumers of a queue, of which one gets late what the other, or nobody, gave back.

        Their story is told in so few steps that its times are often equal: sends, deliveries in some other order, and
        sessions that end, rollbacks and commits with any outcome before, between and after them.
        """
        step = self.rng.choice((MS, 100 * MS))
        begin = self.within(*self.load)
        producer, names = f"sender-{address}", (f"near-{address}", f"far-{address}")
        messages = [self.name("m") for _ in range(self.within(2, 5))]
        key = self.rng.choice((None, "g"))
        sent = sorted(self.within(0, 5) for _ in messages)
        for place, (message, at) in enumerate(zip(messages, sent, strict=True)):
            columns = {"message_id": message, "producer_seq": place, "key": key, "payload_sha": f"sha-{message}"}
            start = begin + at * step
            self.op(producer, "send", start, start + self.rng.choice((1, step)), "ok", address=address, **columns)
        # (step, client) of each session's begin, in order of time.
        sessions = {name: [self.within(-3, 0)] for name in names}
        for name in names:
            self.sessions[name] = []
            if self.chance(0.5):
                sessions[name].append(self.within(1, 9))
            for number, at in enumerate(sessions[name]):
                start = begin + at * step
                self.sessions[name].append(start)
                if self.chance(0.9):
                    took = self.rng.choice((1, step, 2 * step))
                    self.op(name, "connect", start, start + took, self.rng.choice(("ok", "ok", "fail")), session=number)
                if self.chance(0.7):
                    end = start + self.rng.choice((1, step))
                    self.op(name, "subscribe", start, end, "ok", session=number, address=address)
        order = messages[:]
        self.rng.shuffle(order)
        at = sent[-1] + self.within(0, 4)
        for message in order:
            name = names[0] if self.chance(0.8) else names[1]
            end = begin + at * step
            columns = {"address": address, "message_id": message, "payload_sha": f"sha-{message}"}
            columns |= {"delivery": self.name("d"), "redelivered": True if self.chance(0.1) else None}
            self.op(name, "receive", end - self.rng.choice((1, step)), end, "ok", **columns)
            self.op(name, "ack", end, end + 1, "ok", address=address, delivery=columns["delivery"])
            at += self.within(0, 4)
        for _ in range(self.rng.choice((0, 1, 2))):
            name = names[1] if self.chance(0.7) else names[0]
            start = begin + self.within(-1, at) * step
            op = self.rng.choice(("rollback", "rollback", "commit", "close"))
            end = None if self.chance(0.2) else start + self.rng.choice((1, step, 6 * step))
            outcome = "unknown" if end is None else self.rng.choice(("ok", "ok", "fail", "unknown"))
            number = self.rng.choice((None, None, 0))
            self.op(name, op, start, end, outcome, session=number, txn=None if op == "close" else self.name("t"))

    def receive(
        self, address: str, subscription: str | None, consumer: str, at: int, result: str, columns: Row
    ) -> None:
        """Write one delivery and what makes it processed, possibly processed or neither."""
        instance = self.server(self.store_of[address], at)
        delivery = self.name("d")
        where = {"address": address, "subscription": subscription, "delivery": delivery, "instance": instance}
        where["message_id"] = columns["message_id"]
        in_txn = self.chance(self.transacted)
        txn = self.name("t") if in_txn else None
        with_ack = not in_txn or self.chance(0.7)
        on_receive = in_txn and (not with_ack or self.chance(0.6))
        start = at - self.within(MS, 200 * MS)
        self.op(consumer, "receive", start, at, "ok", **(where | columns), txn=txn if on_receive else None)
        ack = at + self.within(1000, MS)
        if in_txn:
            if with_ack:
                outcome = "ok" if self.chance(0.9) else self.rng.choice(("unknown", "fail"))
                self.op(consumer, "ack", ack, ack + 1000, outcome, **where, txn=txn)
            endings = {
                "processed": (("commit:ok",), ("prepare:ok", "commit:ok"), ("commit:fail", "commit:ok")),
                "possibly": (("commit:unknown",), ("commit:null",), ("commit:fail", "commit:unknown")),
                "neither": ((), ("rollback:ok",), ("commit:fail",), ("commit:unknown", "rollback:ok"), ("prepare:ok",)),
            }
            self.end_transaction(consumer, txn or "", self.rng.choice(endings[result]), ack + 2000, instance)
            return
        if result == "neither" and self.chance(0.5):
            return
        outcome = {"processed": "ok", "possibly": "unknown", "neither": "fail"}[result]
        end = None if result == "possibly" and self.chance(0.5) else ack + self.within(1000, MS)
        self.op(consumer, "ack", ack, end, outcome, **where)
        if result == "processed" and self.chance(0.1):
            self.op(consumer, "ack", ack + 2 * MS, ack + 3 * MS, "unknown", **where)

    def dead_letter(self, address: str, message_id: str) -> None:
        at = self.drain[0] + self.within(MS, S)
        op = self.rng.choice(("browse", "browse", "receive"))
        outcome = "ok" if self.chance(0.9) else "unknown"
        columns = {"address": "DLQ", "message_id": message_id, "delivery": self.name("d") if op == "receive" else None}
        self.op("inspector", op, at, at + MS, outcome, **columns)

    def strangers(self, addresses: list[str]) -> None:
        """Deliveries and dead letters that nobody ever sent, and receives that got nothing."""
        for subscription, consumers, _, _ in self.readers:
            if self.chance(self.trouble / 3):
                where = self.within(*self.load)
                columns = {"message_id": self.name("stranger-"), "payload_sha": "sha", "redelivered": False}
                result = self.rng.choice(("processed", "neither"))
                self.receive(addresses[-1], subscription, consumers[0], where, result, columns)
            for _ in range(self.rng.choice((0, 1, 3))):
                at = self.within(*self.load)
                end = self.rng.choice((None, at + S))
                columns = {"address": addresses[-1], "subscription": subscription}
                self.op(consumers[0], "receive", at, end, self.rng.choice(("fail", "unknown")), **columns)
        if self.mapped and self.chance(self.trouble / 3):
            self.dead_letter(addresses[-1], self.name("stranger-"))

    # -- the whole --

    def draw(self) -> tuple[RunInfo, list[Row], list[Row]]:
        rng = self.rng
        self.draw_stores()
        sticky = self.draw_keys()
        mapped = self.chance(0.7)
        expiring = self.chance(0.25)
        durable = rng.choice(_DURABLE)
        producers = [f"producer-{n}" for n in range(rng.choice((1, 2)))]
        for producer in producers:
            self.connect(producer, rng.choice((0, 0, 1)))
        addresses: list[str] = []
        for number in range(rng.choice((1, 1, 2))):
            topic = self.chance(0.45)
            addresses.append(f"{'topic' if topic else 'queue'}-{number}")
            self.draw_address(addresses[-1], topic, mapped)
            for producer in producers if not self.silent else ():
                self.draw_sends(addresses[-1], producer, rng.randint(1, 8), expiring, durable)
            if not topic and not self.silent and self.chance(0.6):
                self.draw_given_back(addresses[-1])
            self.strangers(addresses)
        drain_ended = self.draw_phases()
        self.draw_endings()
        self.draw_rounds()
        self.draw_alerts()
        self.draw_seen(addresses, mapped)
        drained = {}
        for address in addresses:
            word = rng.choice((True, True, True, False, None))
            if word is not None:
                drained[address] = word and drain_ended
        run = RunInfo(
            run_id=self.run_id,
            scenario=ScenarioText("generated"),
            outcome=rng.choice(("completed",) * 7 + ("aborted", "crashed", "running")),
            stores=self.stores,
            dead_letters=dict.fromkeys(addresses, "DLQ") if mapped else {},
            drained=drained,
            clocks=self.clocks,
            addresses=self.named(addresses),
            **self.asked(),
        )
        ops, events = self.finish()
        promises = self.promises(sticky, run, ops, events)
        expect = {p.name: rng.choice(("kept", "kept", "violated")) for p in promises if self.chance(0.6)}
        return replace(run, promises=promises, expect=expect), ops, events

    def named(self, addresses: list[str]) -> tuple[str, ...]:
        """The addresses that run.json names: none, those that are used, or another one, too."""
        if self.seen.random() < 0.5:
            return ()
        return (*addresses, "nobody's") if self.seen.random() < 0.2 else tuple(addresses)

    def draw_phases(self) -> bool:
        """Write the phases; return whether the drain's end is among them."""
        seen = [self.chance(0.93) for _ in range(3)]
        if seen[0]:
            self.event("phase", self.load[0], name="load", value="begin")
        if seen[1]:
            self.event("phase", self.load[1], name="load", value="end")
        if self.chance(0.05):
            return False
        self.event("phase", self.drain[0], name="drain", value="begin")
        if seen[2]:
            self.event("phase", self.drain[1], name="drain", value="end")
        if self.chance(0.3):
            self.event("note", self.within(S, self.drain[1]), name="remark", detail={"text": "nothing"})
        return seen[2]

    def draw_rounds(self) -> None:
        """Write the rounds of some runs: their begins anywhere, and most of their ends."""
        # Numbers of its own: what else is drawn does not depend on it.
        rng = random.Random(f"{self.run_id}/rounds")
        begins = sorted(rng.randrange(S, self.drain[1]) for _ in range(rng.choice((0, 0, 1, 2, 4))))
        edges = [(begin, number, "begin") for number, begin in enumerate(begins, start=1)]
        nexts = [*begins, self.drain[1]][1:]
        for (begin, number, _), until in zip(list(edges), nexts, strict=True):
            if rng.random() < 0.8:
                end = rng.choice((begin, until)) if rng.random() < 0.3 else rng.randint(begin, until)
                edges.append((end, number, "end"))
        for at, number, edge in edges:
            clock = rng.choice(("controller", "load1"))
            note = {"kind": "note", "t_ns": at, "clock": clock, "uncertainty_ns": None, "name": str(number)}
            self.events.append({**note, "value": f"round {number} {edge}s", "detail": {"round": edge}})

    def draw_endings(self) -> None:
        """Write ends of processes, most of them near a fault, a heal or the edges of a playbook, and what logs were
        read."""
        instances = sorted({instance for named in self.stores.values() for instance in named})
        edges = [event["t_ns"] for event in self.events if event["kind"] in ("fault", "heal")]
        for _ in range(self.rng.choice((0, 0, 1, 2))):
            name, begin = self.name("operation"), self.within(*self.load)
            self.event("note", begin, name=name, value="playbook x begins", detail={"operation": "begin"})
            edges.append(begin)
            if self.chance(0.7):
                end = begin + self.within(S // 2, 3 * S)
                self.event("note", end, name=name, value="playbook x is done", detail={"operation": "end"})
                edges.append(end)
        for _ in range(self.rng.choice((0, 0, 1, 2, 3))):
            if edges and self.chance(0.8):
                at = max(S, self.rng.choice(edges) + self.within(-50 * MS, 50 * MS))
            else:
                at = self.within(*self.load)
            instance = self.rng.choice(instances) if self.chance(0.95) else None
            detail = {"status": self.rng.choice(("KILL", "3")), "last": "java.lang.OutOfMemoryError: Java heap space"}
            target = self.rng.choice(("client→broker", None)) if self.chance(0.2) else f"host-{instance}"
            if self.chance(0.2):
                detail["with"] = "\n".join(self.rng.sample(instances, self.rng.randint(1, len(instances))))
            self.event(
                "ended",
                at,
                self.rng.choice((None, 0, self.within(0, 20 * MS))),
                instance=instance,
                target=target,
                name="broker.service",
                value=self.rng.choice(("exited", "killed", "out of memory")),
                detail=detail,
            )
        for instance in instances:
            if self.chance(0.7):
                self.event("note", self.drain[1] + self.within(MS, S), name="log read", instance=instance)

    def draw_alerts(self) -> None:
        """Write alerts, most of them soon after a fault and over soon after a heal, and when Prometheus was watched."""
        faults = [event for event in self.events if event["kind"] in ("fault", "heal")]
        for _ in range(self.rng.choice((0, 1, 2, 3, 4))):
            near = self.rng.choice(faults) if faults and self.chance(0.85) else None
            at = self.within(*self.load) if near is None else max(S, near["t_ns"] + self.within(-100 * MS, S))
            of: Row = {}
            if near is not None and self.chance(0.8):
                of = {name: near.get(name) for name in ("instance", "store") if self.chance(0.8)}
            elif self.chance(0.5):
                of = {"store": self.rng.choice(sorted(self.stores))}
            name = self.rng.choice(("BrokerDown", "BrokerDown", "BrokerDown", "Other"))
            for value in self.rng.choice(
                (("firing", "cleared"),) * 4 + (("firing",), ("cleared",), ("firing", "firing"))
            ):
                u = self.rng.choice((None, 0, self.within(0, 500 * MS)))
                self.event("alert", at, u, name=name, value=value, **of)
                at += self.within(1, 3 * S)
        # A second at least, so that no clock that is behind makes it negative.
        begin = max(S, self.within(0, self.load[0]) if self.chance(0.8) else self.within(*self.load))
        for _ in range(self.rng.choice((0, 1, 1, 1, 2))):
            self.event("note", begin, name="alerts watched", value="begin")
            if self.chance(0.2):
                return
            end = self.drain[1] if self.chance(0.7) else begin + self.within(S, 5 * S)
            self.event("note", end, name="alerts watched", value="end")
            begin = end + self.within(1, S)

    # -- how much of it was seen --

    def draw_seen(self, addresses: list[str], mapped: bool) -> None:
        """Write what says how much was seen: looks at dead letters, silences and gaps of polls, logs of some
        times, pressure, readings of clocks, counters of faults, whom routers led clients to; and faults that
        their hosts healed, ends that nothing explains, a playbook's instances."""
        rng = self.seen
        instances = sorted({instance for named in self.stores.values() for instance in named})
        span = (self.load[0], self.drain[1])

        def event(kind: str, t: int, **columns: Any) -> None:
            self.events.append({"kind": kind, "t_ns": t, "clock": "controller", "uncertainty_ns": None, **columns})

        if mapped and rng.random() < 0.8:
            for instance in rng.sample(instances, rng.randint(1, len(instances))):
                at = self.drain[0] + rng.randint(MS, S) if rng.random() < 0.9 else rng.randint(*self.load)
                outcome = "ok" if rng.random() < 0.8 else rng.choice(("fail", "unknown"))
                where = instance if rng.random() < 0.7 else None
                self.op("inspector", "browse", at, at + MS, outcome, address="DLQ", instance=where)
        for _ in range(rng.choice((0, 0, 0, 1, 2))):
            instance, begin = rng.choice(instances), rng.randint(*span)
            if rng.random() < 0.5:
                event("health", begin, instance=instance, value="silent")
                if rng.random() < 0.8:
                    event("health", begin + rng.randint(MS, 3 * S), instance=instance, value="answers")
            else:
                gaps = ", ".join(f"{at}-{at + rng.randint(0, 2 * S)}" for at in (begin, begin + 2 * S))
                event("polls", self.drain[1], instance=instance, name="role", detail={"count": "90", "gaps": gaps})
            if rng.random() < 0.4:
                event("role", begin - MS, instance=instance, name="log", value=rng.choice(("active", "passive")))
        for row in self.events:
            detail = dict(row.get("detail") or {})
            if row.get("name") == "log read":
                if rng.random() < 0.3:
                    detail |= {
                        "from_ns": str(rng.choice((0, self.load[0], self.drain[0]))),
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
        if rng.random() < 0.5:
            for instance in instances:
                event("note", self.drain[1] + MS, name="log read", instance=instance)
        for _ in range(rng.choice((0, 0, 0, 1, 3))):
            begin, lasted = rng.randint(*span), rng.randint(S // 2, 5 * S)
            detail = {"since_ns": str(begin), "stalled_ns": str(rng.choice((0, lasted // 3, lasted)))}
            event(
                "pressure",
                begin + lasted,
                target=rng.choice(("h1", "h2")),
                name=rng.choice(("cpu", "io")),
                detail=detail,
            )
        self.read_clocks()
        self.blur()
        self.hit_again()
        self.keep_waiting(addresses)
        behind = random.Random(f"{self.run_id}/behind")
        clients = sorted({row["client"] for row in self.rows})
        for _ in range(behind.choice((0, 0, 0, 0, 2, 6))):
            client, led = behind.choice(clients), behind.choice(instances)
            router = behind.choice(("router1", "router1", "router2", clients[0]))
            event("routed", behind.randint(*span), target=client, instance=led, name=router)
        for fault in [row for row in self.events if row["kind"] == "fault"]:
            if rng.random() < 0.2:
                told = {name: str(rng.choice((0, 7))) for name in rng.sample(("packets", "closed", "messages"), 2)}
                same = {name: fault.get(name) for name in ("name", "instance", "target", "value")}
                event("met", fault["t_ns"] + S, detail=told, **same)

    def keep_waiting(self, addresses: list[str]) -> None:
        """Let messages wait where faults hit: acknowledged by who was hit before, most of them delivered afterwards."""
        rng = random.Random(f"{self.run_id}/waiting")
        for number, fault in enumerate([row for row in self.events if row["kind"] == "fault" and row.get("instance")]):
            if rng.random() < 0.5:
                continue
            t, address, by = fault["t_ns"], rng.choice(addresses), fault["instance"]
            message = {"address": address, "message_id": f"waiting-{number}", "payload_sha": "sha"}
            sent = t - rng.choice((MS, 2 * MS, rng.randint(20 * MS, 2 * S)))
            if sent < 0:
                continue
            more: Row = {"durable": rng.random() < 0.9}
            if rng.random() < 0.1:
                more["expires_ns"] = t + S
            outcome = rng.choice(("ok", "ok", "ok", "unknown"))
            self.op(
                "patient", "send", sent, sent + rng.choice((MS // 2, MS, S)), outcome, instance=by, **message, **more
            )
            for _ in range(rng.choice((0, 1, 1, 1, 1, 1, 2))):
                got = t + rng.choice((-MS // 2, 0, MS, rng.randint(MS, 4 * S)))
                name = f"patient-{number}-{got}"
                self.op("taker", "receive", got - MS, got, "ok", instance=by, delivery=name, **message)
                acked = rng.choice(("ok", "ok", "unknown"))
                self.op("taker", "ack", got + 1, got + 2, acked, address=address, delivery=name)

    def read_clocks(self) -> None:
        """Write readings of some clocks: one or many, on a line or not, some of them vague, some after a step."""
        rng = self.seen
        for name, clock in sorted(self.clocks.items()):
            if rng.random() >= 0.3:
                continue
            drift = rng.choice((0, 0, 50, 300, 20_000))  # parts in a million
            step_at = rng.randint(*self.load) if rng.random() < 0.2 else self.drain[1] + 10 * S
            step = rng.choice((2 * MS, 700 * MS, -300 * MS))
            for _ in range(rng.choice((1, 2, 3, 8, 40))):
                at = rng.randint(S, self.drain[1])
                off = clock.offset_ns + at * drift // 1_000_000 + (step if at > step_at else 0)
                u = rng.choice((10_000, 100_000, MS, 300 * MS)) if rng.random() < 0.3 else 100_000
                off += rng.randint(-u, u) if rng.random() < 0.5 else 0
                detail = {"offset_ns": str(off)}
                if rng.random() < 0.95:
                    detail["uncertainty_ns"] = str(u)
                row = {"kind": "clock", "t_ns": at, "clock": "controller", "uncertainty_ns": None, "name": name}
                self.events.append({**row, "detail": detail})

    def blur(self) -> None:
        """Make some roles as vague as polls are where the controller is busy; their logs tell some of them surely. The
        end of who was hit may have been seen before the fault."""
        rng = self.seen
        if rng.random() < 0.6:
            return
        roles = [row for row in self.events if row["kind"] == "role" and row["t_ns"] > 2 * S]
        for row in roles:
            if rng.random() < 0.3:
                row["uncertainty_ns"] = rng.choice((300 * MS, S, 3 * S))
            if rng.random() < 0.3:
                at = row["t_ns"] + rng.choice((0, rng.randint(-200 * MS, 400 * MS)))
                value = row["value"] if row["value"] == "active" else rng.choice((row["value"], "down"))
                self.events.append({**row, "t_ns": at, "uncertainty_ns": 5 * MS, "name": "log", "value": value})
        for fault in [row for row in self.events if row["kind"] == "fault" and row.get("instance")]:
            ends = [e for e in roles if e["instance"] == fault["instance"] and e["value"] == "down"]
            if ends and rng.random() < 0.4:
                ends[0]["t_ns"] = fault["t_ns"] - rng.randint(0, 300 * MS)
                ends[0]["uncertainty_ns"] = rng.choice((0, 150 * MS, 400 * MS))

    def hit_again(self) -> None:
        """Let some faults restart the host, whose log then lacks some time, and hit some instances twice."""
        rng = self.seen
        for fault in [row for row in self.events if row["kind"] == "fault" and row.get("instance")]:
            if rng.random() < 0.15:
                again = {**fault, "t_ns": fault["t_ns"] + rng.randint(MS, 2 * S), "name": rng.choice(("kill", "stop"))}
                self.events.append(again)
                if rng.random() < 0.5:
                    at = again["t_ns"] + rng.randint(MS, 3 * S)
                    self.events.append({**again, "kind": "heal", "t_ns": at, "detail": {"by": "runner"}})
            if rng.random() >= 0.15:
                continue
            for row in self.events:
                same = all(row.get(name) == fault.get(name) for name in ("name", "instance"))
                if same and row is not fault and row["kind"] == "heal":
                    row["name"] = "restart_host"
            fault["name"] = "restart_host"
            gap = fault["t_ns"] + rng.randint(-20 * MS, 100 * MS), fault["t_ns"] + rng.randint(200 * MS, 4 * S)
            whole = {"kind": "note", "t_ns": self.drain[1] + MS, "clock": "controller", "name": "log read"}
            whole |= {"uncertainty_ns": None, "instance": fault["instance"]}
            for begin, end in ((self.load[0] - S, gap[0]), (gap[1], self.drain[1] + MS)):
                self.events.append({**whole, "detail": {"from_ns": str(begin), "until_ns": str(end)}})

    def asked(self) -> Row:
        """What the load has to meet, and which faults were planned: fields of run.json."""
        rng = self.seen
        found: Row = {}
        if rng.random() < 0.1:
            least = {name: rng.choice((0, 1, 3)) for name in ("clients", "in_flight", "operations", "packets")}
            found["minimum"] = {"": Minimum(**least)}
        if rng.random() < 0.03:
            found["planned"] = ("step",)
        return found

    def promises(
        self, sticky: list[PromiseSpec], run: RunInfo, ops: list[Row], events: list[Row]
    ) -> tuple[PromiseSpec, ...]:
        """Draw promises, bounds around the true values."""
        drawn = [
            PromiseSpec(n)
            for n in (
                *("no_phantoms", "no_loss", "no_nonpersistent_loss", "no_duplicates", "no_dead_letters"),
                *("single_active", "stays_up", "transparent"),
            )
        ]
        drawn += [
            PromiseSpec("atomic"),
            PromiseSpec("ordered", scope=self.rng.choice((None, "session", "key"))),
            *sticky,
        ]
        bounded = [
            PromiseSpec(name, bound_ms=1e9)
            for name in ("failover_within", "failback_within", "available", "delivered_within")
        ]
        bounded.append(PromiseSpec("available", bound_ms=1e9, side="receive"))
        bounded.append(PromiseSpec("alerted_within", bound_ms=1e9, alert="BrokerDown"))
        for spec, true in zip(bounded, judge(run, ops, events, bounded)["promises"][1:], strict=True):
            measured = true["measured"] or self.rng.choice((500.0, 3000.0))
            factor = self.rng.choice((0.3, 0.9, 1.0, 1.1, 2.0))
            # As long as it took, to the nanosecond, or about as long as people say.
            bound_ms = measured if factor == 1.0 else round(measured * factor, 3)
            drawn.append(PromiseSpec(spec.name, **{**spec.values, "bound_ms": bound_ms}))
        kept = [spec for spec in drawn if self.chance(0.8)]
        self.rng.shuffle(kept)
        return tuple(kept)

    def finish(self) -> tuple[list[Row], list[Row]]:
        """Return the rows as they are written: own clocks, op_ids, amendments, any order, absent keys null."""
        for row in (*self.rows, *self.events):
            for name in ("start_ns", "end_ns", "t_ns", "expires_ns"):
                if row.get(name) is not None:
                    row[name] -= row[name] % self.tick
        ops, events = [], []
        by_client: dict[str, list[Row]] = defaultdict(list)
        for row in self.rows:
            by_client[row["client"]].append(row)
        for client, rows in by_client.items():
            clock = self.clock_of[client]
            offset = self.clocks[clock].offset_ns
            for op_id, row in enumerate(sorted(rows, key=lambda row: row["start_ns"])):
                whole = {k: v for k, v in row.items() if v is not None}
                whole |= {"run_id": self.run_id, "clock": clock, "op_id": op_id}
                for name in ("start_ns", "end_ns", "expires_ns"):
                    if name in whole:
                        whole[name] -= offset
                ops += self.amend(whole)
        for event in self.events:
            whole = {k: v for k, v in event.items() if v is not None}
            whole |= {"run_id": self.run_id, "t_ns": event["t_ns"] - self.clocks[event["clock"]].offset_ns}
            events.append(whole)
        assert {k for row in ops for k in row} <= {c.name for c in OP_COLUMNS}
        assert {k for row in events for k in row} <= {c.name for c in EVENT_COLUMNS}
        self.rng.shuffle(ops)
        self.rng.shuffle(events)
        return self.lost(ops), events

    def lost(self, ops: list[Row]) -> list[Row]:
        """Return the rows that came home: of some ledgers not all, of some clients or of one clock none."""
        rng = self.seen
        kind = rng.choice(("",) * 15 + ("hole", "begin", "clock"))
        if not kind:
            return ops
        chosen = rng.choice(sorted({row["client"] for row in ops}))
        last = max(row["op_id"] for row in ops if row["client"] == chosen)
        if kind == "clock":
            gone = rng.choice(("load1", "load2"))
            left = [row for row in ops if row["clock"] != gone]
        elif kind == "begin":
            begin = rng.randint(1, 3)
            left = [row for row in ops if row["client"] != chosen or row["op_id"] >= begin]
        else:
            hole = rng.randint(0, last)
            left = [row for row in ops if (row["client"], row["op_id"]) != (chosen, hole)]
        return left or ops

    def amend(self, whole: Row) -> list[Row]:
        """Split an operation into an intent and what completes or amends it; each optional column is in one."""
        if not self.chance(0.35):
            return [whole]
        first = {k: v for k, v in whole.items() if k in _REQUIRED} | {"outcome": "unknown"}
        second = {k: v for k, v in whole.items() if k in _REQUIRED or k == "end_ns"}
        for name in _OPTIONAL:
            if name in whole:
                place = self.rng.choice((0, 1, 2))
                if place != 1:
                    first[name] = whole[name]
                if place != 0:
                    second[name] = whole[name]
        rows = [first, second]
        if "end_ns" in whole and self.chance(0.3):  # returned in doubt, proved later
            rows.append({**first, "end_ns": whole["end_ns"]})
        return rows


def generate(seed: int) -> tuple[RunInfo, list[Row], list[Row]]:
    """Return a run with its promises, its ops rows (10 to 120 operations, rows in any order) and its events."""
    rng = random.Random(seed)
    tick = TICKS[seed // 3 % len(TICKS)] if seed % 3 == 0 else 1
    while True:
        run, ops, events = _Maker(rng, f"generated-{seed}", tick).draw()
        if 10 <= len({(row["client"], row["op_id"]) for row in ops}) <= 120:
            return run, ops, events


def coverage(seeds: Iterable[int]) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """Return how many units of each class, and how often each (promise, verdict), the ledgers of `seeds` have."""
    classes: Counter[str] = Counter()
    verdicts: Counter[tuple[str, str]] = Counter()
    for seed in seeds:
        run, ops, events = generate(seed)
        result = judge(run, ops, events, run.promises)
        classes.update(result["messages"])
        verdicts.update((promise["name"], promise["verdict"]) for promise in result["promises"])
    assert set(PROMISES) >= {name for name, _ in verdicts}
    return classes, verdicts
