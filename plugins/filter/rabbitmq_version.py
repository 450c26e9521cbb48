"""Filters of the role rabbitmq: which version a host has, and what that forbids. Pure functions from plain data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.brokerdrill.ha.plugins.filter.rabbitmq import DRILL_VHOST, listed

# What these systems' own packages bring, for hosts that have no lists of packages yet.
OF_SYSTEM: Mapping[str, str] = {"bookworm": "3.10.8", "trixie": "4.0.5", "jammy": "3.9.27", "noble": "3.12.1"}
# From this one on classic queues have no mirrors; of older ones only the last before it may be of its cluster.
WITHOUT_MIRRORS = 4
LAST_BEFORE = "3.13"
# What a policy says of mirrors begins so.
_MIRRORS = "ha-"


class RabbitmqDeclared(TypedDict):
    """What is declared in a cluster; `more`: definitions as the product exports them."""

    policies: Sequence[Mapping[str, Any]]
    more: Mapping[str, Any]


def rabbitmq_version(told: str, packages: Sequence[str]) -> str:
    """Return the version of RabbitMQ that a host has, or that `packages` would bring it; empty where nothing says so.

    `told`: what the host answers to `apt-cache policy rabbitmq-server`, and the line VERSION_CODENAME of its
    os-release.
    """
    words = r"^ *(Installed|Candidate|VERSION_CODENAME)[:=] *\"?([^\s\"(]+)"
    said = dict(re.findall(words, told, re.MULTILINE))
    pinned = [name.partition("=")[2] for name in packages if name.startswith("rabbitmq-server=")]
    found = said.get("Installed") or "".join(pinned[:1]) or said.get("Candidate")
    if not found:
        return OF_SYSTEM.get(said.get("VERSION_CODENAME", ""), "")
    # Without the package's epoch and revision.
    return re.sub(r"^\d+:|-[^-]*$", "", found)


def rabbitmq_version_problems(config: RabbitmqDeclared, host: str, versions: Mapping[str, str]) -> list[str]:
    """Return what the version of the broker on `host` forbids, a sentence each.

    `versions`: of the brokers of its cluster, by host; one that is empty is not known.
    """
    new = {name: version for name, version in versions.items() if _major(version) >= WITHOUT_MIRRORS}
    old = {
        name: version
        for name, version in versions.items()
        if version and name not in new and not version.startswith(f"{LAST_BEFORE}.")
    }
    found = [
        f"{name} has RabbitMQ {version} and {other} {older}: RabbitMQ {WITHOUT_MIRRORS} is of one cluster with none "
        f"older than {LAST_BEFORE}; have one version on all of its hosts"
        for name, version in list(new.items())[:1]
        for other, older in list(old.items())[:1]
    ]
    if host not in new:
        return found
    return found + [
        f"policy {name} of vhost {vhost} has classic queues mirrored ({key}), and RabbitMQ {new[host]} has no mirrors: "
        "use quorum queues (type: quorum), which have their copies without a policy"
        for name, vhost, definition in _policies(config)
        for key in [str(one) for one in definition or {} if str(one).startswith(_MIRRORS)][:1]
    ]


def _policies(config: RabbitmqDeclared) -> list[tuple[Any, Any, Any]]:
    """Name, vhost and definition of each policy, operators' own among them."""
    more = config["more"] or {}
    found = [
        (one.get("name"), one.get("vhost", DRILL_VHOST), one.get("definition"))
        for one in [*config["policies"], *listed(more, "policies")]
    ]
    return found + [
        (one.get("name"), one.get("vhost"), one["value"].get("definition"))
        for one in listed(more, "parameters")
        if one.get("component") == "operator_policy" and isinstance(one.get("value"), Mapping)
    ]


def _major(version: str) -> int:
    return int(version.partition(".")[0]) if version[:1].isdigit() else 0


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {"rabbitmq_version": rabbitmq_version, "rabbitmq_version_problems": rabbitmq_version_problems}
