"""Epochs: from when to when an instance was active on a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brokerdrill.ledger.contract import RunInfo
from tests.analysis.oracle.rows import NEVER, Row


@dataclass
class Epoch:
    """One uninterrupted time for which `instance` is active on `store`; `end` None: open."""

    instance: str
    store: str
    begin: int
    begin_uncertainty: int
    end: int | None = None
    end_uncertainty: int = 0
    # "no vaguer than what else is known of its instance's role"
    earliest: float = -NEVER
    # That without its own begin: by what was told before, and by its log.
    bounded: float = -NEVER
    latest: float = NEVER

    def covers(self, t: float) -> bool:
        return self.begin <= t and (self.end is None or t < self.end)


def find_epochs(run: RunInfo, events: Sequence[Row]) -> list[Epoch]:
    """Return all epochs of known stores by begin; `events` are sorted by time."""
    epochs: list[Epoch] = []
    current: dict[str, Epoch] = {}
    # "an event without a store is of the instance's only one, else of the one that it named last"
    stores: dict[int, str] = {}
    named: dict[str, str] = {}
    for event in events:
        if event["kind"] != "role" or event.get("instance") is None:
            continue
        instance = event["instance"]
        store = event.get("store") or only_store(run, instance) or named.get(instance, "")
        stores[id(event)] = named[instance] = store
        active = event.get("value") == "active"
        running = current.get(instance)
        if running is not None:
            if active and running.store == store:
                continue  # "repeats continue it"
            # "ends at that instance's next other value or store"
            running.end, running.end_uncertainty = event["t_ns"], event["uncertainty_ns"]
            del current[instance]
        if active:
            # "it begins at a role active"; "another instance's active does not end it"
            current[instance] = Epoch(instance, store, event["t_ns"], event["uncertainty_ns"])
            epochs.append(current[instance])
    for epoch in epochs:
        own = [e for e in events if e["kind"] == "role" and e.get("instance") == epoch.instance]
        begin = next(
            place
            for place, e in enumerate(own)
            if e["t_ns"] == epoch.begin and e.get("value") == "active" and stores[id(e)] == epoch.store
        )
        epoch.earliest, epoch.bounded = (earliest(own, begin, stores, up_to) for up_to in (begin + 1, begin))
        epoch.latest = latest(epoch, own, begin)
    return [epoch for epoch in epochs if epoch.store]  # "an open end runs to the end of the run"


def earliest(own: Sequence[Row], begin: int, stores: Mapping[int, str], up_to: int) -> float:
    """How early an epoch may have begun, which is told at place `begin` of its instance's `own` roles, by the changes
    before the place `up_to`."""
    found = -NEVER
    # "not before any earlier change of that instance's role"
    before: tuple[Any, Any] | None = None
    for e in own[:up_to]:
        role = e.get("value"), stores[id(e)]
        if role != before:  # a change, no repetition
            found = max(found, e["t_ns"] - e["uncertainty_ns"])
        before = role
    # "not before a line of its log that says active, which the poll may have come after"
    polled = own[begin]
    for e in own[begin:]:
        if e.get("value") != "active":
            break
        if e.get("name") == "log":
            if e["t_ns"] - e["uncertainty_ns"] <= polled["t_ns"] + polled["uncertainty_ns"]:
                found = max(found, e["t_ns"] - e["uncertainty_ns"])
            break
    return found


def latest(epoch: Epoch, own: Sequence[Row], begin: int) -> float:
    """How late it may have ended: "over by any other role before the instance is active again" """
    if epoch.end is None:
        return NEVER
    bounds = [epoch.end + epoch.end_uncertainty]
    ended_it = next(
        place
        for place, e in enumerate(own)
        if place > begin and (e["t_ns"], e["uncertainty_ns"]) == (epoch.end, epoch.end_uncertainty)
    )
    for e in own[ended_it:]:
        if e.get("value") == "active":
            break
        bounds.append(e["t_ns"] + e["uncertainty_ns"])
    return min(bounds)


def only_store(run: RunInfo, instance: str) -> str | None:
    """The one store that lists `instance`, None where none or several do."""
    names = [store for store, instances in run.stores.items() if instance in instances]
    return names[0] if len(names) == 1 else None
