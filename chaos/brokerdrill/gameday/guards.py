"""The steady state before and after a drill, and what is watched while it lasts."""

from __future__ import annotations

import asyncio
import datetime
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import BrokerdrillError, InfrastructureError
from brokerdrill.base.progress import Progress
from brokerdrill.faults.lease import left_over
from brokerdrill.gameday.history import FAILED, OVER_WINDOW
from brokerdrill.gameday.metrics import asked
from brokerdrill.gameday.model import Guard
from brokerdrill.hosts.connection import HostConnection, connected
from brokerdrill.hosts.descriptors import read_all
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.topology import Topology
from brokerdrill.products.base import ManagementError
from brokerdrill.products.registry import DESCRIPTORS, managed
from brokerdrill.promises.catalogue import AVAILABLE
from brokerdrill.runner.live_run import LiveRun
from brokerdrill.runner.system import POLL_S, System, in_sync
from brokerdrill.scenario.model import Scenario

MIB = 1 << 20
DEPTH_PERIOD_S = 2.0
METRIC_PERIOD_S = 2.0
BAD_ROLES = ("down", "failed")


async def steady(
    topology: Topology, guard: Guard, runs: Path, progress: Progress, empty: Sequence[str] = ()
) -> list[str]:
    """Return what speaks against a drill on `topology` now, a sentence each; nothing: it is healthy, in sync, without a
    fault, has room on its disks, the guard's metrics are not too high, and the addresses `empty` hold no message."""
    problems = []
    free = shutil.disk_usage(runs).free // MIB
    if free < guard.free_disk_mib:
        problems.append(f"the controller has {free} MiB free, {guard.free_disk_mib} are asked for")
    try:
        async with asked(guard.metrics) as metrics:
            problems += [problem for one in metrics if (problem := await one.too_high())]
        async with connected(topology.hosts) as connections:
            for host, ids in sorted((await left_over(connections.values())).items()):
                problems.append(f"{host} has an unhealed fault ({', '.join(ids)})")
            found = await read_all(connections.values(), DESCRIPTORS)
            problems += await _full_disks(found, connections, guard.free_disk_mib)
            problems += await _out_of_sync(found, connections, guard.steady_s, progress, empty)
    except BrokerdrillError as error:
        problems.append(str(error))
    return problems


async def _full_disks(
    descriptors: Iterable[Descriptor], connections: Mapping[str, HostConnection], least_mib: int
) -> list[str]:
    places = sorted({(item.host, item.data_dir) for item in descriptors if item.data_dir})
    problems = []
    for host, folder in places:
        asked = await connections[host].sh(f"df -Pm -- {shlex.quote(folder)} | awk 'NR == 2 {{print $4}}'", check=True)
        free = int(asked.out.strip() or 0)
        if free < least_mib:
            problems.append(f"{host} has {free} MiB free at {folder}, {least_mib} are asked for")
    return problems


async def _out_of_sync(
    descriptors: Sequence[Descriptor],
    connections: Mapping[str, HostConnection],
    limit_s: float,
    progress: Progress,
    empty: Sequence[str],
) -> list[str]:
    """Wait until all stores are in sync and the addresses `empty` are; return what is not so after `limit_s`."""
    system = System(progress)
    await system.open(managed(descriptors), connections)
    end = now_ns() + int(limit_s * 1e9)
    try:
        while True:
            roles = await _roles(system)
            ready = in_sync(system.stores(roles))
            full = await _full_queues(system, roles, empty) if ready else []
            if ready and not full:
                return []
            if now_ns() > end:
                known = ", ".join(f"{name} {role or 'silent'}" for name, role in sorted(roles.items()))
                return full or [f"not healthy and in sync within {limit_s:.0f} s ({known})"]
            await asyncio.sleep(POLL_S)
    finally:
        await system.close()


async def _roles(system: System) -> dict[str, str]:
    """Return each instance's role; "" for one that does not answer."""

    async def of(name: str) -> tuple[str, str]:
        try:
            return name, await system.instances[name].management.role()
        except ManagementError as error:
            return name, "down" if error.refused else ""

    return dict(await asyncio.gather(*map(of, system.instances)))


async def _full_queues(system: System, roles: Mapping[str, str], addresses: Sequence[str]) -> list[str]:
    problems = []
    for item in system.brokers():
        name = item.descriptor.instance
        if not addresses or roles.get(name) != "active":
            continue
        try:
            counts = await item.management.counts(addresses)
        except ManagementError as error:
            problems.append(str(error))
            continue
        problems += [f"{name} holds messages in {key}" for key, one in sorted(counts.items()) if not one.empty]
    return problems


