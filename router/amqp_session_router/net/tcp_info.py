"""Byte counts of a TCP connection, from the kernel (TCP_INFO)."""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
import termios
from typing import NamedTuple

# Of Linux's struct tcp_info (include/uapi/linux/tcp.h): state, how often the oldest bytes and the window's probe were
# sent again, ms since an acknowledgement; further on bytes received, not yet sent, sent, and sent again.
# Since Linux 4.19.
_STATE = struct.Struct("B")
_REPEATED, _ACKNOWLEDGED = struct.Struct("=2xBB"), struct.Struct("=56xI")
_RECEIVED, _NOT_SENT, _SENT = struct.Struct("=128xQ"), struct.Struct("=144xI"), struct.Struct("=200xQQ")
_SIZE = 216
_CLOSE = 7
_PEER_ENDED = frozenset({_CLOSE, 8, 9, 11})
"""The states CLOSE, CLOSE_WAIT, LAST_ACK, CLOSING: the end of the stream counts as one byte received."""


class TcpCounts(NamedTuple):
    """Bytes since the connection began."""

    read: int
    written: int


def counts(sock: socket.SocketType) -> TcpCounts:
    """Return the bytes that processes read from and wrote to a connected TCP socket; raises OSError.

    Bytes in the receive buffer are not read yet, bytes in the send buffer are written. Nobody may read or write
    meanwhile.
    """
    received = -1
    while True:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE)
        if len(info) < _SIZE:
            raise OSError(0, "this kernel does not count what is sent")
        before, received = received, _RECEIVED.unpack_from(info)[0] - (_STATE.unpack_from(info)[0] in _PEER_ENDED)
        if received == before:
            break
        # Two equal counts of received bytes: the receive buffer did not grow in between.
        waiting = unread(sock)
    sent, again = _SENT.unpack_from(info)
    return TcpCounts(received - waiting, sent - again + _NOT_SENT.unpack_from(info)[0])


class Unanswered(NamedTuple):
    """How often the same was sent without an answer, and the seconds since anything was acknowledged."""

    times: int
    seconds: float


def unanswered(sock: socket.SocketType) -> Unanswered | None:
    """Return how a TCP socket's peer leaves it without an answer, None if nothing waits for one; raises OSError.

    A peer that takes no more answers the probes of its window.
    """
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED.size)
    times = sum(_REPEATED.unpack_from(info))
    return Unanswered(times, _ACKNOWLEDGED.unpack_from(info)[0] / 1000) if times else None


def over(sock: socket.SocketType) -> bool:
    """Return whether the connection is over in both directions, as after a reset: its counts say nothing then."""
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _STATE.size)[0] == _CLOSE


def unread(sock: socket.SocketType) -> int:
    """Return the bytes in the receive buffer; raises OSError."""
    return int.from_bytes(fcntl.ioctl(sock, termios.FIONREAD, bytes(4)), sys.byteorder)
