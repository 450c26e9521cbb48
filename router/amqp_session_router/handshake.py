"""The two halves of the AMQP handshake as state machines without I/O: bytes in, bytes to send and facts out.

The client is answered from what is known before its vhost is: Start with the properties of a broker seen before, Tune
with the least that any broker offered. The broker's half replays what the client said, so it can be done again with
another broker until one says Open-Ok. A RabbitMQ that was seen before is told everything at once: what it will ask is
known, and its answers are still read one by one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from functools import lru_cache

from amqp_session_router import frames, wire
from amqp_session_router.frames import ProtocolError
from amqp_session_router.model import NOT_ALLOWED, End, Tune

HANDSHAKE_FRAME_MAX = 131072
"""Frames before Tune-Ok may be as long as RabbitMQ takes them."""
CAPABILITIES = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}


@dataclass(frozen=True, slots=True)
class Offer:
    """What one broker said last, in Start and Tune."""

    mechanisms: tuple[bytes, ...]
    tune: Tune


@dataclass(slots=True)
class Learned:
    """What the brokers behind a router have shown of themselves, for the clients that come next."""

    server_properties: bytes = field(
        default_factory=lambda: wire.encode_table({"product": "amqp-session-router", "capabilities": CAPABILITIES})
    )
    """The inside of the table of the Start that came last."""
    frame_max: int = 0
    channel_max: int = 0
    """The least that was offered; 0: no limit was seen."""
    offers: dict[str, Offer] = field(default_factory=dict)
    """By the backend's name; not of those that refused last."""

    def seen(self, tune: Tune) -> None:
        """Take a broker's Tune into account."""
        if tune.frame_max:
            self.frame_max = min(self.frame_max or tune.frame_max, tune.frame_max)
        if tune.channel_max:
            self.channel_max = min(self.channel_max or tune.channel_max, tune.channel_max)

    def offer(self, most: Tune) -> Tune:
        """Return what to offer a client: `most`, or less where a broker takes less. 0 means no limit."""
        return Tune(least(most.frame_max, self.frame_max), least(most.channel_max, self.channel_max), most.heartbeat)


def least(one: int, other: int) -> int:
    """Return the stricter of two limits of which 0 is none."""
    return min(one, other) if one and other else one or other


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the client sent in Start-Ok and is replayed to the brokers."""

    properties: bytes = field(repr=False)
    """The inside of the table."""
    mechanism: str
    response: bytes = field(repr=False)
    locale: str
    client_id: str = ""
    blocked_capable: bool = False


# The sessions of one application mostly say the same of themselves: few tables are read, all the others remembered.
@lru_cache(maxsize=64)
def _facts(properties: bytes) -> tuple[str, bool]:
    """Return a client's connection_name and whether it takes Connection.Blocked; raises ProtocolError."""
    values = wire.table(properties)
    client_id, capabilities = values.get("connection_name"), values.get("capabilities")
    return (
        client_id if isinstance(client_id, str) else "",
        isinstance(capabilities, dict) and capabilities.get("connection.blocked") is True,
    )


class Stage(enum.Enum):
    """What is read next."""

    HEADER = enum.auto()
    START_OK = enum.auto()
    TUNE_OK = enum.auto()
    OPEN = enum.auto()
    WAITING = enum.auto()
    """Open was read. Heartbeats are discarded, the rest stays in the buffer for the broker."""