@dataclass
class Watching:
    """The guards of one drill; `ended` says how the drill ends where one of them ended it."""

    guard: Guard
    until: datetime.datetime
    ended: str | None = None

    async def over_time(self, _: LiveRun) -> str:
        """Say when the time of the game day is over."""
        await asyncio.sleep(max(0.0, (self.until - datetime.datetime.now(datetime.UTC)).total_seconds()))
        self.ended = OVER_WINDOW
        return f"the game day's time was over at {self.until:%H:%M:%S %Z}"

    async def too_deep(self, run: LiveRun) -> str:
        """Say when a queue of the load is deeper than it may be."""
        limit = self.guard.queue_depth
        addresses = run.scenario.load.addresses
        while limit is not None:
            for management in run.system.active() if run.load.workers else ():
                try:
                    counts = await management.counts(addresses)
                except ManagementError:  # a broker that does not answer has no known depth
                    continue
                for name, one in counts.items():
                    if one.messages > limit:
                        self.ended = FAILED
                        return f"{name} holds {one.messages} messages, more than {limit}"
            await asyncio.sleep(DEPTH_PERIOD_S)
        return await asyncio.Future()

    async def too_high(self, _: LiveRun) -> str:
        """Say when one of the guard's metrics is too high, or was not to be had for too long."""
        guard = self.guard
        async with asked(guard.metrics) as metrics:
            read = [now_ns()] * len(metrics)
            while metrics:
                for place, one in enumerate(metrics):
                    try:
                        reason = await one.too_high()
                        read[place] = now_ns()
                    except InfrastructureError as error:
                        silent_s = (now_ns() - read[place]) / 1e9
                        reason = str(error) if silent_s > guard.metrics_silent_s else None
                    if reason:
                        self.ended = FAILED
                        return reason
                await asyncio.sleep(METRIC_PERIOD_S)
        return await asyncio.Future()

    async def stray(self, run: LiveRun) -> str:
        """Say when an instance that no fault has hit is down for longer than it may be: a failure of its own."""
        since: dict[str, int] = {}
        while self.guard.stray_s is not None:
            bad = strays(run.system.roles, hit(run)) if run.load.workers else set()
            since = {name: since.get(name, now_ns()) for name in bad}
            late = sorted(name for name, from_ns in since.items() if now_ns() - from_ns > self.guard.stray_s * 1e9)
            if late:
                self.ended = FAILED
                return f"{', '.join(late)} is down, and no fault of this drill has hit it"
            await asyncio.sleep(POLL_S)
        return await asyncio.Future()

    async def broken(self, run: LiveRun) -> str:
        """Say when a promise that the drill expects to be kept is seen to be broken."""
        best, since = 0, now_ns()
        while self.guard.broken_promise:
            if run.load.workers:
                totals = run.load.totals()
                # Nothing is to be acknowledged before the first send, and in the drain.
                if totals.sent_ok != best or not best or not totals.producers_running:
                    best, since = totals.sent_ok, now_ns()
                roles = run.system.stores(run.system.roles)
                if why := broken_now(run.scenario, roles, (now_ns() - since) / 1e6):
                    self.ended = FAILED
                    return why
            await asyncio.sleep(POLL_S)
        return await asyncio.Future()


def broken_now(scenario: Scenario, stores: Sequence[Sequence[str]], silent_ms: float) -> str | None:
    """Return which promise is broken that `scenario` expects to be kept, as far as that shows while it lasts: by the
    roles of each store's instances, and by the time (ms) for which no send was acknowledged. None: none is."""
    expected = scenario.expect()
    for promise in scenario.promises:
        if expected[promise.name] != "kept":
            continue
        bound = promise.spec().bound_ms
        if promise.name == AVAILABLE and bound is not None and silent_ms > bound:
            return f"available is broken: no send was acknowledged for {silent_ms:.0f} ms, the bound is {bound:.0f} ms"
        if promise.name == "single_active" and any(list(roles).count("active") > 1 for roles in stores):
            return "single_active is broken: two instances of one store say that they are active"
    return None


def hit(run: LiveRun) -> set[str]:
    """Return the instances that the drill's faults have hit so far, at either end of a link."""
    targets = [injection.target for injection in run.executor.injections]
    found = {item.instance for target in targets for item in target.instances}
    hosts = {link.dialler for target in targets for link in target.links}
    found |= {link.instance for target in targets for link in target.links}
    return found | {name for name, item in run.system.instances.items() if item.descriptor.host in hosts}


def strays(roles: Mapping[str, str], struck: set[str]) -> set[str]:
    """Return the instances that are down or failed without having been hit."""
    return {name for name, role in roles.items() if role in BAD_ROLES and name not in struck}
