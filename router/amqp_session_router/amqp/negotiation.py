"""What both halves of the handshake share: learned offers, the client's credentials, and the failures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from amqp_session_router.amqp import codec, tables
from amqp_session_router.base.model import ACCESS_REFUSED, CONNECTION_FORCED, NOT_ALLOWED, End, Tune

K = TypeVar("K")
V = TypeVar("V")

BROKER_FRAME_MAX = 131072
"""Bytes of a broker's frame before Open-Ok."""
LOGIN_FRAME_MAXES = 4096, 8192
"""Bytes of the payload that RabbitMQ takes before it has authenticated the client: of 3.x, of 4."""
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
    properties: bytes = field(repr=False)
    """The inside of the table of its Start."""
    start: bytes = field(repr=False)
    """The Start, as a frame."""
    tune_frame: bytes = field(repr=False)
    """The Tune, as a frame."""


class Greeting(NamedTuple):
    """What a broker says of itself in Start: the inside of the table of its properties, and its mechanisms."""

    properties: bytes
    mechanisms: tuple[bytes, ...]


_OWN = Greeting(codec.encode_table({"product": "amqp-session-router", "capabilities": CAPABILITIES}), ())
_KEPT = 256
"""Sets of backends for which is kept what is shown."""


@dataclass(slots=True)
class LearnedOffers:
    """What the brokers behind a router have shown of themselves, for the clients that come next.

    A client is shown what the backends say that it may come to, by what is known of it before it says who it is.
    """

    greetings: dict[str, Greeting] = field(default_factory=dict)
    """The last Start of each backend, by its name."""
    tunes: dict[str, Tune] = field(default_factory=dict)
    """The last Tune of each backend, by its name."""
    offers: dict[str, Offer] = field(default_factory=dict)
    """By the backend's name; not of those that refused last."""
    _shown: dict[tuple[str, ...], Greeting] = field(default_factory=dict, init=False)
    _offered: dict[tuple[Tune, tuple[str, ...]], Tune] = field(default_factory=dict, init=False)
    """What was said to clients of these backends, since one of them said something else."""

    def greeted(self, backend: str, greeting: Greeting) -> None:
        """Record a backend's Start."""
        if self.greetings.get(backend) != greeting:
            self.greetings[backend] = greeting
            self._shown.clear()

    def shown(self, backends: tuple[str, ...]) -> Greeting:
        """Return what a client is shown that may come to any of `backends`: what those that are known say alike."""
        found = self._shown.get(backends)
        if found is None:
            known = [self.greetings[name] for name in backends if name in self.greetings]
            found = _OWN if not known else _together(known)
            _keep(self._shown, backends, found)
        return found

    def seen(self, backend: str, tune: Tune) -> None:
        """Record a backend's Tune."""
        if self.tunes.get(backend) != tune:
            self.tunes[backend] = tune
            self._offered.clear()

    def forget(self, backend: str) -> None:
        """Foresee nothing of a backend that refused: it may have changed. Its limits count until it says others."""
        self.offers.pop(backend, None)

    def offer(self, most: Tune, backends: tuple[str, ...]) -> Tune:
        """Return what to offer a client that may come to any of `backends`: `most`, or less where *each* of those that
        were seen takes less. 0 means no limit.

        So one backend with small limits lowers nobody else's; to that one larger frames are sent in pieces.
        """
        before = self._offered.get((most, backends))
        if before is not None:
            return before
        tunes = [self.tunes[name] for name in backends if name in self.tunes]
        offered = Tune(
            least(most.frame_max, _greatest(tune.frame_max for tune in tunes)),
            least(most.channel_max, _greatest(tune.channel_max for tune in tunes)),
            most.heartbeat,
        )
        _keep(self._offered, (most, backends), offered)
        return offered


def _keep(kept: dict[K, V], key: K, value: V) -> None:
    if len(kept) >= _KEPT:
        kept.clear()
    kept[key] = value


def _together(known: list[Greeting]) -> Greeting:
    properties = tables.common([one.properties for one in known])
    return Greeting(
        properties, tuple(name for name in known[0].mechanisms if all(name in one.mechanisms for one in known))
    )


def _greatest(limits: Iterable[int]) -> int:
    """Return the greatest of some limits of which 0 is none; 0 if there are no limits."""
    found = [*limits]
    return max(found) if found and all(found) else 0


def least(one: int, other: int) -> int:
    """Return the stricter of two limits of which 0 is none."""
    return min(one, other) if one and other else one or other


@dataclass(slots=True)
class Credentials:
    """What the client sent in Start-Ok and is replayed to the brokers."""

    properties: bytes = field(repr=False)
    """The inside of the table."""
    mechanism: str
    response: bytes = field(repr=False)
    locale: str
    client_id: str = ""
    blocked_capable: bool = False


class HandshakeFailed(Exception):
    """A client's handshake ends here, without Open-Ok: it gets a Close with `code` (0: none) for the method
    `because_of`."""

    def __init__(self, how: End, text: str, code: int = 0, because_of: int = 0) -> None:
        super().__init__(text)
        self.how = how
        self.text = text
        self.code = code
        self.because_of = because_of


class AttemptFailed(Exception):
    """A broker does not take the session; another may."""


class Blameless(AttemptFailed):
    """A broker does not take the session, for which it is not to blame; another may."""

    how = End.NO_BACKEND
    code = CONNECTION_FORCED
    """How the session ends, and what its client gets, where no other takes it."""
    because_of = 0


class Unsuited(Blameless):
    """The broker cannot take what this client says: its login, its mechanism."""

    how = End.REJECTED
    code = ACCESS_REFUSED


class LoginUnanswered(Unsuited):
    """It ended the connection upon the login, as a RabbitMQ does with one that it cannot read, and hardly another time
    than just then: at most one other broker is asked."""


class NodeFull(Blameless):
    """It has as many connections as it may."""

    how = End.REJECTED
    code = NOT_ALLOWED
    because_of = codec.OPEN


class NoResources(AttemptFailed):
    """This host has nothing left to connect with (descriptors, ports, memory): that says nothing of any broker."""


class OfferChanged(AttemptFailed):
    """What was said ahead does not fit what the broker offers now, which is known from here on: begin anew."""


class CloseRelayed(Exception):
    """The broker's own Connection.Close, to be given to the client as it is."""

    def __init__(self, code: int, text: str, because_of: int = 0) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.because_of = because_of
