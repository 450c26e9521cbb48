"""The executor of a scenario: from a deployed topology to a finished run directory.

The way is straight: connect, refuse, watch roles, arm links, start the load, follow the method, heal everything, drain,
collect. Whatever happens on it, heal and collect still come.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from brokerdrill import descriptors as desc
from brokerdrill import ledger
from brokerdrill.clock import now_ns
from brokerdrill.deploying import operate
from brokerdrill.descriptors import Descriptor
from brokerdrill.errors import BrokerdrillError, InfrastructureError, UsageError
from brokerdrill.events import CONTROLLER_CLOCK, EventWriter
from brokerdrill.faults.executor import Executor, Injection, left_over
from brokerdrill.faults.link import ARM
from brokerdrill.faults.registry import complete_params, fault_type
from brokerdrill.hosts import HostConnection, connected
from brokerdrill.journal import Journal
from brokerdrill.load_control import LoadControl, end_orphans
from brokerdrill.load_plan import worker_configs
from brokerdrill.locks import inventory_lock
from brokerdrill.products.base import Management, ManagementError, Product
from brokerdrill.products.registry import managed
from brokerdrill.progress import Progress
from brokerdrill.roles import RoleWatch
from brokerdrill.scenario import Action, Heal, LoadedScenario, Operation, Probe
from brokerdrill.targets import Scene, resolve
from brokerdrill.topology import Topology

POLL_S = 0.1
CONNECT_STEADY_S = 120
# journald stamps a line when it reads it from the broker's pipe, shortly after it was written.
LOG_UNCERTAINTY_NS = 5_000_000
# Faults outlive neither their own time-to-live nor, by much, the run.
ARM_TTL_MARGIN_S = 120


@dataclass(frozen=True)
class RunRequest:
    """What to run: a scenario on a topology, with a seed, into a new directory `run_dir`; `settings` say what was set
    for this run, and go to run.json as they are."""

    loaded: LoadedScenario
    topology: Topology
    run_dir: Path
    seed: int
    settings: Mapping[str, str] = field(default_factory=dict)


def new_run_dir(runs: Path, scenario: str, seed: int) -> Path:
    """The path of a run directory that does not exist yet: UTC time, scenario and seed."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S")
    path = runs / f"{stamp}-{scenario}-{seed}"
    number = 1
    while path.exists():
        number += 1
        path = runs / f"{stamp}-{scenario}-{seed}-{number}"
    return path


def check_request(request: RunRequest) -> None:
    """Refuse before anything is touched. Raises UsageError: drills not allowed here, or the run directory exists."""
    if not request.topology.drill_allowed:
        raise UsageError(
            f"inventory {request.topology.name} does not say `drill_allowed: true` for all its hosts: nothing touched"
        )
    if request.run_dir.exists():
        raise UsageError(f"run directory {request.run_dir} exists already")


async def run(request: RunRequest, progress: Progress) -> Path:
    """Run the scenario once and return the run directory, complete for the analysis.

    Raises UsageError where the request is wrong, InfrastructureError where the run could not be made. A run that was
    begun leaves its directory in any case, with outcome completed, aborted or crashed.
    """
    check_request(request)
    with inventory_lock(request.topology.directory):
        async with connected(request.topology.hosts) as connections:
            await refuse_left_over(connections.values())
            found = await desc.read_all(connections.values())
            session = _Session(request, connections, found, progress)
            await session.run()
    return request.run_dir


async def refuse_left_over(connections: Iterable[HostConnection]) -> None:
    """Raise InfrastructureError while any host holds an unhealed fault."""
    unhealed = await left_over(connections)
    if unhealed:
        what = "; ".join(f"{host}: {', '.join(ids)}" for host, ids in sorted(unhealed.items()))
        raise InfrastructureError(f"a fault of an earlier run is not healed ({what}); run `brokerdrill heal`")


