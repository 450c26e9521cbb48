"""The configuration file's form: what may stand in it, with the defaults. What the parts mean together is `settings`.

All times are seconds, all sizes and rates bytes (a second). A description here is the reference: `amqp-session-router
schema` prints it as JSON Schema.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from amqp_session_router.base.patterns import Pattern

KeyTypeName = Literal["VHOST", "CLIENT_ID", "SNI_HOST", "SOURCE_IP", "USER_NAME", "ROLE_NAME"]
TlsVersion = Literal["1.2", "1.3"]
LogLevel = Literal["critical", "error", "warning", "info", "debug"]


def _regex(text: str) -> str:
    try:
        Pattern(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return text


def _ip(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address") from None
    return text


def _network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a network: {error}") from None
    return text


def _true_is_empty(value: Any) -> Any:
    return {} if value is True else None if value is False else value


_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*$"
Name = Annotated[str, Field(pattern=_NAME, max_length=100)]
Vhost = Annotated[str, Field(max_length=255)]
Regex = Annotated[str, AfterValidator(_regex)]
Ip = Annotated[str, AfterValidator(_ip)]
Network = Annotated[str, AfterValidator(_network)]
HostName = Annotated[str, Field(pattern=r"^(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$", max_length=253)]
Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=86400, allow_inf_nan=False)]
Limit = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]


class Part(BaseModel):
    """What every part has: no unknown keys, no guessing at types."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class CertificatePart(Part):
    """A certificate for clients that ask for certain host names (SNI). Files are PEM."""

    names: Annotated[list[HostName], Field(min_length=1)]
    """Host names as clients ask for them; `*.example.org` is any name with one more label."""
    cert_file: str
    """The certificate and its chain."""
    key_file: str
    """Its private key, without a passphrase."""


class ServerTlsPart(Part):
    """TLS towards clients. Files are PEM; `true` is the same as `{}`, what is absent comes from `tls.ingress`."""

    cert_file: str | None = None
    """The certificate and its chain; needed, here or in `tls.ingress`."""
    key_file: str | None = None
    """Its private key, without a passphrase; needed, here or in `tls.ingress`."""
    ca_file: str | None = None
    """Authorities of the clients' certificates."""
    dh_file: str | None = None
    """Diffie-Hellman parameters; without them OpenSSL's own."""
    client_cert: Literal["none", "optional", "required"] = "none"
    """Whether clients are asked for a certificate; the last two need `ca_file`."""
    minimum: TlsVersion = "1.2"
    """The oldest version."""
    ciphers: str | None = None
    """OpenSSL's list for TLS 1.2; those of TLS 1.3 are fixed."""
    crl_file: str | None = None
    """Revocation lists of all authorities of the clients' certificates; one that is too old lets nobody in."""
    certificates: list[CertificatePart] = []
    """By the host name that a client asks for; others are shown `cert_file`."""


class ClientTlsPart(Part):
    """TLS towards a backend. Files are PEM; `true` is the same as `{}`, what is absent comes from `tls.egress`."""

    ca_file: str | None = None
    """Authorities of the broker's certificate; without it the system's."""
    cert_file: str | None = None
    """The router's own certificate, for brokers that ask for one."""
    key_file: str | None = None
    """Its private key."""
    verify: bool = True
    """Whether the broker's certificate and name must be valid."""
    server_name: str | None = None
    """The name to ask for and verify, where it is not the backend's host."""
    minimum: TlsVersion = "1.2"
    """The oldest version."""
    ciphers: str | None = None
    """OpenSSL's list for TLS 1.2."""


class TlsPart(Part):
    """What listeners and backends with TLS have in common."""

    ingress: ServerTlsPart = ServerTlsPart()
    """Towards clients."""
    egress: ClientTlsPart = ClientTlsPart()
    """Towards backends."""


CongestionControl = Annotated[str, Field(min_length=1, max_length=15)]


class ListenerPart(Part):
    """An address that clients connect to."""

    host: str = "0.0.0.0"
    """Address to listen on; `::` for IPv6 and IPv4."""
    port: Annotated[int, Field(ge=0, le=65535)] = 5672
    """0: any free port."""
    tls: Annotated[ServerTlsPart | None, BeforeValidator(_true_is_empty)] = None
    """TLS from the first byte; absent: plain."""
    proxy_protocol: bool = False
    """Every connection must begin with a PROXY header, v1 or v2."""
    trusted: list[Network] = []
    """Networks whose PROXY header is believed; needed with `proxy_protocol`. `0.0.0.0/0` and `::/0` are all."""
    congestion_control: CongestionControl | None = None
    """TCP congestion control of its connections, such as `cubic`; absent: the host's, `reno` on loopback."""
    allow: Annotated[list[Network], Field(min_length=1)] | None = None
    """Networks whose clients may connect; absent: all. With `proxy_protocol` the address in the header counts."""
    deny: list[Network] = []
    """Networks whose clients may not connect, those in `allow` too. They are cut before any handshake."""


