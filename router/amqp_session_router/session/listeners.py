"""The listeners: which addresses are listened on, from one configuration and one process to the next."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from amqp_session_router.base.model import Listener
from amqp_session_router.net import listening_sockets
from amqp_session_router.net.socket_options import set_congestion_control, set_dead_peer_timeout
from amqp_session_router.net.tls import server_context
from amqp_session_router.session.acceptor import Acceptor, OpenListener
from amqp_session_router.session.session_table import SessionTable

Saved = tuple[str, str, int, list[int]]
"""A listener's name, host, port and descriptors."""


@dataclass(frozen=True, slots=True)
class _Inherited:
    """Sockets that listened before this process: the configuration has yet to ask for them."""

    host: str
    port: int
    sockets: list[socket.socket]


class Listeners:
    """See `model.Server`. What they accept goes to the `sessions`."""

    def __init__(
        self,
        sessions: SessionTable,
        shares: bool = False,
        keep: Callable[[Sequence[Saved]], None] | None = None,
    ) -> None:
        """`shares`: other workers listen on the same addresses; the kernel gives each connection to one of them.
        `keep` is called with all listeners whenever they change, for the service manager, which outlives the router."""
        self._sessions = sessions
        self._shares = shares
        self._keep = keep
        self._acceptor = Acceptor(sessions.loop, sessions.relay.poller, sessions.take_in, lambda: self._open.values())
        self._open: dict[str, OpenListener] = {}
        self._inherited: dict[str, _Inherited] = {}

    # --- model.Server -----------------------------------------------------------------------------------------------

    async def start(self, listener: Listener) -> None:
        """Listen, or apply new settings to the listener of this name; raises OSError if the address is taken."""
        context = None if listener.tls is None else server_context(listener.tls)
        old = self._open.get(listener.name)
        inherited = self._inherited.pop(listener.name, None)
        if inherited is not None and old is None:
            settings = replace(listener, host=inherited.host, port=inherited.port)
            old = OpenListener(settings, inherited.sockets, None)
        if old is not None and _address(old.settings) == _address(listener):
            sockets = old.sockets
            for sock in sockets:
                set_congestion_control(sock, listener.congestion_control, listener.host)
        else:
            sockets = self._taken_from_another(listener) or self._bind_instead(listener, old)
            if old is not None:
                self._shut(old)
        self._begin(OpenListener(listener, sockets, context))

    def _begin(self, opened: OpenListener) -> None:
        self._open[opened.settings.name] = opened
        self._acceptor.read(opened)
        self._note()

    def _note(self) -> None:
        """Have all listeners kept, for the next worker and beyond the router's end."""
        sockets = {name: (one.host, one.port, one.sockets) for name, one in self._inherited.items()}
        sockets |= {name: (one.settings.host, one.settings.port, one.sockets) for name, one in self._open.items()}
        listeners = [(name, host, port, [one.fileno() for one in own]) for name, (host, port, own) in sockets.items()]
        if self._sessions.journal is not None:
            self._sessions.journal.listeners(listeners)
        if self._keep is not None:
            self._keep(listeners)

    def _taken_from_another(self, listener: Listener) -> list[socket.socket]:
        """Return copies of the sockets of another listener with this address: a listener may change its name."""
        for name, one in self._open.items():
            if name != listener.name and _address(one.settings) == _address(listener) and listener.port:
                return [sock.dup() for sock in one.sockets]
        return []

    def _bind_instead(self, listener: Listener, old: OpenListener | None) -> list[socket.socket]:
        """Bind; where the listener's own old address is in the way, give that up first, and take it back on failure."""
        try:
            return self._bind(listener)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or old is None or old.settings.port != listener.port:
                raise
        self._shut(old)
        try:
            return self._bind(listener)
        except OSError:
            # For the time of a failed bind() nobody listened there.
            del self._open[listener.name]
            self._begin(OpenListener(old.settings, self._bind(old.settings), old.context))
            raise

    def _bind(self, listener: Listener) -> list[socket.socket]:
        return listening_sockets.listen(listener, self._shares, self._sessions.routing.timeouts.dead_peer)

    def check_free(self, listener: Listener) -> None:
        """See `listening_sockets.check_free`."""
        listening_sockets.check_free(listener)

    def _shut(self, opened: OpenListener) -> None:
        self._acceptor.unread(opened)
        listening_sockets.close_all(opened.sockets)
        opened.sockets = []

    def _shut_all(self) -> None:
        for opened in self._open.values():
            self._shut(opened)
        self._open.clear()

    async def stop(self, name: str) -> None:
        """Listen no more; its sessions stay. Raises KeyError."""
        self._shut(self._open.pop(name))
        self._note()

    def listening(self) -> Mapping[str, Listener]:
        """Return the listeners by name, with the port that is really bound."""
        return {
            name: replace(opened.settings, port=opened.sockets[0].getsockname()[1])
            for name, opened in self._open.items()
        }

    def renew(self) -> None:
        """Go by new time-outs, and read the files of TLS settings towards backends anew, for the next connections."""
        self._sessions.dialer.forget_tls()
        for one in self._open.values():
            for sock in one.sockets:
                set_dead_peer_timeout(sock, self._sessions.routing.timeouts.dead_peer)

    def exit(self, drain: float, rate: float | None = None) -> None:
        """See `model.Server`."""
        if not self._sessions.leaving:
            self._shut_all()
            if self._keep is not None:
                self._keep(())
        self._sessions.leave(drain, rate)

    def close(self) -> None:
        """Shut everything at once."""
        self._shut_all()
        self._sessions.close()

    # --- from one process to the next -------------------------------------------------------------------------------

    def inherit(self, name: str, host: str, port: int, sockets: list[socket.socket]) -> None:
        """Keep sockets that listen already for the listener of this name and address."""
        if (before := self._inherited.get(name)) is not None:
            listening_sockets.close_all(before.sockets)
        self._inherited[name] = _Inherited(host, port, sockets)
        self._note()

    def drop_inherited(self) -> None:
        """Close the sockets of listeners that the configuration does not have any more."""
        for one in self._inherited.values():
            listening_sockets.close_all(one.sockets)
        self._inherited.clear()
        self._note()

    def withdraw(self) -> dict[str, OpenListener]:
        """Accept no more; return all listeners with their sockets, which stay open for whoever accepts next."""
        withdrawn, self._open = self._open, {}
        for opened in withdrawn.values():
            self._acceptor.unread(opened)
        return withdrawn


def _address(listener: Listener) -> tuple[str, int]:
    return listener.host, listener.port
