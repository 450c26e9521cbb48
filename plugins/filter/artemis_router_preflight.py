"""What the role artemis refuses of connection routers: pure functions from plain data to sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.brokerdrill.ha.plugins.filter.artemis_routers import Pool, Router

MODULO = "CONSISTENT_HASH_MODULO"
LED = ("AMQP", "CORE", "OPENWIRE")
"""Protocols whose clients an acceptor can lead to another broker."""


class RoutersConfig(TypedDict):
    """What the role's vars/main/routers.yml hands over: the routers, filled in; the acceptors as the inventory has
    them; and the names of what pools and acceptors refer to."""

    routers: Sequence[Router]
    acceptors: Sequence[Mapping[str, Any]]
    connectors: Sequence[str]
    cluster_connections: Sequence[str]
    discovery_groups: Sequence[str]


# What Java's regular expressions write otherwise than Python's, as something of the same shape.
_JAVA = (
    (re.compile(r"\\[pP](?:\{\^?\w+(?:=\w+)?\}|\w)"), r"\\w"),
    (re.compile(r"\\[hHR]"), r"\\s"),
    (re.compile(r"\(\?<(?=[A-Za-z])"), "(?P<"),
    (re.compile(r"\\k<(\w+)>"), r"(?P=\1)"),
    (re.compile(r"\\z"), r"\\Z"),
)


def _no_expression(text: str) -> str | None:
    """Return why `text` is no regular expression of Java's, as far as Python can tell; None where it is one."""
    quoted = re.sub(r"\\Q(.*?)(?:\\E|$)", lambda found: re.escape(found[1]), text)
    for java, python in _JAVA:
        quoted = java.sub(python, quoted)
    try:
        re.compile(quoted)
    except re.error as error:
        return str(error)
    return None


def _unknown(who: str, what: str, name: str, known: Sequence[str]) -> list[str]:
    there = f"there are: {', '.join(sorted(known))}" if known else "there are none"
    return [] if name in known else [f"{who} refers to the {what} {name}, which is not there; {there}"]


def _pool_problems(who: str, pool: Pool, config: RoutersConfig) -> list[str]:
    given = {
        "cluster_connection": pool["cluster_connection"],
        "discovery_group": pool["discovery_group"],
        "static_connectors": pool["static_connectors"],
    }
    chosen = [kind for kind, value in given.items() if value]
    if len(chosen) != 1:
        return [f"the pool of {who} needs one of {', '.join(given)}; it has {' and '.join(chosen) or 'none'}"]
    problems = []
    if pool["cluster_connection"]:
        problems += _unknown(who, "cluster connection", pool["cluster_connection"], config["cluster_connections"])
    if pool["discovery_group"]:
        problems += _unknown(who, "discovery group", pool["discovery_group"], config["discovery_groups"])
    for name in pool["static_connectors"] or ():
        problems += _unknown(who, "connector", name, config["connectors"])
    return problems + _quorum_problems(who, pool)


def _quorum_problems(who: str, pool: Pool) -> list[str]:
    """A quorum that the pool cannot have; how many brokers a cluster or a discovery group finds is not known here."""
    quorum, connectors = pool["elements"]["quorum-size"], pool["static_connectors"]
    most = len({*(connectors or ())}) + pool["local"]
    if quorum is None or not connectors or int(quorum) <= most:
        return []
    return [f"the pool of {who} has {most} targets at most and a quorum of {quorum}: it would never choose anybody"]


def _policy_problems(who: str, router: Router) -> list[str]:
    policy, pool = router["policy"], router["pool"]
    local = router["elements"]["local-target-filter"] is not None
    problems = []
    if policy == MODULO:
        if "MODULO" not in router["properties"]:
            problems.append(f"{who} has the policy {MODULO} without modulo: the broker would not start")
        elif int(router["properties"]["MODULO"]) < 1:
            problems.append(f"{who} has the modulo {router['properties']['MODULO']}: it must be 1 or more")
        if pool and not local:
            problems.append(
                f"{who} has a pool and the policy {MODULO}, which chooses nobody from it: give it a local_target_filter"
            )
    elif pool and policy is None:
        problems.append(f"{who} has a pool and no policy: it would choose nobody")
    elif policy is not None and not pool:
        problems.append(f"{who} has the policy {policy} and no pool to choose from")
    if not pool and not local:
        problems.append(f"{who} has neither pool nor local_target_filter: it would refuse everybody")
    if router["cache"] is not None and not pool:
        problems.append(f"{who} has a cache and no pool: there is nothing to remember")
    return problems + _strange_properties(who, router)


def _strange_properties(who: str, router: Router) -> list[str]:
    takes = {MODULO: "MODULO", "LEAST_CONNECTIONS": "CONNECTION_COUNT_THRESHOLD"}.get(router["policy"] or "")
    return [
        f"{who} has {name.lower()}, which the policy {router['policy'] or '(none)'} does not read"
        for name in router["properties"]
        if name != takes
    ]


def _filter_problems(who: str, router: Router) -> list[str]:
    found = [
        (name.replace("-", "_"), text, _no_expression(str(text)))
        for name, text in router["elements"].items()
        if name.endswith("-filter") and text is not None
    ]
    return [f"{who}: {name} {text!r} is no regular expression: {why}" for name, text, why in found if why]


def _acceptor_problems(config: RoutersConfig) -> list[str]:
    problems = []
    for acceptor in config["acceptors"]:
        router = acceptor.get("router")
        if router is None:
            continue
        who = f"acceptor {acceptor['name']}"
        problems += _unknown(who, "connection router", router, [item["name"] for item in config["routers"]])
        problems += [
            f"{who} has a router and the protocol {protocol}, whose clients are not led elsewhere: they ask getTarget; "
            "give it an acceptor without router"
            for protocol in acceptor.get("protocols") or ()
            if protocol not in LED
        ]
    return problems


def artemis_router_problems(config: RoutersConfig) -> list[str]:
    """Return what forbids these connection routers, a sentence each."""
    problems = []
    names = [router["name"] for router in config["routers"]]
    problems += [
        f"two connection routers are called {name}: give each its own name"
        for name in sorted({*names})
        if names.count(name) > 1
    ]
    for router in config["routers"]:
        who = f"connection router {router['name']}"
        problems += _policy_problems(who, router) + _filter_problems(who, router)
        if router["pool"]:
            problems += _pool_problems(who, router["pool"], config)
    return problems + _acceptor_problems(config)


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {"artemis_router_problems": artemis_router_problems}
