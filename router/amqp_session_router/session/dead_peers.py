"""Finds the peers of open sessions that acknowledge nothing while bytes wait for them.

An idle connection's keepalive does the same. TCP_USER_TIMEOUT would do both, and would end, too, whoever takes no more
for a while: a broker in alarm, a consumer that takes its time. They answer the probes of their window, and live.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from amqp_session_router.base.paced import Steps, paced, strides
from amqp_session_router.net.tcp_info import Unanswered
from amqp_session_router.net.transport import Transport

_LOOKS = 4
"""Looks at each connection in the time that a peer may be silent."""
_REPEATS = 3
"""What was not sent so often may just have been sent."""


class WatchedSession(Protocol):
    """A session, as it is looked at here."""

    @property
    def ends(self) -> tuple[Transport, ...]:
        """The connections of an open session, the client's first; none before it is open and while it closes."""

    def peer_dead(self, transport: Transport, seconds: float) -> None:
        """The peer of one of `ends` has acknowledged nothing for so long."""


class Silence:
    """What was seen of one connection whose peer does not answer."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: float | None = None

    def lasts(self, seen: Unanswered | None, now: float) -> float:
        """Take in what a look saw at `now`; return the seconds for which the peer has been silent, as far as is known.

        The time since the last acknowledgement says nothing by itself: there may have been nothing to acknowledge.
        """
        if seen is None or (self._since is not None and now - seen.seconds > self._since):
            self._since = None
        if seen is None:
            return 0.0
        if self._since is None:
            self._since = now
        return now - self._since if seen.times >= _REPEATS else 0.0


class DeadPeers:
    """Looks at all sessions, some at a time, and ends those whose peer is dead."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sessions: Callable[[], Iterable[WatchedSession]],
        dead_peer: Callable[[], float],
    ) -> None:
        """`dead_peer` gives the seconds that a peer may be silent: they change with the configuration."""
        self._loop = loop
        self._sessions = sessions
        self._dead_peer = dead_peer
        self._silent: dict[Transport, Silence] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._wait()

    def _wait(self) -> None:
        self._timer = self._loop.call_later(self._dead_peer() / _LOOKS, self._begin)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._look())

    async def _look(self) -> None:
        await paced(self._steps())
        self._task = None
        self._wait()

    def _steps(self) -> Steps[None]:
        before, self._silent = self._silent, {}
        for stride in strides(self._sessions()):
            for session in stride:
                for transport in session.ends:
                    self._look_at(session, transport, before.get(transport))
            yield

    def _look_at(self, session: WatchedSession, transport: Transport, silence: Silence | None) -> None:
        try:
            seen = transport.unanswered()
        except OSError:
            # Whoever reads from it sees that it failed.
            return
        if seen is None:
            return
        silence = silence or Silence()
        seconds = silence.lasts(seen, self._loop.time())
        if seconds >= self._dead_peer():
            session.peer_dead(transport, seconds)
        else:
            self._silent[transport] = silence

    def close(self) -> None:
        """Look no more."""
        for one in (self._timer, self._task):
            if one is not None:
                one.cancel()
        self._timer = self._task = None
