"""Artemis' connection routers, filled in: what a router's key is, whom it may choose, and how.

Pure functions from plain data. `elements` are the names and values of the broker's own schema; None is the broker's own
default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.brokerdrill.ha.plugins.plugin_utils.descriptor import Dial
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.hosts import HostVars

Entry = Mapping[str, Any]

PROPERTIES = {"modulo": "MODULO", "connection_count_threshold": "CONNECTION_COUNT_THRESHOLD"}
"""The policies' properties: this role's name and the one that the broker reads. (Its documents have `modulo` in lower
case, which stops it.)"""

POOL_KINDS = ("cluster_connection", "discovery_group", "static_connectors")
"""Where a pool's targets come from: one of these."""

PASSWORD_VARIABLE = "ARTEMIS_ROUTER_PASSWORD"
"""The broker's environment has the password that pools use by default by this name, any other with its router's place
behind it."""


DEFAULT_KEY = "SOURCE_IP"
DEFAULT_CHECK_PERIOD_MS = 5000
"""The broker's own, where the inventory says nothing."""


class Pool(TypedDict):
    """Whom a router may choose. `password_variable` names the variable of the broker's environment that holds
    `password`; `local` says whether the router's own broker is one of them."""

    elements: dict[str, Any]
    password_variable: str
    password: str | None
    local: bool
    cluster_connection: str | None
    discovery_group: str | None
    static_connectors: list[str] | None


class Router(TypedDict):
    """A connection router; without `pool` it serves here or refuses. `cache` are elements, None: no cache."""

    name: str
    elements: dict[str, Any]
    policy: str | None
    properties: dict[str, Any]
    cache: dict[str, Any] | None
    pool: Pool | None


def _pool(given: Entry, place: int, user: str) -> Pool:
    own = given.get("password") is not None
    return {
        "elements": {
            "username": given.get("username") or user,
            "password": f"${{{PASSWORD_VARIABLE}{f'_{place}' if own else ''}}}",
            "check-period": given.get("check_period_ms"),
            "quorum-size": given.get("quorum_size"),
            "quorum-timeout": given.get("quorum_timeout_ms"),
            "local-target-enabled": given.get("local_target_enabled"),
        },
        "password_variable": f"{PASSWORD_VARIABLE}{f'_{place}' if own else ''}",
        "password": given.get("password"),
        "local": bool(given.get("local_target_enabled")),
        "cluster_connection": given.get("cluster_connection"),
        "discovery_group": given.get("discovery_group"),
        "static_connectors": given.get("static_connectors"),
    }


def artemis_connection_routers(given: Sequence[Entry], user: str) -> list[Router]:
    """Return the connection routers that `given` asks for, whose pools log in as `user` unless they say otherwise.

    An entry: name, key_type, key_filter, local_target_filter, policy with the properties of PROPERTIES, cache
    (persisted, timeout_ms) and pool (one of POOL_KINDS; username, password, check_period_ms, quorum_size,
    quorum_timeout_ms, local_target_enabled).
    """
    found: list[Router] = []
    for place, entry in enumerate(given):
        cache, pool = entry.get("cache"), entry.get("pool")
        found.append(
            {
                "name": entry["name"],
                "elements": {
                    "key-type": entry.get("key_type"),
                    "key-filter": entry.get("key_filter"),
                    "local-target-filter": entry.get("local_target_filter"),
                },
                "policy": entry.get("policy"),
                "properties": {PROPERTIES[name]: entry[name] for name in PROPERTIES if entry.get(name) is not None},
                "cache": None
                if cache is None
                else {"persisted": cache.get("persisted"), "timeout": cache.get("timeout_ms")},
                "pool": None if pool is None else _pool(pool, place, user),
            }
        )
    return found


def artemis_described_routers(routers: Sequence[Router]) -> list[dict[str, Any]]:
    """Return the routers as a descriptor says them: {"name", "key_type", "key_filter", "policy", "cached",
    "check_period_ms", "targets"}, the last of which counts the connectors of a static pool, else it is None."""
    return [
        {
            "name": router["name"],
            "key_type": router["elements"]["key-type"] or DEFAULT_KEY,
            "key_filter": router["elements"]["key-filter"],
            "policy": router["policy"],
            "cached": router["cache"] is not None,
            "check_period_ms": _period_ms(router["pool"]),
            "targets": len(router["pool"]["static_connectors"] or []) or None if router["pool"] else None,
        }
        for router in routers
    ]


def artemis_router_dials(routers: Sequence[Router], connectors: Mapping[str, Entry], own: str) -> list[Dial]:
    """Return what static pools dial, by `connectors` that have their instances' names; the broker `own` left out."""
    wanted = {name for router in routers if router["pool"] for name in router["pool"]["static_connectors"] or ()}
    return [
        {"link": "target", "to": name, "address": connectors[name]["address"], "port": connectors[name]["port"]}
        for name in sorted(wanted - {own})
        if name in connectors and connectors[name]["type"] == "tcp"
    ]


def _period_ms(pool: Pool | None) -> int | None:
    if pool is None:
        return None
    period = pool["elements"]["check-period"]
    return DEFAULT_CHECK_PERIOD_MS if period is None else int(period)


def artemis_has_routers(hosts: Sequence[str], hostvars: HostVars) -> bool:
    """Return whether a broker of the inventory has connection routers, whose pools look into the others."""
    return any(hostvars[host].get("artemis_connection_routers") for host in hosts)


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "artemis_connection_routers": artemis_connection_routers,
            "artemis_described_routers": artemis_described_routers,
            "artemis_has_routers": artemis_has_routers,
            "artemis_router_dials": artemis_router_dials,
        }
