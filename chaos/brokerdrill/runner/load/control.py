"""All workers of a run: started on the load hosts, commanded, counted and ended over pipes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from brokerdrill.base.errors import InfrastructureError, Unmet
from brokerdrill.hosts.connection import HostConnection
from brokerdrill.inventory.descriptors import LoadDescriptor
from brokerdrill.ledger.spool import SUFFIX
from brokerdrill.runner.load.plan import PlannedWorker
from brokerdrill.runner.load.shipping import ship
from brokerdrill.runner.load.worker import Worker
from brokerdrill.workload.config import WorkerConfig
from brokerdrill.workload.looking import Look, QueueContents
from brokerdrill.workload.tampering import Tampering

READY_DEADLINE_S = 60
CLOSE_DEADLINE_S = 15
LOOK_DEADLINE_S = 60
DEATH_DEADLINE_S = 15
# Between the name of a worker or client and the number of those that had its place before.
SUCCESSOR = "."
_MODULE = "brokerdrill.workload.worker"


async def end_workers(connections: Iterable[HostConnection], run: str = "") -> None:
    """Kill the workers of `run`, or of any, that still run on these hosts, and wait until they are gone.

    Who holds the hosts' lease may: before its load, any worker there is of a run that has ended. One that lived on
    would send into the next run. Raises InfrastructureError when one does not go.
    """
    # The bracket keeps the pattern from finding the shell that asks for it.
    pattern = f"[{_MODULE[0]}]{_MODULE[1:]} {re.escape(run) + '( |$)' if run else ''}"
    script = f"""n=0
while pids=$(pgrep -f '{pattern}'); do
  kill -9 $pids 2>/dev/null
  n=$((n + 1)); [ $n -lt 100 ] || exit 1
  sleep 0.1