class BackendPart(Part):
    """A broker."""

    host: Annotated[str, Field(min_length=1)]
    """Name or address; resolved anew for each attempt."""
    port: Port = 5672
    """Its AMQP port."""
    datacenter: str = ""
    """Where it is, for `datacenter-affinity`."""
    address: Ip | None = None
    """IP to connect to instead of resolving `host`."""
    source_addresses: list[Ip] = []
    """Own addresses to connect from, in turn; one gives about 28 000 connections to a backend."""
    tls: Annotated[ClientTlsPart | None, BeforeValidator(_true_is_empty)] = None
    """TLS towards it; absent: plain."""
    proxy_protocol: Literal[1, 2] | None = None
    """Send a PROXY header of this version, with the client's address."""
    congestion_control: CongestionControl | None = None
    """TCP congestion control of connections to it, such as `cubic`; absent: the host's, `reno` on loopback."""
    weight: Annotated[int, Field(ge=0, le=1000)] = 1
    """For the selectors `weighted`, `rendezvous-hash`, `least-connections`; 0: only when no other is left."""
    drain: bool = False
    """No new sessions; the old ones stay."""
    local: bool = False
    """It is the broker of the router's own host."""
    vhost: Vhost | None = None
    """Open this vhost there, whatever the client asked for."""
    connections: Annotated[int, Field(ge=1)] | None = None
    """The most sessions there at a time; the next ones go to other backends, or are refused where all are full."""
    slow_start: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 0.0
    """Time in which its share grows once it has become ready, for the selectors that go by `weight`; 0: at once."""


class KeyPart(Part):
    """What a session sticks by."""

    type: KeyTypeName = "SOURCE_IP"
    """CLIENT_ID is the client property `connection_name`; ROLE_NAME comes from the authorisation hook."""
    filter: Regex | None = None
    """Searched for in the value; what it found is the key, `NULL` where it finds nothing."""


class CachePart(Part):
    """Remembers which backend a key went to; it is tried first in its partition as long as it is ready."""

    persisted: bool = False
    """Keep it in `state_dir` over restarts and crashes."""
    timeout: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Forget a key so long after its last session opened; 0: never."""
    entries: Annotated[int, Field(ge=1, le=10_000_000)] = 65536
    """The most keys; beyond, the one that was used longest ago is forgotten."""


class OutlierPart(Part):
    """Ejects members whose sessions fail, beside all checks: they are tried last. Each worker finds out by itself."""

    failures: Annotated[int, Field(ge=1, le=10_000)] = 5
    """More attempts that fail and sessions that the broker loses than this, within `interval`, eject a member."""
    interval: Seconds = 10.0
    """Time in which failures count."""
    ejection_time: Seconds = 30.0
    """How long it is ejected."""
    max_ejection_percent: Annotated[int, Field(ge=0, le=100)] = 50
    """The most members, of those that do not drain, that are ejected at a time, rounded down."""


class RetryBudgetPart(Part):
    """Bounds the attempts of sessions beyond their first; who has none left is refused."""

    ratio: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 0.2
    """Further attempts for each first one, on average over about ten seconds."""
    min_per_second: Annotated[float, Field(ge=0, le=100_000, allow_inf_nan=False)] = 10.0
    """Further attempts a second in any case."""


class FarmPart(Part):
    """Backends of one cluster."""

    members: list[Name] = []
    """Names of backends, in the order that `first` goes by."""
    policies: list[str] = []
    """Partition policies, applied in this order: `datacenter-affinity`, `local-first`, `health`, or a user's own."""
    selector: str = "round-robin"
    """`round-robin`, `least-connections`, `rendezvous-hash`, `weighted`, `first`, or a user's own."""
    key: KeyPart | None = None
    """For `rendezvous-hash` and the cache; without one every session's key is `NULL`."""
    cache: CachePart | None = None
    """Stickiness beyond what the selector gives."""
    quorum: Count = 0
    """Give no backend out while fewer members than this are ready (checked and not draining)."""
    check_period: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 5.0
    """Time between checks of each member; 0: no checks, every member counts as ready."""
    check: Literal["connect", "greeting"] = "connect"
    """Ready is who accepts, or also greets (Connection.Start); RabbitMQ logs a greeting that nobody answers."""
    outlier_detection: Annotated[OutlierPart | None, BeforeValidator(_true_is_empty)] = None
    """Try members last for a while whose sessions fail; absent: only checks count. `true` is the same as `{}`."""
    retry_budget: Annotated[RetryBudgetPart | None, BeforeValidator(_true_is_empty)] = None
    """How often sessions may be tried again, in fallbacks too; absent: at every member. `true` is the same as `{}`."""
    fallback: Name | None = None
    """The farm to go on with when every member refused."""


