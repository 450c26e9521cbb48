"""The interface of data path and control plane: values, and the protocols of what each side supplies.

The data path (sessions, handshake, listeners) supplies `Session` and `Server`. The model (`routing`, `limits`,
`authorize`, `config`) supplies `Routing`, `Limits` and `Authorizer`. The order of calls for one connection:

    limits.denies(listener, source_ip)                  # at accept(), or behind the PROXY header; True: close it
    lease = limits.accept(source_ip)                    # at accept(); a Refusal: close the socket, nothing was counted
    refusal = lease.identify(source_ip)                 # where only a PROXY header has the address
    routing.registered(session)                         # it has an id now, `ctl conn` shows it
    ... protocol header, Start, Start-Ok, Tune, Tune-Ok, Open
    verdict = await authorizer.authorize(request)       # Denied: Close; Allowed may carry roles, credentials
    refusal = lease.may_open(vhost, user)               # rate and number of connections; Refusal: Close with its code
    lease.wait(vhost); await routing.unpaused(vhost)    # a paused vhost: stay here and send heartbeats
    decision = routing.decide(identity, lease.occupy)   # Reject: Close with its code
    for backend in decision.candidates: ...             # connect until Open-Ok; `routing.attempted` after each
    refusal = lease.open(vhost, user)                   # now it counts: who is not let in takes nobody's place
    lease.authenticated(); routing.opened(session)      # Open-Ok reached the client
    wait = lease.take(n)                                # only if lease.metered: n bytes came, wait so long
    lease.release(); routing.closed(session, End....)   # always, once each; both may be called again without effect
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from amqp_session_router.base.networks import Gate

NO_KEY = "NULL"
"""What a key is called that the client does not have or that its filter does not match (the Artemis routers' word)."""

SHORT_STRING_MAX = 255
"""Bytes of an AMQP short string, and of every text of a client that the router keeps."""
ACCESS_REFUSED = 403
CONNECTION_FORCED = 320
NOT_ALLOWED = 530
INTERNAL_ERROR = 541


class Identity(NamedTuple):
    """What a session is known by once Connection.Open has been read; absent parts are empty strings."""

    vhost: str
    user: str = ""
    client_id: str = ""
    """The client property `connection_name`."""
    source_ip: str = ""
    """The client's address, or the one that a trusted PROXY header names."""
    sni_host: str = ""
    roles: tuple[str, ...] = ()
    """From the authorisation hook."""
    listener: str = ""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS towards a backend; `tls.client_context` makes the SSLContext. Files are PEM."""

    ca_file: str | None = None
    """None: the system's certificate authorities."""
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True
    server_name: str | None = None
    """Name to ask for and to verify; None: the backend's host."""
    minimum: str = "1.2"
    ciphers: str | None = None


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a listener shows to clients that ask for one of the host `names` (lower case; `*.` stands for one label)."""

    names: tuple[str, ...]
    cert_file: str
    key_file: str


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS of a listener; `tls.server_context` makes the SSLContext. Files are PEM."""

    cert_file: str
    key_file: str
    ca_file: str | None = None
    dh_file: str | None = None
    client_cert: str = "none"
    """`none`, `optional` or `required`; the last two need `ca_file`."""
    minimum: str = "1.2"
    ciphers: str | None = None
    crl_file: str | None = None
    """Revoked certificates of clients; None: none are."""
    certificates: tuple[Certificate, ...] = ()
    """Instead of `cert_file`, by the name that a client asks for."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A broker. `address`, where set, is the IP to connect to, and `host` then only the name (TLS, logs)."""

    name: str
    host: str
    port: int = 5672
    datacenter: str = ""
    address: str | None = None
    source_addresses: tuple[str, ...] = ()
    """Own addresses to connect from in turn: one gives about 28 000 connections to one backend address."""
    tls: ClientTls | None = None
    proxy_protocol: int | None = None
    """None, 1 or 2: the PROXY header's version to send first."""
    congestion_control: str | None = None
    """None: the host's, reno on loopback."""
    weight: int = 1
    drain: bool = False
    """No new sessions; the old ones stay."""
    local: bool = False
    """The broker of this router's own host."""
    vhost: str | None = None
    """Vhost to open here, whatever the client's or the rule's is called; None: theirs."""
    connections: int | None = None
    """The most sessions that this router has there at a time; None: any number."""
    slow_start: float = 0.0
    """Seconds in which its share of new sessions grows to its weight's, once it has become ready; 0: at once."""


@dataclass(frozen=True, slots=True)
class Listener:
    """An address that clients connect to. `proxy_protocol`: a PROXY v1 or v2 header from `trusted` must come first."""

    name: str
    host: str = "0.0.0.0"
    port: int = 5672
    tls: ServerTls | None = None
    proxy_protocol: bool = False
    trusted: tuple[str, ...] = ()
    """Networks (CIDR) whose PROXY headers are believed."""
    congestion_control: str | None = None
    """None: the host's, reno on loopback."""
    gate: Gate = field(default_factory=Gate)
    """Which clients' networks it lets in."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds, each from the moment its step begins."""

    handshake: float = 10.0
    """accept() to Open-Ok, without the time a paused vhost waits."""
    connect: float = 5.0
    """One attempt: DNS, TCP, TLS."""
    backend_handshake: float = 5.0
    """One attempt: connected to Open-Ok."""
    close: float = 3.0
    """Close sent to Close-Ok; then the socket is cut."""
    dead_peer: float = 60.0
    """A peer that acknowledges nothing for so long is dead."""


class Tune(NamedTuple):
    """The most that the router offers its clients; what the backends allow, once learned, lowers it."""

    frame_max: int = 131072
    channel_max: int = 2047
    heartbeat: int = 60


@dataclass(slots=True)
class Counters:
    """A session's own; the data path writes them, metrics and control read them."""

    bytes_from_client: int = 0
    bytes_from_broker: int = 0
    attempts: int = 0
    handshake_seconds: float | None = None
    """accept() to Open-Ok."""


class Phase(enum.StrEnum):
    """Where a session stands."""

    HANDSHAKE = "handshake"
    """Before Open."""
    WAITING = "waiting"
    """Open was read, its vhost is paused."""
    CONNECTING = "connecting"
    """Looking for a backend."""
    OPEN = "open"
    PAUSED = "paused"
    CLOSING = "closing"


class End(enum.StrEnum):
    """How a session ended. Only those of `FAILURES` count as failures."""

    CLIENT_CLOSED = "client_closed"
    """Connection.Close from the client, or its EOF before the protocol header (a port probe)."""
    BROKER_CLOSED = "broker_closed"
    """Connection.Close from the broker, relayed."""
    ROUTER_CLOSED = "router_closed"
    """By control, drain or exit."""
    HANDED_OVER = "handed_over"
    """Another process of the router has it now."""
    DENIED = "denied"
    """By the networks of the listener that it came to, which a PROXY header showed."""
    REJECTED = "rejected"
    """A rule, the authorisation hook, or the broker's 403 or 530."""
    LIMITED = "limited"
    CLIENT_LOST = "client_lost"
    """EOF, reset or timeout of an open session's client without Close."""
    BROKER_LOST = "broker_lost"
    NO_BACKEND = "no_backend"
    """Every candidate was tried."""
    HANDSHAKE_TIMEOUT = "handshake_timeout"
    PROTOCOL_ERROR = "protocol_error"
    """The client does not speak AMQP 0-9-1."""
    INTERNAL = "internal"


FAILURES = frozenset(
    {End.CLIENT_LOST, End.BROKER_LOST, End.NO_BACKEND, End.HANDSHAKE_TIMEOUT, End.PROTOCOL_ERROR, End.INTERNAL}
)


@dataclass(frozen=True, slots=True)
class Reject:
    """No backend for this session: Connection.Close with `code` and `text` (a short string, at most 255 bytes)."""

    code: int
    text: str


# Not frozen, like others that each session makes: Python takes five times as long to set a frozen field.
@dataclass(slots=True)
class Route:
    """Where a session may go."""

    target: str
    """`farm east`, `backend rabbit1`, `local`."""
    key: str
    """The stickiness key, `NULL` without one."""
    vhost: str
    """After the rule's rewrite; a backend's own `vhost` comes on top (see `vhost_for`)."""
    candidates: Iterator[Backend] = field(compare=False, repr=False)
    """Each backend at most once, best first; the retry count is the index. Take the next only to attempt it: taking it
    marks it as attempted. No await between a `next` and the attempt's begin is needed, and several may be under way."""
    farm: str | None = field(default=None, compare=False)
    """The farm that its rule names."""

    def vhost_for(self, backend: Backend) -> str:
        """Return the vhost for Connection.Open at `backend`."""
        return self.vhost if backend.vhost is None else backend.vhost


NO_MORE: Iterator[Backend] = iter(())
"""The candidates of a route whose session is on its way: a session keeps its route, not what chose it."""

Decision = Reject | Route


class Session(Protocol):
    """A live session, as control and metrics see it."""

    id: str
    """Short, unique for the life of the router and over its restarts; in every log line."""
    identity: Identity | None
    """None until Open was read."""
    route: Route | None
    backend: Backend | None
    """The one it is connected or connecting to."""
    phase: Phase
    listener: str
    client: str
    """`address:port` of the client."""
    started: float
    """time.time() at accept()."""

    @property
    def counters(self) -> Counters:
        """The session's own counters, up to date."""

    def pause(self) -> None:
        """Stop reading from the client and send it Connection.Blocked; heartbeats to both sides go on. Idempotent."""

    def unpause(self) -> None:
        """Read again, Connection.Unblocked. Idempotent."""

    def disconnect(self, code: int, text: str) -> None:
        """End it gracefully: Connection.Close to both sides on a frame boundary, RST where there is none."""

    def force(self) -> None:
        """Cut both sockets at once."""

    def meter(self) -> None:
        """The limits have changed: look again at `Lease.metered`."""

    def disconnect_backend(self) -> None:
        """Cut the broker's side at once; the client gets a Close with a reason."""


class Server(Protocol):
    """The listeners and the life of the process, as control sees them."""

    def check_free(self, listener: Listener) -> None:
        """Raise OSError if anybody listens at an address that several workers are to share."""

    async def start(self, listener: Listener) -> None:
        """Listen, or apply new settings to the listener of this name; raises OSError if the address is taken."""

    async def stop(self, name: str) -> None:
        """Listen no more; its sessions stay. Raises KeyError."""

    def listening(self) -> Mapping[str, Listener]:
        """Return the listeners by name, with the port that is really bound."""

    def renew(self) -> None:
        """Go by new time-outs, and read the files of TLS settings towards backends anew, for the next connections."""

    def exit(self, drain: float, rate: float | None = None) -> None:
        """Begin to leave: no new sessions, Close (320) to all, `rate` a second (None: at once), gone after at most
        `drain` seconds. Called again, it may only be sooner."""


class Routing(Protocol):
    """What the model offers the data path; `routing.Routes` is it. Everything here is for the event loop's thread."""

    @property
    def timeouts(self) -> Timeouts:
        """The time-outs of now."""

    @property
    def tune(self) -> Tune:
        """The most to offer a client."""

    on_greeting: Callable[[str, bytes], None]
    """Called with the name of a backend and its Start, a method's payload, where no session asked for it."""

    def registered(self, session: Session) -> None:
        """Take `session` into the registry."""

    def is_paused(self, vhost: str) -> bool:
        """Must new sessions of `vhost` wait?"""

    async def unpaused(self, vhost: str) -> None:
        """Return when `vhost` is not paused, at once if it is not."""

    async def client_name(self, address: str) -> str:
        """Return the host name of the client's IP where the configuration asks for names, else `address`."""

    def reachable(self, listener: str, source_ip: str, sni_host: str) -> tuple[str, ...]:
        """Return the names of the backends that a client may come to of whom only this is known."""

    def decide(self, identity: Identity, takes: Callable[[str], bool] | None = None) -> Decision:
        """Return where the session goes. Never raises. `takes`: asked with the name of each candidate as it is taken;
        one for which it returns False is passed over, as if it had not been there."""

    def attempted(self, session: Session, backend: Backend, ok: bool, reason: str = "") -> None:
        """Record the outcome of one attempt; `reason` is a short clause for the log where it is not `ok`."""

    def opened(self, session: Session) -> None:
        """Open-Ok went to the client: session.route and session.backend are set."""

    def closed(self, session: Session, how: End, text: str = "") -> None:
        """The session is over."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A limit says no: Connection.Close with this, where the handshake has come far enough for a Close."""

    code: int
    text: str


class Lease(Protocol):
    """One connection's share of the limits."""

    @property
    def metered(self) -> bool:
        """True: report bytes through `take`. A reload may change it; `Session.meter` says when."""

    def identify(self, source_ip: str) -> Refusal | None:
        """Count the connection as an unauthenticated one of its client's address, once a PROXY header has given it."""

    def wait(self, vhost: str) -> Refusal | None:
        """Count it as one that waits for the paused `vhost`, by itself, instead."""

    def may_open(self, vhost: str, user: str) -> Refusal | None:
        """Return why the connection could not be counted on its vhost and user now."""

    def open(self, vhost: str, user: str) -> Refusal | None:
        """Count it on its vhost and user, once a broker has let it in; a refused one stays counted by address only."""

    def occupy(self, backend: str) -> bool:
        """Take a place at the backend of this name, and give the one before back; False: there is none."""

    def vacate(self) -> None:
        """Give its place at a backend back. Idempotent."""

    def authenticated(self) -> None:
        """It is no longer an unauthenticated connection of its address."""

    def take(self, nbytes: int) -> float:
        """Record `nbytes` from the client; returns the seconds to wait before reading on (0.0: none)."""

    def release(self) -> None:
        """Give everything back. Idempotent."""


class Limits(Protocol):
    """What `limits.Limiter` offers the data path."""

    def denies(self, listener: Listener, source_ip: str) -> bool:
        """Return whether the listener's networks keep this client out; one that they do is counted."""

    def accept(self, source_ip: str | None) -> Lease | Refusal:
        """Count a new connection; on a Refusal nothing was counted. None: a PROXY header will give the address."""

    def adopt(self, vhost: str, user: str, backend: str) -> Lease:
        """Count an open connection that another process admitted: no limit refuses it."""

    def largest_frame(self, vhost: str | None) -> int:
        """Return the most bytes that a frame from a client may have (0: Tune alone decides); None: before Open."""


@dataclass(slots=True)
class AuthRequest:
    """What the authorisation hook is asked."""

    identity: Identity
    mechanism: str
    response: bytes = field(repr=False)
    """The SASL response of Start-Ok, as it is."""
    certificate_name: str = ""
    """The common name of the client's verified certificate, empty without one."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """Go on; with other credentials towards the broker where `mechanism` and `response` are set."""

    roles: tuple[str, ...] = ()
    mechanism: str | None = None
    response: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Denied:
    """Close with `code` and `text`."""

    text: str
    code: int = ACCESS_REFUSED


class Authorizer(Protocol):
    """What `authorize` offers the data path."""

    @property
    def gives_credentials(self) -> bool:
        """Whether it can replace a client's credentials: only then a client may authenticate by EXTERNAL."""

    async def authorize(self, request: AuthRequest) -> Allowed | Denied:
        """Ask; whatever goes wrong is a Denied. Never raises but for cancellation."""


def short_string(text: str) -> str:
    """Return `text` cut to what an AMQP short string holds: 255 bytes of UTF-8, no character cut in two."""
    return text.encode("utf-8", "replace")[:SHORT_STRING_MAX].decode("utf-8", "ignore")