done"""
    await asyncio.gather(*(connection.sh(script, check=True) for connection in connections))


@dataclass(frozen=True)
class Totals:
    """Sums over all workers, in messages, of what their `ClientCounts` say; `behind_s`: how far the worst producer is
    behind the rate that it keeps."""

    sent_ok: int
    sent_unknown: int
    sent_fail: int
    received: int
    producers_running: int
    behind_s: float = 0.0
    received_unknown: int = 0


@dataclass(frozen=True)
class _Origin:
    """What a worker was started from: its place, what it runs with, and how many had its place before it."""

    connection: HostConnection
    descriptor: LoadDescriptor
    config: WorkerConfig
    code: str
    spool_name: str
    number: int = 0

    def successor(self) -> _Origin:
        """Return what takes the place of this one's process: clients of the same kind, which are new ones, for nobody
        knows how far the old ones had come."""
        number = self.number + 1

        def name(old: str) -> str:
            return f"{old.partition(SUCCESSOR)[0]}{SUCCESSOR}{number}"

        config = self.config
        named = replace(
            config,
            worker=name(config.worker),
            clock=name(config.clock),
            producers=tuple(replace(one, name=name(one.name)) for one in config.producers),
            consumers=tuple(replace(one, name=name(one.name)) for one in config.consumers),
        )
        return replace(self, config=named, number=number)


class LoadControl:
    """All workers of one run. `on_started` is called with each that was started."""

    def __init__(
        self, run: str, on_change: Callable[[], None], on_started: Callable[[Worker], None] = lambda _: None
    ) -> None:
        self.workers: list[Worker] = []
        self._origins: dict[str, _Origin] = {}
        self._on_started = on_started
        # Whether the consumers were let begin, where they wait for that.
        self._consuming = False
        # Whether the producers were ever started, and whether they have not been stopped since.
        self.begun = False
        self.sending = False
        self._subscribes = False
        self._run = run
        self._on_change = on_change

    async def start(
        self,
        hosts: Sequence[tuple[HostConnection, LoadDescriptor]],
        planned: Sequence[PlannedWorker],
        spool_name: str,
    ) -> None:
        """Start each of the `planned` workers on its host of `hosts`; wait until all are ready. Raises Unmet when one
        is not in time, InfrastructureError when one fails."""
        self._subscribes = any(one.config.subscriptions for one in planned)
        code = await ship([connection for connection, _ in hosts])
        for one in planned:
            connection, descriptor = hosts[one.host]
            await self._start(_Origin(connection, descriptor, one.config, code, spool_name))
        await self.all_reach("ready", READY_DEADLINE_S)
        for worker in self.workers:
            worker.clock = await worker.measured_clock()

    async def _start(self, origin: _Origin) -> Worker:
        """Start a worker, with the code in the host's folder."""
        connection, descriptor, config = origin.connection, origin.descriptor, origin.config
        spool_dir = f"{descriptor.spool_dir}/{origin.spool_name}"
        await connection.sh(f"mkdir -p {spool_dir}", check=True)
        environment = [
            f"PYTHONPATH={origin.code}:{descriptor.pythonpath}",
            f"JAVA_HOME={descriptor.java_home}",
            "PYTHONDONTWRITEBYTECODE=1",
        ]
        command = ["env", *environment, descriptor.python, "-u", "-m", _MODULE, self._run]
        channel = await connection.open(command)
        spool = f"{spool_dir}/{config.worker}{SUFFIX}"
        worker = Worker(config.worker, connection, config.clock, spool, channel)
        worker.reader = asyncio.create_task(worker.read(self._on_change))
        self.workers.append(worker)
        self._origins[worker.name] = origin
        self._on_started(worker)
        here = replace(config, spool=spool, jars=descriptor.jars.get(config.client))
        await channel.write(json.dumps(here.to_json()))
        return worker

    @property
    def living(self) -> list[Worker]:
        """The workers that no fault has killed."""
        return [worker for worker in self.workers if not worker.dead]

    @contextlib.asynccontextmanager
    async def killed(self, host: str) -> AsyncIterator[list[str]]:
        """While a fault kills a worker of `host`: its end is no failure. Fills the list in the end with the names of
        the clients that were in it. Raises Unmet where none has ended a while after."""
        clients: list[str] = []
        there = [worker for worker in self.living if worker.connection.name == host]
        for worker in there:
            worker.may_die = True
        try:
            yield clients
            deaths = [asyncio.ensure_future(worker.dies(DEATH_DEADLINE_S)) for worker in there]
            done, late = await asyncio.wait(deaths, return_when=asyncio.FIRST_COMPLETED)
            for one in late:
                one.cancel()
            if not any(one.result() for one in done):
                raise Unmet(f"no worker of {host} has ended within {DEATH_DEADLINE_S} s")
            for config in (self._origins[worker.name].config for worker in there if worker.dead):
                clients += [one.name for one in (*config.producers, *config.consumers)]
        finally:
            for worker in there:
                worker.may_die = False

    async def replace_killed(self) -> None:
        """Start another worker in the place of each that a fault has killed, and let it do what the others do. Raises
        as `start` does."""
        for name in [worker.name for worker in self.workers if worker.dead and worker.name in self._origins]:
            worker = await self._start(self._origins.pop(name).successor())
            await worker.until("ready", READY_DEADLINE_S)
            worker.clock = await worker.measured_clock()
            if not self.begun:
                continue
            if not self.sending:
                await worker.send(cmd="stop_producers")
            await worker.send(cmd="start")
            if self._consuming:
                await worker.send(cmd="start_consumers")

    async def look(self, looks: Sequence[Look]) -> list[QueueContents]:
        """Have one worker look, before the load begins; return what it saw. Raises Unmet where it is not over in time,
        InfrastructureError where the worker fails."""
        first = self.living[0]
        first.reached.discard("looked")
        await first.send(cmd="look", looks=[look.to_json() for look in looks])
        await first.until("looked", LOOK_DEADLINE_S)
        return first.seen

    async def tamper(self, wanted: Tampering, limit_s: float) -> None:
        """Have one worker do what is `wanted` to the drill's messages, beside its clients. Raises Unmet where it cannot
        within `limit_s`, InfrastructureError where the worker fails."""
        first = self.living[0]
        first.reached.discard("tampered")
        await first.send(cmd="tamper", tampering=wanted.to_json(), limit_s=limit_s)
        await first.until("tampered", limit_s + CLOSE_DEADLINE_S)
        if first.refused:
            raise Unmet(f"{wanted.count} messages of {wanted.address}: {wanted.how}: {first.refused}")

    async def stop(self, looks: Sequence[Look]) -> None:
        """Ask all workers to close, and one of them to look before; `closed` says that they have."""
        first, *others = self.living
        await first.send(cmd="stop", looks=[look.to_json() for look in looks])
        await asyncio.gather(*(worker.send(cmd="stop") for worker in others))

    async def begin(self) -> None:
        """Let the producers send, once all subscriptions are there. Raises Unmet where one is not in time,
        InfrastructureError where a worker fails."""
        if self._subscribes:
            await self.send_all(cmd="start")
            await self.all_reach("subscribed", READY_DEADLINE_S)
        self.begun = self.sending = True
        await self.send_all(cmd="start_producers" if self._subscribes else "start")

    async def start_consumers(self) -> None:
        """Let the consumers of a load with a backlog begin."""
        self._consuming = True
        await self.send_all(cmd="start_consumers")

    async def stop_producers(self) -> None:
        """Ask the producers to stop; `producers_stopped` says that they have."""
        self.sending = False
        self._consuming = True
        await self.send_all(cmd="stop_producers")

    async def send_all(self, **command: Any) -> None:
        await asyncio.gather(*(worker.send(**command) for worker in self.living))

    async def all_reach(self, event: str, deadline_s: float) -> None:
        await asyncio.gather(*(worker.until(event, deadline_s) for worker in self.living))

    def totals(self) -> Totals:
        """The newest sums. Raises InfrastructureError as soon as a worker has failed."""
        for worker in self.workers:
            if worker.fatal:
                raise InfrastructureError(f"worker {worker.name} on {worker.connection.name} failed: {worker.fatal}")
        names = ("sent_ok", "sent_unknown", "sent_fail", "received", "received_unknown")
        behind_s = max((float(worker.status.get("behind_s", 0.0)) for worker in self.living), default=0.0)
        running = sum(int(worker.status.get("producers_running", 0)) for worker in self.living)
        counts = {name: sum(int(worker.status.get(name, 0)) for worker in self.workers) for name in names}
        return Totals(**counts, producers_running=running, behind_s=behind_s)

    def left_by(self) -> dict[str, int]:
        """How many messages came that earlier runs had left behind, by the tag of their run."""
        return dict(sum((Counter(worker.status.get("left_by") or {}) for worker in self.workers), Counter()))

    def reached(self) -> Mapping[str, int]:
        """How many producers' newest connections reached each instance."""
        return sum((Counter(worker.status.get("reached") or {}) for worker in self.living), Counter())

    def served(self, side: str) -> Mapping[str, int]:
        """How often each address had a success of `side` (send, receive)."""
        return sum((Counter((worker.status.get("served") or {}).get(side)) for worker in self.workers), Counter())

    async def close(self) -> None:
        """End every worker that still runs: its input ends, it closes its clients and goes; one that stays is killed.

        When this returns none of them can send any more.
        """
        await asyncio.gather(*(worker.channel.end_input() for worker in self.workers), return_exceptions=True)
        readers = [worker.reader for worker in self.workers if worker.reader]
        if readers:
            _, late = await asyncio.wait(readers, timeout=CLOSE_DEADLINE_S)
            if late:
                hosts = {worker.connection.name: worker.connection for worker in self.workers}
                await end_workers(hosts.values(), self._run)
        await asyncio.gather(*(worker.channel.close() for worker in self.workers), return_exceptions=True)
        for reader in readers:
            reader.cancel()
