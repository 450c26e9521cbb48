"""The load as the runner sees it: worker processes on the load hosts, started, told, counted and ended over pipes.

The workers' code is shipped from this package at every run, so that it is always the runner's own version.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import itertools
import json
import re
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brokerdrill.base.clock import Clock, Sample, estimate, now_ns
from brokerdrill.base.errors import InfrastructureError, Unmet
from brokerdrill.hosts.channels import Channel
from brokerdrill.hosts.connection import HostConnection
from brokerdrill.inventory.descriptors import LoadDescriptor
from brokerdrill.ledger.spool import SUFFIX
from brokerdrill.runner.last_words import last_words
from brokerdrill.workload.looking import Look, Seen
from brokerdrill.workload.tampering import Tampering

_PACKAGE = Path(__file__).parents[1]
_SHIPPED = (
    "__init__.py",
    "base/__init__.py",
    "base/atomic.py",
    "base/errors.py",
    "ledger/__init__.py",
    "ledger/contract.py",
    "ledger/coverage.py",
    "ledger/known.py",
    "ledger/spool.py",
    "promises",
    "workload",
)
CODE_DIR = "/run/brokerdrill/code"
READY_DEADLINE_S = 60
CLOSE_DEADLINE_S = 15
LOOK_DEADLINE_S = 60
_MODULE = "brokerdrill.workload.worker"
CLOCK_SAMPLES = 15
PONG_S = 10


def bundle() -> bytes:
    """Return a tar archive of what a worker needs of this package; the same bytes for the same code."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in _SHIPPED:
            for path in sorted([_PACKAGE / name, *(_PACKAGE / name).rglob("*.py")]):
                if path.suffix == ".py":
                    info = tarfile.TarInfo(f"brokerdrill/{path.relative_to(_PACKAGE).as_posix()}")
                    info.size = path.stat().st_size
                    archive.addfile(info, io.BytesIO(path.read_bytes()))
    return buffer.getvalue()


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