class RulePart(Part):
    """The conditions that are given must all hold; exactly one of farm, backend, local, reject says what then."""

    vhost: Vhost | None = None
    """The vhost, exactly."""
    vhost_pattern: Regex | None = None
    """Must match the whole vhost."""
    listener: Name | None = None
    """The listener that the client came by."""
    key: KeyPart | None = None
    """The value that `matches` looks at."""
    matches: Regex | None = None
    """Must match the whole key; a session without one has the key `NULL`."""
    rewrite: Vhost | None = None
    """The vhost to open at the broker; after a `vhost_pattern` it may name groups, `\\\\1` or `\\\\g<name>`."""
    farm: Name | None = None
    """Go to this farm."""
    backend: Name | None = None
    """Go to this backend only."""
    local: Literal[True] | None = None
    """Go to the backends that are marked as local."""
    reject: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Refuse with this sentence (Close 530)."""


class DefaultPart(Part):
    """Where vhosts go that no rule names; exactly one. Without a default they are refused (Close 530)."""

    farm: Name | None = None
    """Go to this farm."""
    backend: Name | None = None
    """Go to this backend only."""
    local: Literal[True] | None = None
    """Go to the backends that are marked as local."""
    reject: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Refuse with this sentence (Close 530)."""


class ConnectionLimits(Part):
    """Limits of the connections of one vhost or user. An `_alarm` only writes a warning when it is passed."""

    connection_rate: Limit | None = None
    """New connections a second, on average; a second's worth may come at once."""
    connection_rate_alarm: Limit | None = None
    """The same, warning only."""
    connections: Count | None = None
    """Connections at a time."""
    connections_alarm: Count | None = None
    """The same, warning only."""


class VhostLimits(ConnectionLimits):
    """Limits of each vhost by itself."""

    data_rate: Limit | None = None
    """Bytes a second from all its clients; the router reads no faster, nothing is refused."""
    data_rate_alarm: Limit | None = None
    """The same, warning only."""
    connection_data_rate: Limit | None = None
    """Bytes a second from each of its clients; the router reads that one no faster. What amqpprox calls DATA_RATE."""
    connection_data_rate_alarm: Limit | None = None
    """The same, warning only."""
    frame_max: Annotated[int, Field(ge=4096)] | None = None
    """The largest frame of a client's, in bytes."""


class UserLimits(Part):
    """Limits of each user by itself: the name in the login, once a broker has let it in."""

    default: ConnectionLimits = ConnectionLimits()
    """Of every user, by itself, where `names` says nothing for it; each limit by itself too."""
    names: dict[Annotated[str, Field(max_length=255)], ConnectionLimits] = {}
    """By user, as the client logs in."""


class LimitsPart(Part):
    """Limits: those that are absent do not exist."""

    default: VhostLimits = VhostLimits()
    """Of every vhost, by itself, where `vhosts` says nothing for it; each limit by itself too."""
    vhosts: dict[Vhost, VhostLimits] = {}
    """By vhost, as the client names it."""
    users: UserLimits = UserLimits()
    """Of users, whichever vhosts they open."""
    connections: Count | None = None
    """Connections of the whole router at a time."""
    unauthenticated_per_address: Annotated[int, Field(ge=1)] | None = 100
    """Connections of one client address that have not been opened yet; `null`: no limit."""
    connection_rate_per_address: Limit | None = None
    """New connections a second of one client address, on average; a second's worth may come at once."""
    ipv6_prefix: Annotated[int, Field(ge=1, le=128)] = 64
    """Bits of an IPv6 address that make one client address: a single host has a whole network of 64."""
    alarm_only: bool = False
    """No limit refuses or delays, every one warns: to try limits out."""