class ClientHandshake:
    """The side towards a client.

    `receive` takes bytes; afterwards `out` holds what to send (take it with `take`), `stage` says how far it is, and
    from `Stage.WAITING` on `credentials`, `tune` and `vhost` are set. `gone` is set when the client sent a Close.
    """

    def __init__(
        self, learned: Learned, most: Tune, mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN"), limit: int = 0
    ) -> None:
        self.learned = learned
        self.mechanisms = mechanisms
        self.offered = learned.offer(most)
        self.limit = min(limit or HANDSHAKE_FRAME_MAX, HANDSHAKE_FRAME_MAX)
        self.stage = Stage.HEADER
        self.buffer = bytearray()
        self.out = bytearray()
        self.credentials: Credentials | None = None
        self.tune = self.offered
        self.vhost = ""
        self.gone = False

    def take(self) -> bytes:
        """Return what is to be sent, once."""
        out = bytes(self.out)
        self.out.clear()
        return out

    def receive(self, data: bytes) -> None:
        """Take in bytes of the client.

        Raises ProtocolError. With the wrong protocol header `out` holds the answer that the specification demands
        (4.2.2): the header that would have been right, then the end of the connection.
        """
        self.buffer += data
        if self.stage is Stage.HEADER and not self._header():
            return
        while self.stage is not Stage.WAITING:
            frame = frames.next_frame(self.buffer, self.limit) if self.buffer else None
            if frame is None:
                return
            self._frame(frame)
            if self.gone:
                return
        if self.buffer:
            self._waiting()

    def _header(self) -> bool:
        if not wire.PROTOCOL_HEADER.startswith(self.buffer[:8]):
            self.out += wire.PROTOCOL_HEADER
            raise ProtocolError(frames.FRAME_ERROR, "the protocol header is not that of AMQP 0-9-1")
        if len(self.buffer) < 8:
            return False
        del self.buffer[:8]
        self.out += wire.start(self.learned.server_properties, " ".join(self.mechanisms))
        self.stage = Stage.START_OK
        return True

    def _frame(self, frame: frames.Frame) -> None:
        if frame.type == frames.HEARTBEAT:
            if frame.channel or frame.payload:
                raise ProtocolError(frames.FRAME_ERROR, "a heartbeat has a channel or a payload")
            return
        method = frame.method
        if method == wire.CLOSE:
            self.out += wire.CLOSE_OK_FRAME
            self.gone = True
        elif self.stage is Stage.START_OK and method == wire.START_OK:
            self._start_ok(frames.Reader(frame.payload))
        elif self.stage is Stage.TUNE_OK and method == wire.TUNE_OK:
            self._tune_ok(*wire.read_tune(frame.payload))
        elif self.stage is Stage.OPEN and method == wire.OPEN:
            self.vhost = frames.Reader(frame.payload).short()
            self.stage = Stage.WAITING
        else:
            raise ProtocolError(wire.COMMAND_INVALID, f"not what {self.stage.name} waits for")

    def _start_ok(self, arguments: frames.Reader) -> None:
        properties = arguments.long()
        client_id, blocked_capable = _facts(properties)
        mechanism, response, locale = arguments.short(), arguments.long(), arguments.short()
        if mechanism not in self.mechanisms:
            raise ProtocolError(NOT_ALLOWED, f"the mechanism is none of {' '.join(self.mechanisms)}")
        self.credentials = Credentials(properties, mechanism, response, locale, client_id, blocked_capable)
        offered = self.offered
        self.out += wire.tune(wire.TUNE, offered.channel_max, offered.frame_max, offered.heartbeat)
        self.stage = Stage.TUNE_OK

    def _tune_ok(self, channel_max: int, frame_max: int, heartbeat: int) -> None:
        for name, value, most in (
            ("channel_max", channel_max, self.offered.channel_max),
            ("frame_max", frame_max, self.offered.frame_max),
        ):
            if most and value > most:
                raise ProtocolError(NOT_ALLOWED, f"{name} {value} is above the {most} that was offered")
        if frame_max and frame_max < wire.FRAME_MIN:
            raise ProtocolError(NOT_ALLOWED, f"frame_max {frame_max} is below the least, {wire.FRAME_MIN}")
        # A client that says 0 to an offer has not read it; RabbitMQ refuses a 0 where it has a limit.
        self.tune = Tune(frame_max or self.offered.frame_max, channel_max or self.offered.channel_max, heartbeat)
        self.stage = Stage.OPEN

    def _waiting(self) -> None:
        """Discard heartbeats, see a Close; the first frame of anything else waits for the broker, with all behind."""
        while True:
            if len(self.buffer) > HANDSHAKE_FRAME_MAX:
                raise ProtocolError(wire.UNEXPECTED_FRAME, "too much was sent before Open-Ok")
            if len(self.buffer) < 8 or not (
                self.buffer[0] == frames.HEARTBEAT or self.buffer[7:11] == wire.CLOSE.to_bytes(4, "big")
            ):
                return
            frame = frames.next_frame(self.buffer, self.limit)
            if frame is None:
                return
            if frame.method == wire.CLOSE:
                self.out += wire.CLOSE_OK_FRAME
                self.gone = True
                return