@dataclass
class Worker:
    """One worker process: where it runs, its clock, the newest status it sent, and what it said when it died."""

    name: str
    connection: HostConnection
    clock_name: str
    spool: str
    channel: Channel
    clock: Clock = field(default_factory=Clock)
    status: dict[str, Any] = field(default_factory=dict)
    reached: set[str] = field(default_factory=set)
    seen: list[Seen] = field(default_factory=list)
    refused: str | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    # Who waits for the answer to which ping; each has a number of its own, whenever its answer comes.
    pongs: dict[int, asyncio.Future[tuple[int, int]]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    fatal: str | None = None
    said: str = ""
    reader: asyncio.Task[None] | None = None

    async def read(self, on_change: Callable[[], None]) -> None:
        """Take in the worker's messages until it ends; an end without `closed` is fatal."""
        async for line in self.channel.lines():
            try:
                message = json.loads(line)
            except ValueError:
                continue
            event = message.get("event")
            if event == "status":
                self.status = message
            elif event == "pong":
                # Who does not wait any more has taken its number away.
                if (waiter := self.pongs.pop(message["n"], None)) and not waiter.done():
                    waiter.set_result((message["clock_ns"], now_ns()))
            elif event == "fatal":
                self.fatal = str(message.get("error"))
            elif event:
                if event == "tampered":
                    self.refused = message["problem"]
                if event == "looked":
                    self.seen = [Seen(**one) for one in message["seen"]]
                self.reached.add(event)
            self.changed.set()
            on_change()
        if "closed" not in self.reached and not self.fatal:
            ending = await self.channel.ending()
            self.said = ending.said
            self.fatal = ": ".join(filter(None, (ending.how, last_words(ending.said))))
        self.changed.set()
        on_change()

    async def tell(self, **command: Any) -> None:
        try:
            await self.channel.write(json.dumps(command))
        except (OSError, EOFError) as error:
            raise InfrastructureError(f"worker {self.name} is gone: {error}") from None

    async def until(self, event: str, deadline_s: float) -> None:
        """Wait for the worker's `event`. Raises Unmet when the deadline passes, InfrastructureError when it fails."""
        end = now_ns() + int(deadline_s * 1e9)
        while event not in self.reached:
            if self.fatal:
                raise InfrastructureError(f"worker {self.name} on {self.connection.name} failed: {self.fatal}")
            self.changed.clear()
            try:
                async with asyncio.timeout(max(0.0, (end - now_ns()) / 1e9)):
                    await self.changed.wait()
            except TimeoutError:
                raise Unmet(f"worker {self.name} was not {event} within {deadline_s:.0f} s") from None

    async def measured_clock(self) -> Clock:
        """Return how the worker's clock relates to the controller's now; one measurement at a time. Raises
        InfrastructureError where the worker does not answer."""
        samples = []
        for number in itertools.islice(self.numbers, CLOCK_SAMPLES):
            waiter: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
            self.pongs[number] = waiter
            asked = now_ns()
            await self.tell(cmd="ping", n=number)
            try:
                remote, answered = await asyncio.wait_for(waiter, PONG_S)
            except TimeoutError:
                raise InfrastructureError(f"worker {self.name} does not answer") from None
            finally:
                self.pongs.pop(number, None)
            samples.append(Sample(asked, remote, answered))
        return estimate(samples)


@dataclass(frozen=True)
class Totals:
    """Sums over all workers, in messages, of what their `Counts` say; `behind_s`: how far the worst producer is behind
    the rate that it keeps."""

    sent_ok: int
    sent_unknown: int
    sent_fail: int
    received: int
    producers_running: int
    behind_s: float = 0.0
    received_unknown: int = 0


class LoadControl:
    """All workers of one run."""

    def __init__(self, run: str, on_change: Callable[[], None]) -> None:
        self.workers: list[Worker] = []
        # Whether the producers were ever told to send, and whether they have not been told to stop since.
        self.begun = False
        self.sending = False
        self._subscribes = False
        self._run = run
        self._on_change = on_change

    async def start(
        self,
        hosts: Sequence[tuple[HostConnection, LoadDescriptor]],
        configs: Mapping[str, tuple[int, dict[str, Any]]],
        spool_name: str,
    ) -> None:
        """Start a worker for each of `configs` (name → (index of its host, its configuration)); wait until all are
        ready. Raises Unmet when one is not in time, InfrastructureError when one fails."""
        self._subscribes = any(config.get("subscriptions") for _, config in configs.values())
        code = bundle()
        folder = f"{CODE_DIR}/{hashlib.sha256(code).hexdigest()[:16]}"
        with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
            archive.write(code)
            archive.flush()
            await asyncio.gather(*(self._ship(connection, Path(archive.name), folder) for connection, _ in hosts))
        for name, (index, config) in configs.items():
            connection, descriptor = hosts[index]
            spool_dir = f"{descriptor.spool_dir}/{spool_name}"
            await connection.sh(f"mkdir -p {spool_dir}", check=True)
            environment = [
                f"PYTHONPATH={folder}:{descriptor.pythonpath}",
                f"JAVA_HOME={descriptor.java_home}",
                "PYTHONDONTWRITEBYTECODE=1",
            ]
            command = ["env", *environment, descriptor.python, "-u", "-m", _MODULE, self._run]
            channel = await connection.open(command)
            worker = Worker(name, connection, config["clock"], f"{spool_dir}/{name}{SUFFIX}", channel)
            worker.reader = asyncio.create_task(worker.read(self._on_change))
            self.workers.append(worker)
            await channel.write(
                json.dumps({**config, "spool": worker.spool, "jars": descriptor.jars.get(config["client"])})
            )
        await self.all_reach("ready", READY_DEADLINE_S)
        for worker in self.workers:
            worker.clock = await worker.measured_clock()

    async def _ship(self, connection: HostConnection, archive: Path, folder: str) -> None:
        if (await connection.sh(f"[ -d {folder} ]")).rc == 0:
            return
        await connection.sh(f"mkdir -p {folder}.new", check=True)
        await connection.put(archive, f"{folder}.tar")
        await connection.sh(
            f"tar -xf {folder}.tar -C {folder}.new && rm {folder}.tar && mv -T {folder}.new {folder}", check=True
        )

    async def look(self, looks: Sequence[Look]) -> list[Seen]:
        """Have one worker look, before the load begins; return what it saw. Raises Unmet where it is not over in time,
        InfrastructureError where the worker fails."""
        first = self.workers[0]
        first.reached.discard("looked")
        await first.tell(cmd="look", looks=[look.to_json() for look in looks])
        await first.until("looked", LOOK_DEADLINE_S)
        return first.seen

    async def tamper(self, wanted: Tampering, limit_s: float) -> None:
        """Have one worker do what is `wanted` to the drill's messages, beside its clients. Raises Unmet where it cannot
        within `limit_s`, InfrastructureError where the worker fails."""
        first = self.workers[0]
        first.reached.discard("tampered")
        await first.tell(cmd="tamper", tampering=wanted.to_json(), limit_s=limit_s)
        await first.until("tampered", limit_s + CLOSE_DEADLINE_S)
        if first.refused:
            raise Unmet(f"{wanted.count} messages of {wanted.address}: {wanted.how}: {first.refused}")

    async def stop(self, looks: Sequence[Look]) -> None:
        """Tell all workers to close, and one of them to look before; `closed` says that they have."""
        first, *others = self.workers
        await first.tell(cmd="stop", looks=[look.to_json() for look in looks])
        await asyncio.gather(*(worker.tell(cmd="stop") for worker in others))

    async def begin(self) -> None:
        """Let the producers send, once all subscriptions are there. Raises Unmet where one is not in time,
        InfrastructureError where a worker fails."""
        if self._subscribes:
            await self.tell_all(cmd="start")
            await self.all_reach("subscribed", READY_DEADLINE_S)
        self.begun = self.sending = True
        await self.tell_all(cmd="start_producers" if self._subscribes else "start")

    async def start_consumers(self) -> None:
        """Let the consumers of a load with a backlog begin."""
        await self.tell_all(cmd="start_consumers")

    async def stop_producers(self) -> None:
        """Tell the producers to stop; `producers_stopped` says that they have."""
        self.sending = False
        await self.tell_all(cmd="stop_producers")

    async def tell_all(self, **command: Any) -> None:
        await asyncio.gather(*(worker.tell(**command) for worker in self.workers))

    async def all_reach(self, event: str, deadline_s: float) -> None:
        await asyncio.gather(*(worker.until(event, deadline_s) for worker in self.workers))

    def totals(self) -> Totals:
        """The newest sums. Raises InfrastructureError as soon as a worker has failed."""
        for worker in self.workers:
            if worker.fatal:
                raise InfrastructureError(f"worker {worker.name} on {worker.connection.name} failed: {worker.fatal}")
        names = ("sent_ok", "sent_unknown", "sent_fail", "received", "received_unknown", "producers_running")
        behind_s = max((float(worker.status.get("behind_s", 0.0)) for worker in self.workers), default=0.0)
        counts = {name: sum(int(worker.status.get(name, 0)) for worker in self.workers) for name in names}
        return Totals(**counts, behind_s=behind_s)

    def left_by(self) -> dict[str, int]:
        """How many messages came that earlier runs had left behind, by the tag of their run."""
        return dict(sum((Counter(worker.status.get("left_by") or {}) for worker in self.workers), Counter()))

    def reached(self) -> Mapping[str, int]:
        """How many producers' newest connections reached each instance."""
        return sum((Counter(worker.status.get("reached") or {}) for worker in self.workers), Counter())

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
