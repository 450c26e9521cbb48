"""The parts of a descriptor that several roles write: what an instance serves and what it dials."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class Listener(TypedDict):
    """A port that an instance serves; `router` names what leads its clients to another instance, by what `key` says,
    of which `key_filter` takes a part; `relays`: it hands connections on as they are; `clients` false: drills' clients
    do not dial it."""

    name: str
    address: str
    port: int
    protocol: str
    tls: bool
    router: NotRequired[str]
    key: NotRequired[str]
    key_filter: NotRequired[str | None]
    relays: NotRequired[bool]
    clients: NotRequired[bool]


class Dial(TypedDict):
    """A connection that an instance opens; `link` says to what, `to` names the other instance."""

    link: str
    to: str
    address: str
    port: int
