"""`brokerdrill check`: what a drill would need and meet on an inventory's hosts, before any is held."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brokerdrill.base.errors import BrokerdrillError, InfrastructureError
from brokerdrill.base.progress import Progress
from brokerdrill.hosts import facts as host_facts
from brokerdrill.hosts.connection import HostConnection, NoKernel, reachable
from brokerdrill.hosts.descriptors import read_all
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.topology import Host, Topology
from brokerdrill.products.registry import DESCRIPTORS, managed
from brokerdrill.runner.needed_commands import OF_LOAD, commands
from brokerdrill.runner.system import System
from brokerdrill.scenario.drill import drills, resolve
from brokerdrill.scenario.model import Action, Scenario

_SOURCE = Path(host_facts.__file__).read_text(encoding="utf-8")
FREE_MIB = 512
# Beyond it times of two hosts are not comparable by their logs.
WALL_CLOCK_S = 1.0
UNCERTAIN_MS = 20.0


@dataclass
class Checked:
    """A host: what is missing there for a drill, and what a drill would meet."""

    host: str
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def line(self) -> str:
        """It in one line."""
        said = "; ".join(self.missing) or "ok"
        notes = f" ({'; '.join(self.notes)})" if self.notes else ""
        return f"{self.host}: {said}{notes}"


@dataclass(frozen=True)
class Needs:
    """What the drills that apply call on all hosts, and whether one of them makes links or a clock lie."""

    commands: tuple[str, ...] = ()
    links: bool = False
    clock: bool = False


def needs(descriptors: Sequence[Descriptor], topology: str) -> Needs:
    """Return what the drills need that apply to `descriptors`."""
    found: list[Scenario] = []
    for drill in drills():
        try:
            found.append(resolve(drill, descriptors, topology).scenario)
        except BrokerdrillError:  # it does not apply, or not as it is deployed
            continue
    called = sorted({name for one in found for name in commands(one)})
    faults = {step.fault for one in found for step in one.method if isinstance(step, Action)}
    return Needs(tuple(called), any(one.links for one in found), "clock" in faults)


def judged(host: Host, said: Mapping[str, Any], need: Needs, offset_s: float, friends: Sequence[str]) -> Checked:
    """Return what the facts that a host said come to; `friends`: addresses of the drill's own hosts. Pure."""
    one = Checked(host.name)
    if host.vars.get("drill_allowed") is not True:
        one.missing.append("the inventory does not say `drill_allowed: true`")
    if not said["root"]:
        one.missing.append("no rights of root")
    if lacking := said["lacking"]:
        one.missing.append(f"no {' and no '.join(lacking)}")
    if "nft" in need.commands and "nft" not in lacking and not said["nft"]:
        one.missing.append(f"its kernel takes no nft rules: {' '.join(said['nft_said'])}")
    if need.links and said["ends_connections"] is False:
        one.missing.append("its kernel does not let `ss -K` end connections")
    if need.clock and not said["faketime"]:
        one.notes.append("no libfaketime: no drill of a clock")
    foreign = said["firewalls"]
    if foreign["active"]:
        one.notes.append(f"firewall: {', '.join(foreign['active'])}")
    if foreign["flushes"]:
        one.notes.append("its nftables.service flushes all rules when it starts, a fault's too")
    for folder, free in sorted(said["free_mib"].items()):
        if free < FREE_MIB:
            one.missing.append(f"{free} MiB free at {folder}, {FREE_MIB} are asked for")
    if abs(offset_s) > WALL_CLOCK_S:
        one.missing.append(f"its clock is {offset_s:+.1f} s off the controller's")
    if said["synchronized"] != "yes":
        one.notes.append("its clock is not known to be synchronized")
    others = {peer: count for peer, count in said["peers"].items() if peer not in friends}
    if others:
        clients = ", ".join(f"{count} from {peer}" for peer, count in sorted(others.items()))
        one.notes.append(f"clients that are not the drill's: {clients}")
    return one


