"""Apache Artemis: its descriptor from broker.xml, bootstrap.xml and the broker's command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element

from brokerdrill.base.errors import UsageError
from brokerdrill.describe.found import (
    EVERYWHERE,
    LOOPBACK,
    DescribeOptions,
    Found,
    common,
    console_on_loopback,
    dead_letters,
    no_store,
    number,
    places,
    secured,
    tree,
)
from brokerdrill.workload.config import STOMP_PREFIX

PRODUCT = "artemis"
# In the command line of a broker.
MARKER = "org.apache.activemq.artemis.boot.Artemis"
COMMANDS = ()
# The broker's own values where its files say nothing (ActiveMQDefaultConfiguration, CuratorDistributedLockManager).
CONNECTION_TTL_MS, CHECK_PERIOD_MS, ID_CACHE_SIZE, SESSION_MS = 60_000, 30_000, 20_000, 18_000
VOTE_RETRIES, VOTE_RETRY_WAIT_MS = 12, 2_000
# What is not named accepts these.
PROTOCOLS = ("CORE", "OPENWIRE", "AMQP", "STOMP", "MQTT")
_ROLES = {"primary": "primary", "master": "primary", "backup": "backup", "slave": "backup"}
_POLICIES = {"primary-only": "primary_only", "live-only": "primary_only"}
_FEATURES = {
    "primary_only": [],
    "shared_store": ["shared_store"],
    "replication": ["replicated", "vote"],
    "replication_quorum": ["replicated", "zookeeper_lock"],
    "peers": ["replicated", "zookeeper_lock"],
}


def paths(found: Found) -> list[str]:
    """Return the files that `describe` reads."""
    folder = _folder(found)
    return [f"{folder}/broker.xml", f"{folder}/bootstrap.xml"]


def _folder(found: Found) -> str:
    for name, inside in (("artemis.instance.etc", ""), ("artemis.instance", "/etc")):
        if value := found.property(name):
            return value.removesuffix("/") + inside
    raise UsageError(f"host {found.host}: the command line of {found.unit} names no artemis.instance")


def describe(found: Found, options: DescribeOptions) -> dict[str, Any]:
    """Return the descriptor of the broker. Raises UsageError with what cannot be known, or is not supported.

    What it dials is named by the connectors; `joined` gives it the instances' names.
    """
    broker, bootstrap = paths(found)
    core = tree(found, broker).find(".//core")
    if core is None:
        raise UsageError(f"host {found.host}: {broker} has no core")
    name = _text(found, core, "name")
    if not name:
        raise UsageError(f"host {found.host}: {broker} names no broker")
    # `artemis create` calls a broker by the address that it was given, by default that of every interface.
    instance = found.host if name in (*EVERYWHERE, *LOOPBACK) else name
    policy, role, own = _policy(found, core, broker)
    manager = {
        item.get("key"): found.filled(item.get("value") or "") for item in own.iterfind("manager/properties/property")
    }
    group = _text(found, own, "coordination-id") or _text(found, own, "group-name")
    store = options.store or group or (instance if policy == "primary_only" else None)
    if not store:
        raise no_store(found, broker, name)
    url = options.management_url or _console(found, tree(found, bootstrap))
    failback = role == "backup" and _text(found, own, "allow-failback") != "false"
    features = _FEATURES[policy] + (["failback"] if failback else [])
    cache = _number(found, core, "id-cache-size", ID_CACHE_SIZE)
    connection = core.find("cluster-connections/cluster-connection")
    journal = _text(found, core, "journal-directory") or "data/journal"
    folder = found.property("artemis.instance") or ""
    return {
        **common(found, PRODUCT, instance),
        "role": role,
        "store": store,
        "ha_policy": policy,
        "data_dir": (journal if journal.startswith("/") else f"{folder}/{journal}").rpartition("/")[0],
        "listeners": list(_listeners(found, core)),
        "dials": [*_connectors(found, core), *_zookeeper(manager.get("connect-string"))],
        "management": {"type": "jolokia", "url": url, "broker_name": name},
        **secured(found, url, options),
        "addresses": list(_addresses(found, core)),
        "settings": {
            "connection_ttl_ms": _number(found, connection, "connection-ttl", CONNECTION_TTL_MS),
            "check_period_ms": _number(found, connection, "check-period", CHECK_PERIOD_MS),
            "id_cache_size": cache,
            "restart_delay_s": int(found.restart_s),
            **({"session_ms": int(manager.get("session-ms", SESSION_MS))} if "zookeeper_lock" in features else {}),
            **(
                {
                    "vote_retries": _number(found, own, "vote-retries", VOTE_RETRIES),
                    "vote_retry_wait_ms": _number(found, own, "vote-retry-wait", VOTE_RETRY_WAIT_MS),
                }
                if "vote" in features
                else {}
            ),
        },
        "features": features + (["duplicate_ids"] if cache else []),
    }


def _text(found: Found, parent: Element | None, path: str) -> str:
    """The text of the element, filled; empty where there is none."""
    element = None if parent is None else parent.find(path)
    return found.filled((element.text or "").strip()) if element is not None else ""


def _number(found: Found, parent: Element | None, path: str, default: int) -> int:
    return number(found, path, _text(found, parent, path), default)


def _policy(found: Found, core: Element, path: str) -> tuple[str, str, Element]:
    """Return the role's word for the HA policy, the broker's part in it, and the element that says more."""
    said = core.find("ha-policy")
    if said is None or not len(said):
        return "primary_only", "primary", Element("none")
    kind = said[0]
    if kind.tag in _POLICIES:
        return _POLICIES[kind.tag], "primary", kind
    own = kind[0] if len(kind) else None
    if own is None or own.tag not in _ROLES or kind.tag not in ("replication", "shared-store"):
        what = kind.tag if own is None else f"{kind.tag}/{own.tag}"
        raise UsageError(f"host {found.host}: {path} has the HA policy {what}: write its descriptor by hand")
    role = _ROLES[own.tag]
    if kind.tag == "shared-store":
        return "shared_store", role, own
    manager = own.find("manager") is not None
    if manager and own.find("coordination-id") is not None:
        return "peers", role, own
    return ("replication_quorum" if manager else "replication"), role, own


def _listeners(found: Found, core: Element) -> Iterator[dict[str, Any]]:
    """What clients reach: acceptors by TCP, for each protocol that they speak a listener; HornetQ's own is told where
    there is no other. The drills' STOMP clients do not dial one that does not take their prefix off."""
    for acceptor in core.iterfind("acceptors/acceptor"):
        name = acceptor.get("name")
        for place in places(found, f"acceptor {name}", found.filled((acceptor.text or "").strip()), ("tcp",)):
            spoken = [one.strip().upper() for one in place.said.get("protocols", ",".join(PROTOCOLS)).split(",")]
            for protocol in [one for one in PROTOCOLS if one in spoken] or spoken[:1]:
                yield {
                    "name": name or f"port{place.port}",
                    "address": found.reached(place.host),
                    "port": place.port,
                    "protocol": protocol.lower(),
                    "tls": place.said.get("sslEnabled", "false").lower() == "true",
                    "clients": protocol != "STOMP" or place.said.get("anycastPrefix") == STOMP_PREFIX,
                }


