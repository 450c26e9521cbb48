"""Connections to hosts that last: commands with their times, clocks, files and forwarded ports.

A host is reached by SSH, or directly where the inventory says `ansible_connection: local`. Everything above this module
sees the same `HostConnection`. When a session is lost, because the network was cut or the host restarted, the next one
who needs the host makes a new one, and what may be done twice is asked again.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from brokerdrill.base.clock import ClockOffset, now_ns
from brokerdrill.base.errors import BrokerdrillError, InfrastructureError
from brokerdrill.hosts import agent
from brokerdrill.hosts.channels import Channel
from brokerdrill.hosts.login import CONNECT_TIMEOUT_S, AnotherHost
from brokerdrill.hosts.session import Lost, Session, begin
from brokerdrill.inventory.topology import Host

T = TypeVar("T")

# How long a host may be away, unless its inventory says otherwise: a machine that restarts takes minutes.
AWAY_S = 180.0
AWAY_VARIABLE = "drill_reconnect_s"
# Seconds between two attempts to reach it again, from the first to the longest, and for one attempt.
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 2.0
ATTEMPT_S = 10.0


class Unanswered(InfrastructureError):
    """A host was asked to do something that must not be done twice, and was lost before it answered: it may have done
    it. `asked_ns` and `lost_ns`: when (controller's clock)."""

    def __init__(self, said: str, asked_ns: int, lost_ns: int) -> None:
        super().__init__(said)
        self.asked_ns, self.lost_ns = asked_ns, lost_ns


class KernelRefused(InfrastructureError):
    """A host's safety kernel does not do what it was asked for."""


class NoKernel(InfrastructureError):
    """No safety kernel was ever installed on that host."""


@dataclass(frozen=True)
class Result:
    """What a script did: exit status, output, and its begin and end in ns on the host's monotonic clock."""

    rc: int
    out: str
    err: str
    t0_ns: int
    t1_ns: int


def _unnoticed(_: str, __: str) -> None:
    pass


class HostConnection:
    """One host, connected: `sh` runs a script there, `clock` relates its monotonic clock to the controller's.

    `notice(value, why)` is called when it is `lost` and when it is `back` or `restarted`.
    """

    def __init__(self, session: Session) -> None:
        self.notice: Callable[[str, str], None] = _unnoticed
        # The clock of each start of the host that this connection has met, by its boot id.
        self.boots: dict[str, ClockOffset] = {session.boot_id: session.clock}
        self._session = session
        # What else was started in them may go on, where only the agent ended.
        self._past: list[Session] = []
        self._renewal: asyncio.Task[Session] | None = None
        self._told_of: Session | None = None
        self._away_s = float(session.host.vars.get(AWAY_VARIABLE, AWAY_S))

    @property
    def host(self) -> Host:
        return self._session.host

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def clock(self) -> ClockOffset:
        """The clock of the host as it runs now."""
        return self._session.clock

    @property
    def boot_id(self) -> str:
        """Which start of the host it is."""
        return self._session.boot_id

    async def sh(
        self, script: str, *, stdin: str = "", timeout: float = 30, check: bool = False, once: bool = False
    ) -> Result:
        """Run `script` with /bin/sh as root and return its Result. It is run again where the host was lost meanwhile;
        with `once` it is not.

        Raises InfrastructureError when the host does not answer, or is away for too long, or, with `check`, when the
        script fails; Unanswered when the host was lost after it was asked `once`.
        """
        message = {"sh": script, "stdin": stdin, "timeout": timeout}
        reply = await self._lasting(lambda session: session.request(message, timeout + 10), once)
        result = Result(reply["rc"], reply["out"], reply["err"], reply["t0"], reply["t1"])
        if check and result.rc != 0:
            what = (result.err or result.out).strip().splitlines()
            raise InfrastructureError(f"host {self.name}: {what[-1] if what else f'exit status {result.rc}'}")
        return result

    async def kernel(self, verb: str, *, timeout: float = 30, once: bool = False, **values: Any) -> dict[str, Any]:
        """Ask the host's safety kernel: its method `verb` with `values`; `once` as of `sh`.

        Raises Refused with its sentence, NoKernel where none is installed, InfrastructureError when its kernel breaks,
        and as `sh` else.
        """
        message = {"kernel": verb, "with": values}
        reply = await self._lasting(lambda session: session.request(message, timeout + 10), once)
        if reply["rc"] != 0:
            kinds = {agent.REFUSED: KernelRefused, agent.MISSING: NoKernel}
            raise kinds.get(reply["rc"], InfrastructureError)(f"host {self.name}: {reply['err']}")
        return json.loads(reply["out"])

    async def read(self, paths: Sequence[str], *, timeout: float = 10) -> dict[str, str]:
        """Return the text of each of the host's files that can be read; no process is started for it. Raises as
        `sh`."""
        reply = await self._lasting(lambda session: session.request({"read": [*paths]}, timeout))
        return dict(json.loads(reply["out"]))

    async def measure_clock(self) -> ClockOffset:
        """Measure the host's clock anew. Raises as `sh`."""
        return await self._lasting(lambda session: session.measure_clock())

    async def open(self, command: list[str], *, cwd: str = "/") -> Channel:
        """Start `command` on the host with its standard input and output piped to the returned Channel, which ends with
        the session. Raises as `sh`, once."""
        return await self._lasting(lambda session: session.open(command, cwd=cwd), once=True)

    async def fetch(self, remote: str, local: Path, *, offset: int = 0) -> None:
        """Copy the file `remote` of the host to `local`; from its byte `offset` on to the end of what is in `local`.
        Raises InfrastructureError when it cannot; what came by then is in `local`."""
        if not offset:
            local.unlink(missing_ok=True)
        with contextlib.closing(_opened(local)) as file:

            async def rest(session: Session) -> None:
                # After a session that was lost it goes on where that one was.
                words = f"exec tail -c +{file.seek(0, 2) + 1} -- {shlex.quote(remote)}"
                await session.copy(words, sink=file)

            await self._lasting(rest)

    async def put(self, local: Path, remote: str) -> None:
        """Copy the local file to `remote` on the host. Raises InfrastructureError when it cannot."""
        with local.open("rb") as source:

            async def whole(session: Session) -> None:
                source.seek(0)
                await session.copy(f"exec cat > {shlex.quote(remote)}", source=source)

            await self._lasting(whole)

    async def forward(self, address: str, port: int) -> int:
        """Return a loopback port of the controller that leads to (`address`, `port`) as the host sees it. It is good
        until the host is lost, so ask for it each time that you need it. Raises as `sh`."""
        return await self._lasting(lambda session: session.forward(address, port))

    async def close(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)
        await asyncio.gather(*(session.close() for session in (self._session, *self._past)))

    async def _lasting(self, work: Callable[[Session], Awaitable[T]], once: bool = False) -> T:
        """Return what `work` does in a session; where one is lost meanwhile, in the next one, unless `once` and it may
        have been done."""
        until_ns: int | None = None
        while True:
            session = await self._connected()
            asked_ns = now_ns()
            try:
                return await work(session)
            except Lost as lost:
                lost_ns = session.lost_ns or now_ns()
                if once and lost.asked:
                    raise Unanswered(
                        f"host {self.name} was asked and was lost before it answered: {lost}", asked_ns, lost_ns
                    ) from None
                until_ns = until_ns or lost_ns + int(self._away_s * 1e9)
                if now_ns() > until_ns:
                    raise InfrastructureError(f"host {self.name} is lost again and again: {lost}") from None

    async def _connected(self) -> Session:
        """Return a session that is not known to be lost. Raises InfrastructureError when the host is away too long."""
        if self._session.lost_ns is None:
            return self._session
        # One renewal for all who wait; who gives up waiting does not end it.
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._renew(self._session))
            self._renewal.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._renewal)

    async def _renew(self, old: Session) -> Session:
        if self._told_of is not old:  # who asks again while it is away says nothing new
            self._told_of = old
            self.notice("lost", old.end.why)
        self._session = await self._again(old)
        self._past.append(old)
        self.boots[self._session.boot_id] = self._session.clock
        assert old.lost_ns is not None
        value = "back" if old.boot_id == self._session.boot_id else "restarted"
        self.notice(value, f"after {(now_ns() - old.lost_ns) / 1e9:.1f} s")
        return self._session

    async def _again(self, old: Session) -> Session:
        """Return a new session. Who asks after the time that a host may be away makes one attempt."""
        assert old.lost_ns is not None
        until_ns = old.lost_ns + int(self._away_s * 1e9)
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return await begin(self.host, ATTEMPT_S)
            except AnotherHost:
                raise
            except InfrastructureError as error:
                if now_ns() + int(pause_s * 1e9) > until_ns:
                    away_s = (now_ns() - old.lost_ns) / 1e9
                    raise InfrastructureError(
                        f"host {self.name} is lost for {away_s:.0f} s ({old.end.why}): {error}"
                    ) from None
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _opened(path: Path) -> io.FileIO:
    try:
        return path.open("ab", buffering=0)
    except OSError as error:
        raise InfrastructureError(f"{path} cannot be written: {error.strerror}") from None


