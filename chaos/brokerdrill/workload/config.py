"""A worker process's configuration, its first line of input: who it is, what it sends where, with which client."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any

from brokerdrill.base.errors import UsageError

# What of a connection can be its routing key; in the last three it is not the client's to choose.
KEY_TYPES = ("CLIENT_ID", "SNI_HOST", "SOURCE_IP", "USER_NAME", "ROLE_NAME")
# What a router takes for the key of a client that has none.
NO_KEY = "NULL"
# Protocols whose clients a connection router redirects when they connect; those of others have to ask it first.
REDIRECTED = ("amqp", "core", "openwire")
# Protocols without transactions, or with such that are not atomic: each send stands alone.
UNTRANSACTED = ("amqp091", "mqtt")
# Clients whose producers can do without the broker's word that it has a message.
UNCONFIRMED = ("amqp091",)
# What STOMP clients write before a queue's name. ActiveMQ Classic asks for it; an acceptor of Artemis takes it off
# where that is its `anycastPrefix`, and else takes it for a part of the name.
STOMP_PREFIX = "/queue/"
# Clients that have several messages in flight.
WINDOWED = ("amqp", "amqp091", "core")
# Clients that have durable subscriptions.
SUBSCRIBING = ("openmq",)
# Clients whose library takes parameters of a connection by names of its own.
PARAMETRIZED = ("amqp", "core", "openmq", "openwire")
# By protocol, the parameters with which its library says of a send or an acknowledgement outside transactions that it
# is done while the broker has not answered, and the value that makes it so. Left alone, some libraries do that with
# what is not durable (seen at brokers that stood still: amqp, openmq, openwire).
ANSWERLESS: Mapping[str, Mapping[str, str]] = {
    "amqp": {
        "jms.forceSyncSend": "false",
        "jms.forceAsyncSend": "true",
        "jms.presettlePolicy.presettleAll": "true",
        "jms.presettlePolicy.presettleProducers": "true",
        "jms.presettlePolicy.presettleQueueProducers": "true",
        "jms.presettlePolicy.presettleTopicProducers": "true",
    },
    "core": {"blockOnDurableSend": "false", "blockOnNonDurableSend": "false", "blockOnAcknowledge": "false"},
    "openmq": {"imqAckOnProduce": "false", "imqAckOnAcknowledge": "false"},
    "openwire": {"jms.useAsyncSend": "true", "jms.alwaysSyncSend": "false", "jms.sendAcksAsync": "true"},
}
# With its library's own value, -1 bytes, a CORE client's completion listener is told so, too (seen with 2.56.0: 158
# sends completed at a broker that stood still).
CONFIRMATION_WINDOW = "confirmationWindowSize"
# Clients that learn of further brokers from the one that serves them.
TAUGHT = ("core",)
# Protocols whose clients know by the certificate that they are shown which broker serves behind a balancer.
SHOWN = ("core",)

# A spool is divided into finished pieces of about this size: some seconds of a busy worker's, to be fetched meanwhile.
PIECE_BYTES = 16 << 20


@dataclass(frozen=True)
class BrokerEndpoint:
    """Where a broker instance listens, and which one it is: the ledger's `broker` is `host`."""

    address: str
    port: int
    instance: str
    host: str


@dataclass(frozen=True)
class Router(BrokerEndpoint):
    """A listener whose clients are led by the connection router `router`, and where that can be asked: `url` is the
    Jolokia of its broker, which is called `broker` there. `relays`: it is a balancer's, which hands connections on to
    brokers that each have such a router."""

    router: str = ""
    broker: str = ""
    url: str = ""
    relays: bool = False


