"""Plays one case towards one port and notes what the client saw."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass
from typing import NamedTuple

from amqp_session_router.amqp import codec, frames

NAME = b"@CASE-NAME-@"
"""In what a case sends: the name of its queue, which is another at each play, of the same length."""
PATIENCE = 40.0
"""Seconds for all that a case waits for; RabbitMQ itself waits three before it ends what it does not understand."""


class Seen(NamedTuple):
    """What came: frames as type, channel and payload; what came behind the last whole one; how it ended."""

    frames: tuple[tuple[int, int, bytes], ...]
    rest: bytes
    end: str
    """`end`, `reset` or `open`: it had not ended in time."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send these bytes, in pieces of so many (0: at once)."""

    data: bytes
    pieces: int = 0


@dataclass(frozen=True, slots=True)
class Await:
    """Go on once a frame with this method has come on this channel, or the connection has ended."""

    method: int
    channel: int = 0
    times: int = 1


@dataclass(frozen=True, slots=True)
class AwaitBytes:
    """Go on once so many bytes of bodies have come, or the connection has ended."""

    count: int


@dataclass(frozen=True, slots=True)
class HalfClose:
    """Say that nothing more will be sent."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Read nothing while the other end sends, until its bytes fill what lies between or it sends no more."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Another client, at the broker itself, publishes a message to the queue of the case: size of headers and body."""

    headers: int
    body: int


Step = Send | Await | AwaitBytes | HalfClose | Stall | Publish


class _Client:
    """A connection, and what has come by it."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.found: list[tuple[int, int, bytes]] = []
        self.buffer = bytearray()
        self.end = "open"
        self.came = asyncio.Event()
        self.reading = asyncio.Event()
        self.reading.set()
        self.sock = socket.socket()
        self.sock.setblocking(False)

    async def connect(self, port: int) -> None:
        await asyncio.get_running_loop().sock_connect(self.sock, ("127.0.0.1", port))

    async def read(self) -> None:
        loop = asyncio.get_running_loop()
        while self.end == "open":
            await self.reading.wait()
            try:
                data = await loop.sock_recv(self.sock, 65536)
            except OSError:
                self.end = "reset"
            else:
                self.end = "open" if data else "end"
                self.buffer += data
                self._frames()
            self.came.set()

    def _frames(self) -> None:
        at, buffer = 0, self.buffer
        while len(buffer) >= at + 7:
            end = at + int.from_bytes(buffer[at + 3 : at + 7], "big") + 8
            if len(buffer) < end:
                break
            payload = bytes(buffer[at + 7 : end - 1]).replace(self.name, NAME)
            self.found.append((buffer[at], int.from_bytes(buffer[at + 1 : at + 3], "big"), payload))
            at = end
        del buffer[:at]

    async def until(self, come: object) -> None:
        """Wait until `come`, called without arguments, is true or the connection has ended."""
        assert callable(come)
        while self.end == "open" and not come():
            self.came.clear()
            await self.came.wait()

    async def send(self, step: Send) -> None:
        data = step.data.replace(NAME, self.name)
        loop = asyncio.get_running_loop()
        size = step.pieces or max(1, len(data))
        with contextlib.suppress(OSError):
            for at in range(0, len(data), size):
                await loop.sock_sendall(self.sock, data[at : at + size])
                if step.pieces:
                    await asyncio.sleep(0)

    def count(self, method: int, channel: int) -> int:
        wanted = method.to_bytes(4, "big")
        return sum(one[0] == 1 and one[1] == channel and one[2][:4] == wanted for one in self.found)

    def body_bytes(self) -> int:
        return sum(len(payload) for kind, _, payload in self.found if kind == 3)


async def play(steps: tuple[Step, ...], port: int, broker: int, name: bytes) -> Seen:
    """Play `steps` at `port`; `broker`: the RabbitMQ's own port; `name`: the queue's."""
    client = _Client(name)
    try:
        async with asyncio.timeout(PATIENCE):
            await client.connect(port)
            reader = asyncio.create_task(client.read())
            try:
                for step in steps:
                    await _take(step, client, broker)
                await client.until(lambda: False)
            finally:
                reader.cancel()
                # The loop must not look at the socket any more when it is closed.
                with contextlib.suppress(asyncio.CancelledError):
                    await reader
    except TimeoutError:
        pass
    finally:
        client.sock.close()
    return Seen(tuple(client.found), bytes(client.buffer), client.end)


async def _take(step: Step, client: _Client, broker: int) -> None:
    match step:
        case Send():
            await client.send(step)
        case Await(method, channel, times):
            await client.until(lambda: client.count(method, channel) >= times)
        case AwaitBytes(count):
            await client.until(lambda: client.body_bytes() >= count)
        case HalfClose():
            with contextlib.suppress(OSError):
                client.sock.shutdown(socket.SHUT_WR)
        case Stall():
            client.reading.clear()
            await _filled(client.sock)
            client.reading.set()
        case Publish(headers, body):
            await _publish(broker, client.name, headers, body)


async def _filled(sock: socket.socket) -> None:
    """Return once nothing more has come for some looks at what waits in the socket."""
    before, same = -1, 0
    while same < 10:
        await asyncio.sleep(0.02)
        try:
            there = len(sock.recv(1 << 23, socket.MSG_PEEK))
        except BlockingIOError:
            there = 0
        same = same + 1 if there == before else 0
        before = there


async def _publish(broker: int, queue: bytes, headers: int, body: int) -> None:
    from differential import cases

    steps = cases.opened() + cases.published(queue, headers, body) + cases.closed()
    seen = await play(steps, broker, broker, queue)
    assert any(one[2][:4] == codec.CLOSE_OK.to_bytes(4, "big") for one in seen.frames), seen


def method(number: int, arguments: bytes = b"", channel: int = 0) -> bytes:
    """A method frame."""
    return frames.frame(number.to_bytes(4, "big") + arguments, channel)


def content(channel: int, body: bytes, frame_max: int, headers: int = 0) -> bytes:
    """The content header and the bodies of a message whose headers table has so many bytes, and more."""
    if headers:
        inside = b"\x01hS" + struct.pack(">I", headers) + b"h" * headers
        properties = struct.pack(">H", 1 << 13) + struct.pack(">I", len(inside)) + inside
    else:
        properties = b"\0\0"
    out = frames.frame(struct.pack(">HHQ", 60, 0, len(body)) + properties, channel, 2)
    step = frame_max - 8
    for at in range(0, len(body), step):
        out += frames.frame(body[at : at + step], channel, frames.BODY)
    return out
