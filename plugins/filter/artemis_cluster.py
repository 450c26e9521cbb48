"""How Artemis brokers find each other: discovery groups, broadcast groups and cluster connections, filled in.

Pure functions from plain data. `given` is a list as the inventory has it; `defaults` holds the role's variables without
their prefix. What an entry leaves out comes from there. `elements` are the names and values of the broker's own schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

Entry = Mapping[str, Any]

TIMINGS = {
    "check_period_ms": "check-period",
    "connection_ttl_ms": "connection-ttl",
    "call_timeout_ms": "call-timeout",
    "retry_interval_ms": "retry-interval",
}
"""A cluster connection's times, in ms: this role's name and the schema's."""


class Group(TypedDict):
    """A discovery group; a broadcast group also names the connectors that it announces."""

    name: str
    type: str
    elements: dict[str, Any]
    connectors: list[str]


class ClusterConnection(TypedDict):
    """A cluster connection; it finds the others by `discovery_group`, or where that is None by `static_connectors`."""

    name: str
    connector: str
    elements: dict[str, Any]
    discovery_group: str | None
    static_connectors: list[str]


def _choose(entry: Entry, defaults: Entry, name: str) -> Any:
    value = entry.get(name)
    return defaults[name] if value is None else value


def _udp(entry: Entry, defaults: Entry) -> dict[str, Any]:
    return {
        "local-bind-address": _choose(entry, defaults, "local_bind_address"),
        "group-address": _choose(entry, defaults, "udp_group_address"),
        "group-port": _choose(entry, defaults, "udp_group_port"),
    }


def _jgroups(entry: Entry, defaults: Entry) -> dict[str, Any]:
    return {"jgroups-file": "jgroups.xml", "jgroups-channel": _choose(entry, defaults, "jgroups_channel")}


def artemis_discovery_groups(given: Sequence[Entry], defaults: Entry) -> list[Group]:
    """Return the discovery groups that `given` asks for.

    An entry: name, type (udp or jgroups), and for its type udp_group_address, udp_group_port and local_bind_address or
    jgroups_channel; refresh_timeout_ms, initial_wait_timeout_ms.
    """
    return [
        {
            "name": entry["name"],
            "type": entry["type"],
            "elements": (_udp if entry["type"] == "udp" else _jgroups)(entry, defaults)
            | {
                "refresh-timeout": _choose(entry, defaults, "refresh_timeout_ms"),
                "initial-wait-timeout": _choose(entry, defaults, "initial_wait_timeout_ms"),
            },
            "connectors": [],
        }
        for entry in given
    ]


def artemis_broadcast_groups(given: Sequence[Entry], defaults: Entry) -> list[Group]:
    """Return the broadcast groups that `given` asks for.

    An entry: as a discovery group's, but with broadcast_period_ms and connectors (names) in place of the timeouts.
    """
    found: list[Group] = []
    for entry in given:
        period = {"broadcast-period": _choose(entry, defaults, "broadcast_period_ms")}
        udp = entry["type"] == "udp"
        elements = _udp(entry, defaults) | period if udp else period | _jgroups(entry, defaults)
        found.append(
            {
                "name": entry["name"],
                "type": entry["type"],
                "elements": elements,
                "connectors": list(_choose(entry, defaults, "connectors")),
            }
        )
    return found


def artemis_cluster_connections(given: Sequence[Entry], defaults: Entry) -> list[ClusterConnection]:
    """Return the cluster connections that `given` asks for.

    An entry: name, connector (which the others are given), address (which addresses it serves), the times of TIMINGS,
    message_load_balancing, max_hops, elements (by the schema's names), and discovery_group or static_connectors.
    """
    found: list[ClusterConnection] = []
    for entry in given:
        group, connectors = entry.get("discovery_group"), entry.get("static_connectors")
        if group is None and connectors is None:
            group, connectors = defaults["discovery_group"], defaults["static_connectors"]
        address = {} if entry.get("address") is None else {"address": entry["address"]}
        found.append(
            {
                "name": entry["name"],
                "connector": _choose(entry, defaults, "connector"),
                "elements": {
                    **address,
                    **{element: _choose(entry, defaults, name) for name, element in TIMINGS.items()},
                    "message-load-balancing": _choose(entry, defaults, "message_load_balancing"),
                    "max-hops": _choose(entry, defaults, "max_hops"),
                    **(entry.get("elements") or {}),
                },
                "discovery_group": group,
                "static_connectors": list(connectors or []),
            }
        )
    return found


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "artemis_broadcast_groups": artemis_broadcast_groups,
            "artemis_cluster_connections": artemis_cluster_connections,
            "artemis_discovery_groups": artemis_discovery_groups,
        }
