"""What a configuration means: names resolved to values, contradictions refused. Pure but for reading the TLS files."""

from __future__ import annotations

import grp
import ipaddress
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amqp_session_router.base.errors import UsageError, unknown_name
from amqp_session_router.base.model import (
    NOT_ALLOWED,
    Backend,
    Certificate,
    ClientTls,
    Listener,
    ServerTls,
    Timeouts,
    Tune,
)
from amqp_session_router.base.networks import Gate
from amqp_session_router.base.patterns import Pattern
from amqp_session_router.config.digests import digests
from amqp_session_router.config.schema import (
    BackendPart,
    ClientTlsPart,
    Config,
    ControlPart,
    DefaultPart,
    FarmPart,
    KeyPart,
    ListenerPart,
    OutlierPart,
    RetryBudgetPart,
    RulePart,
    ServerTlsPart,
)
from amqp_session_router.net import tls
from amqp_session_router.net.socket_options import set_congestion_control
from amqp_session_router.selection import partitions, selectors
from amqp_session_router.selection.partitions import PartitionPolicy
from amqp_session_router.selection.rules import Key, KeyType, Rule, Target, ToBackend, ToFarm, ToLocal, ToReject
from amqp_session_router.selection.selectors import BackendSelector

Place = tuple[str | int, ...]
"""The way to a part of the configuration: `("farms", "east", "members", 2)`."""


class Problem(UsageError):
    """A configuration that does not hold together; `place` is where."""

    def __init__(self, place: Place, text: str) -> None:
        super().__init__(f"{show_place(place)}: {text}" if place else text)
        self.place = place
        self.text = text


def show_place(place: Place) -> str:
    """Return a place as users write it: `farms.east.members[2]`."""
    shown = ""
    for step in place:
        shown += f"[{step}]" if isinstance(step, int) else f".{step}" if shown else step
    return shown


@dataclass(frozen=True, slots=True)
class Farm:
    """Backends of one cluster, with how one is chosen."""

    name: str
    members: tuple[Backend, ...]
    policies: tuple[PartitionPolicy, ...] = ()
    selector: BackendSelector = selectors.round_robin
    key: Key | None = None
    quorum: int = 0
    check_period: float = 5.0
    check_greeting: bool = False
    outliers: OutlierPart | None = None
    retry_budget: RetryBudgetPart | None = None
    fallback: str | None = None
    cached: bool = False
    cache_timeout: float = 0.0
    cache_persisted: bool = False
    cache_entries: int = 65536


@dataclass(frozen=True, slots=True)
class Settings:
    """A configuration that holds together. `config` is what it was made from, for `show`, `save` and changes."""

    config: Config
    listeners: dict[str, Listener] = field(default_factory=dict)
    backends: dict[str, Backend] = field(default_factory=dict)
    farms: dict[str, Farm] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    """The default, if there is one, is the last."""
    timeouts: Timeouts = field(default_factory=Timeouts)
    tune: Tune = field(default_factory=Tune)
    digests: Mapping[str, str] = field(default_factory=dict)
    """Of each section of `config`."""


def build(config: Config) -> Settings:
    """Return the settings that `config` describes; raises Problem for the first thing that does not hold."""
    listeners = {name: _listener(name, part, config.tls.ingress) for name, part in config.listeners.items()}
    _distinct_addresses(listeners.values())
    _check_read_socket(config.control)
    if config.workers > 1:
        _known_ports(listeners.values())
    backends = {name: _backend(name, part, config.tls.egress) for name, part in config.backends.items()}
    _no_loop(listeners.values(), backends.values())
    farms = {name: _farm(name, part, backends, config) for name, part in config.farms.items()}
    _no_fallback_cycle(farms)
    rules = [_rule(("rules", index), part, config) for index, part in enumerate(config.rules)]
    _no_shadow(rules)
    if config.default is not None:
        rules.append(Rule(to=_target(("default",), config.default, config)))
    return Settings(
        config=config,
        listeners=listeners,
        backends=backends,
        farms=farms,
        rules=tuple(rules),
        timeouts=Timeouts(**config.timeouts.model_dump()),
        tune=Tune(**config.tune.model_dump()),
        digests=digests(config),
    )


def _check_read_socket(part: ControlPart | None) -> None:
    if part is None:
        return
    if part.read_socket == part.socket:
        raise Problem(("control", "read_socket"), "it is the control socket already")
    if part.read_group is None:
        return
    if part.read_socket is None:
        raise Problem(("control", "read_group"), "there is no read_socket that it could use")
    try:
        grp.getgrnam(part.read_group)
    except KeyError:
        raise Problem(("control", "read_group"), f"this host has no group {part.read_group!r}") from None


