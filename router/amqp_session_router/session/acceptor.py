"""Takes new connections from the sockets that listen."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from amqp_session_router.base.model import Listener
from amqp_session_router.base.native import accept
from amqp_session_router.net.poller import Poller

log = logging.getLogger(__name__)

_ACCEPTS = 64
"""The most connections that are accepted in one poll cycle, so that open sessions do not wait for all new ones."""
_NO_DESCRIPTOR_PAUSE = 0.2
_NO_CYCLE = -1
"""Sentinel: matches no poll cycle."""


@dataclass(slots=True)
class OpenListener:
    """One listener that is open."""

    settings: Listener
    sockets: list[socket.socket]
    context: ssl.SSLContext | None
    accepts: int = 1
    """How many connections it accepts at once. Start at one: a fruitless accept() costs half a send()."""
    cycle: int = _NO_CYCLE
    """The poll cycle in which it last accepted as many as it may, so that more may wait."""

    def drain_on_error(self) -> None:
        """Nothing is lost: a listening socket fails only where somebody has shut it down."""


TakeIn = Callable[[socket.SocketType, tuple[str, int], OpenListener], None]
"""Called with a new connection, its client's IP and port, and the listener that it came to."""


class Acceptor:
    """Accepts one connection where there is one, many where many come."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        poller: Poller,
        take_in: TakeIn,
        listeners: Callable[[], Iterable[OpenListener]],
    ) -> None:
        """`listeners`: returns those that are read, which all pause where there are no descriptors left."""
        self._loop = loop
        self._poller = poller
        self._take_in = take_in
        self._listeners = listeners
        self._resume: asyncio.TimerHandle | None = None

    def read(self, opened: OpenListener) -> None:
        """Accept what comes to this listener."""
        for sock in opened.sockets:
            self._poller.watch(sock.fileno(), opened)
            self._poller.read(sock.fileno(), partial(self._accept, sock.fileno(), opened))

    def unread(self, opened: OpenListener) -> None:
        """Accept no more of it. Idempotent."""
        for sock in opened.sockets:
            # Other processes may have the same socket.
            self._poller.leave(sock.fileno())

    def _accept(self, listening: int, opened: OpenListener) -> None:
        cycle = self._poller.turn
        # Readable in two poll cycles in a row: more connections come than were accepted.
        opened.accepts = min(2 * opened.accepts, _ACCEPTS) if cycle == opened.cycle + 1 else 1
        opened.cycle = cycle
        for _ in range(opened.accepts):
            try:
                found = accept(listening)
            except OSError as error:
                self._no_descriptor(error)
                return
            if found is None:
                opened.cycle = _NO_CYCLE
                return
            self._take_in(*found, opened)

    def _no_descriptor(self, error: OSError) -> None:
        """Wait a moment: the connection that could not be taken stays in the queue and would wake us at once."""
        log.error("cannot accept: %s", error.strerror)
        if self._resume is not None:
            return
        for opened in self._listeners():
            self.unread(opened)
        self._resume = self._loop.call_later(_NO_DESCRIPTOR_PAUSE, self._accept_again)

    def _accept_again(self) -> None:
        self._resume = None
        for opened in self._listeners():
            self.read(opened)
