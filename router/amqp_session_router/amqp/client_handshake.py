"""The handshake with a client as a state machine without I/O: bytes in, bytes to send and facts out.

The router answers before the client's vhost is known: Start with the properties of a broker seen before, Tune with
limits that the brokers seen before accept.
"""

from __future__ import annotations

import enum
from functools import lru_cache

from amqp_session_router.amqp import codec, frames, tables
from amqp_session_router.amqp.frames import ProtocolError
from amqp_session_router.amqp.negotiation import LOGIN_FRAME_MAXES, Credentials, LearnedOffers
from amqp_session_router.base.model import NOT_ALLOWED, Tune, short_string


# The sessions of one application mostly say the same of themselves: few tables are read, all the others remembered.
@lru_cache(maxsize=64)
def _facts(properties: bytes) -> tuple[str, bool]:
    """Return a client's connection_name (cut to 255 bytes) and whether it takes Blocked; raises ProtocolError."""
    name = tables.text(properties, b"connection_name") or b""
    return short_string(name.decode(errors="replace")), tables.true(properties, b"capabilities", b"connection.blocked")


class Stage(enum.Enum):
    """What is read next."""

    HEADER = enum.auto()
    START_OK = enum.auto()
    TUNE_OK = enum.auto()
    OPEN = enum.auto()
    WAITING = enum.auto()
    """Open was read. Heartbeats are discarded, the rest stays in the buffer for the broker."""


_WAITING = 131072
"""Bytes that are read of a client before its broker has said Open-Ok."""
_HEARTBEAT, _CLOSE = bytes((frames.HEARTBEAT,)), codec.CLOSE.to_bytes(4, "big")

# Python 3.11 takes ten times as long to get a member of its enum.
HEADER, START_OK, TUNE_OK, OPEN, WAITING = Stage


@lru_cache(maxsize=64)
def _ordered(mechanisms: tuple[str, ...], brokers: tuple[bytes, ...]) -> tuple[str, ...]:
    """Return the mechanisms in the order in which the brokers offer theirs; clients take the first that they know."""
    places = {name.decode(errors="replace"): at for at, name in enumerate(brokers)}
    return tuple(sorted(mechanisms, key=lambda name: places.get(name, -1 if name not in _USUAL else len(places))))


_USUAL = ("PLAIN", "AMQPLAIN")


_LAYERS = {0: "", 2: " with TLS of its own", 3: " with SASL"}
"""What AMQP 1.0 calls a protocol id."""


def _spoken(header: bytes) -> str:
    """What a client speaks whose first bytes are not those of AMQP 0-9-1; a sentence without its end."""
    if header.startswith(b"AMQP"):
        identity, *version = header[4:]
        if version == [1, 0, 0] and identity in _LAYERS:
            return f"the client speaks AMQP 1.0{_LAYERS[identity]}"
        return f"the client's protocol header is {header!r}"
    if header.startswith(b"\x16\x03"):
        return "the client speaks TLS"
    return "the client does not speak AMQP"


