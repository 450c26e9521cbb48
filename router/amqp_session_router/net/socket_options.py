"""Options of TCP sockets: dead-peer detection, congestion control and the receive window."""

from __future__ import annotations

import socket
from functools import lru_cache

from amqp_session_router.base.native import set_options

_WINDOW = 1 << 18
"""Bytes of a receive window behind which several of the largest segments (64 KiB on loopback) can wait."""


_PROBES = 3


def set_dead_peer_timeout(sock: socket.SocketType, dead_peer: float) -> None:
    """Let the kernel end an idle connection whose peer acknowledges nothing for `dead_peer` seconds; set TCP_NODELAY.

    On a listening socket: for every connection that it accepts. Not by TCP_USER_TIMEOUT: that ends a connection, too,
    whose peer takes no more for a while, as a broker in alarm does. Where bytes wait `session.dead_peers` looks.
    """
    set_options(sock.fileno(), _options(dead_peer))


@lru_cache(maxsize=8)
def _options(dead_peer: float) -> tuple[tuple[int, int, int], ...]:
    interval = max(1, round(dead_peer / (1 + _PROBES)))
    return (
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, interval),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES),
    )


def set_congestion_control(sock: socket.SocketType, name: str | None, address: str) -> None:
    """Use this TCP congestion control, or with None the host's; raises OSError where this host or user cannot.

    `address` is the peer's, or the one to listen on: what stays within this host crosses no line, and one that paces
    what is sent (bbr) would only cost. So there None stands for reno, which every kernel has and every user may use.
    On a listening socket: for all that it accepts.
    """
    if name is None and (address.startswith("127.") or address == "::1"):
        name = "reno"
    if name is not None:
        set_options(sock.fileno(), ((socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode()),))


def widen_receive_window(sock: socket.SocketType) -> None:
    """Let a TCP socket's receive buffer hold 256 KiB at least; the kernel goes on adapting it. Raises OSError.

    A sender makes no segment larger than half of the widest window that it was offered. Where one message of some 60 kB
    after the other came, and was peeked at, the kernel was seen to leave the window as it was: each took two segments
    and an acknowledgement. SO_RCVBUF would end the kernel's adapting. The least that makes a socket readable
    (SO_RCVLOWAT) makes room for itself, and the room stays.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _WINDOW)
    wake_for_any_byte(sock)


def wake_for_any_byte(sock: socket.SocketType) -> None:
    """Let a socket be readable from one byte on. Raises OSError."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