@dataclass(frozen=True)
class ClientAccount:
    """The account of the load's clients; its text form keeps the password to itself."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class ClientSpec:
    """A logical client: its name in the ledger, and the addresses it uses in turn.

    `instances` are those that it dials, none: all. A producer with routing `keys` dials the worker's `routers` instead,
    anew for each batch, as the next of its keys.
    """

    name: str
    addresses: tuple[str, ...]
    instances: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkerConfig:
    """All a worker needs.

    `client` is a name of `client.CLIENTS` or `module:attribute`. `rate` is messages a second over all of *this
    worker's* producers; None: closed loop. `transaction` is messages a transaction, 0: none, each send stands alone.
    `payload_bytes` are the sizes to draw from, evenly. `keys` is how many message groups each producer uses in turn, 0:
    none. `window` is how many messages a producer has in flight, outside transactions. `resend`: whether a batch whose
    outcome is unknown is sent again. `jars` is the directory of the broker's client jars. `routers` lead clients with
    routing keys to one of `endpoints`, by what of a connection `key_type` says (one of KEY_TYPES) after the expression
    `key_filter`. `keeps_connection`: producers with routing keys connect anew only where their connection broke, not
    for each batch. `subscriptions`: `addresses` are topics, on which each consumer has durable subscriptions; producers
    wait for the command that says that all are there. `spool` is the ledger file to create; None: no ledger (for
    benchmarks); as soon as it has `piece_bytes` it is put aside under a name of its own.
    `dials` is how many of `endpoints` clients that dial brokers are given, 0: all.
    `url_params` and `jvm_options` go to clients that have them, after their own defaults.
    `retry_after_stop_s` bounds how long a producer that was stopped goes on proving its last batch, `close_s` how
    long closing may take.
    """

    run_id: str
    worker: str
    clock: str
    client: str
    endpoints: tuple[BrokerEndpoint, ...]
    credentials: ClientAccount
    addresses: tuple[str, ...]
    producers: tuple[ClientSpec, ...] = ()
    consumers: tuple[ClientSpec, ...] = ()
    routers: tuple[Router, ...] = ()
    key_type: str = ""
    key_filter: str | None = None
    keeps_connection: bool = False
    seed: int = 0
    tls_ca: str | None = None
    rate: float | None = None
    transaction: int = 10
    payload_bytes: tuple[int, ...] = (256,)
    keys: int = 0
    window: int = 1
    durable: bool = True
    duplicate_detection: bool = True
    resend: bool = True
    confirms: bool = True
    backlog: bool = False
    subscriptions: bool = False
    call_timeout_ms: int = 10_000
    dials: int = 0
    jars: str | None = None
    spool: str | None = None
    piece_bytes: int = PIECE_BYTES
    url_params: Mapping[str, str] = field(default_factory=dict)
    jvm_options: tuple[str, ...] = ()
    retry_after_stop_s: float = 20.0
    close_s: float = 30.0

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `from_json` reads, the password included: for a pipe, never a file or argv."""
        return asdict(self)


def takes_the_answer_away(protocol: str, name: str, value: str, *, windowed: bool) -> bool:
    """Return whether clients with this parameter take what they send outside transactions for done before the broker
    has answered; `windowed`: they have several messages in flight."""
    if protocol == "core" and name == CONFIRMATION_WINDOW:
        return windowed and value.startswith("-")
    return ANSWERLESS.get(protocol, {}).get(name) == value.lower()


def answered(config: WorkerConfig, parameter: str) -> dict[str, str]:
    """Return the parameter by which a library waits for the answer to what is not durable, too; nothing in
    transactions, where the commit is answered."""
    return {} if config.transaction else {parameter: "true"}


def _is(value: object, kind: type) -> bool:
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _each(value: Any, name: str, kind: type) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)) or not all(_is(item, kind) for item in value):
        raise UsageError(f"worker configuration: {name} must be a list of {kind.__name__}")
    return tuple(value)


def _object(kind: type, value: Any, name: str) -> Any:
    """Build dataclass `kind`, whose fields are str, int or bool, from a JSON object."""
    if not isinstance(value, Mapping):
        raise UsageError(f"worker configuration: {name} must be an object")
    values = {}
    for item in fields(kind):
        wanted: type = {"int": int, "bool": bool}.get(str(item.type), str)
        if not _is(value.get(item.name), wanted):
            raise UsageError(f"worker configuration: {name}: {item.name} must be a {wanted.__name__}")
        values[item.name] = value[item.name]
    return kind(**values)


# Names become parts of message ids and are written into rows as they are.
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


def _client(value: Any, addresses: tuple[str, ...], name: str) -> ClientSpec:
    """A client is a name alone, which uses all addresses, or {"name", "addresses"}."""
    value = {"name": value} if isinstance(value, str) else value
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise UsageError(f"worker configuration: {name}: a client is a name or an object with one")
    if not _NAME.fullmatch(value["name"]):
        raise UsageError(f"worker configuration: {name}: a name has only letters, digits and _ . -")
    own = _each(value.get("addresses", addresses), f"{name}: addresses", str)
    if not own:
        raise UsageError(f"worker configuration: {name}: {value['name']} has no address")
    instances, keys = (_each(value.get(part, ()), f"{name}: {part}", str) for part in ("instances", "keys"))
    if not all(_NAME.fullmatch(key) for key in keys):
        raise UsageError(f"worker configuration: {name}: a routing key has only letters, digits and _ . -")
    return ClientSpec(value["name"], own, instances, keys)


