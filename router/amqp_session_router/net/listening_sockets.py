"""The sockets of a listener: one for each address of its host."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from amqp_session_router.base.model import Listener
from amqp_session_router.net.socket_options import set_congestion_control, set_dead_peer_timeout

_BACKLOG = 4096


def listen(listener: Listener, shares: bool, dead_peer: float) -> list[socket.socket]:
    """Return sockets that listen; raises OSError if an address is taken, with none left open.

    `shares`: other workers listen there too, and the kernel gives each connection to one of them. `dead_peer`: see
    `model.Timeouts`.
    """
    sockets = _bound(listener, shares)
    try:
        for sock in sockets:
            set_dead_peer_timeout(sock, dead_peer)
            set_congestion_control(sock, listener.congestion_control, str(sock.getsockname()[0]))
            sock.listen(_BACKLOG)
    except OSError:
        close_all(sockets)
        raise
    return sockets


def check_free(listener: Listener) -> None:
    """Raise OSError if anybody listens at the listener's address. The workers of one router share it, and the kernel
    would let those of another router of the same user have a part of it unseen."""
    close_all(_bound(listener, shares=False))


def close_all(sockets: Iterable[socket.socket]) -> None:
    """Close them."""
    for sock in sockets:
        sock.close()


def _bound(listener: Listener, shares: bool) -> list[socket.socket]:
    """Return one bound socket for each address of the listener's host; `shares`: other workers may bind there too."""
    found = socket.getaddrinfo(listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sock = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shares:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, len(found) > 1)
            sock.bind(address)
    except OSError:
        close_all(sockets)
        raise
    return sockets
