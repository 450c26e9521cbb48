"""The handshake with a broker as a state machine without I/O: bytes in, bytes to send and facts out.

It replays what the client said, so it can be repeated with the next broker until one says Open-Ok. A RabbitMQ whose
offer is known is sent everything at once; its answers are still read one by one.
"""

from __future__ import annotations

from amqp_session_router.amqp import codec, frames, tables
from amqp_session_router.amqp.frames import ProtocolError
from amqp_session_router.amqp.negotiation import (
    BROKER_FRAME_MAX,
    LOGIN_FRAME_MAXES,
    AttemptFailed,
    CloseRelayed,
    Credentials,
    Greeting,
    LearnedOffers,
    LoginUnanswered,
    NodeFull,
    Offer,
    OfferChanged,
    Unsuited,
    least,
)
from amqp_session_router.base.model import NOT_ALLOWED, Tune

_RABBITMQ = b"\x07productS\x00\x00\x00\x08RabbitMQ"
"""In the properties of a broker that reads what comes ahead of its own Start and Tune in its order, as was seen."""
REPLAYABLE = frozenset((320, 541))
"""Closes of a broker that say something of the broker (it shuts down, its vhost is down), not of the client."""
_NODE_FULL = "node connection limit"
"""In the text of RabbitMQ's Close 530 where it is the node, not the vhost or the user, that has enough connections."""
_STAGES = {codec.START: "Start", codec.TUNE: "Tune", codec.OPEN_OK: "Open-Ok"}


