"""Applies, verifies and heals faults: journal before effect, and a host that heals by itself where nobody else does.

Every change is registered with its host's safety kernel first (`hosts/safety_kernel.py`), which alone runs what makes
and undoes it: it refuses an effect that comes after its heal, and keeps the fault until its heal is verified.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.faults.base import SCRIPT_LIMIT_S, UNDER_WAY, FaultType, HostChange, Parameters
from brokerdrill.faults.lease import Lease
from brokerdrill.hosts.connection import HostConnection, Unanswered
from brokerdrill.inventory.targets import Target
from brokerdrill.ledger.contract import TOWARD
from brokerdrill.ledger.events import EventWriter
from brokerdrill.ledger.evidence import CLIENTS, CLIENTS_KILLED, CLIENTS_SEPARATOR, TTL
from brokerdrill.ledger.journal import Journal

VERIFY_DEADLINE_S = 10
HEAL_DEADLINE_S = 60
# The last try may begin just before that, and then has its own limits.
HEAL_LONGEST_S = 2 * HEAL_DEADLINE_S
CHECK_LIMIT_S = 10
POLL_S = 0.1
RUNNER, SILENT = "runner", "controller silent"

T = TypeVar("T")


def _toward(target: Target) -> dict[str, str]:
    """What a fault's event says of the links that it hits: whom they lead to."""
    led = sorted({link.instance for link in target.links})
    return {TOWARD: ", ".join(led)} if led else {}


@dataclass(frozen=True)
class AppliedChange:
    """One change in effect: where, the id it is healed by, and when it took effect (controller's clock, ns)."""

    fault_id: str
    change: HostChange
    at_ns: int
    uncertainty_ns: int


@dataclass
class Injection:
    """A fault as a scenario's step injected it: its name there, its target, its changes; healed once."""

    name: str
    fault: FaultType[Any]
    target: Target
    changes: dict[str, HostChange] = field(default_factory=dict)
    applied: list[AppliedChange] = field(default_factory=list)
    healed: bool = False
    # Whether it is to be in effect until somebody heals it.
    lasts: bool = True

    @property
    def at_ns(self) -> int:
        """When the first change took effect, on the controller's clock."""
        return min(item.at_ns for item in self.applied)


@dataclass(frozen=True)
class Healed:
    """The heal of a change as its host recorded it: when (controller's clock, ns; RFC 3339 by the host's), who made it,
    and what its counters said before the effect and before the heal."""

    at_ns: int
    uncertainty_ns: int
    by: str
    at: str
    counted: tuple[str, ...] = ()


def met(counted: Sequence[str]) -> dict[str, str]:
    """Return what met a fault by its counters before the effect and before the heal: names with numbers, as texts. What
    was not counted both times is left out."""
    if len(counted) != 2:
        return {}
    before, after = (dict(line.split() for line in text.splitlines()) for text in counted)
    return {name: str(int(number) - int(before.get(name, 0))) for name, number in sorted(after.items())}


def healed(connection: HostConnection, record: Mapping[str, Any]) -> Healed | None:
    """Return what a host's record of a fault says of its heal; None: there is none that was verified."""
    if record["state"] != "verified":
        return None
    stamp = record["healed"]
    clock = connection.boots.get(stamp["boot"].partition("/")[0], connection.clock)
    at_ns = (stamp["t0"] + stamp["t1"]) // 2 + clock.offset_ns
    spread_ns = (stamp["t1"] - stamp["t0"]) // 2 + clock.uncertainty_ns
    return Healed(at_ns, spread_ns, record["by"], stamp["at"], tuple(record.get("counted", ())))


async def heal_change(connection: HostConnection, fault_id: str, by: str) -> Healed:
    """Have the host heal `fault_id` and verify it. Raises InfrastructureError when that is not so after
    HEAL_DEADLINE_S; the host goes on trying."""
    record = await connection.kernel("heal", fault=fault_id, by=by, wait_s=HEAL_DEADLINE_S, timeout=HEAL_LONGEST_S)
    done = healed(connection, record)
    if done is None:
        why = record["error"] or "its check does not say why"
        raise InfrastructureError(
            f"fault {fault_id} on {connection.name} is not healed within {HEAL_DEADLINE_S} s, and its host goes on "
            f"trying: {why}"
        )
    return done


async def together(work: Iterable[Awaitable[T]]) -> list[T]:
    """Return what all of `work` returns. Raises the first error, but not before the last of it has ended."""
    done = await asyncio.gather(*work, return_exceptions=True)
    for outcome in done:
        if isinstance(outcome, BaseException):
            raise outcome
    return done  # type: ignore[return-value]


def _note(unwritten: list[InfrastructureError], write: Callable[[], None]) -> None:
    try:
        write()
    except InfrastructureError as error:
        unwritten.append(error)


def _new(fault_id: str, change: HostChange, ttl_s: float) -> dict[str, Any]:
    """A change as its host's kernel registers it."""
    return {
        "fault": fault_id,
        "ttl_s": ttl_s,
        "targets": change.targets,
        "claims": dict(change.claims),
        "scripts": {name: getattr(change, name) for name in ("prepare", "effect", "heal", "verify_heal", "count")},
        "limits_s": {
            "prepare": SCRIPT_LIMIT_S,
            "effect": change.effect_s,
            "heal": change.heal_s,
            "verify_heal": CHECK_LIMIT_S,
        },
    }