class ClientHandshake:
    """The side towards a client.

    `receive` takes bytes; afterwards `out` holds what to send (take it with `take`), `stage` says how far it is, and
    from `WAITING` on `credentials`, `tune` and `vhost` are set. `gone` is set when the client sent a Close.
    """

    def __init__(
        self,
        learned: LearnedOffers,
        most: Tune,
        mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN"),
        limit: int = 0,
        backends: tuple[str, ...] = (),
    ) -> None:
        """`backends`: names of those that the client may come to."""
        self._greeting = learned.shown(backends)
        self.mechanisms = _ordered(mechanisms, self._greeting.mechanisms)
        self.offered = learned.offer(most, backends)
        largest = max(LOGIN_FRAME_MAXES) + frames.OVERHEAD
        self.limit = min(limit or largest, largest)
        self.stage = HEADER
        self.buffer = bytearray()
        self.out = b""
        self.credentials: Credentials | None = None
        self.tune = self.offered
        self.vhost = ""
        self.gone = False

    def take(self) -> bytes:
        """Return what is to be sent, once."""
        out, self.out = self.out, b""
        return out

    def receive(self, data: bytes) -> None:
        """Take in bytes of the client.

        Raises ProtocolError. With the wrong protocol header `out` holds the answer that the specification demands
        (4.2.2): the header that would have been right, then the end of the connection.
        """
        self.buffer += data
        if self.stage is HEADER and not self._header():
            return
        while self.stage is not WAITING:
            frame = frames.next_frame(self.buffer, self.limit) if self.buffer else None
            if frame is None:
                return
            self._frame(frame)
            if self.gone:
                return
        if self.buffer:
            self._waiting()

    def _header(self) -> bool:
        if len(self.buffer) < 8 and codec.PROTOCOL_HEADER[:4].startswith(self.buffer[:4]):
            return False
        if self.buffer[:8] != codec.PROTOCOL_HEADER:
            self.out += codec.PROTOCOL_HEADER
            raise ProtocolError(
                frames.FRAME_ERROR, f"{_spoken(bytes(self.buffer[:8]))}, and this router speaks AMQP 0-9-1"
            )
        del self.buffer[:8]
        self.out += codec.start(self._greeting.properties, " ".join(self.mechanisms))
        self.stage = START_OK
        return True

    def _frame(self, frame: frames.Frame) -> None:
        if frame.type == frames.HEARTBEAT:
            if frame.channel or frame.payload:
                raise ProtocolError(frames.FRAME_ERROR, "a heartbeat has a channel or a payload")
            return
        method = frame.method
        if method == codec.CLOSE:
            self.out += codec.CLOSE_OK_FRAME
            self.gone = True
        elif self.stage is START_OK and method == codec.START_OK:
            self._start_ok(frames.Reader(frame.payload))
        elif self.stage is TUNE_OK and method == codec.TUNE_OK:
            self._tune_ok(*codec.read_tune(frame.payload))
        elif self.stage is OPEN and method == codec.OPEN:
            self.vhost = frames.Reader(frame.payload).short()
            self.stage = WAITING
        else:
            raise ProtocolError(codec.COMMAND_INVALID, f"not what {self.stage.name} waits for")

    def _start_ok(self, arguments: frames.Reader) -> None:
        properties = arguments.long()
        client_id, blocked_capable = _facts(properties)
        mechanism, response, locale = arguments.short(), arguments.long(), arguments.short()
        if mechanism not in self.mechanisms:
            raise ProtocolError(NOT_ALLOWED, f"the mechanism is none of {' '.join(self.mechanisms)}")
        self.credentials = Credentials(properties, mechanism, response, locale, client_id, blocked_capable)
        offered = self.offered
        self.out += codec.tune(codec.TUNE, offered.channel_max, offered.frame_max, offered.heartbeat)
        self.stage = TUNE_OK

    def _tune_ok(self, channel_max: int, frame_max: int, heartbeat: int) -> None:
        for name, value, most in (
            ("channel_max", channel_max, self.offered.channel_max),
            ("frame_max", frame_max, self.offered.frame_max),
        ):
            if most and value > most:
                raise ProtocolError(NOT_ALLOWED, f"{name} {value} is above the {most} that was offered")
        if frame_max and frame_max < codec.FRAME_MIN:
            raise ProtocolError(NOT_ALLOWED, f"frame_max {frame_max} is below the least, {codec.FRAME_MIN}")
        # A client that says 0 to an offer has not read it; RabbitMQ refuses a 0 where it has a limit.
        self.tune = Tune(frame_max or self.offered.frame_max, channel_max or self.offered.channel_max, heartbeat)
        self.stage = OPEN

    def _waiting(self) -> None:
        """Discard heartbeats; the first frame of anything else waits for the broker, with all behind."""
        while self.buffer[:1] == _HEARTBEAT and frames.next_frame(self.buffer, self.limit) is not None:
            pass

    @property
    def full(self) -> bool:
        """Whether so much waits for the broker that no more is to be read."""
        return len(self.buffer) >= _WAITING

    def leave(self) -> bool:
        """Answer a Close that waits for the broker, which is not to come; returns whether there is one."""
        if self.stage is not WAITING or self.buffer[:3] != b"\1\0\0" or self.buffer[7:11] != _CLOSE:
            return False
        self.out += codec.CLOSE_OK_FRAME
        self.gone = True
        return True
