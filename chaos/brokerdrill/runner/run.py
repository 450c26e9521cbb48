"""One run, from its first file to its last.

The way is straight: connect, refuse, watch roles, arm links, start the load, follow the method, heal everything, drain,
collect. Whatever happens on it, heal and collect still come.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import BrokerdrillError, InfrastructureError, Unmet, in_words
from brokerdrill.base.locks import held, inventory_lock
from brokerdrill.base.progress import Progress
from brokerdrill.faults.executor import Executor
from brokerdrill.faults.lease import Lease, leased
from brokerdrill.hosts.connection import HostConnection, connected
from brokerdrill.hosts.descriptors import read_all
from brokerdrill.inventory.addresses import refuse_undeclared
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.ledger import contract
from brokerdrill.ledger.events import EventWriter
from brokerdrill.ledger.journal import Journal
from brokerdrill.products.base import Product
from brokerdrill.products.registry import DESCRIPTORS, managed
from brokerdrill.runner.clean_start import clean_start
from brokerdrill.runner.drain import drain
from brokerdrill.runner.evidence.files import keep_command_outputs, keep_worker_errors
from brokerdrill.runner.evidence.logs import Logged, processes, write_log
from brokerdrill.runner.evidence.run_dir import LOCK_FILE, make_run_dir
from brokerdrill.runner.evidence.run_info import clocks, first_info
from brokerdrill.runner.evidence.spools import fetch_finished, fetch_spool
from brokerdrill.runner.guards.disks import until_disk_full
from brokerdrill.runner.guards.guarded import guarded
from brokerdrill.runner.guards.sight import until_lease_lost, until_watch_failed
from brokerdrill.runner.guards.silence import under_load
from brokerdrill.runner.guards.stop_files import until_asked_to_stop
from brokerdrill.runner.guards.undone_faults import until_fault_undone
from brokerdrill.runner.injections import Injections, arm_ttl_s
from brokerdrill.runner.live_run import LiveRun
from brokerdrill.runner.load.clocks import measure_clocks
from brokerdrill.runner.load.control import LoadControl, end_workers
from brokerdrill.runner.load.start import LoadHost, load_hosts, start_load
from brokerdrill.runner.load.worker import Worker
from brokerdrill.runner.method import Method
from brokerdrill.runner.needed_commands import OF_LOAD, commands, refuse_without
from brokerdrill.runner.outages import Outages
from brokerdrill.runner.request import RunRequest, approved, check_request, refuse_too_far
from brokerdrill.runner.served_again import until_served_again
from brokerdrill.runner.steady_state import restart_routers, routers_still_lacking, settle, until_steady
from brokerdrill.runner.system import System
from brokerdrill.runner.watching.live_file import write_samples
from brokerdrill.scenario.drill import resolve
from brokerdrill.scenario.model import LoadedScenario, Scenario
from brokerdrill.scenario.radius import reached
from brokerdrill.workload import header

T = TypeVar("T")


async def run(request: RunRequest, progress: Progress) -> Path:
    """Run the scenario once and return the run directory, complete for the analysis.

    Raises UsageError where the request is wrong, InfrastructureError where the run could not be made, Unmet where it
    ended early for what the drilled system did or did not do. A run that was begun leaves its directory in any case,
    with outcome completed, aborted or crashed; where its load had begun, the error names it among its `runs`.
    """
    check_request(request)
    with inventory_lock(request.topology.directory):
        async with connected(request.topology.hosts) as connections:
            found = await read_all(connections.values(), DESCRIPTORS)
            # Check for undeployed instances first, or resolve() would report 'no drill applies' and hide the cause.
            instances = managed(found)
            loaded = resolve(request.drill, found, request.topology.name, request.changes)
            refuse_undeclared(loaded.scenario.load.addresses, [item for _, item in instances], request.topology.name)
            reach = reached(loaded.scenario, found, request.limits.groups_of)
            refuse_too_far(request, reach)
            hosts = load_hosts(request.topology.name, found, connections)
            allowances = reach.allowances(found, request.limits.at_once)
            async with leased(request.lease(allowances), connections) as lease:
                request = approved(request, loaded, reach)
                begun = _begin(request, loaded, connections, lease, found, instances, progress)
                with held(request.run_dir / LOCK_FILE, "another process makes this run"):
                    await begun.carry_out(instances, hosts)
    return request.run_dir


def _begin(
    request: RunRequest,
    loaded: LoadedScenario,
    connections: Mapping[str, HostConnection],
    lease: Lease,
    found: Sequence[Descriptor],
    instances: Sequence[tuple[Product, Descriptor]],
    progress: Progress,
) -> _Run:
    """Make the run's directory and open its files; the run's time counts from here.

    Raises UsageError where the directory exists already, InfrastructureError where it cannot be made.
    """
    base_ns = now_ns()
    run_dir = request.run_dir
    make_run_dir(run_dir)
    info = first_info(request, loaded, found, instances, datetime.datetime.now(datetime.UTC).isoformat())
    contract.write_run(run_dir, info)
    journal = Journal(run_dir)
    topology = request.topology
    journal.write("run", "", inventory=str(topology.directory.resolve()), bench=topology.bench and str(topology.bench))
    journal.write("lease", "", token=lease.token, hosts=sorted(connections))
    events = EventWriter(run_dir, request.run_id, base_ns)
    for connection in connections.values():
        connection.notice = partial(_noticed, connection.name, events, progress)
    executor = Executor(connections, lease, journal, events)
    system = System(progress)

    def started(worker: Worker) -> None:
        journal.write("worker", "", host=worker.connection.name, spool=worker.spool)

    load = LoadControl(request.run_id, system.changes.wake, started)
    tag = f"{request.run_id.split('-')[0][-6:]}{os.getpid():x}"
    return _Run(
        request=request,
        scenario=loaded.scenario,
        connections=connections,
        descriptors=found,
        progress=progress,
        info=info,
        journal=journal,
        events=events,
        executor=executor,
        system=system,
        injections=Injections(
            executor, system, load, found, Outages(request.limits, found, system), request.seed, tag, progress
        ),
        load=load,
    )


def _noticed(host: str, events: EventWriter, progress: Progress, value: str, why: str) -> None:
    """Say that the connection to a host was lost, or is there again."""
    progress.step(f"host {host} is {value}{f': {why}' if value == 'lost' else f' {why}'}")
    with contextlib.suppress(BrokerdrillError):
        events.write("health", at_ns=now_ns(), target=host, name="host", value=value, detail={"why": why})


async def _tried(part: Awaitable[T], problems: list[str]) -> T | None:
    """Return what `part` of a run's end returns; add any error of it to `problems`: the other parts must still run."""
    try:
        return await part
    except Exception as error:
        problems.append(in_words(error))
        return None


