"""Both ends of the benchmark: a broker that only shakes hands and then swallows or echoes, and clients for it."""

from __future__ import annotations

import os
import resource
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator

HEADER = b"AMQP\x00\x00\x09\x01"
FRAME_MAX = 131072


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """Return a frame."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def _short(text: bytes) -> bytes:
    return bytes((len(text),)) + text


def _long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _field(name: bytes, text: bytes) -> bytes:
    return _short(name) + b"S" + _long(text)


_CAPABILITIES = b"".join(
    _short(name) + b"t\x01"
    for name in (b"publisher_confirms", b"basic.nack", b"connection.blocked", b"authentication_failure_close")
)
_TABLE = (
    _field(b"product", b"RabbitMQ") + _field(b"version", b"1") + _short(b"capabilities") + b"F" + _long(_CAPABILITIES)
)
START = frame(1, 0, b"\x00\x0a\x00\x0a\x00\x09" + _long(_TABLE) + _long(b"PLAIN AMQPLAIN") + _long(b"en_US"))
START_OK = frame(1, 0, b"\x00\x0a\x00\x0b" + _long(_TABLE) + _short(b"PLAIN") + _long(b"\0a\0b") + _short(b"en_US"))
TUNE = frame(1, 0, struct.pack(">IHIH", 10 << 16 | 30, 2047, FRAME_MAX, 60))
TUNE_OK = frame(1, 0, struct.pack(">IHIH", 10 << 16 | 31, 2047, FRAME_MAX, 0))
OPEN_OK = frame(1, 0, b"\x00\x0a\x00\x29\x00")
CLOSE = frame(1, 0, b"\x00\x0a\x00\x32\x00\xc8\x00\x00\x00\x00\x00")
CLOSE_OK = frame(1, 0, b"\x00\x0a\x00\x33")


def open_frame(vhost: str) -> bytes:
    """Return Connection.Open."""
    return frame(1, 0, b"\x00\x0a\x00\x28" + _short(vhost.encode()) + b"\x00\x00")


def message(size: int) -> bytes:
    """Return basic.publish, header and body frames of a message with `size` bytes."""
    out = frame(1, 1, b"\x00\x3c\x00\x28\x00\x00" + _short(b"") + _short(b"benchmark") + b"\x00")
    out += frame(2, 1, b"\x00\x3c\x00\x00" + struct.pack(">QH", size, 0))
    body, step = os.urandom(size), FRAME_MAX - 8
    return out + b"".join(frame(3, 1, body[at : at + step]) for at in range(0, size, step))


def comes_back(sock: socket.socket, size: int = 100) -> None:
    """Send a message by a session to a peer that echoes, and see it come back. Raises AssertionError where the session
    was lost on the way."""
    sent, got = message(size), b""
    sock.sendall(sent)
    while len(got) < len(sent):
        data = sock.recv(65536)
        assert data, "a session was lost"
        got += data
    assert got == sent


def read_frame(sock: socket.socket) -> bytes:
    """Return one whole frame."""
    data = bytearray()
    while len(data) < 7 or len(data) < int.from_bytes(data[3:7], "big") + 8:
        if not (chunk := sock.recv(65536)):
            raise ConnectionError("the peer ended")
        data += chunk
    return bytes(data)


def dial(port: int, vhost: str) -> socket.socket:
    """Return an open AMQP connection; raises TimeoutError where it is not open in a minute."""
    sock = socket.create_connection(("127.0.0.1", port), 60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(HEADER)
    read_frame(sock)
    sock.sendall(START_OK)
    read_frame(sock)
    sock.sendall(TUNE_OK + open_frame(vhost))
    if read_frame(sock) != OPEN_OK:
        raise ConnectionError("no Open-Ok")
    sock.settimeout(None)
    return sock


# --- the broker: one epoll loop; a bulk connection gets a thread of its own -------------------------------------


def _swallow(sock: socket.socket) -> None:
    sock.setblocking(True)
    buffer = bytearray(1 << 20)
    while sock.recv_into(buffer):
        pass
    sock.close()


def serve(port: int) -> None:
    """Answer handshakes forever. The vhost says what comes then: `bulk` is swallowed, all else echoed."""
    listening = socket.create_server(("127.0.0.1", port), backlog=4096)
    listening.setblocking(False)
    poll = select.epoll()
    poll.register(listening, select.EPOLLIN)
    sessions: dict[int, Iterator[None]] = {}
    sockets: dict[int, socket.socket] = {}

    def session(sock: socket.socket) -> Iterator[None]:
        data = b""

        def whole(answer: bytes) -> Iterator[None]:
            nonlocal data
            while len(data) < 7 or len(data) < int.from_bytes(data[3:7], "big") + 8:
                yield
                if not (chunk := sock.recv(65536)):
                    raise ConnectionError
                data += chunk
            if answer:
                sock.sendall(answer)

        while len(data) < 8:
            yield
            if not (chunk := sock.recv(65536)):
                raise ConnectionError
            data += chunk
        data = data[8:]
        sock.sendall(START)
        for answer in (TUNE, b"", OPEN_OK):
            yield from whole(b"")
            size = int.from_bytes(data[3:7], "big") + 8
            opened, data = data[:size], data[size:]
            if answer is OPEN_OK and b"bulk" in opened:
                poll.unregister(sock)
                sock.sendall(OPEN_OK)
                threading.Thread(target=_swallow, args=(sock,), daemon=True).start()
                raise StopIteration
            sock.sendall(answer)
        while True:
            yield
            if not (chunk := sock.recv(65536)):
                raise ConnectionError
            sock.sendall(CLOSE_OK if chunk == CLOSE else chunk)

    while True:
        for number, _ in poll.poll():
            if number == listening.fileno():
                while True:
                    try:
                        sock, _ = listening.accept()
                    except BlockingIOError:
                        break
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    sockets[sock.fileno()] = sock
                    sessions[sock.fileno()] = session(sock)
                    next(sessions[sock.fileno()])
                    poll.register(sock, select.EPOLLIN)
                continue
            try:
                next(sessions[number])
            except (ConnectionError, OSError):
                del sessions[number]
                sockets.pop(number).close()
            except (StopIteration, RuntimeError):
                del sessions[number], sockets[number]


# --- clients ----------------------------------------------------------------------------------------------------


def bulk(port: int, size: int, total: int) -> int:
    """Send at least `total` bytes of messages of `size` bytes; returns how many. All have arrived when it returns."""
    sock = dial(port, "bulk")
    block = message(size) * max(1, (1 << 20) // len(message(size)))
    sent = 0
    while sent < total:
        sock.sendall(block)
        sent += len(block)
    sock.shutdown(socket.SHUT_WR)
    sock.settimeout(60)
    while sock.recv(65536):
        pass
    sock.close()
    return sent


def round_trips(port: int, count: int, body: int) -> None:
    """Send one message and wait for its echo, `count` times."""
    sock = dial(port, "echo")
    data = message(body)
    for _ in range(count):
        sock.sendall(data)
        left = len(data)
        while left:
            left -= len(sock.recv(65536))
    sock.close()


def echoed(socks: list[socket.socket], count: int, body: int) -> None:
    """Send `count` messages of `body` bytes over all `socks`, each session's next one when its last has come back."""
    data = memoryview(message(body))
    poll = select.epoll()
    both = select.EPOLLIN | select.EPOLLOUT
    by_number = {sock.fileno(): sock for sock in socks}
    begun = min(count, len(socks))
    unsent = dict.fromkeys([*by_number][:begun], len(data))
    unseen = dict(unsent)
    for number in unsent:
        by_number[number].setblocking(False)
        poll.register(number, both)
    while unseen:
        if not (events := poll.poll(60)):
            raise TimeoutError("echoes are missing")
        for number, event in events:
            sock = by_number[number]
            if event & select.EPOLLOUT:
                unsent[number] -= sock.send(data[len(data) - unsent[number] :])
                if not unsent[number]:
                    poll.modify(number, select.EPOLLIN)
            if event & select.EPOLLIN:
                if not (got := len(sock.recv(1 << 18))):
                    raise ConnectionError("a session was lost")
                unseen[number] -= got
                if not unseen[number] and begun < count:
                    begun += 1
                    unsent[number] = unseen[number] = len(data)
                    poll.modify(number, both)
                elif not unseen[number]:
                    del unseen[number]
                    poll.unregister(number)


