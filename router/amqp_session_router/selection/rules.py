"""Mapping rules: in their order, the first that matches a session says where it goes and what its vhost becomes."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from amqp_session_router.base.model import NO_KEY, Identity
from amqp_session_router.base.patterns import Pattern


class KeyType(enum.StrEnum):
    """What a session's key is taken from."""

    VHOST = "VHOST"
    CLIENT_ID = "CLIENT_ID"
    SNI_HOST = "SNI_HOST"
    SOURCE_IP = "SOURCE_IP"
    USER_NAME = "USER_NAME"
    ROLE_NAME = "ROLE_NAME"


@dataclass(frozen=True, slots=True)
class Key:
    """A key type and its filter. The filter is searched for, not anchored, and what it found is the key: `^.{3}` gives
    the first three characters (as the Artemis routers' `key-filter` does)."""

    type: KeyType
    filter: Pattern | None = None

    def of(self, identity: Identity) -> str:
        """Return the session's key; `NULL` where it has none or the filter does not match."""
        for value in _values(self.type, identity):
            if self.filter is None:
                if value:
                    return value
            elif (found := self.filter.find(value)) is not None:
                return found or NO_KEY
        return NO_KEY


def _values(key_type: KeyType, identity: Identity) -> Iterable[str]:
    match key_type:
        case KeyType.VHOST:
            return (identity.vhost,)
        case KeyType.CLIENT_ID:
            return (identity.client_id,)
        case KeyType.SNI_HOST:
            return (identity.sni_host,)
        case KeyType.SOURCE_IP:
            return (identity.source_ip,)
        case KeyType.USER_NAME:
            return (identity.user,)
        case KeyType.ROLE_NAME:
            return identity.roles


@dataclass(frozen=True, slots=True)
class ToFarm:
    """To the members of the farm `name`."""

    name: str

    @property
    def title(self) -> str:
        """What the target is called in tables and logs, as with the others."""
        return f"farm {self.name}"


@dataclass(frozen=True, slots=True)
class ToBackend:
    """To this backend and no other."""

    name: str

    @property
    def title(self) -> str:
        """See `ToFarm.title`."""
        return f"backend {self.name}"


@dataclass(frozen=True, slots=True)
class ToLocal:
    """To the backends that are marked as local."""

    title = "local"


@dataclass(frozen=True, slots=True)
class ToReject:
    """To none: Close with `code` and `text`."""

    code: int
    text: str
    title = "reject"


Target = ToFarm | ToBackend | ToLocal | ToReject


@dataclass(frozen=True, slots=True)
class Rule:
    """All conditions that are set must hold; without one the rule takes every session."""

    to: Target
    vhost: str | None = None
    vhost_pattern: Pattern | None = None
    """Must match the whole vhost."""
    listener: str | None = None
    key: Key | None = None
    matches: Pattern | None = None
    """Must match the whole key, which is `NULL` for a session without one."""
    rewrite: str | None = None
    """The new vhost; with `vhost_pattern` a replacement that may name its groups (`\\1`, `\\g<team>`)."""

    def apply(self, identity: Identity) -> str | None:
        """Return the vhost to open if the rule takes the session, else None."""
        if self.listener is not None and identity.listener != self.listener:
            return None
        if self.vhost is not None and identity.vhost != self.vhost:
            return None
        if self.vhost_pattern is not None and not self.vhost_pattern.matches(identity.vhost):
            return None
        if self.key is not None and self.matches is not None and not self.matches.matches(self.key.of(identity)):
            return None
        if self.rewrite is None:
            return identity.vhost
        if self.vhost_pattern is None:
            return self.rewrite
        return self.vhost_pattern.replace(identity.vhost, self.rewrite)


def first_match(rules: Iterable[Rule], identity: Identity) -> tuple[Rule, str] | None:
    """Return the first rule that takes the session, with the vhost to open; None if none does."""
    for rule in rules:
        vhost = rule.apply(identity)
        if vhost is not None:
            return rule, vhost
    return None


class Early(NamedTuple):
    """What is known of a client before it says who it is."""

    listener: str
    source_ip: str
    sni_host: str

    def as_looked_at(self, rules: Iterable[Rule]) -> Early:
        """Return it without what no rule looks at."""
        looked_at = {rule.key.type for rule in rules if rule.key is not None}
        return Early(
            self.listener,
            self.source_ip if KeyType.SOURCE_IP in looked_at else "",
            self.sni_host if KeyType.SNI_HOST in looked_at else "",
        )


def possible(rules: Iterable[Rule], known: Early) -> Iterator[Target]:
    """Yield the targets of the rules that may take a client of whom `known` is known, up to one that surely does."""
    identity = Identity(vhost="", source_ip=known.source_ip, sni_host=known.sni_host, listener=known.listener)
    for rule in rules:
        if rule.listener is not None and rule.listener != known.listener:
            continue
        certain = rule.vhost is None and rule.vhost_pattern is None
        if rule.key is not None and rule.matches is not None:
            if rule.key.type not in (KeyType.SOURCE_IP, KeyType.SNI_HOST):
                certain = False
            elif not rule.matches.matches(rule.key.of(identity)):
                continue
        yield rule.to
        if certain:
            return