def _listener(name: str, part: ListenerPart, shared: ServerTlsPart) -> Listener:
    place: Place = ("listeners", name)
    try:
        ipaddress.ip_address(part.host)
    except ValueError:
        if part.host != "localhost":
            raise Problem((*place, "host"), f"{part.host!r} is not an IP address to listen on") from None
    secure = None
    if part.tls is not None:
        merged = shared.model_dump() | part.tls.model_dump(exclude_unset=True)
        for needed in ("cert_file", "key_file"):
            if merged[needed] is None:
                raise Problem((*place, "tls"), f"{needed} is missing, here and in tls.ingress")
        secure = ServerTls(**merged | {"certificates": _certificates((*place, "tls"), merged["certificates"])})
        try:
            tls.server_context(secure)
        except UsageError as error:
            raise Problem((*place, "tls"), str(error)) from None
    if part.proxy_protocol and not part.trusted:
        raise Problem((*place, "trusted"), "proxy_protocol needs the networks whose PROXY header is believed")
    _check_congestion_control(place, part.congestion_control)
    return Listener(
        name,
        part.host,
        part.port,
        secure,
        part.proxy_protocol,
        tuple(part.trusted),
        part.congestion_control,
        Gate(None if part.allow is None else tuple(part.allow), tuple(part.deny)),
    )


def _certificates(place: Place, parts: Iterable[Mapping[str, Any]]) -> tuple[Certificate, ...]:
    """Return the certificates by SNI, of which each name has one."""
    found: list[Certificate] = []
    seen: set[str] = set()
    for index, part in enumerate(parts):
        names = tuple(name.lower() for name in part["names"])
        for name in names:
            if name in seen:
                raise Problem((*place, "certificates", index, "names"), f"{name!r} has a certificate already")
            seen.add(name)
        found.append(Certificate(names, part["cert_file"], part["key_file"]))
    return tuple(found)


def _check_congestion_control(place: Place, name: str | None) -> None:
    with socket.socket() as sock:
        try:
            set_congestion_control(sock, name, "")
        except OSError:
            raise Problem((*place, "congestion_control"), f"this host does not let us use {name!r}") from None


def _distinct_addresses(listeners: Iterable[Listener]) -> None:
    taken: dict[tuple[str, int], str] = {}
    for listener in listeners:
        address = (listener.host, listener.port)
        if listener.port and address in taken:
            raise Problem(
                ("listeners", listener.name, "port"), f"the listener {taken[address]!r} has this address already"
            )
        taken[address] = listener.name


def _backend(name: str, part: BackendPart, shared: ClientTlsPart) -> Backend:
    place: Place = ("backends", name)
    secure = None
    if part.tls is not None:
        secure = ClientTls(**(shared.model_dump() | part.tls.model_dump(exclude_unset=True)))
        try:
            tls.client_context(secure)
        except UsageError as error:
            raise Problem((*place, "tls"), str(error)) from None
    versions = {ipaddress.ip_address(ip).version for ip in part.source_addresses}
    if part.address is not None and versions - {ipaddress.ip_address(part.address).version}:
        raise Problem((*place, "source_addresses"), f"they cannot reach {part.address}: IPv4 and IPv6 do not mix")
    _check_congestion_control(place, part.congestion_control)
    return Backend(
        name=name,
        host=part.host,
        port=part.port,
        datacenter=part.datacenter,
        address=part.address,
        source_addresses=tuple(part.source_addresses),
        tls=secure,
        proxy_protocol=part.proxy_protocol,
        connections=part.connections,
        slow_start=part.slow_start,
        congestion_control=part.congestion_control,
        weight=part.weight,
        drain=part.drain,
        local=part.local,
        vhost=part.vhost,
    )


def _known_ports(listeners: Iterable[Listener]) -> None:
    for listener in listeners:
        if not listener.port:
            raise Problem(("listeners", listener.name, "port"), "0 would be another port for each of the workers")


_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_ANY = {"0.0.0.0", "::"}


def _no_loop(listeners: Iterable[Listener], backends: Iterable[Backend]) -> None:
    """A backend that is the router itself would pass every session round and round."""
    for listener in listeners:
        hosts = _LOOPBACK if listener.host in _LOOPBACK | _ANY else {listener.host}
        for backend in backends:
            if backend.port == listener.port and {backend.address or backend.host} & hosts:
                raise Problem(
                    ("backends", backend.name, "port"), f"this is the router's own listener {listener.name!r}: a cycle"
                )


def _key(part: KeyPart | None) -> Key | None:
    if part is None:
        return None
    return Key(KeyType(part.type), None if part.filter is None else Pattern(part.filter))