class AuthorizationPart(Part):
    """A hook over HTTP that may refuse a session. It fails closed."""

    url: Annotated[str, Field(pattern=r"^https?://[^/\s]+(/\S*)?$")]
    """Gets a POST with JSON for each session."""
    timeout: Seconds = 5.0
    """No whole answer in this time: refused."""
    header_file: str | None = None
    """File with one line `Name: value` to send along, for a secret that must not stand here."""
    ca_file: str | None = None
    """Authorities of an https hook; without it the system's."""


class ControlPart(Part):
    """The control socket."""

    socket: str = "/run/amqp-session-router/control.sock"
    """A Unix socket of mode 0600."""
    read_socket: str | None = None
    """Another one, of mode 0660, for the verbs that only show something; absent: none."""
    read_group: Annotated[str, Field(min_length=1)] | None = None
    """The group that may use it; absent: the router's own."""


class StatusPart(Part):
    """HTTP for machines: /metrics (Prometheus), /metrics.json, /health, /ready, /digests."""

    host: str = "127.0.0.1"
    """Address to listen on; there is no authentication."""
    port: Annotated[int, Field(ge=0, le=65535)] = 15673
    """0: any free port."""


class StatsdPart(Part):
    """Sends the metrics as statsd packets over UDP."""

    host: str
    """Where to."""
    port: Port = 8125
    """Its UDP port."""
    period: Seconds = 10.0
    """Time between two."""
    prefix: str = "amqp_session_router"
    """What every name begins with."""


class LogPart(Part):
    """The log: JSON, one object a line, on standard error and in a file."""

    level: LogLevel = "info"
    """On standard error."""
    file: str | None = None
    """A file to append to; it may be moved away, the next line makes a new one."""
    file_level: LogLevel = "info"
    """In the file."""


class TimeoutsPart(Part):
    """Seconds, each from the moment its step begins."""

    handshake: Seconds = 10.0
    """accept() to Open-Ok, without the time that a paused vhost waits."""
    connect: Seconds = 5.0
    """One attempt at a backend: DNS, TCP, TLS."""
    backend_handshake: Seconds = 5.0
    """One attempt: connected to Open-Ok."""
    close: Seconds = 3.0
    """Close sent to Close-Ok; then the socket is cut."""
    dead_peer: Seconds = 60.0
    """A peer that acknowledges nothing for so long is dead; one that only takes no more for a while is not."""


class TunePart(Part):
    """The most that clients are offered; what the backends allow, once seen, lowers it."""

    frame_max: Annotated[int, Field(ge=4096, le=2**31 - 1)] = 131072
    """Bytes of the largest frame."""
    channel_max: Annotated[int, Field(ge=1, le=65535)] = 2047
    """Channels of a connection."""
    heartbeat: Annotated[int, Field(ge=0, le=65535)] = 60
    """Seconds; the client's own wish wins."""


class Config(Part):
    """The configuration of an AMQP 0-9-1 session router."""

    datacenter: str = ""
    """Where this router is, for `datacenter-affinity`."""
    state_dir: str | None = None
    """Directory for what outlives a restart: stickiness, changes by control, paused vhosts. Absent: nothing does."""
    resolve_client_names: bool = False
    """Look up the clients' host names for the client properties that the broker shows."""
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes that share the listeners, at best one for each core. It counts from the next start."""
    exit_rate: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)] | None = None
    """Sessions closed a second when the router leaves, more where its time is too short; absent: all at once."""
    tls: TlsPart = TlsPart()
    """TLS settings that listeners and backends share."""
    listeners: dict[Name, ListenerPart] = {}
    """Addresses that clients connect to, by name."""
    backends: dict[Name, BackendPart] = {}
    """Brokers, by name."""
    farms: dict[Name, FarmPart] = {}
    """Groups of equivalent brokers, by name."""
    rules: list[RulePart] = []
    """Where sessions go: the first that matches counts."""
    default: DefaultPart | None = None
    """Where the rest goes."""
    timeouts: TimeoutsPart = TimeoutsPart()
    """How long each step may take."""
    tune: TunePart = TunePart()
    """What clients are offered."""
    limits: LimitsPart = LimitsPart()
    """What clients may use."""
    authorization: AuthorizationPart | None = None
    """Who may come in; absent: the broker alone decides."""
    control: ControlPart | None = ControlPart()
    """The control socket; `null`: none."""
    status: StatusPart | None = None
    """The HTTP endpoints; absent: none."""
    statsd: list[StatsdPart] = []
    """Receivers of statsd packets."""
    log: LogPart = LogPart()
    """The log."""