async def connect(host: Host, timeout_s: float = CONNECT_TIMEOUT_S) -> HostConnection:
    """Connect to `host`, which lets us in within `timeout_s`, and start the agent there. Raises InfrastructureError,
    naming the host, when it cannot."""
    return HostConnection(await begin(host, timeout_s))


@contextlib.asynccontextmanager
async def reachable(
    hosts: Iterable[Host], timeout_s: float = CONNECT_TIMEOUT_S
) -> AsyncIterator[tuple[dict[str, HostConnection], dict[str, BrokerdrillError]]]:
    """Connect to `hosts` at once; yield those that let us in within `timeout_s` by name, and what keeps the others from
    it; close them at the end."""
    tasks = {host.name: asyncio.ensure_future(connect(host, timeout_s)) for host in hosts}
    try:
        done = dict(zip(tasks, await asyncio.gather(*tasks.values(), return_exceptions=True), strict=True))
        away = {name: outcome for name, outcome in done.items() if isinstance(outcome, BrokerdrillError)}
        there = {name: outcome for name, outcome in done.items() if isinstance(outcome, HostConnection)}
        for name in done.keys() - away.keys() - there.keys():
            raise done[name]  # type: ignore[misc]
        yield there, away
    finally:
        for task in tasks.values():
            task.cancel()
        ended = [task for task in tasks.values() if task.done() and not task.cancelled() and not task.exception()]
        await asyncio.gather(*(task.result().close() for task in ended), return_exceptions=True)


async def away(hosts: Iterable[Host], timeout_s: float) -> dict[str, BrokerdrillError]:
    """Return what keeps each of `hosts` from letting us in within `timeout_s`, by name; nothing of those that do."""
    async with reachable(hosts, timeout_s) as (_, found):
        return found


@contextlib.asynccontextmanager
async def connected(hosts: Iterable[Host]) -> AsyncIterator[dict[str, HostConnection]]:
    """Connect to all `hosts` at once; yield them by name; close them at the end. Raises InfrastructureError for the
    first that cannot be reached."""
    async with reachable(hosts) as (connections, away):
        for error in away.values():
            raise error
        yield connections
