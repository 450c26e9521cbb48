"""Options of TCP sockets: dead-peer detection and congestion control."""

from __future__ import annotations

import socket
from functools import lru_cache

from amqp_session_router.net.sockets import set_numbers

_TCP_USER_TIMEOUT = 18


def set_dead_peer_timeout(sock: socket.socket, dead_peer: float) -> None:
    """Let the kernel end the connection when the peer acknowledges nothing for `dead_peer` seconds; set TCP_NODELAY.

    On a listening socket: for every connection that it accepts.
    """
    set_numbers(sock.fileno(), _options(dead_peer))


@lru_cache(maxsize=8)
def _options(dead_peer: float) -> tuple[tuple[int, int, int], ...]:
    interval = max(1, round(dead_peer / 4))
    # TCP_USER_TIMEOUT overrides the number of keepalive probes (tcp(7)).
    return (
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, interval),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval),
        (socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, round(dead_peer * 1000)),
    )


def set_congestion_control(sock: socket.socket, name: str | None, address: str) -> None:
    """Use this TCP congestion control, or with None the host's; raises OSError where this host or user cannot.

    `address` is the peer's, or the one to listen on: what stays within this host crosses no line, and one that paces
    what is sent (bbr) would only cost. So there None stands for reno, which every kernel has and every user may use.
    On a listening socket: for all that it accepts.
    """
    if name is None and (address.startswith("127.") or address == "::1"):
        name = "reno"
    if name is not None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