def _connectors(found: Found, core: Element) -> list[dict[str, Any]]:
    """The other brokers that cluster connections name, at each address that their connectors have."""
    known = {item.get("name"): (item.text or "").strip() for item in core.iterfind("connectors/connector")}
    result = []
    for reference in core.iterfind("cluster-connections/cluster-connection/static-connectors/connector-ref"):
        name = (reference.text or "").strip()
        if name not in known:
            raise UsageError(
                f"host {found.host}: the cluster connection names the connector {name!r}, which is not there"
            )
        for place in places(found, f"connector {name}", found.filled(known[name]), ("tcp",)):
            dial = {"link": "broker", "to": name, "address": place.host, "port": place.port}
            if dial not in result:
                result.append(dial)
    return result


def _zookeeper(connect_string: str | None) -> Iterator[dict[str, Any]]:
    for one in (connect_string or "").partition("/")[0].split(","):
        if one:
            host, _, port = one.rpartition(":")
            yield {"link": "zookeeper", "to": host, "address": host.strip("[]"), "port": int(port)}


def _console(found: Found, root: Element) -> str:
    """The URL of the console's Jolokia. Raises UsageError where the runner could not reach it."""
    bindings = [item.get("uri") or "" for item in root.iterfind(".//web/binding")]
    bindings += [item.get("bind") or "" for item in root.iterfind(".//web") if item.get("bind")]
    if len(bindings) != 1:
        many = "has several web bindings" if bindings else "has no web binding"
        raise UsageError(f"host {found.host}: bootstrap.xml {many}: say the URL of Jolokia by --management-url")
    uri = urlsplit(found.filled(bindings[0]))
    if uri.hostname in LOOPBACK:
        raise console_on_loopback(found, uri.hostname)
    return f"{uri.scheme}://{found.reached(uri.hostname or '')}:{uri.port}/console/jolokia/"


def _addresses(found: Found, core: Element) -> Iterator[dict[str, Any]]:
    """The addresses that exist, with the dead-letter address of their most specific match."""
    letters = {
        item.get("match") or "": _text(found, item, "dead-letter-address")
        for item in core.iterfind("address-settings/address-setting")
    }
    for address in core.iterfind("addresses/address"):
        name = found.filled(address.get("name") or "")
        routing = (
            "multicast" if address.find("multicast") is not None and address.find("anycast") is None else "anycast"
        )
        yield {"name": name, "routing": routing, "dead_letter": dead_letters(letters, name)}


def joined(descriptors: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the descriptors with each connection to another of them by that one's name: to the members of the own
    store as `primary` or `backup`. Raises UsageError where two brokers have one name, or a store has more than one
    primary."""
    at = {(item["address"], item["port"]): one for one in descriptors for item in one["listeners"]}
    names = [one["instance"] for one in descriptors]
    if twice := next((name for name in names if names.count(name) > 1), None):
        hosts = ", ".join(one["host"] for one in descriptors if one["instance"] == twice)
        raise UsageError(f"brokers on {hosts} are all called {twice}: give each a name of its own in broker.xml")

    def dial(one: dict[str, Any], item: dict[str, Any]) -> dict[str, Any]:
        other = at.get((item["address"], item["port"]))
        if item["link"] != "broker" or other is None:
            return item
        link = other["role"] if other["store"] == one["store"] else "broker"
        return {**item, "to": other["instance"], "link": link}

    failing_back = {one["store"] for one in descriptors if "failback" in one["features"]}
    return [
        {
            **one,
            "dials": [dial(one, item) for item in one["dials"]],
            # The backup says it, and it holds for both.
            "features": sorted({*one["features"], *(["failback"] if one["store"] in failing_back else [])}),
        }
        for one in descriptors
    ]