class Over(Exception):
    """A client's handshake ends here, without Open-Ok: it gets a Close with `code` (0: none)."""

    def __init__(self, how: End, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.how = how
        self.text = text
        self.code = code


class Refused(Exception):
    """A broker does not take the session; another may."""


class Changed(Refused):
    """What was said ahead does not fit what the broker offers now, which is known from here on: begin anew."""


class Relayed(Exception):
    """The broker's own Connection.Close, to be given to the client as it is."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


_RABBITMQ = b"\x07productS\x00\x00\x00\x08RabbitMQ"
"""In the properties of a broker that reads what comes ahead of its own Start and Tune in its order, as was seen."""
REPLAYABLE = frozenset((320, 541))
"""Closes of a broker that say something of the broker (it shuts down, its vhost is down), not of the client."""
_STAGES = {wire.START: "Start", wire.TUNE: "Tune", wire.OPEN_OK: "Open-Ok"}


class BrokerHandshake:
    """The side towards one broker; what `begin` returns is to be sent first.

    `receive` returns True once Open-Ok came; `buffer` then holds what came behind it, and `tune` what was agreed.
    """

    def __init__(
        self,
        credentials: Credentials,
        tune: Tune,
        vhost: str,
        learned: Learned,
        backend: str,
        properties: dict[str, str] | None = None,
    ) -> None:
        """`tune` is what the client was told, `backend` the name of who is talked to, `properties` are added."""
        self.credentials = credentials
        self.tune = tune
        self.vhost = vhost
        self.learned = learned
        self.backend = backend
        self.properties = properties or {}
        self.expected = wire.START
        self.buffer = bytearray()
        self.out = bytearray()
        self.open_ok = b""
        self._mechanisms: tuple[bytes, ...] = ()
        self._reads_ahead = False
        """Does it take what is said ahead?"""
        self._foreseen: Offer | None = None
        """What it offered last, once that was answered before it is offered again."""

    def begin(self) -> bytes:
        """Return what is to be sent at once: all there is to say to a broker whose offer is known, else the header."""
        known = self.learned.offers.get(self.backend)
        if known is None or self._mechanism not in known.mechanisms or self._too_long(known.tune):
            return wire.PROTOCOL_HEADER
        self._foreseen = known
        self.tune = self._agreed(known.tune)
        return wire.PROTOCOL_HEADER + self._start_ok() + self._tune_ok_and_open()

    def take(self) -> bytes:
        """Return what is to be sent, once."""
        out = bytes(self.out)
        self.out.clear()
        return out

    def receive(self, data: bytes) -> bool:
        """Take in bytes of the broker; raises Refused (Changed: begin anew), or Relayed with a Close for the client."""
        self.buffer += data
        try:
            if self.expected == wire.START and self.buffer[:4] == b"AMQP":
                raise Refused("it speaks another version of AMQP")
            while self.buffer and (frame := frames.next_frame(self.buffer, HANDSHAKE_FRAME_MAX)) is not None:
                if frame.type == frames.HEARTBEAT:
                    continue
                if self._method(frame):
                    return True
        except ProtocolError as error:
            raise Refused(f"it does not speak AMQP 0-9-1: {error.text}") from None
        return False

    def _method(self, frame: frames.Frame) -> bool:
        method = frame.method
        if method == wire.CLOSE:
            code, text = wire.read_close(frame.payload)
            if code in REPLAYABLE:
                raise Refused(f"{code} {text}")
            raise Relayed(code, text)
        if method == wire.SECURE:
            # The client had its Tune, its part of the authentication is over.
            raise Relayed(wire.NOT_IMPLEMENTED, "the broker wants a second round of authentication")
        if method != self.expected:
            raise Refused(f"it sent something else than {_STAGES[self.expected]}")
        if method == wire.START:
            self._start(*wire.read_start(frame.payload))
        elif method == wire.TUNE:
            self._tune(*wire.read_tune(frame.payload))
        else:
            self.open_ok = frames.frame(frame.payload)
            return True
        return False

    def _start(self, version: tuple[int, int], properties: bytes, mechanisms: tuple[bytes, ...]) -> None:
        if version != (0, 9):
            raise Refused("it speaks another version of AMQP")
        if properties != self.learned.server_properties:
            wire.table(properties)
            self.learned.server_properties = properties
        if self._mechanism not in mechanisms:
            raise Refused(f"it does not offer the mechanism {self.credentials.mechanism}")
        self._mechanisms, self._reads_ahead = mechanisms, _RABBITMQ in properties
        if self._foreseen is None:
            self.out += self._start_ok()
        self.expected = wire.TUNE

    def _tune(self, channel_max: int, frame_max: int, heartbeat: int) -> None:
        foreseen, self.expected = self._foreseen, wire.OPEN_OK
        if foreseen is not None and (frame_max, channel_max) == (foreseen.tune.frame_max, foreseen.tune.channel_max):
            return
        offered = Tune(frame_max, channel_max, heartbeat)
        self.learned.seen(offered)
        if self._reads_ahead:
            self.learned.offers[self.backend] = Offer(self._mechanisms, offered)
        if foreseen is not None:
            raise Changed("its limits are others than before")
        if self._too_long(offered):
            raise Refused(f"it takes frames of {frame_max} bytes, the client was told {self.tune.frame_max} before")
        self.tune = self._agreed(offered)
        self.out += self._tune_ok_and_open()

    @property
    def _mechanism(self) -> bytes:
        return self.credentials.mechanism.encode()

    def _too_long(self, offered: Tune) -> bool:
        """Was the client told of longer frames?"""
        return bool(offered.frame_max) and self.tune.frame_max > offered.frame_max

    def _agreed(self, offered: Tune) -> Tune:
        # Few clients come near channel_max, so it may be lowered behind their back; the client's heartbeat wins.
        mine = self.tune
        return Tune(mine.frame_max or offered.frame_max, least(mine.channel_max, offered.channel_max), mine.heartbeat)

    def _start_ok(self) -> bytes:
        # With this capability a bad password is a Close and not an EOF.
        mine = self.credentials
        added = wire.add_properties(mine.properties, {"authentication_failure_close": True}, self.properties)
        return wire.start_ok(added, mine.mechanism, mine.response, mine.locale)

    def _tune_ok_and_open(self) -> bytes:
        agreed = self.tune
        tune_ok = wire.tune(wire.TUNE_OK, agreed.channel_max, agreed.frame_max, agreed.heartbeat)
        return tune_ok + wire.open_(self.vhost)