def _farm(name: str, part: FarmPart, backends: dict[str, Backend], config: Config) -> Farm:
    place: Place = ("farms", name)
    seen: set[str] = set()
    for index, member in enumerate(part.members):
        if member not in backends:
            raise Problem((*place, "members", index), unknown_name("backend", member, backends))
        if member in seen:
            raise Problem((*place, "members", index), f"{member!r} is a member already")
        seen.add(member)
    if part.quorum > len(part.members):
        raise Problem((*place, "quorum"), f"{part.quorum} is more than the {len(part.members)} members")
    if part.fallback is not None and part.fallback not in config.farms:
        raise Problem((*place, "fallback"), unknown_name("farm", part.fallback, config.farms))
    if part.cache is not None and part.key is None:
        raise Problem((*place, "cache"), "a cache needs a key to remember by")
    if part.cache is not None and part.cache.persisted and config.state_dir is None:
        raise Problem((*place, "cache", "persisted"), "there is no state_dir to keep it in")
    policies = []
    for index, policy in enumerate(part.policies):
        try:
            policies.append(partitions.policy_named(policy))
        except UsageError as error:
            raise Problem((*place, "policies", index), str(error)) from None
    try:
        selector = selectors.selector_named(part.selector)
    except UsageError as error:
        raise Problem((*place, "selector"), str(error)) from None
    return Farm(
        name=name,
        members=tuple(backends[member] for member in part.members),
        policies=tuple(policies),
        selector=selector,
        key=_key(part.key),
        quorum=part.quorum,
        check_period=part.check_period,
        check_greeting=part.check == "greeting",
        outliers=part.outlier_detection,
        retry_budget=part.retry_budget,
        fallback=part.fallback,
        cached=part.cache is not None,
        cache_timeout=part.cache.timeout if part.cache is not None else 0.0,
        cache_persisted=part.cache is not None and part.cache.persisted,
        cache_entries=part.cache.entries if part.cache is not None else 0,
    )


def _no_fallback_cycle(farms: dict[str, Farm]) -> None:
    for name in farms:
        path = [name]
        step = farms[name].fallback
        while step is not None:
            path.append(step)
            if step in path[:-1]:
                raise Problem(("farms", name, "fallback"), f"a cycle: {' → '.join(path)}")
            step = farms[step].fallback


def _target(place: Place, part: RulePart | DefaultPart, config: Config) -> Target:
    names = ("farm", "backend", "local", "reject")
    given = [name for name in names if getattr(part, name) is not None]
    if len(given) != 1:
        found = " and ".join(given) if given else "none"
        raise Problem(place, f"exactly one of farm, backend, local and reject is needed; there is {found}")
    if part.farm is not None:
        if part.farm not in config.farms:
            raise Problem((*place, "farm"), unknown_name("farm", part.farm, config.farms))
        return ToFarm(part.farm)
    if part.backend is not None:
        if part.backend not in config.backends:
            raise Problem((*place, "backend"), unknown_name("backend", part.backend, config.backends))
        return ToBackend(part.backend)
    if part.reject is not None:
        return ToReject(NOT_ALLOWED, part.reject)
    if not any(backend.local for backend in config.backends.values()):
        raise Problem((*place, "local"), "no backend is marked as local")
    return ToLocal()


def _rule(place: Place, part: RulePart, config: Config) -> Rule:
    if part.vhost is not None and part.vhost_pattern is not None:
        raise Problem((*place, "vhost_pattern"), "vhost and vhost_pattern exclude each other")
    if part.listener is not None and part.listener not in config.listeners:
        raise Problem((*place, "listener"), unknown_name("listener", part.listener, config.listeners))
    if (part.key is None) != (part.matches is None):
        missing = "matches" if part.matches is None else "key"
        raise Problem(place, f"key and matches belong together; {missing} is missing")
    pattern = None if part.vhost_pattern is None else Pattern(part.vhost_pattern)
    if pattern is not None and part.rewrite is not None:
        _check_rewrite((*place, "rewrite"), pattern, part.rewrite)
    return Rule(
        to=_target(place, part, config),
        vhost=part.vhost,
        vhost_pattern=pattern,
        listener=part.listener,
        key=_key(part.key),
        matches=None if part.matches is None else Pattern(part.matches),
        rewrite=part.rewrite,
    )


def _check_rewrite(place: Place, pattern: Pattern, rewrite: str) -> None:
    """Refuse a replacement that names a group which `pattern` does not have."""
    try:
        pattern.check(rewrite)
    except ValueError as error:
        raise Problem(place, f"{rewrite!r} does not fit {pattern.pattern!r}: {error}") from None


def _no_shadow(rules: list[Rule]) -> None:
    """Refuse a rule that can never match, since an earlier one takes every session that it would."""
    takers: dict[tuple[str | None, str | None], int] = {}
    for index, rule in enumerate(rules):
        for vhost in {rule.vhost, None}:
            for listener in {rule.listener, None}:
                earlier = takers.get((vhost, listener))
                if earlier is not None:
                    raise Problem(("rules", index), f"it never matches: rules[{earlier}] takes all its sessions")
        if rule.vhost_pattern is None and rule.matches is None:
            takers[rule.vhost, rule.listener] = index


def state_file(settings: Settings, name: str) -> Path | None:
    """Return the path of the file `name` in the state directory, None if there is no such directory."""
    directory = settings.config.state_dir
    return None if directory is None else Path(directory) / name
