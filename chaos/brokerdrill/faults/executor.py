"""Applies, verifies and heals faults: journal before effect, a timer on the host for the case that nobody heals.

Every change is registered on its host first: a heal script under /run/brokerdrill/heal and a transient systemd timer
that runs it when the fault's time-to-live is over. While a script is there, the fault is unhealed, whoever asks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.faults.base import FaultType, HostChange, Parameters
from brokerdrill.faults.toxiproxy import ToxiproxyServer
from brokerdrill.hosts.connection import HostConnection, Unanswered
from brokerdrill.inventory.descriptors import Endpoint
from brokerdrill.inventory.targets import Target
from brokerdrill.ledger.contract import TOWARD
from brokerdrill.ledger.events import EventWriter
from brokerdrill.ledger.journal import Journal

HEAL_DIR = "/run/brokerdrill/heal"
VERIFY_DEADLINE_S = 10
HEAL_DEADLINE_S = 60
# To make it, and to see that it was made.
HEAL_LONGEST_S = 2 * HEAL_DEADLINE_S
POLL_S = 0.1

# The lock makes the runner's heal and the timer's take turns; the later one finds the script gone and does nothing.
_SCRIPT = """exec 9>/run/brokerdrill/lock
flock 9
[ -e {file} ] || exit 0
{heal}
rm -f {file}
systemctl stop --no-block {unit}.timer 2>/dev/null || :
"""
_REGISTER = """set -e
mkdir -p {dir}
cat > {file}.new
mv {file}.new {file}
systemd-run --quiet --collect --unit={unit} --on-active={ttl} --timer-property=AccuracySec=100ms /bin/sh {file}
{prepare}
"""


def heal_file(fault_id: str) -> str:
    """The path of a fault's heal script on its host."""
    return f"{HEAL_DIR}/{fault_id}.sh"


def _toward(target: Target) -> dict[str, str]:
    """What a fault's event says of the links that it hits: whom they lead to."""
    led = sorted({link.instance for link in target.links})
    return {TOWARD: ", ".join(led)} if led else {}


@dataclass(frozen=True)
class Applied:
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
    applied: list[Applied] = field(default_factory=list)
    healed: bool = False

    @property
    def at_ns(self) -> int:
        """When the first change took effect, on the controller's clock."""
        return min(item.at_ns for item in self.applied)


async def heal_change(connection: HostConnection, fault_id: str, verify_heal: str) -> tuple[int, int, bool]:
    """Run the heal script of `fault_id` on its host and wait until `verify_heal` succeeds.

    Returns (time on the controller's clock in ns, uncertainty in ns, whether the script was still there: if not, the
    host's timer came first). Raises InfrastructureError when the heal does not show within HEAL_DEADLINE_S.
    """
    file = heal_file(fault_id)
    result = await connection.sh(f"[ -e {file} ] || exit 44; sh {file}", timeout=HEAL_DEADLINE_S)
    at = (result.t0_ns + result.t1_ns) // 2 + connection.clock.offset_ns
    uncertainty = (result.t1_ns - result.t0_ns) // 2 + connection.clock.uncertainty_ns
    await _poll(connection, verify_heal, HEAL_DEADLINE_S, f"fault {fault_id} on {connection.name} is not healed")
    return at, uncertainty, result.rc != 44


async def _poll(connection: HostConnection, script: str, deadline_s: float, failure: str) -> None:
    end = now_ns() + int(deadline_s * 1e9)
    while (result := await connection.sh(script)).rc != 0:
        if now_ns() > end:
            raise InfrastructureError(
                f"{failure} within {deadline_s:.0f} s: {(result.err or result.out).strip()[:200]}"
            )
        await asyncio.sleep(POLL_S)