def connections(port: int, count: int) -> None:
    """Open and close sessions, one after the other, politely."""
    for _ in range(count):
        sock = dial(port, "echo")
        sock.sendall(CLOSE)
        read_frame(sock)
        sock.close()


def paced(socks: list[socket.socket], rate: float, seconds: float, body: int) -> list[float]:
    """Send `rate` messages a second over all `socks` in turn; returns each echo's time in seconds.

    A message's time counts from when it was due, so that a stall is not hidden by what was not sent meanwhile.
    """
    data = message(body)
    poll = select.epoll()
    due: dict[int, list[float]] = {}
    left: dict[int, int] = {}
    by_number = {sock.fileno(): sock for sock in socks}
    for sock in socks:
        sock.setblocking(False)
        poll.register(sock, select.EPOLLIN)
        due[sock.fileno()], left[sock.fileno()] = [], 0
    numbers = [*by_number]
    times: list[float] = []
    begin = time.perf_counter()
    sent = 0
    while True:
        now = time.perf_counter() - begin
        if now > seconds and not any(due.values()):
            return times
        if now > seconds + 20:
            raise TimeoutError("echoes are missing")
        while sent / rate <= now < seconds:
            number = numbers[sent % len(numbers)]
            by_number[number].sendall(data)
            due[number].append(sent / rate)
            left[number] += len(data)
            sent += 1
        for number, _ in poll.poll(max(0.0, sent / rate - (time.perf_counter() - begin)) if now < seconds else 0.1):
            got = len(by_number[number].recv(65536))
            if not got:
                raise ConnectionError("a session was lost")
            left[number] -= got
            now = time.perf_counter() - begin
            while due[number] and left[number] <= (len(due[number]) - 1) * len(data):
                times.append(now - due[number].pop(0))


def many(port: int, count: int, vhost: str = "echo") -> list[socket.socket]:
    """Return `count` open sessions."""
    return [dial(port, vhost) for _ in range(count)]


def most_descriptors() -> int:
    """Allow as many descriptors as this user may have, for this process and its children; returns how many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


if __name__ == "__main__":
    first, _, last = sys.argv[2].partition("-")
    os.sched_setaffinity(0, range(int(first), int(last or first) + 1))
    serve(int(sys.argv[1]))
