"""Filters of the role balancer: pure functions from plain data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.brokerdrill.ha.plugins.filter.artemis_routers import DEFAULT_KEY
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.descriptor import Dial, Listener
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.hosts import HostVars, address_of

Entry = Mapping[str, Any]

PORTS = range(1024, 65536)
"""Those that HAProxy can listen on without root's rights."""
NAME = re.compile(r"[A-Za-z0-9_.-]+")
OWN_NAME = "status"
"""What the role's own frontend is called."""
ACCEPTORS = ({"name": "core", "port": 61616, "protocols": ["CORE"]},)
"""The role artemis' own, where the inventory says nothing."""


class Backend(TypedDict):
    """A broker that connections are handed on to."""

    instance: str
    address: str
    port: int


class Frontend(TypedDict):
    """A listener with the brokers behind it, the protocols that these speak there, and the connection router (None:
    none) that serves or refuses their clients, with what its key is."""

    name: str
    port: int
    acceptor: str
    protocols: list[str]
    router: str | None
    key: str
    key_filter: str | None
    backends: list[Backend]


def _named(entries: Iterable[Entry], name: Any) -> Entry | None:
    return next((entry for entry in entries if entry["name"] == name), None)


def balancer_frontends(given: Sequence[Entry], hosts: Sequence[str], hostvars: HostVars) -> list[Frontend]:
    """Return the listeners that `given` (name, port, acceptor) asks for, with those of `hosts` behind each that have
    its acceptor, in their sorted order. What is said of all of them is what the first one's inventory says."""
    found: list[Frontend] = []
    for entry in given:
        behind = [
            (host, hostvars[host], acceptor)
            for host in sorted(hosts)
            if (acceptor := _named(hostvars[host].get("artemis_acceptors", ACCEPTORS), entry["acceptor"]))
            and "port" in acceptor
        ]
        _host, first, acceptor = behind[0] if behind else ("", {}, {})
        router = _named(first.get("artemis_connection_routers", ()), acceptor.get("router")) or {}
        found.append(
            {
                "name": str(entry["name"]),
                "port": int(entry["port"]),
                "acceptor": str(entry["acceptor"]),
                "protocols": [str(one).lower() for one in acceptor.get("protocols", ())],
                "router": router.get("name"),
                "key": router.get("key_type") or DEFAULT_KEY,
                "key_filter": router.get("key_filter"),
                "backends": [
                    {
                        "instance": str(of.get("artemis_instance", host)),
                        "address": address_of(host, of, "artemis_address"),
                        "port": int(one["port"]),
                    }
                    for host, of, one in behind
                ],
            }
        )
    return found


def balancer_problems(frontends: Sequence[Frontend], status_port: int) -> list[str]:
    """Return what forbids a balancer with these listeners, a sentence each."""
    if not frontends:
        return ["balancer_listeners is empty: there is nothing to hand connections on to"]
    problems = []
    taken = {int(status_port): "balancer_status_port"}
    names = {OWN_NAME}
    if int(status_port) not in PORTS:
        problems.append(f"balancer_status_port is {status_port}, not {PORTS[0]} to {PORTS[-1]}")
    for one in frontends:
        where = f"balancer_listeners: {one['name']}"
        if not NAME.fullmatch(one["name"]):
            problems.append(f"{where}: a name has only letters, digits and _ . -")
        if one["name"] in names:
            problems.append(f"{where}: the name is taken")
        if one["port"] not in PORTS:
            problems.append(f"{where}: its port is {one['port']}, not {PORTS[0]} to {PORTS[-1]}")
        if one["port"] in taken:
            problems.append(f"{where}: its port {one['port']} is that of {taken[one['port']]}")
        if not one["backends"]:
            problems.append(f"{where} has no backend: no host of the group artemis has an acceptor {one['acceptor']}")
        names.add(one["name"])
        taken[one["port"]] = one["name"]
    return problems


def balancer_described_listeners(frontends: Sequence[Frontend], address: str) -> list[Listener]:
    """Return the listeners as a descriptor says them, one for each protocol."""
    found: list[Listener] = []
    for one in frontends:
        for protocol in one["protocols"]:
            listener: Listener = {
                "name": one["name"],
                "address": address,
                "port": one["port"],
                "protocol": protocol,
                "tls": True,
                "relays": True,
            }
            if one["router"]:
                listener |= {"router": one["router"], "key": one["key"], "key_filter": one["key_filter"]}
            found.append(listener)
    return found


def balancer_dials(frontends: Sequence[Frontend]) -> list[Dial]:
    """Return what a balancer dials: every broker behind it."""
    return [
        {"link": "backend", "to": one["instance"], "address": one["address"], "port": one["port"]}
        for frontend in frontends
        for one in frontend["backends"]
    ]


def balancer_host(address: str) -> str:
    """Return an address as a URL has it."""
    return f"[{address}]" if ":" in address else address


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "balancer_described_listeners": balancer_described_listeners,
            "balancer_dials": balancer_dials,
            "balancer_frontends": balancer_frontends,
            "balancer_host": balancer_host,
            "balancer_problems": balancer_problems,
        }