class Executor:
    """Injects and heals the faults of one run."""

    def __init__(self, connections: Mapping[str, HostConnection], journal: Journal, events: EventWriter) -> None:
        self._connections = connections
        self._journal = journal
        self._events = events
        self.injections: list[Injection] = []

    @property
    def base_ns(self) -> int:
        """The controller's monotonic time at the run's start."""
        return self._events.base_ns

    async def inject(
        self, name: str, fault: FaultType[Any], target: Target, params: Parameters, ttl_s: float, run_tag: str
    ) -> Injection:
        """Apply `fault` to `target` and verify that it took effect.

        Raises InfrastructureError when it did not; what was applied by then is registered and healed by `heal_all`.
        """
        injection = Injection(name, fault, target)
        self.injections.append(injection)
        changes = fault.plan(target, params, f"{run_tag}-{len(self.injections)}")
        if not changes:
            raise InfrastructureError(f"fault {name!r}: target {target.spec!r} gives nothing that {fault.name} can hit")
        tag = f"{run_tag}-{len(self.injections)}"
        injection.changes = {f"{tag}-{index}" if index else tag: change for index, change in enumerate(changes)}
        await asyncio.gather(*(self._register(injection, *item, ttl_s, params) for item in injection.changes.items()))
        injection.applied = list(await asyncio.gather(*(self._apply(*item) for item in injection.changes.items())))
        for item in injection.applied:
            self._events.write(
                "fault",
                at_ns=item.at_ns,
                uncertainty_ns=item.uncertainty_ns,
                target=item.change.target,
                instance=item.change.instance,
                store=item.change.store,
                name=fault.name,
                value=name,
                detail={"fault_id": item.fault_id, "asked": target.spec} | _toward(target),
            )
        await asyncio.gather(*map(self._verify, injection.applied))
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
        names = {"dir": HEAL_DIR, "file": heal_file(fault_id), "unit": f"brokerdrill-heal-{fault_id}"}
        script = _SCRIPT
        register = _REGISTER.replace("{ttl}", f"{ttl_s:g}").replace("{prepare}", change.prepare)
        for key, value in names.items():
            script, register = script.replace(f"{{{key}}}", value), register.replace(f"{{{key}}}", value)
        await self._host(change).sh(register, stdin=script.replace("{heal}", change.heal), check=True)

    async def _apply(self, fault_id: str, change: HostChange) -> Applied:
        connection = self._host(change)
        if change.api is not None:
            server = await _server(connection, change.api.api)
            before = now_ns()
            await asyncio.to_thread(server.apply, change.api)
            after = now_ns()
            applied = Applied(fault_id, change, (before + after) // 2, (after - before) // 2)
            if change.effect != ":":
                await connection.sh(change.effect, check=True)
        else:
            applied = Applied(fault_id, change, *await _effect(connection, change))
        self._journal.write(
            "injected",
            fault_id,
            at_ns=applied.at_ns - self._events.base_ns,
            uncertainty_ns=applied.uncertainty_ns,
        )
        return applied

    async def _verify(self, item: Applied) -> None:
        failure = f"fault {item.fault_id} on {item.change.host} did not take effect"
        await _poll(self._host(item.change), item.change.verify, VERIFY_DEADLINE_S, failure)
        self._journal.write("verified", item.fault_id, at_ns=now_ns() - self._events.base_ns)

    async def heal(self, injection: Injection) -> None:
        """Undo every change of `injection` and verify it. Raises InfrastructureError when one cannot be undone."""
        if injection.healed:
            return
        await asyncio.gather(*(self._heal_one(injection, *item) for item in injection.changes.items()))
        injection.healed = True

    async def _heal_one(self, injection: Injection, fault_id: str, change: HostChange) -> None:
        """Undo one change. What cannot be written down is healed all the same, and said afterwards."""
        unwritten: list[InfrastructureError] = []

        def note(write: Callable[[], None]) -> None:
            try:
                write()
            except InfrastructureError as error:
                unwritten.append(error)

        begun = now_ns() - self._events.base_ns
        note(lambda: self._journal.write("heal_intent", fault_id, at_ns=begun))
        at, uncertainty, ours = await heal_change(self._host(change), fault_id, change.verify_heal)
        by = "runner" if ours else "time-to-live"
        note(
            lambda: self._events.write(
                "heal",
                at_ns=at,
                uncertainty_ns=uncertainty,
                target=change.target,
                instance=change.instance,
                store=change.store,
                name=injection.fault.name,
                value=injection.name,
                detail={"fault_id": fault_id, "by": by},
            )
        )
        note(lambda: self._journal.write("healed", fault_id, at_ns=at - self._events.base_ns, by=by))
        if unwritten:
            raise unwritten[0]

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
        return problems

    def _host(self, change: HostChange) -> HostConnection:
        return self._connections[change.host]


async def _effect(connection: HostConnection, change: HostChange) -> tuple[int, int]:
    """Make the change, once; return when (controller's clock, ns) and how uncertain that is. Raises InfrastructureError
    when it fails; where the host was lost before it said so, `verify` has to say whether it took effect."""
    try:
        result = await connection.sh(change.effect, check=True, once=True)
    except Unanswered as doubt:
        return (doubt.asked_ns + doubt.lost_ns) // 2, (doubt.lost_ns - doubt.asked_ns) // 2
    clock = connection.clock
    return (result.t0_ns + result.t1_ns) // 2 + clock.offset_ns, (
        result.t1_ns - result.t0_ns
    ) // 2 + clock.uncertainty_ns


async def _server(connection: HostConnection, api: Endpoint) -> ToxiproxyServer:
    return ToxiproxyServer(connection.name, "127.0.0.1", await connection.forward(api.address, api.port))


async def left_over(connections: Iterable[HostConnection]) -> dict[str, list[str]]:
    """Return the ids of the unhealed faults on each host that has any."""

    async def of(connection: HostConnection) -> tuple[str, list[str]]:
        result = await connection.sh(f"ls {HEAL_DIR} 2>/dev/null")
        return connection.name, [line.removesuffix(".sh") for line in result.out.split() if line.endswith(".sh")]

    found = await asyncio.gather(*map(of, connections))
    return {name: ids for name, ids in found if ids}