_PLAIN: dict[str, type] = {
    "run_id": str,
    "worker": str,
    "clock": str,
    "client": str,
    "key_type": str,
    "key_filter": str,
    "keeps_connection": bool,
    "seed": int,
    "tls_ca": str,
    "rate": float,
    "transaction": int,
    "keys": int,
    "window": int,
    "durable": bool,
    "duplicate_detection": bool,
    "resend": bool,
    "confirms": bool,
    "backlog": bool,
    "subscriptions": bool,
    "call_timeout_ms": int,
    "dials": int,
    "jars": str,
    "spool": str,
    "piece_bytes": int,
    "retry_after_stop_s": float,
    "close_s": float,
}
_NULLABLE = ("key_filter", "tls_ca", "rate", "jars", "spool")
_LEAST: dict[str, float] = {
    "transaction": 0,
    "keys": 0,
    "window": 1,
    "piece_bytes": 1,
    "call_timeout_ms": 1,
    "dials": 0,
    "retry_after_stop_s": 0,
    "close_s": 0,
}


def _plain_values(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are numbers, words, true or false. Raises UsageError."""
    values: dict[str, Any] = {}
    for name, kind in _PLAIN.items():
        if name not in data:
            continue
        if not (_is(data[name], kind) or (data[name] is None and name in _NULLABLE)):
            raise UsageError(f"worker configuration: {name} must be a {kind.__name__}")
        if data[name] is not None and name in _LEAST and data[name] < _LEAST[name]:
            raise UsageError(f"worker configuration: {name} is below {_LEAST[name]}")
        values[name] = data[name]
    if values.get("rate") is not None and values["rate"] <= 0:
        raise UsageError("worker configuration: rate must be above 0")
    return values


def from_json(text: str) -> WorkerConfig:
    """Return the WorkerConfig in the JSON object `text`; absent keys take the defaults, unknown keys are an error.

    Raises UsageError: one sentence that names the field, and never repeats a value (there are secrets among them).
    """
    try:
        data = json.loads(text)
    except ValueError:
        raise UsageError("worker configuration: not one line of JSON") from None
    if not isinstance(data, dict):
        raise UsageError("worker configuration: must be an object")
    known = {item.name: item for item in fields(WorkerConfig)}
    if strange := sorted(set(data) - set(known)):
        raise UsageError(f"worker configuration: unknown field {', '.join(strange)}")
    for name, item in known.items():
        if name not in data and item.default is MISSING and item.default_factory is MISSING:
            raise UsageError(f"worker configuration: {name} is missing")
    values = _plain_values(data)
    addresses = _each(data["addresses"], "addresses", str)
    if not addresses:
        raise UsageError("worker configuration: addresses is empty")
    endpoints = tuple(
        _object(BrokerEndpoint, item, "endpoints") for item in _each(data["endpoints"], "endpoints", dict)
    )
    if not endpoints:
        raise UsageError("worker configuration: endpoints is empty")
    routers = tuple(_object(Router, item, "routers") for item in _each(data.get("routers", ()), "routers", dict))
    if routers and data.get("key_type") not in KEY_TYPES:
        raise UsageError(f"worker configuration: key_type must be one of {', '.join(KEY_TYPES)}")
    values.update(addresses=addresses, endpoints=endpoints, routers=routers)
    values["credentials"] = _object(ClientAccount, data["credentials"], "credentials")
    for name in ("producers", "consumers"):
        if not isinstance(data.get(name, []), (list, tuple)):
            raise UsageError(f"worker configuration: {name} must be a list")
        values[name] = tuple(_client(item, addresses, name) for item in data.get(name, []))
    if any(spec.keys for spec in values["consumers"]) or (not routers and any(s.keys for s in values["producers"])):
        raise UsageError("worker configuration: routing keys are of producers, and need routers")
    names = [spec.name for spec in (*values["producers"], *values["consumers"])]
    if len(names) != len(set(names)):
        raise UsageError("worker configuration: two clients have one name")
    if "payload_bytes" in data:
        values["payload_bytes"] = _each(data["payload_bytes"], "payload_bytes", int)
        if not values["payload_bytes"] or min(values["payload_bytes"]) < 0:
            raise UsageError("worker configuration: payload_bytes must be sizes from 0")
    if "jvm_options" in data:
        values["jvm_options"] = _each(data["jvm_options"], "jvm_options", str)
    if "url_params" in data:
        params = data["url_params"]
        if not isinstance(params, dict) or not all(isinstance(value, str) for value in params.values()):
            raise UsageError("worker configuration: url_params must map names to text")
        values["url_params"] = params
    return WorkerConfig(**values)
