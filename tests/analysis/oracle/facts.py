"""The facts of a ledger on run time, and what promises ask of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from brokerdrill.ledger.contract import RunInfo
from tests.analysis.oracle.clocks import Watch
from tests.analysis.oracle.epochs import Epoch, only_store
from tests.analysis.oracle.rows import MessageKey, Row, UnitKey, detail, ended


@dataclass
class Unit:
    """One (message, subscription): what is known about it."""

    key: UnitKey
    state: str  # acknowledged | unknown | failed | never (attempted)
    attempts: list[Row]
    deliveries: list[Row]
    dead: bool = False
    # Whether it had to be got for certain, whatever the clocks were off by.
    sure: bool = True


@dataclass
class Facts:
    """The merged ledger on run time, and what is derived from it once."""

    run: RunInfo
    ops: list[Row]
    events: list[Row]
    end: int
    txns: dict[str, list[Row]]
    attempts: dict[MessageKey, list[Row]]
    deliveries: dict[MessageKey, list[Row]]
    epochs: list[Epoch]
    units: list[Unit] = field(default_factory=list)
    missing: bool = False
    clocks: Mapping[str, Watch] = field(default_factory=dict)

    def of(self, *names: str) -> list[Row]:
        return [op for op in self.ops if op["op"] in names]


def deaths(facts: Facts) -> dict[str, int]:
    """When clients were killed: "a note `clients killed` names them" """
    found: dict[str, int] = {}
    for event in facts.events:
        if (event["kind"], event.get("name")) == ("note", "clients killed"):
            for client in filter(None, (detail(event, "clients") or "").split(", ")):
                found[client] = min(event["t_ns"], found.get(client, event["t_ns"]))
    return found


def uncertain(facts: Facts, clock: str) -> int:
    """By how much a clock's times may be off."""
    return facts.clocks[clock].uncertainty if clock in facts.clocks else 0


def between(facts: Facts, one: Row, other: Row) -> int:
    """How far the times of two operations may be off from each other."""
    if one["clock"] == other["clock"]:
        return 0
    return uncertain(facts, one["clock"]) + uncertain(facts, other["clock"])


def waited(facts: Facts, begin: float, end: float) -> int:
    """For how long of a time something waited on the busiest host."""
    by_kind: dict[tuple[Any, Any], list[tuple[int, int, int]]] = defaultdict(list)
    for event in facts.events:
        if event["kind"] != "pressure" or event.get("name") is None:
            continue
        since, stalled = detail(event, "since_ns"), detail(event, "stalled_ns")
        if since is None or stalled is None:
            continue
        sooner, later = int(max(int(since), begin)), int(min(event["t_ns"], end))
        # "at least half of its time"
        if later > sooner and 2 * int(stalled) >= event["t_ns"] - int(since) > 0:
            by_kind[event.get("target"), event["name"]].append((min(int(stalled), later - sooner), sooner, later))
    return max((added_up(readings) for readings in by_kind.values()), default=0)


def added_up(readings: list[tuple[int, int, int]]) -> int:
    """ "A time of which two readings tell counts once": what says more goes first, of the other what fits into the
    rest."""
    total = 0
    readings = sorted(readings, key=lambda one: (-one[0], one[1], one[2]))
    for place, (waited, begin, end) in enumerate(readings):
        marks = sorted({begin, end, *(min(max(at, begin), end) for one in readings[:place] for at in one[1:])})
        rest = sum(
            later - sooner
            for sooner, later in pairwise(marks)
            if not any(one[1] <= sooner and later <= one[2] for one in readings[:place])
        )
        total += min(waited, rest)
    return total


def store_of(facts: Facts, op: Row) -> str | None:
    """The store for which the op's instance served it; None where that cannot be told."""
    if op.get("instance") is None:
        return None
    epoch = epoch_of(facts, op)
    return epoch.store if epoch else only_store(facts.run, op["instance"])


def epoch_of(facts: Facts, op: Row) -> Epoch | None:
    """The epoch that served an operation: the instance's last one that had begun by the operation's end, if it had not
    ended before the operation began (each give or take its uncertainty)."""
    begun = [e for e in facts.epochs if e.instance == op.get("instance") and e.earliest <= ended(op)]
    if not begun:
        return None
    last = begun[-1]
    until = facts.end if last.end is None else last.latest
    return last if op["start_ns"] <= until else None


def phase(facts: Facts, name: str, value: str) -> int | None:
    """When a phase began (its first such event) or ended (its last), None where that is not recorded."""
    times = [e["t_ns"] for e in facts.events if (e["kind"], e.get("name"), e.get("value")) == ("phase", name, value)]
    if not times:
        return None
    return min(times) if value == "begin" else max(times)


def load_phases(facts: Facts) -> list[tuple[int, int]]:
    """Each load from its begin to the next event of a load, or to the run's end."""
    marks = sorted(
        (event["t_ns"], event.get("value") != "begin")
        for event in facts.events
        if event["kind"] == "phase" and event.get("name") == "load"
    )
    found = []
    for place, (at, is_end) in enumerate(marks):
        if not is_end:
            found.append((at, marks[place + 1][0] if place + 1 < len(marks) else facts.end))
    return found


def acknowledged_sends(facts: Facts) -> list[Row]:
    """The sends that are acknowledged ("commit ok in a transaction"), with `acked_ns`, when they were."""
    sends = []
    for attempts in facts.attempts.values():
        for attempt in attempts:
            if attempt["result"] != "ok":
                continue
            at = ended(attempt)
            if attempt.get("txn") is not None:
                commits = [op for op in facts.txns[attempt["txn"]] if op["op"] == "commit" and op["outcome"] == "ok"]
                at = min(ended(op) for op in commits)
            sends.append({**attempt, "acked_ns": at})
    return sorted(sends, key=lambda send: send["acked_ns"])


def busy(facts: Facts, begin: int, took: float, bound: float) -> bool:
    """Whether something waited on a host for as long as the bound was missed by."""
    return waited(facts, begin, begin + took) >= took - bound