class Executor:
    """Injects and heals the faults of one run, within its `lease`."""

    def __init__(
        self, connections: Mapping[str, HostConnection], lease: Lease, journal: Journal, events: EventWriter
    ) -> None:
        self._connections = connections
        self.lease = lease
        self._journal = journal
        self._events = events
        # The heals that are in the ledger, by fault.
        self._told: dict[str, Healed] = {}
        self._unwritten: list[InfrastructureError] = []
        self.injections: list[Injection] = []

    @property
    def base_ns(self) -> int:
        """The controller's monotonic time at the run's start."""
        return self._events.base_ns

    @property
    def silenced(self) -> str:
        """Which faults their hosts healed since they heard nothing of this run, in words; "": none."""
        return ", ".join(sorted(fault for fault, heal in self._told.items() if heal.by == SILENT))

    async def inject(
        self, name: str, fault: FaultType[Any], target: Target, params: Parameters, ttl_s: float, run_tag: str
    ) -> Injection:
        """Apply `fault` to `target` and verify that it took effect.

        Raises InfrastructureError when it did not; what was applied by then is registered and healed by `heal_all`.
        """
        injection = Injection(name, fault, target)
        self.injections.append(injection)
        tag = f"{run_tag}-{len(self.injections)}"
        changes = fault.plan(target, params, tag)
        if not changes:
            raise InfrastructureError(f"fault {name!r}: target {target.spec!r} gives nothing that {fault.name} can hit")
        injection.changes = {f"{tag}-{index}" if index else tag: change for index, change in enumerate(changes)}
        await together(self._register(injection, *item, ttl_s, params) for item in injection.changes.items())
        await together(self._apply(injection, *item, ttl_s) for item in injection.changes.items())
        await together(map(self._verify, injection.applied))
        return injection

    async def _register(
        self, injection: Injection, fault_id: str, change: HostChange, ttl_s: float, params: Parameters
    ) -> None:
        self._journal.write(
            "intent",
            fault_id,
            at_ns=now_ns() - self._events.base_ns,
            name=injection.name,
            fault=injection.fault.name,
            params=params.given(),
            asked=injection.target.spec,
            resolved=change.target,
            instance=change.instance,
            host=change.host,
            ttl_s=ttl_s,
            verify_heal=change.verify_heal,
        )
        await self._asked("register", change, new=_new(fault_id, change, ttl_s))

    async def _apply(self, injection: Injection, fault_id: str, change: HostChange, ttl_s: float) -> None:
        """Make one change and write it down, whatever becomes of the fault's others."""
        at_ns, uncertainty_ns = await self._effect(fault_id, change)
        injection.applied.append(AppliedChange(fault_id, change, at_ns, uncertainty_ns))
        self._journal.write("injected", fault_id, at_ns=at_ns - self._events.base_ns, uncertainty_ns=uncertainty_ns)
        detail = {"fault_id": fault_id, "asked": injection.target.spec, TTL: f"{ttl_s:g}"} | _toward(injection.target)
        self._event("fault", injection, change, at_ns, uncertainty_ns, detail)

    async def _effect(self, fault_id: str, change: HostChange) -> tuple[int, int]:
        """Make the change, once; return when (controller's clock, ns) and how uncertain that is. Raises
        InfrastructureError when it fails; where the host was lost before it said so, `verify` says whether it took
        effect."""
        try:
            result = await self._asked("apply", change, once=True, fault=fault_id)
        except Unanswered as doubt:
            if change.gradual:
                return doubt.asked_ns, 0
            return (doubt.asked_ns + doubt.lost_ns) // 2, (doubt.lost_ns - doubt.asked_ns) // 2
        clock = self.host(change).clock
        if change.gradual:
            return result["t0"] + clock.offset_ns, clock.uncertainty_ns
        middle_ns = (result["t0"] + result["t1"]) // 2 + clock.offset_ns
        return middle_ns, (result["t1"] - result["t0"]) // 2 + clock.uncertainty_ns

    async def _asked(self, verb: str, change: HostChange, once: bool = False, **values: Any) -> dict[str, Any]:
        """Have the kernel run a script of the change. Raises InfrastructureError where that fails."""
        connection, limit_s = self.host(change), max(change.effect_s, SCRIPT_LIMIT_S)
        result = await connection.kernel(verb, token=self.lease.token, timeout=limit_s, once=once, **values)
        if result["rc"] != 0:
            said = (result["err"] or result["out"]).strip().splitlines()
            raise InfrastructureError(f"host {connection.name}: {said[-1] if said else f'{verb} fails'}")
        return result

    async def _verify(self, item: AppliedChange) -> None:
        connection = self.host(item.change)
        end = now_ns() + VERIFY_DEADLINE_S * 10**9
        while (result := await connection.sh(item.change.verify)).rc != 0:
            if result.rc != UNDER_WAY and now_ns() > end:
                raise InfrastructureError(
                    f"fault {item.fault_id} on {item.change.host} did not take effect within {VERIFY_DEADLINE_S} s: "
                    f"{(result.err or result.out).strip()[:200]}"
                )
            await asyncio.sleep(POLL_S)
        self._journal.write("verified", item.fault_id, at_ns=now_ns() - self._events.base_ns)

    def tell_killed(self, injection: Injection, clients: Mapping[str, Sequence[str]]) -> None:
        """Write down which `clients` of the load a fault has killed, by their hosts."""
        for item in injection.applied:
            if names := clients.get(item.change.host):
                self._events.write(
                    "note",
                    at_ns=item.at_ns,
                    uncertainty_ns=item.uncertainty_ns,
                    target=item.change.target,
                    instance=item.change.instance,
                    name=CLIENTS_KILLED,
                    value=injection.name,
                    detail={CLIENTS: CLIENTS_SEPARATOR.join(names)},
                )

    async def heal(self, injection: Injection) -> None:
        """Undo every change of `injection` and verify it. Raises InfrastructureError when one cannot be undone."""
        if injection.healed:
            return
        injection.lasts = False
        await together(self._heal_one(injection, *item) for item in injection.changes.items())
        injection.healed = True

    async def _heal_one(self, injection: Injection, fault_id: str, change: HostChange) -> None:
        """Undo one change. What cannot be written down is healed all the same, and said afterwards."""
        if fault_id in self._told:
            return
        unwritten: list[InfrastructureError] = []
        begun = now_ns() - self._events.base_ns
        _note(unwritten, lambda: self._journal.write("heal_intent", fault_id, at_ns=begun))
        done = await heal_change(self.host(change), fault_id, RUNNER)
        if fault_id not in self._told:
            self._tell(injection, fault_id, done, unwritten)
        if unwritten:
            raise unwritten[0]

    def _tell(self, injection: Injection, fault_id: str, done: Healed, unwritten: list[InfrastructureError]) -> None:
        """Write a heal into the ledger, once."""
        change = injection.changes[fault_id]
        self._told[fault_id] = done

        detail = {"fault_id": fault_id, "by": done.by}
        _note(unwritten, lambda: self._event("heal", injection, change, done.at_ns, done.uncertainty_ns, detail))
        if counts := met(done.counted):
            named = {"fault_id": fault_id, **counts}
            _note(unwritten, lambda: self._event("met", injection, change, done.at_ns, done.uncertainty_ns, named))
        at_ns = done.at_ns - self._events.base_ns
        _note(unwritten, lambda: self._journal.write("healed", fault_id, at_ns=at_ns, by=done.by))

    def _event(
        self,
        kind: str,
        injection: Injection,
        change: HostChange,
        at_ns: int,
        uncertainty_ns: int,
        detail: Mapping[str, str],
    ) -> None:
        """Write of a change that it began, ended, or was met into the ledger, for each instance that it hits."""
        for instance, store in change.hits:
            self._events.write(
                kind,
                at_ns=at_ns,
                uncertainty_ns=uncertainty_ns,
                target=change.target,
                instance=instance,
                store=store,
                name=injection.fault.name,
                value=injection.name,
                detail=detail,
            )

    async def heal_all(self) -> list[str]:
        """Heal whatever is not healed, newest first; return one sentence for each that could not be."""
        problems = []
        for injection in reversed(self.injections):
            if injection.healed:
                continue
            try:
                await self.heal(injection)
            except InfrastructureError as error:
                problems.append(str(error))
                with contextlib.suppress(InfrastructureError):
                    self._journal.write("heal_failed", ",".join(injection.changes), error=str(error))
        problems += map(str, self._unwritten)
        return problems

    def in_effect(self) -> list[AppliedChange]:
        """What was injected and neither healed nor begun to be healed since; on one instance the newest alone: it may
        have changed what the older ones show."""
        found: dict[str, AppliedChange] = {}
        for injection in self.injections:
            for item in injection.applied:
                found.pop(item.change.instance or item.fault_id, None)
                if injection.lasts and item.fault_id not in self._told:
                    found[item.change.instance or item.fault_id] = item
        return list(found.values())

    def meddled(self) -> None:
        """Take note that a step of the drill is about to act on instances: it may end what was done to them."""
        for injection in self.injections:
            injection.lasts &= not injection.target.instances

    def unhealed(self, host: str) -> list[str]:
        """The faults on `host` of which no heal is known."""
        return [
            item.fault_id
            for injection in self.injections
            for item in injection.applied
            if item.change.host == host and item.fault_id not in self._told
        ]

    def heard(self, host: str, records: list[dict[str, Any]]) -> None:
        """Write into the ledger what `host` has healed by itself, when it did."""
        for record in records:
            done, fault_id = healed(self._connections[host], record), record["fault"]
            if done and done.by != RUNNER and fault_id not in self._told:
                injection = next(one for one in self.injections if fault_id in one.changes)
                self._tell(injection, fault_id, done, self._unwritten)

    def host(self, change: HostChange) -> HostConnection:
        """The connection to the host of a change."""
        return self._connections[change.host]