class BrokerHandshake:
    """The side towards one broker; what `begin` returns is to be sent first.

    `receive` returns True once Open-Ok came; `buffer` then holds what came behind it, and `tune` what was agreed.
    """

    def __init__(
        self,
        credentials: Credentials,
        tune: Tune,
        vhost: str,
        learned: LearnedOffers,
        backend: str,
        properties: dict[str, str] | None = None,
    ) -> None:
        """`tune` is what the client was offered, `backend` the name of who is talked to, `properties` are added."""
        self.credentials = credentials
        self.tune = self._client_tune = tune
        self.vhost = vhost
        self.learned = learned
        self.backend = backend
        self.properties = properties or {}
        self.expected = codec.START
        self.buffer = bytearray()
        self.out = b""
        self.open_ok = b""
        self._mechanism = credentials.mechanism.encode()
        self._mechanisms: tuple[bytes, ...] = ()
        self._properties = self._start_frame = b""
        self._reads_ahead = False
        """Whether the broker takes our answers before it has asked."""
        self._foreseen: Offer | None = None
        """What it offered last, once that was answered before it is offered again."""

    def begin(self) -> bytes:
        """Return what is to be sent at once: all there is to say to a broker whose offer is known, else the header."""
        known = self.learned.offers.get(self.backend)
        if known is None or self._mechanism not in known.mechanisms:
            return codec.PROTOCOL_HEADER
        self._foreseen = known
        self.tune = self._agreed(known.tune)
        return codec.PROTOCOL_HEADER + self._start_ok() + self._tune_ok_and_open()

    def take(self) -> bytes:
        """Return what is to be sent, once."""
        out, self.out = self.out, b""
        return out

    def receive(self, data: bytes) -> bool:
        """Take in bytes of the broker; returns whether Open-Ok came.

        Raises AttemptFailed (OfferChanged: try it once more), or CloseRelayed with a Close for the client.
        """
        self.buffer += data
        try:
            if self.expected == codec.START and self.buffer[:4] == b"AMQP":
                raise AttemptFailed("it speaks another version of AMQP")
            while self.buffer:
                if self._foreseen is not None and self._as_foreseen(self._foreseen):
                    continue
                frame = frames.next_frame(self.buffer, BROKER_FRAME_MAX)
                if frame is None:
                    break
                if frame.type != frames.HEARTBEAT and self._method(frame):
                    return True
        except ProtocolError as error:
            raise AttemptFailed(f"it does not speak AMQP 0-9-1: {error.text}") from None
        return False

    def lost(self, error: OSError | None) -> AttemptFailed:
        """Return what it means that the broker ended the connection, by `error` or without."""
        if self.expected == codec.TUNE:
            return LoginUnanswered("the broker ended the connection upon the login")
        if error is not None:
            return AttemptFailed(f"the connection broke: {error.strerror or error}")
        return AttemptFailed("it ended the connection during the handshake")

    def _as_foreseen(self, foreseen: Offer) -> bool:
        """Take the next frame off the buffer if it is to the byte what the broker said last; returns whether it was."""
        if self.expected == codec.START and self.buffer.startswith(foreseen.start):
            del self.buffer[: len(foreseen.start)]
            self._mechanisms, self._properties, self._start_frame = (
                foreseen.mechanisms,
                foreseen.properties,
                foreseen.start,
            )
            self._reads_ahead = True
            self.learned.greeted(self.backend, Greeting(foreseen.properties, foreseen.mechanisms))
            self.expected = codec.TUNE
            return True
        said_before = self._start_frame == foreseen.start
        if self.expected == codec.TUNE and said_before and self.buffer.startswith(foreseen.tune_frame):
            del self.buffer[: len(foreseen.tune_frame)]
            self.expected = codec.OPEN_OK
            return True
        return False

    def _method(self, frame: frames.Frame) -> bool:
        method = frame.method
        if method == codec.CLOSE:
            code, text, because_of = codec.read_close(frame.payload)
            if code in REPLAYABLE:
                raise AttemptFailed(f"{code} {text}")
            if code == NOT_ALLOWED and _NODE_FULL in text:
                raise NodeFull(text)
            raise CloseRelayed(code, text, because_of)
        if method == codec.SECURE:
            # The client had its Tune, its part of the authentication is over.
            raise CloseRelayed(codec.NOT_IMPLEMENTED, "the broker wants a second round of authentication")
        if method != self.expected:
            raise AttemptFailed(f"it sent something else than {_STAGES[self.expected]}")
        if method == codec.START:
            self._start_frame = frames.frame(frame.payload)
            self._start(*codec.read_start(frame.payload))
        elif method == codec.TUNE:
            self._tune(frames.frame(frame.payload), *codec.read_tune(frame.payload))
        else:
            self.open_ok = frames.frame(frame.payload)
            return True
        return False

    def _start(self, version: tuple[int, int], properties: bytes, mechanisms: tuple[bytes, ...]) -> None:
        if version != (0, 9):
            raise AttemptFailed("it speaks another version of AMQP")
        greeting = Greeting(properties, mechanisms)
        if self.learned.greetings.get(self.backend) != greeting:
            tables.fields(properties)
            self.learned.greeted(self.backend, greeting)
        if self._mechanism not in mechanisms:
            self.learned.forget(self.backend)
            raise Unsuited(f"it does not offer the mechanism {self.credentials.mechanism}")
        self._mechanisms, self._properties, self._reads_ahead = mechanisms, properties, _RABBITMQ in properties
        if self._foreseen is None:
            self.out += self._start_ok()
        self.expected = codec.TUNE

    def _tune(self, frame: bytes, channel_max: int, frame_max: int, heartbeat: int) -> None:
        foreseen, self.expected = self._foreseen, codec.OPEN_OK
        offered = Tune(frame_max, channel_max, heartbeat)
        if 0 < frame_max < codec.FRAME_MIN:
            raise AttemptFailed(f"it takes frames of {frame_max} bytes only, less than the least, {codec.FRAME_MIN}")
        self.learned.seen(self.backend, offered)
        if self._reads_ahead:
            self.learned.offers[self.backend] = Offer(
                self._mechanisms, offered, self._properties, self._start_frame, frame
            )
        if foreseen is not None and (frame_max, channel_max) == (foreseen.tune.frame_max, foreseen.tune.channel_max):
            return
        if foreseen is not None:
            raise OfferChanged("its limits are others than before")
        self.tune = self._agreed(offered)
        self.out += self._tune_ok_and_open()

    def _agreed(self, offered: Tune) -> Tune:
        # Few clients come near channel_max, so it may be lowered without telling them; larger frames are split (see
        # `relay.splitting_flow`); the client's heartbeat wins.
        mine = self._client_tune
        return Tune(
            least(mine.frame_max, offered.frame_max), least(mine.channel_max, offered.channel_max), mine.heartbeat
        )

    def _start_ok(self) -> bytes:
        # With this capability a bad password is a Close and not an EOF.
        mine = self.credentials
        own = codec.start_ok(mine.properties, mine.mechanism, mine.response, mine.locale)
        most = next((most for most in LOGIN_FRAME_MAXES if len(own) <= most + frames.OVERHEAD), len(own))
        for properties in (self.properties, {}):
            added = tables.add_properties(mine.properties, {"authentication_failure_close": True}, properties)
            whole = codec.start_ok(added, mine.mechanism, mine.response, mine.locale)
            if len(whole) <= most + frames.OVERHEAD:
                return whole
        # What is added must not be why the broker does not take it.
        return own

    def _tune_ok_and_open(self) -> bytes:
        agreed = self.tune
        tune_ok = codec.tune(codec.TUNE_OK, agreed.channel_max, agreed.frame_max, agreed.heartbeat)
        return tune_ok + codec.open_(self.vhost)
