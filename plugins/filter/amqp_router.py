"""Filters of the role amqp_router: pure functions from plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.brokerdrill.ha.plugins.plugin_utils.descriptor import Dial
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.hosts import HostVars, address_of
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.virtual_address import virtual_address_problems

TLS_PORT = 5671
PLAIN_PORT = 5672
DEFAULT_CLUSTER = "rabbit"


class Broker(TypedDict):
    """A RabbitMQ broker as routers see it."""

    host: str
    """Its host's name in the inventory."""
    cluster: str
    datacenter: str
    address: str
    port: int
    tls: bool
    client_certificates: bool


def _is_true(value: Any) -> bool:
    return str(value).lower() in ("true", "yes", "on", "1")


def amqp_router_brokers(hosts: Sequence[str], hostvars: HostVars) -> dict[str, Broker]:
    """Return the RabbitMQ brokers on `hosts` by instance, in the hosts' sorted order.

    What a host's inventory does not set is what the role rabbitmq would set there.
    """
    found: dict[str, Broker] = {}
    for host in sorted(hosts):
        of = hostvars[host]
        tls = _is_true(of.get("rabbitmq_tls", True))
        found[str(of.get("rabbitmq_instance", host))] = {
            "host": host,
            "cluster": str(of.get("rabbitmq_cluster", DEFAULT_CLUSTER)),
            "datacenter": str(of.get("rabbitmq_datacenter", "")),
            "address": address_of(host, of, "rabbitmq_address"),
            "port": int(of.get("rabbitmq_port", TLS_PORT if tls else PLAIN_PORT)),
            "tls": tls,
            "client_certificates": _is_true(of.get("rabbitmq_client_certificates", False)),
        }
    return found


def clusters(brokers: Mapping[str, Broker]) -> dict[str, list[str]]:
    """Return the instances of each cluster, both in sorted order."""
    found: dict[str, list[str]] = {}
    for instance, broker in sorted(brokers.items()):
        found.setdefault(broker["cluster"], []).append(instance)
    return dict(sorted(found.items()))


def amqp_router_dials(brokers: Mapping[str, Broker]) -> list[Dial]:
    """Return what a router dials: every broker."""
    return [
        {"link": "backend", "to": instance, "address": broker["address"], "port": broker["port"]}
        for instance, broker in brokers.items()
    ]


def amqp_router_config(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the router's own file as data.

    `parts`: own, what the file has of the router itself; brokers, as `amqp_router_brokers` returns them, and
    broker_domain, in which their hosts have names, empty to dial their addresses; backends and farms, what those of
    that name have besides, or more of them; farm_settings, what all farms have; rules; default_farm, empty for that of
    the first cluster.
    """
    brokers: Mapping[str, Broker] = parts["brokers"]
    domain: str = parts["broker_domain"]
    backends: dict[str, Any] = {
        instance: {
            "host": f"{broker['host']}.{domain}" if domain else broker["address"],
            "port": broker["port"],
            "datacenter": broker["datacenter"],
            "tls": broker["tls"],
        }
        for instance, broker in brokers.items()
    }
    for name, more in parts["backends"].items():
        backends[name] = {**backends.get(name, {}), **more}
    farms: dict[str, Any] = {
        cluster: {"members": members, **parts["farm_settings"]} for cluster, members in clusters(brokers).items()
    }
    for name, more in parts["farms"].items():
        farms[name] = {**farms.get(name, parts["farm_settings"]), **more}
    default = parts["default_farm"] or next(iter(farms), "")
    return {
        **parts["own"],
        "backends": backends,
        "farms": farms,
        "rules": list(parts["rules"]),
        "default": {"farm": default},
    }


def amqp_router_problems(parts: Mapping[str, Any]) -> list[str]:
    """Return what forbids this router, a sentence each; `parts` as of `amqp_router_config`, those that it needs."""
    brokers: Mapping[str, Broker] = parts["brokers"]
    known_backends = {*brokers, *parts["backends"]}
    known_farms = {**clusters(brokers), **parts["farms"]}
    problems = []
    if not known_farms:
        problems.append("the router has no broker: the inventory has no host in the group rabbitmq, and no farm")
    if len(known_farms) > 1 and not parts["default_farm"]:
        problems.append(f"amqp_router_default_farm is needed: there are the farms {', '.join(sorted(known_farms))}")
    named = [("amqp_router_default_farm", parts["default_farm"])]
    named += [("amqp_router_rules", rule.get("farm", "")) for rule in parts["rules"]]
    named += [(f"amqp_router_farms: {name}", farm.get("fallback", "")) for name, farm in parts["farms"].items()]
    problems += [
        f"{where} names the farm {farm}, which is none of {', '.join(sorted(known_farms))}"
        for where, farm in named
        if farm and farm not in known_farms
    ]
    problems += [
        f"amqp_router_farms: {name} has the member {member}, which is none of {', '.join(sorted(known_backends))}"
        for name, farm in parts["farms"].items()
        for member in farm.get("members", [])
        if member not in known_backends
    ]
    problems += [
        f"amqp_router_backends: {name} is no broker of the inventory and so needs its host"
        for name, backend in parts["backends"].items()
        if name not in brokers and "host" not in backend
    ]
    virtual = parts["virtual_address"], int(parts["virtual_router_id"]), parts["addresses"]
    return problems + virtual_address_problems(*virtual)


def amqp_router_drift(hosts: Sequence[str], hostvars: HostVars) -> list[str]:
    """Return where the routers on `hosts` run by something other than their files or each other, a sentence each.

    `__amqp_router_drift` of a host is the result of its router's DRIFT as JSON; without one the router did not answer.
    """
    problems = []
    # Section to digest to the routers that have it.
    held: dict[str, dict[str, list[str]]] = {}
    for host in sorted(hosts):
        of = hostvars[host]
        name = str(of.get("amqp_router_instance", host))
        result = of.get("__amqp_router_drift", {})
        if result.get("rc") != 0:
            problems.append(f"{name} does not answer")
            continue
        rows = json.loads(result["stdout"])
        changed = [row["section"] for row in rows if row["differs"]]
        if changed:
            problems.append(f"{name} runs by something other than its file: {', '.join(changed)}")
        for row in rows:
            if not row["own"]:
                held.setdefault(row["section"], {}).setdefault(row["running"], []).append(name)
    for section, groups in held.items():
        if len(groups) > 1:
            problems.append(f"{section} is not the same: {' / '.join(', '.join(group) for group in groups.values())}")
    return problems


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "amqp_router_brokers": amqp_router_brokers,
            "amqp_router_config": amqp_router_config,
            "amqp_router_dials": amqp_router_dials,
            "amqp_router_drift": amqp_router_drift,
            "amqp_router_problems": amqp_router_problems,
        }