async def check(topology: Topology, progress: Progress) -> list[Checked]:
    """Look at each host of `topology`; return what was found, by host. A host that cannot be reached, or looked at, is
    one where that is missing."""
    progress.step(f"connect to {len(topology.hosts)} hosts")
    async with reachable(topology.hosts) as (connections, away):
        found = {name: Checked(name, [str(error)]) for name, error in away.items()}
        descriptors = await read_all(connections.values(), DESCRIPTORS) if connections else []
        need = needs(descriptors, topology.name)
        looked = await asyncio.gather(
            *(_look(topology, connection, descriptors, need) for connection in connections.values())
        )
        found |= {one.host: one for one in looked}
        await _addresses(descriptors, connections, found, progress)
    return [found[host.name] for host in topology.hosts]


async def _look(
    topology: Topology, connection: HostConnection, descriptors: Sequence[Descriptor], need: Needs
) -> Checked:
    host = topology.host(connection.name)
    own = [item for item in descriptors if item.host == host.name]
    called = sorted({*need.commands, *(OF_LOAD if "load" in host.groups else ())})
    folders = sorted({item.data_dir for item in own if item.data_dir} | {"/var/lib"})
    ports = sorted({str(listener.port) for item in own for listener in item.listeners if listener.clients})
    words = shlex.join([*called, "--", *folders, "--", *ports])
    try:
        before = time.time_ns()
        answer = await connection.sh(f"python3 - {words}", stdin=_SOURCE, check=True)
        after = time.time_ns()
        said = json.loads(answer.out)
        friends = [one.address for one in topology.hosts] + ["127.0.0.1", "::1"]
        # Within the round trip nobody knows better.
        early, late = (said["wall_ns"] - before) / 1e9, (said["wall_ns"] - after) / 1e9
        one = judged(host, said, need, 0.0 if late <= 0 <= early else min(early, late, key=abs), friends)
        uncertain_ms = connection.clock.uncertainty_ns / 1e6
        if uncertain_ms > UNCERTAIN_MS:
            one.missing.append(f"its times are known to within {uncertain_ms:.0f} ms only: the way there is slow")
        one.missing += await _held(connection)
    except (InfrastructureError, ValueError, KeyError) as error:
        return Checked(host.name, [f"cannot be looked at: {error}"])
    return one


async def _held(connection: HostConnection) -> list[str]:
    """Return who holds a lease of the host, and what is not healed there."""
    try:
        status = await connection.kernel("status")
    except NoKernel:
        return []
    said = []
    if lease := status.get("lease"):
        said.append(f"held: {lease['says']}")
    if faults := status.get("faults"):
        said.append(f"not healed: {', '.join(str(one.get('fault')) for one in faults)}")
    return said


async def _addresses(
    descriptors: Sequence[Descriptor],
    connections: Mapping[str, HostConnection],
    found: Mapping[str, Checked],
    progress: Progress,
) -> None:
    """Add to `found` what waits in the drill's addresses, and who does not answer."""
    try:
        instances = managed(descriptors)
    except InfrastructureError as error:
        for one in found.values():
            one.missing += [str(error)] if not one.missing else []
        return
    system = System(progress)
    declared: list[tuple[Checked, set[str]]] = []
    there: set[str] = set()
    try:
        for product, item in instances:
            where = found[item.host]
            try:
                await system.open([(product, item)], connections)
                management = system.instances[item.instance].management
                role = await management.role()
                names = [address.name for address in item.addresses if address.drill]
                if product.client and not names:
                    where.missing.append(f"{item.instance} declares no address for drills")
                if role in ("down", "failed"):
                    where.missing.append(f"{item.instance} is {role}")
                if product.client and role == "active" and names:
                    counts = await management.counts(names)
                    declared.append((where, set(names)))
                    there |= set(counts)
                    for name, said in sorted(counts.items()):
                        if not said.empty:
                            waiting = f"{said.messages} messages wait in {name}"
                            out = f", {said.delivering} are handed out" if said.delivering else ""
                            where.missing.append(waiting + out)
                        if said.consumers:
                            where.missing.append(f"{said.consumers} consumers take from {name}")
            except BrokerdrillError as error:
                where.missing.append(str(error))
        # In a cluster an address need not be at every broker.
        for where, own in declared:
            where.missing += [f"no broker has {name}, an address for drills" for name in sorted(own - there)]
    finally:
        await system.close()