class _Session:
    """One run, from its first file to its last."""

    def __init__(
        self,
        request: RunRequest,
        connections: dict[str, HostConnection],
        found: list[Descriptor],
        progress: Progress,
    ) -> None:
        self._request = request
        self._scenario = request.loaded.scenario
        self._connections = connections
        self._descriptors = found
        self._progress = progress
        self._base_ns = now_ns()
        self._roles_since_ns = self._base_ns
        self._run_id = request.run_dir.name
        self._tag = f"{self._run_id.split('-')[0][-6:]}{os.getpid():x}"
        self._managed: dict[str, tuple[Product, Descriptor, Management]] = {}
        self._changed = asyncio.Event()
        self._injections: dict[str, Injection] = {}
        self._roles_at: dict[str, dict[str, str]] = {}
        self._queues_before: dict[str, int] = {}
        self._rng = random.Random(request.seed)

    # --- the way ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        instances = managed(self._descriptors)
        load_hosts = [(self._connections[item.host], item) for item in self._descriptors if item.product == "load"]
        if not load_hosts:
            raise InfrastructureError(
                f"inventory {self._request.topology.name} has no host in group load for the clients"
            )
        run_dir = self._request.run_dir
        self._make_run_dir(run_dir)
        info = self._first_info(instances)
        ledger.write_run(run_dir, info)
        journal = Journal(run_dir)
        journal.write("run", "", inventory=str(self._request.topology.directory.resolve()))
        events = EventWriter(run_dir, self._run_id, self._base_ns)
        executor = Executor(self._connections, journal, events)
        load = LoadControl(self._request.topology.name, self._wake)
        outcome = "crashed"
        drained: dict[str, bool] = {}
        watch: RoleWatch | None = None
        try:
            await self._open_management(instances)
            watch = RoleWatch(
                {
                    name: (item if product.client else item.model_copy(update={"store": None}), management)
                    for name, (product, item, management) in self._managed.items()
                },
                events,
                self._role_changed,
            )
            watch.start()
            await end_orphans([connection for connection, _ in load_hosts], self._request.topology.name)
            await self._settle(watch)
            self._roles_since_ns = watch.record()
            await self._arm_links(executor, watch)
            await self._start_load(load, load_hosts)
            for worker in load.workers:
                journal.write("worker", "", host=worker.connection.name, spool=worker.spool)
            # A runner that dies from here on leaves a run that can be analysed.
            ledger.write_run(run_dir, replace(info, clocks=self._clocks(load)))
            await self._follow(load, executor, events, watch)
            outcome = "completed"
            await self._heal(executor)
            drained = await self._drain(load, events, watch)
        except (asyncio.CancelledError, Exception) as error:
            outcome = "aborted" if isinstance(error, (asyncio.CancelledError, BrokerdrillError)) else "crashed"
            with contextlib.suppress(BrokerdrillError):
                reason = "interrupted" if isinstance(error, asyncio.CancelledError) else str(error)
                events.write("abort", at_ns=now_ns(), value=reason[:500])
            raise
        finally:
            await self._finish(info, outcome, drained, executor, load, events, journal, watch)

    async def _finish(
        self,
        info: ledger.RunInfo,
        outcome: str,
        drained: dict[str, bool],
        executor: Executor,
        load: LoadControl,
        events: EventWriter,
        journal: Journal,
        watch: RoleWatch | None,
    ) -> None:
        """Heal, end the load, collect: each whether or not the others work; then say what did not."""
        problems = await executor.heal_all()
        await load.close()
        if watch:
            try:
                await watch.stop()
            except Exception as error:  # a watch that had died left the run with roles that were no longer live
                problems.append(f"the watch of the live roles failed: {type(error).__name__}: {error}")
        try:
            for worker in load.workers:
                await self._collect(worker.connection, worker.spool)
            await self._write_log_roles(events)
            await self._keep_evidence()
        except BrokerdrillError as error:
            problems.append(str(error))
        for _, _, management in self._managed.values():
            await management.close()
        events.close()
        journal.close()
        try:
            ended = ledger.finished(info, outcome, drained=drained, clocks=self._clocks(load))
            ledger.write_run(self._request.run_dir, ended)
        except OSError as error:
            problems.append(f"run.json cannot be written: {error.strerror}: {self._request.run_dir}")
        if problems:
            raise InfrastructureError("; ".join(problems))

    # --- the run's files ----------------------------------------------------------------------------------------

    def _make_run_dir(self, run_dir: Path) -> None:
        try:
            run_dir.mkdir(parents=True)
            (run_dir / ledger.OPS_DIR).mkdir()
        except FileExistsError:
            raise UsageError(f"run directory {run_dir} exists already") from None
        except OSError as error:
            raise InfrastructureError(f"run directory {run_dir} cannot be made: {error.strerror}") from None

    def _first_info(self, instances: Sequence[tuple[Product, Descriptor]]) -> ledger.RunInfo:
        stores: dict[str, list[str]] = {}
        dead: dict[str, str] = {}
        for product, item in instances:
            # What nobody sends to, as a database, is watched and drilled; the ledger's stores are the brokers'.
            if item.store and product.client:
                stores.setdefault(item.store, []).append(item.instance)
            for address in item.addresses:
                if address.dead_letter and address.name in self._scenario.load.addresses:
                    dead[address.name] = address.dead_letter
        loaded = self._request.loaded
        return ledger.new_run(
            self._run_id,
            scenario=ledger.Scenario(loaded.name, loaded.text, loaded.sha256),
            topology=self._request.topology.name,
            inventory_sha256=self._request.topology.sha256,
            versions={item.product: item.version for item in self._descriptors if item.version},
            settings=self._request.settings,
            seed=self._request.seed,
            started_at=datetime.datetime.now(datetime.UTC).isoformat(),
            expect=self._scenario.expect(),
            promises=tuple(promise.spec() for promise in self._scenario.promises),
            stores={store: tuple(sorted(names)) for store, names in stores.items()},
            dead_letters=dead,
            clocks={CONTROLLER_CLOCK: ledger.Clock("controller")},
        )

    def _clocks(self, load: LoadControl) -> dict[str, ledger.Clock]:
        """All clocks of the run so far: the controller's counts from the run's start, a worker's from its own."""
        workers = {
            item.clock_name: ledger.Clock(
                item.connection.name, item.clock.offset_ns - self._base_ns, item.clock.uncertainty_ns
            )
            for item in load.workers
        }
        return {CONTROLLER_CLOCK: ledger.Clock("controller"), **workers}

    async def _collect(self, connection: HostConnection, spool: str) -> None:
        """Bring a worker's spool into the run directory; the host keeps it until it is here."""
        local = self._request.run_dir / ledger.OPS_DIR / Path(spool).name
        await connection.fetch(spool, local)
        await connection.sh(f"rm -f {spool}; rmdir {Path(spool).parent} 2>/dev/null || :")

    async def _keep_evidence(self) -> None:
        """Keep what descriptors say is worth looking at after a run: what each command prints, or why it did not."""
        for item in self._descriptors:
            for name, command in (item.extra("evidence") or {}).items():
                result = await self._connections[item.host].sh(command, timeout=60)
                folder = self._request.run_dir / "evidence"
                folder.mkdir(exist_ok=True)
                (folder / f"{item.instance}-{name}.txt").write_text(result.out if result.rc == 0 else result.err)

    async def _write_log_roles(self, events: EventWriter) -> None:
        """Add the exact role times that the brokers' logs prove."""
        for product, item, _ in self._managed.values():
            connection = self._connections[item.host]
            lines = await read_log(connection, item, self._roles_since_ns - connection.clock.offset_ns)
            for change in product.log_roles(lines):
                events.write(
                    "role",
                    at_ns=change.t_ns + connection.clock.offset_ns,
                    uncertainty_ns=LOG_UNCERTAINTY_NS + connection.clock.uncertainty_ns,
                    target=item.host,
                    instance=item.instance,
                    store=item.store if product.client else None,
                    name="log",
                    value=change.role,
                    detail={"log": change.why},
                )

    # --- before the load ----------------------------------------------------------------------------------------

    async def _open_management(self, instances: Sequence[tuple[Product, Descriptor]]) -> None:
        for product, item in instances:
            connection = self._connections[item.host]
            credentials = await desc.read_credentials(connection, item)
            ca = (await connection.sh(f"cat -- '{item.tls['ca']}'", check=True)).out if item.tls else ""
            self._managed[item.instance] = (product, item, product.manage(item, credentials, ca))

    async def _settle(self, watch: RoleWatch) -> None:
        """Wait until the topology is in sync and its queues are empty.

        A primary that came back is in sync for a moment before it takes its role back, and no broker answers then.
        """
        self._progress.step("wait until every store has one active instance and the others are in sync")
        end = now_ns() + int(CONNECT_STEADY_S * 1e9)
        while True:
            await self._until(lambda: self._in_sync(watch), CONNECT_STEADY_S, "the topology was not in sync", watch)
            self._queues_before.clear()
            try:
                await self._purge(watch)
                return
            except ManagementError:
                if now_ns() > end:
                    raise
            await self._wait_change(POLL_S)

    async def _purge(self, watch: RoleWatch) -> None:
        """Take away what an earlier run left in the addresses of this one: it would count as unexpected."""
        names = [*self._scenario.load.addresses, *self._dead_letters()]
        for management in self._active(watch):
            removed = await management.purge(names)
            if removed:
                self._progress.step(f"removed {removed} messages that an earlier run left in {', '.join(names)}")
            for address, counts in (await management.counts(self._scenario.load.addresses)).items():
                self._queues_before[address] = self._queues_before.get(address, 0) + counts.added

    def _dead_letters(self) -> list[str]:
        return sorted({a.dead_letter for _, item, _ in self._managed.values() for a in item.addresses if a.dead_letter})

    async def _arm_links(self, executor: Executor, watch: RoleWatch) -> None:
        abort = self._scenario.abort
        ttl = abort.duration + abort.drain + self._scenario.steady_state.timeout + ARM_TTL_MARGIN_S
        for index, spec in enumerate(self._scenario.links, 1):
            target = resolve(self._scene(watch), spec)
            self._progress.step(f"arm {target.describe()}")
            await executor.inject(f"arm-{index}", ARM, target, {}, ttl, self._tag)

    async def _start_load(self, load: LoadControl, hosts: Sequence[tuple[HostConnection, Descriptor]]) -> None:
        product, first, _ = next(iter(self._managed.values()))
        if product.client is None:
            raise InfrastructureError(f"product {product.name} has no client protocol for a load")
        credentials = await desc.read_credentials(self._connections[first.host], first)
        configs = worker_configs(
            run_id=self._run_id,
            seed=self._request.seed,
            protocol=self._scenario.load.client or product.client,
            load=self._scenario.load,
            brokers=[item for product, item, _ in self._managed.values() if product.client],
            credentials=credentials,
            hosts=[item for _, item in hosts],
        )
        self._progress.step(f"start {len(configs)} workers on {', '.join(sorted({c.name for c, _ in hosts}))}")
        await load.start(hosts, configs, self._run_id)

    # --- the method ---------------------------------------------------------------------------------------------

    async def _follow(self, load: LoadControl, executor: Executor, events: EventWriter, watch: RoleWatch) -> None:
        deadline = asyncio.get_running_loop().time() + self._scenario.abort.duration
        guard = asyncio.create_task(self._watch_abort(load, watch))
        await load.tell_all(cmd="start")
        try:
            async with asyncio.timeout_at(deadline):
                steps = asyncio.create_task(self._steps(load, executor, events, watch))
                try:
                    await asyncio.wait({steps, guard}, return_when=asyncio.FIRST_COMPLETED)
                    if guard.done():
                        guard.result()
                    await steps
                finally:
                    steps.cancel()
                    with contextlib.suppress(asyncio.CancelledError, Exception):
                        await steps
        except TimeoutError:
            raise InfrastructureError(
                f"abort: load and method took longer than {self._scenario.abort.duration:.0f} s"
            ) from None
        finally:
            guard.cancel()

    async def _watch_abort(self, load: LoadControl, watch: RoleWatch) -> None:
        """End with an InfrastructureError when a worker fails or nothing is acknowledged for too long."""
        best, since = -1, now_ns()
        while True:
            acknowledged = load.totals().sent_ok
            if acknowledged != best:
                best, since = acknowledged, now_ns()
            silent = (now_ns() - since) / 1e9
            if silent > self._scenario.abort.silence:
                raise InfrastructureError(f"abort: no send was acknowledged for {silent:.0f} s")
            self._progress.tick(self._status_line(load, watch))
            await self._wait_change(0.5)

    def _status_line(self, load: LoadControl, watch: RoleWatch) -> str:
        totals = load.totals()
        roles = "  ".join(f"{name} {role}" for name, role in sorted(watch.roles.items()))
        return f"{totals.sent_ok} acknowledged  {totals.received} received  {totals.sent_unknown} unknown   {roles}"

    async def _steps(self, load: LoadControl, executor: Executor, events: EventWriter, watch: RoleWatch) -> None:
        steady = self._scenario.steady_state
        await self._until(
            lambda: load.totals().sent_ok >= steady.acknowledged and self._in_sync(watch),
            steady.timeout,
            "no steady state",
            watch,
        )
        # The load counts from here on: until now clients were starting, which says nothing about the broker.
        events.write("phase", at_ns=now_ns(), name="load", value="begin")
        self._progress.step(f"steady state: {load.totals().sent_ok} messages acknowledged")
        for step in self._scenario.method:
            await asyncio.sleep(step.pauses.before)
            if isinstance(step, Action):
                target = resolve(self._scene(watch), step.target)
                self._progress.step(f"inject {step.name}: {step.fault} {target.describe()}")
                self._roles_at[step.name] = dict(watch.roles)
                fault = fault_type(step.fault)
                params = complete_params(fault, step.params)
                self._injections[step.name] = await executor.inject(
                    step.name, fault, target, params, step.ttl, self._tag
                )
            elif isinstance(step, Heal):
                self._progress.step(f"heal {step.of}")
                await executor.heal(self._injections[step.of])
            elif isinstance(step, Operation):
                await self._operate(step, events)
            else:
                await self._probe(step, load, events, watch)
            await asyncio.sleep(step.pauses.after)

    async def _operate(self, step: Operation, events: EventWriter) -> None:
        """Run a playbook while the load goes on; when it began and ended is in the ledger."""
        begun = now_ns()
        self._progress.step(f"{step.name}: playbook {step.playbook}")
        events.write("note", at_ns=begun, name=step.name, value=f"playbook {step.playbook} begins")
        extra = ["--extra-vars", json.dumps(step.variables)] if step.variables else []
        try:
            async with asyncio.timeout(step.timeout):
                await operate(self._request.topology, step.playbook, self._progress, extra)
        except TimeoutError:
            raise InfrastructureError(
                f"operation {step.name}: playbook {step.playbook} took longer than {step.timeout:.0f} s"
            ) from None
        took = (now_ns() - begun) / 1e9
        value = f"playbook {step.playbook} is done"
        events.write("note", at_ns=now_ns(), name=step.name, value=value, detail={"seconds": f"{took:.3f}"})
        self._progress.step(f"{step.name}: {value} after {took:.1f} s")

    async def _probe(self, step: Probe, load: LoadControl, events: EventWriter, watch: RoleWatch) -> None:
        begun = now_ns()
        if step.until == "unanswered":
            await self._until_unanswered(step, load, watch)
        else:
            condition = self._condition(step, load, watch)
            await self._until(condition, step.timeout, f"probe {step.name}: not {step.until}", watch)
        took = (now_ns() - begun) / 1e9
        events.write("probe", at_ns=now_ns(), name=step.name, value=step.until, detail={"seconds": f"{took:.3f}"})
        self._progress.step(f"{step.name}: {step.until.replace('_', ' ')} after {took:.1f} s")

    def _condition(self, step: Probe, load: LoadControl, watch: RoleWatch) -> Callable[[], bool]:
        """The condition of a probe as a function without arguments; it starts counting now."""
        start = load.totals().sent_ok
        moved: list[int] = []
        injection = self._injections.get(step.of or "")
        hit = {item.instance for item in injection.target.instances} if injection else set()
        stores = {item.store for item in injection.target.instances} if injection else set()

        def acknowledged_since(place: bool) -> bool:
            # The broker's new place must prove itself: messages acknowledged after it was seen active.
            if not place:
                moved.clear()
                return False
            if not moved:
                moved.append(load.totals().sent_ok)
            return load.totals().sent_ok >= moved[0] + step.count

        def others_active() -> bool:
            return any(
                watch.roles.get(name) == "active" and name not in hit and item.store in stores
                for name, (_, item, _) in self._managed.items()
            )

        conditions: dict[str, Callable[[], bool]] = {
            "failed_over": lambda: acknowledged_since(others_active()),
            "failed_back": lambda: acknowledged_since(
                bool(hit) and all(watch.roles.get(name) == "active" for name in hit)
            ),
            "kept": lambda: acknowledged_since(
                all(
                    watch.roles.get(name) == "active"
                    for name in self._brokers()
                    if self._roles_at.get(step.of or "", {}).get(name) == "active"
                )
            ),
            "syncing": lambda: "syncing" in watch.roles.values(),
            "in_sync": lambda: self._in_sync(watch),
            "acknowledged": lambda: load.totals().sent_ok >= start + step.count,
        }
        return conditions[step.until]

    async def _until_unanswered(self, step: Probe, load: LoadControl, watch: RoleWatch) -> None:
        """Wait until the brokers hold `count` more messages than were acknowledged, twice in a row with no reply
        between: sends have arrived, and their replies have not."""
        end = now_ns() + int(step.timeout * 1e9)
        before = -1
        while True:
            acknowledged = load.totals().sent_ok
            added = 0
            for management in self._active(watch):
                counts = await management.counts(self._scenario.load.addresses)
                added += sum(item.added - self._queues_before.get(name, 0) for name, item in counts.items())
            if added - acknowledged >= step.count and acknowledged == before:
                return
            before = acknowledged
            if now_ns() > end:
                raise InfrastructureError(
                    f"probe {step.name}: {added - acknowledged} sends unanswered, not {step.count}, "
                    f"within {step.timeout:.0f} s"
                )
            await asyncio.sleep(0.3)

    # --- after the method ---------------------------------------------------------------------------------------

    async def _heal(self, executor: Executor) -> None:
        problems = await executor.heal_all()
        if problems:
            raise InfrastructureError("; ".join(problems))

    async def _drain(self, load: LoadControl, events: EventWriter, watch: RoleWatch) -> dict[str, bool]:
        """Stop the producers, let the consumers take what is left, close; say of each address whether it is empty."""
        addresses = self._scenario.load.addresses
        limit = self._scenario.abort.drain
        self._progress.step("stop the producers, drain")
        events.write("phase", at_ns=now_ns(), name="load", value="end")
        await load.tell_all(cmd="stop_producers")
        await load.all_reach("producers_stopped", limit)
        events.write("phase", at_ns=now_ns(), name="drain", value="begin")
        drained = dict.fromkeys(addresses, False)
        end = now_ns() + int(limit * 1e9)
        quiet = 0
        # Twice in a row: a message in flight between two counters is in neither. And with every store served, or what
        # it holds is not counted; whether it has a backup is of no matter here.
        while quiet < 2 and now_ns() < end:
            drained = await self._empty(addresses, watch)
            quiet = quiet + 1 if all(drained.values()) and self._served(watch) else 0
            load.totals()
            await asyncio.sleep(2 * POLL_S)
        if quiet < 2 and not self._served(watch):
            drained = dict.fromkeys(addresses, False)
        await load.tell_all(cmd="stop", browse=self._dead_letters())
        await load.all_reach("closed", limit)
        events.write("phase", at_ns=now_ns(), name="drain", value="end")
        totals = load.totals()
        self._progress.step(f"drained: {totals.sent_ok} messages acknowledged, {totals.received} received")
        return drained

    async def _empty(self, addresses: Sequence[str], watch: RoleWatch) -> dict[str, bool]:
        empty = dict.fromkeys(addresses, True)
        for management in self._active(watch):
            try:
                counts = await management.counts(addresses)
                # Either may become messages of any address.
                elsewhere = await management.prepared() + await management.in_transit()
            except ManagementError:
                return dict.fromkeys(addresses, False)
            for address in addresses:
                empty[address] &= elsewhere == 0 and address in counts and counts[address].empty
        return empty

    # --- small parts --------------------------------------------------------------------------------------------

    def _role_changed(self, name: str, role: str) -> None:
        self._progress.step(f"{name} is {role}")
        self._wake()

    def _wake(self) -> None:
        self._changed.set()

    async def _wait_change(self, at_most_s: float) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), at_most_s)

    def _scene(self, watch: RoleWatch) -> Scene:
        return Scene(self._descriptors, watch.roles, self._rng)

    def _brokers(self) -> list[str]:
        """The instances that clients send to."""
        return [name for name, (product, _, _) in self._managed.items() if product.client]

    def _active(self, watch: RoleWatch) -> list[Management]:
        """The management of every active instance that clients send to."""
        return [
            management
            for name, (product, _, management) in self._managed.items()
            if watch.roles[name] == "active" and product.client
        ]

    def _by_store(self, watch: RoleWatch) -> list[list[str | None]]:
        """The roles of each store's instances, None where nothing is known of one."""
        by_store: dict[str, list[str | None]] = {}
        for name, (_, item, _) in self._managed.items():
            by_store.setdefault(item.store or name, []).append(watch.roles[name])
        return [*by_store.values()]

    def _served(self, watch: RoleWatch) -> bool:
        """Every store has exactly one active instance, and no instance is down."""
        stores = self._by_store(watch)
        down = any(role in (None, "down") for roles in stores for role in roles)
        return not down and all(roles.count("active") == 1 for roles in stores)

    def _in_sync(self, watch: RoleWatch) -> bool:
        """Every store has exactly one active instance, and all its others are passive."""
        return self._served(watch) and all(
            role in ("active", "passive") for roles in self._by_store(watch) for role in roles
        )

    async def _until(self, condition: Callable[[], bool], limit_s: float, failure: str, watch: RoleWatch) -> None:
        end = now_ns() + int(limit_s * 1e9)
        while not condition():
            if now_ns() > end:
                roles = ", ".join(f"{name} {role or 'silent'}" for name, role in sorted(watch.roles.items()))
                raise InfrastructureError(f"{failure} within {limit_s:.0f} s ({roles})")
            await self._wait_change(POLL_S)


async def read_log(connection: HostConnection, item: Descriptor, since_ns: int) -> list[tuple[int, str]]:
    """Return (monotonic ns of the host, text) of each line that the unit's journal got since `since_ns`.

    None of an instance whose descriptor says `log: null`: it shares a process and its log with another one.
    """
    if not item.unit or (item.model_extra or {}).get("log", "journal") is None:
        return []
    script = f"journalctl -u {item.unit} -o json --output-fields=MESSAGE --no-pager --since=-2h"
    result = await connection.sh(script, timeout=60, check=True)
    return parse_journal(result.out, since_ns)


def parse_journal(text: str, since_ns: int) -> list[tuple[int, str]]:
    """Parse journalctl's JSON lines; `__MONOTONIC_TIMESTAMP` is in µs. Binary messages come as lists of bytes."""
    lines = []
    for line in text.splitlines():
        entry = json.loads(line)
        t_ns = int(entry["__MONOTONIC_TIMESTAMP"]) * 1000
        message = entry.get("MESSAGE") or ""
        if isinstance(message, list):
            message = bytes(message).decode(errors="replace")
        if t_ns >= since_ns:
            lines.append((t_ns, message))
    return lines