@dataclass(frozen=True)
class _Run:
    """A run whose files are open: what its parts work on."""

    request: RunRequest
    scenario: Scenario
    connections: Mapping[str, HostConnection]
    descriptors: Sequence[Descriptor]
    progress: Progress
    info: contract.RunInfo
    journal: Journal
    events: EventWriter
    executor: Executor
    system: System
    injections: Injections
    load: LoadControl

    async def carry_out(self, instances: Sequence[tuple[Product, Descriptor]], hosts: Sequence[LoadHost]) -> None:
        """Go the whole way with the managed `instances` and the clients' `hosts`."""
        outcome = "crashed"
        ended: BaseException | None = None
        reason = ""
        drained: dict[str, bool] = {}
        live_run = LiveRun(self.request.run_dir, self.scenario, self.system, self.load, self.executor, self.events)
        beside = (
            until_asked_to_stop,
            until_lease_lost,
            until_watch_failed,
            until_disk_full,
            until_fault_undone,
            fetch_finished,
            measure_clocks,
            write_samples,
            *self.request.guards,
        )
        self.executor.lease.keep(self.executor)
        try:
            drained = await guarded(self._way(instances, hosts), [guard(live_run) for guard in beside])
            outcome = "completed"
        except (asyncio.CancelledError, Exception) as error:
            outcome = "aborted" if isinstance(error, (asyncio.CancelledError, BrokerdrillError)) else "crashed"
            reason = "interrupted" if isinstance(error, asyncio.CancelledError) else str(error)
            with contextlib.suppress(BrokerdrillError):
                self.events.write("abort", at_ns=now_ns(), value=reason[:500])
            ended = error if self.load.begun or not isinstance(error, Unmet) else InfrastructureError(reason)
        ending = asyncio.ensure_future(self._end(outcome, drained))
        try:
            problems = await asyncio.shield(ending)
        except asyncio.CancelledError as error:
            # A second signal while the run ends: finish healing and collecting all the same.
            await asyncio.wait([ending])
            problems, ended = ending.result(), ended or error
        if problems:
            # The reason that ended the run may come up again among the problems.
            said = [reason, *(problem for problem in problems if problem not in reason)]
            ended = InfrastructureError("; ".join(filter(None, said)))
        if ended:
            if self.load.begun and isinstance(ended, BrokerdrillError):
                ended.runs = (self.request.run_dir,)
            raise ended

    async def _end(self, outcome: str, drained: Mapping[str, bool]) -> list[str]:
        """Drain a run that broke off, then finish it. Returns what did not work, a sentence each."""
        return await self._finish(outcome, drained if outcome == "completed" else await self._drain_early())

    def _runs_by_tag(self) -> dict[str, str]:
        """The names of the runs beside this one, by the tags of their messages."""
        return {header.tag_of(path.name): path.name for path in self.request.run_dir.parent.glob("*")}

    def _note_left_over(self) -> None:
        """Say which earlier runs' messages came."""
        left = self.load.left_by()
        if not left:
            return
        named = self._runs_by_tag()
        for tag, count in sorted(left.items()):
            whose = named.get(tag, f"a run with tag {tag}")
            said = f"{count} messages that {whose} had left behind came, and do not count"
            self.progress.step(said)
            with contextlib.suppress(BrokerdrillError):
                self.events.write("note", at_ns=now_ns(), name=contract.LEFT_BEHIND, value=said)

    async def _drain_early(self) -> dict[str, bool]:
        """Heal and drain a run whose method broke off, as far as that works: what it has recorded can be judged then.

        Returns what that left empty.
        """
        if not self.load.sending:
            return {}
        try:
            await self._heal()
            return await self._drain()
        except Exception as error:  # any error: the last heal and the evidence must still follow
            self.progress.step(f"not drained: {error or type(error).__name__}")
            return {}

    async def _way(self, instances: Sequence[tuple[Product, Descriptor]], hosts: Sequence[LoadHost]) -> dict[str, bool]:
        """From the first look at the instances to the drain; returns what that left empty."""
        added_before = await self._prepare(instances, hosts)
        await under_load(
            lambda: self._drill(added_before),
            self.scenario.abort.silence,
            self.scenario.longest_s(),
            self.load,
            self.system,
            self.progress,
        )
        await self._heal()
        return await self._drain()

    async def _drain(self) -> dict[str, bool]:
        limit_s = self.scenario.abort.drain
        return await drain(self.scenario.load.addresses, limit_s, self.load, self.system, self.events, self.progress)

    async def _prepare(
        self, instances: Sequence[tuple[Product, Descriptor]], hosts: Sequence[LoadHost]
    ) -> dict[str, int]:
        """Everything up to the load; returns how many messages were added to each of its addresses before."""
        scenario = self.scenario
        await refuse_without(commands(scenario), [*self.connections.values()])
        await refuse_without(OF_LOAD, [connection for connection, _ in hosts])
        await self.system.open(instances, self.connections)
        self.system.watch(self.events, scenario.load.routers)
        self.system.watch_alerts(self.descriptors, self.connections, self.events)
        self.system.watch_hosts(self.descriptors, self.connections, self.events)
        await end_workers([connection for connection, _ in hosts])
        await settle(self.system, scenario.load.addresses, self.progress)
        await start_load(self.request, scenario.load, self.system, self.load, hosts, self.progress)
        added_before = await clean_start(
            scenario.load.addresses,
            self.request.purge,
            self._runs_by_tag(),
            self.system,
            self.load,
            self.events,
            self.progress,
        )
        self.system.record()
        await self.injections.arm(scenario.links, arm_ttl_s(scenario))
        # A runner that dies from here on leaves a run that can be analysed.
        contract.write_run(self.request.run_dir, replace(self.info, clocks=self._clocks()))
        return added_before

    async def _drill(self, added_before: Mapping[str, int]) -> None:
        """Follow the method from the steady state on."""
        scenario = self.scenario
        await until_steady(scenario.steady_state, self.system, self.load)
        # The load counts from here on: until now clients were starting, which says nothing about the broker.
        self.events.write("phase", at_ns=now_ns(), name="load", value="begin")
        self.progress.step(f"steady state: {self.load.totals().sent_ok} messages acknowledged")
        method = Method(
            self.request.topology,
            self.connections,
            self.system,
            self.load,
            self.injections,
            added_before,
            scenario.load.addresses,
            self.events,
            self.progress,
        )
        await method.take(scenario)
        await until_served_again(scenario.unserved_s(), scenario.load.addresses, self.load, self.system, self.progress)

    async def _heal(self) -> None:
        problems = await self.executor.heal_all()
        if problems:
            raise InfrastructureError("; ".join(problems))
        await self.load.replace_killed()

    async def _finish(self, outcome: str, drained: Mapping[str, bool]) -> list[str]:
        """Heal, end the load, collect: each whether or not the others work.

        Returns what did not, a sentence each; a run whose evidence is not whole is not completed.
        """
        problems: list[str] = []
        problems += await _tried(self.executor.heal_all(), problems) or []
        await _tried(self.load.close(), problems)
        self._note_left_over()
        until_ns = now_ns()
        lacking = await _tried(routers_still_lacking(self.system), problems) or {}
        await _tried(self.system.stop_watching(), problems)
        problems += self.system.failed_watches()
        for part in self._evidence(until_ns):
            await _tried(part, problems)
        # Restart them only now that the logs were read: these process ends are not the run's.
        await _tried(restart_routers(lacking, self.system, self.progress), problems)
        if problems and outcome == "completed":
            outcome = "aborted"
        await self.system.close()
        await self.executor.lease.give_back()
        with contextlib.suppress(BrokerdrillError):  # the hosts have their lease back, recorded or not
            self.journal.write("lease_back", "")
        self.events.close()
        self.journal.close()
        try:
            ended = contract.finished(self.info, outcome, drained=drained, clocks=self._clocks())
            contract.write_run(self.request.run_dir, ended)
        except BrokerdrillError as error:
            problems.append(str(error))
        return problems

    def _evidence(self, until_ns: int) -> Iterator[Awaitable[object]]:
        """All that is to be brought from the hosts into the run's directory, a part at a time; the run was over at
        `until_ns`."""
        run_dir = self.request.run_dir
        for worker in self.load.workers:
            yield fetch_spool(worker.connection, worker.spool, run_dir, self.events)
        since = self.system.recorded_since_ns
        since = self.events.base_ns if since is None else since
        instances = self.system.instances
        hosts = {name: one.descriptor.host for name, one in instances.items()}
        logged = [Logged(one.product, one.descriptor, one.connection) for one in instances.values()]
        # A voter's log shows whether it ended by the kill alone.
        hit = {item.instance: item for item in self.injections.hit() if item.instance not in instances and item.unit}
        logged += [Logged(None, item, self.connections[item.host]) for item in hit.values()]
        for instance, others in processes(logged):
            yield write_log(instance, others, (since, until_ns), self.events, run_dir, self.progress, hosts)
        yield keep_worker_errors(self.load.workers, run_dir)
        for name in self.connections:
            yield keep_command_outputs(
                [item for item in self.descriptors if item.host == name], self.connections, run_dir
            )

    def _clocks(self) -> dict[str, contract.Clock]:
        return clocks(self.load.workers, self.events.base_ns)
