"""What the load met of each fault, and whether that is enough for a verdict to say something about it. Plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

from brokerdrill.analysis.events import NEVER, Event, Fault
from brokerdrill.analysis.timeline import Timeline, disturbing
from brokerdrill.ledger.contract import ROUND, RunInfo
from brokerdrill.ledger.coverage import ANY, Minimum
from brokerdrill.ledger.evidence import MET_COUNTS
from brokerdrill.ledger.verdict import Met


@dataclass(frozen=True)
class Counts:
    """What the operations show of a fault: clients connected to what it hit, and how many of their operations were in
    flight when it hit, and under way from then until its heal."""

    clients: int = 0
    in_flight: int = 0
    operations: int = 0


def hit_stores(fault: Fault, times: Timeline, stores: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Return the stores that a fault hit: its own, its instance's, those of the instances that its link leads to."""
    named = {fault.instance, *fault.toward} - {None}
    hit = {fault.store} if fault.store else set()
    hit |= {store for store, instances in stores.items() if named & {*instances}}
    hit |= {epoch.store for epoch in times.epochs if epoch.instance in named}
    return frozenset(hit)


def members(fault: Fault, times: Timeline, stores: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Return the instances of the stores that a fault hit, and the routers among those that it names. None: it hit no
    broker, but what all may need."""
    hit = hit_stores(fault, times, stores)
    found = {instance for store in hit for instance in stores.get(store, ())}
    found |= {epoch.instance for epoch in times.epochs if epoch.store in hit}
    named = {fault.instance, *fault.toward}
    return frozenset(found | {router for router in times.routers if router in named})


def targets(times: Timeline, stores: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the stores that faults hit, with when the first one began at the earliest (ns)."""
    found: dict[str, int] = {}
    for fault in disturbing(times):
        hit = members(fault, times, stores)
        of_fault = {store for store, instances in stores.items() if hit & {*instances}}
        for store in of_fault | ({fault.store} if fault.store else set()):
            found[store] = min(found.get(store, NEVER), fault.at - fault.u)
    return found


def followed(times: Timeline, stores: Mapping[str, Sequence[str]]) -> dict[int, int]:
    """Return of each fault that hit an active instance, by its number, when the first later fault of another step hit
    the same store, or what all brokers need, at the earliest (ns; NEVER: none did)."""
    struck = [(fault, hit_stores(fault, times, stores)) for fault in disturbing(times)]
    return {
        hit.fault.number: min(
            (
                other.at - other.u
                for other, of in struck
                if other.at > hit.fault.at
                and (other.step is None or other.step != hit.fault.step)
                and (not of or hit.epoch.store in of)
            ),
            default=NEVER,
        )
        for hit in times.hits
    }


def measured(fault: Fault, events: Iterable[Event]) -> dict[str, int]:
    """Return what counters on the hosts say of a fault, added up, by their names."""
    found: dict[str, int] = {}
    for event in events:
        of = event.name, event.instance, event.target
        if event.kind != "met" or of != (fault.name, fault.instance, fault.target) or event.at < fault.at:
            continue
        if event.value is not None and fault.step is not None and event.value != fault.step:
            continue
        detail = dict(event.detail)
        for name in MET_COUNTS:
            with suppress(KeyError, ValueError):
                found[name] = found.get(name, 0) + int(detail[name])
    return found


def role_before(fault: Fault, times: Timeline) -> str | None:
    """Return the role of a fault's instance just before it was hit; what its uncertainty leaves open is as `hits` has
    it."""
    if any(hit.fault == fault for hit in times.hits):
        return "active"
    before = [e for e in times.roles if e.instance == fault.instance and e.at <= fault.at - fault.u]
    return max(before, key=lambda e: e.at).value if before and fault.instance else None


# What the name of a step says behind its own name where the method is repeated.
_ROUND = " (round "
# The names of coverage, for people.
_WORDS = {
    "clients": "clients connected to what it hit",
    "in_flight": "operations in flight when it hit",
    "operations": "operations from then until its heal",
    "messages": "messages stored there",
    "packets": "packets or connections that met it",
}


def lacks(
    counts: Counts, own_counts: Mapping[str, int], least: Minimum, together: Iterable[Mapping[str, int]]
) -> tuple[str, ...]:
    """Return what is less than `least`, in words. What only hosts can count is judged where they have; of packets and
    connections those count that met any effect of the step: `together` is what was measured of each, this one's are
    `own_counts`."""
    have: dict[str, int] = asdict(counts)
    if "messages" in own_counts:
        have["messages"] = own_counts["messages"]
    passed = [of[name] for of in together for name in ("packets", "connections", "closed") if name in of]
    if passed:
        have["packets"] = sum(passed)
    return tuple(
        f"{have[name]} {_WORDS[name]}" + (f" (at least {number})" if number > 1 else "")
        for name, number in least.to_json().items()
        if name in have and have[name] < number
    )


def covered(run: RunInfo, times: Timeline, events: Sequence[Event], counts: Mapping[int, Counts]) -> tuple[Met, ...]:
    """Return what the load met of each fault that disturbs something; `counts` by the fault's number. What counters on
    hosts say is `MET_COUNTS`, without what was not measured; the minimum is without zeros."""
    found = []
    by_fault = [(fault, measured(fault, events)) for fault in disturbing(times)]
    # Of the links that a step cuts some are idle, and of two brokers one dials the other.
    of_step: dict[tuple[str | None, str | None], list[Mapping[str, int]]] = {}
    for fault, own_counts in by_fault:
        of_step.setdefault((fault.name, fault.step), []).append(own_counts)
    for fault, own_counts in by_fault:
        least = run.minimum.get(_step(fault.step), ANY)
        own = counts.get(fault.number, Counts())
        together = [own_counts] if fault.step is None else of_step[fault.name, fault.step]
        found.append(
            Met(
                fault=fault.name,
                step=fault.step,
                instance=fault.instance,
                target=fault.target,
                store=fault.store,
                t_ns=fault.at,
                healed_ns=fault.healed_at,
                role=role_before(fault, times),
                clients=own.clients,
                in_flight=own.in_flight,
                operations=own.operations,
                measured=own_counts,
                minimum={name: number for name, number in least.to_json().items() if number},
                lacking=lacks(own, own_counts, least, together),
            )
        )
    return tuple(found)


def _step(name: str | None) -> str:
    """The name of a scenario's step, without the round."""
    return (name or "").split(_ROUND)[0]


def why_vacuous(run: RunInfo, met: Sequence[Met], events: Sequence[Event]) -> tuple[str, ...]:
    """Return why a run says nothing about its drill, a sentence each; none: it does."""
    found = [
        f"{one.fault} of {one.instance or one.target or 'nothing named'} "
        f"at {one.t_ns / 1e9:.1f} s met too little: {', '.join(one.lacking)}"
        for one in met
        if one.lacking
    ]
    injected = {_step(event.value) for event in events if event.kind == "fault"}
    found += [f"{step} was never injected" for step in run.planned if step not in injected]
    steps = {one.step for one in met if one.step}
    whole = [e.name for e in events if e.kind == "note" and dict(e.detail).get(ROUND) == "end"]
    for step in run.planned:
        # Whose name says the round is of each round.
        if any(one.startswith(f"{step}{_ROUND}") for one in steps):
            missing = [number for number in whole if f"{step}{_ROUND}{number})" not in steps]
            found += [f"{step} was not injected in round {number}" for number in missing]
    worked = any(event.kind == "note" and "operation" in dict(event.detail) for event in events)
    if run.outcome != "completed" and not met and not worked and not run.planned:
        found.append(f"nothing was done to it: the run is {run.outcome}, and no fault was injected")
    return tuple(found)
