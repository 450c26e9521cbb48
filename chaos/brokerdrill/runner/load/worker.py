"""One worker process as the runner sees it: commands go to its standard input, messages come from its output."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from brokerdrill.base.clock import ClockOffset, Sample, estimate, now_ns
from brokerdrill.base.errors import InfrastructureError, Unmet
from brokerdrill.hosts.channels import Channel
from brokerdrill.hosts.connection import HostConnection
from brokerdrill.workload.looking import QueueContents
from brokerdrill.workload.stacks import innermost

CLOCK_SAMPLES = 15
PONG_S = 10
_FRAME = "Problematic frame"


@dataclass
class Worker:
    """One worker process: where it runs, its clock, the newest status it sent, and what it said when it died."""

    name: str
    connection: HostConnection
    clock_name: str
    spool: str
    channel: Channel
    clock: ClockOffset = field(default_factory=ClockOffset)
    status: dict[str, Any] = field(default_factory=dict)
    reached: set[str] = field(default_factory=set)
    seen: list[QueueContents] = field(default_factory=list)
    refused: str | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    # Waiters by the number of their ping: an answer that comes late must not answer the next ping.
    pongs: dict[int, asyncio.Future[tuple[int, int]]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    fatal: str | None = None
    # A fault may kill it, and has: it is no failure.
    may_die: bool = False
    dead: bool = False
    said: str = ""
    # The calls that clients were in which did not end when they had to, the innermost first, by the client's name.
    stacks: dict[str, list[str]] = field(default_factory=dict)
    reader: asyncio.Task[None] | None = None

    async def read(self, on_change: Callable[[], None]) -> None:
        """Take in the worker's messages until it ends; an end without `closed` is fatal, unless a fault may kill it."""
        async for line in self.channel.lines():
            try:
                message = json.loads(line)
            except ValueError:
                continue
            event = message.get("event")
            if event == "status":
                self.status = message
            elif event == "pong":
                # A waiter that gave up has removed its number.
                if (waiter := self.pongs.pop(message["n"], None)) and not waiter.done():
                    waiter.set_result((message["clock_ns"], now_ns()))
            elif event == "fatal":
                self.fatal = str(message.get("error"))
            elif event:
                if event == "tampered":
                    self.refused = message["problem"]
                if event == "looked":
                    self.seen = [QueueContents(**one) for one in message["seen"]]
                if event == "where":
                    self.stacks = message["stacks"]
                self.reached.add(event)
            self.changed.set()
            on_change()
        if self.may_die and "closed" not in self.reached and not self.fatal:
            self.dead = True
        elif "closed" not in self.reached and not self.fatal:
            ending = await self.channel.ending()
            self.said = ending.said
            self.fatal = ": ".join(filter(None, (ending.how, exit_reason(ending.said))))
        self.changed.set()
        on_change()

    async def send(self, **command: Any) -> None:
        """Send a command. Raises InfrastructureError where the worker is gone."""
        try:
            await self.channel.write(json.dumps(command))
        except (OSError, EOFError) as error:
            raise InfrastructureError(f"worker {self.name} is gone: {error}") from None

    async def until(self, event: str, deadline_s: float) -> None:
        """Wait for the worker's `event`. Raises Unmet when the deadline passes, which says what the clients that are
        waited for are at, and InfrastructureError when the worker fails."""
        if not await self._reached(event, deadline_s):
            raise Unmet(f"worker {self.name} was not {event} within {deadline_s:.0f} s{await self._at_what()}")

    async def _reached(self, event: str, deadline_s: float) -> bool:
        """Wait for `event`, at most `deadline_s`; return whether it came. Raises InfrastructureError where the worker
        fails."""
        return await self._comes(lambda: event in self.reached, deadline_s)

    async def dies(self, deadline_s: float) -> bool:
        """Wait for the end of a worker that a fault may kill, at most `deadline_s`; return whether it came."""
        return await self._comes(lambda: self.dead, deadline_s)

    async def _comes(self, here: Callable[[], bool], deadline_s: float) -> bool:
        end = now_ns() + int(deadline_s * 1e9)
        while not here():
            if self.fatal:
                raise InfrastructureError(f"worker {self.name} on {self.connection.name} failed: {self.fatal}")
            self.changed.clear()
            try:
                async with asyncio.timeout(max(0.0, (end - now_ns()) / 1e9)):
                    await self.changed.wait()
            except TimeoutError:
                return False
        return True

    async def _at_what(self) -> str:
        """Ask the worker what the clients that are waited for are at; return that in words, "" where none is. Raises
        InfrastructureError where it fails meanwhile."""
        self.reached.discard("where")
        await self.send(cmd="where")
        if not await self._reached("where", PONG_S):
            return ", nor does it say what its clients are at"
        return "".join(f"; {name} is in {innermost(calls)}" for name, calls in self.stacks.items())

    async def measured_clock(self) -> ClockOffset:
        """Return how the worker's clock relates to the controller's now; one measurement at a time. Raises
        InfrastructureError where the worker does not answer."""
        samples = []
        for number in itertools.islice(self.numbers, CLOCK_SAMPLES):
            waiter: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
            self.pongs[number] = waiter
            asked = now_ns()
            await self.send(cmd="ping", n=number)
            try:
                remote, answered = await asyncio.wait_for(waiter, PONG_S)
            except TimeoutError:
                raise InfrastructureError(f"worker {self.name} does not answer") from None
            finally:
                self.pongs.pop(number, None)
            samples.append(Sample(asked, remote, answered))
        return estimate(samples)


def exit_reason(said: str) -> str:
    """Return why a process says that it ends, "" where it says nothing: its last line of standard error, or, of a Java
    virtual machine's report of its own death, what befell it and where."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # The lines of a report begin with "#"; what follows it, if it is whole, are registers, stacks and maps.
    report = [line.lstrip("# ").rstrip(":.") for line in lines if line.startswith("#") and line.strip("# ")]
    if report:
        where = report[report.index(_FRAME) + 1 :][:1] if _FRAME in report else []
        return "; ".join([*report[:2], *where])
    return lines[-1] if lines else ""
