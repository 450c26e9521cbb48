"""Filters for what the module `health` said of all hosts: pairs, successors, what waits for a restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.brokerdrill.ha.plugins.module_utils.health.restarts import sentence
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.hosts import HostVars


def health_states(hosts: Sequence[str], hostvars: HostVars, variable: str) -> dict[str, str]:
    """Return host to state: what the module `health`, registered as `variable` on each host, said; "unknown" where a
    host was not asked."""
    return {host: hostvars[host].get(variable, {}).get("state", "unknown") for host in hosts}


def pair_problems(states: Mapping[str, str], pairs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return which of `pairs` (pair to hosts) is not one active broker and its passive copies.

    `states`: host to its health, as the module `health` says it.
    """
    problems = []
    for pair, hosts in sorted(pairs.items()):
        seen = {host: states.get(host, "unknown") for host in hosts}
        words = ", ".join(f"{host} {state}" for host, state in sorted(seen.items()))
        if list(seen.values()).count("active") != 1 or set(seen.values()) - {"active", "passive"}:
            problems.append(f"pair {pair} is not one active broker and its passive copies: {words}")
    return problems


def successors_seen(answers: Sequence[Mapping[str, Any]]) -> str:
    """Return the hosts of `answers`, the results of the module `health` in a loop over hosts, and how each one is."""
    seen = (
        f"{answer['item']['key']} {'unreachable' if answer.get('unreachable') else answer.get('state', 'unknown')}"
        for answer in answers
    )
    return ", ".join(seen) or "there is no other"


def successors_ready(answers: Sequence[Mapping[str, Any]], states: Sequence[str]) -> list[str]:
    """Return the hosts of `answers` (see `successors_seen`) that are in one of `states`."""
    return [
        answer["item"]["key"] for answer in answers if not answer.get("unreachable") and answer.get("state") in states
    ]


def pending_restarts(hosts: Sequence[str], hostvars: HostVars) -> list[str]:
    """Return a sentence for each instance on `hosts` that started before its files were changed.

    The role `common` finds them as it waits for health; `common_pending_restarts` of a host is instance to files."""
    return [
        sentence(f"{instance} on {host}", list(files))
        for host in hosts
        for instance, files in sorted(hostvars[host].get("common_pending_restarts", {}).items())
        if files
    ]


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "health_states": health_states,
            "pair_problems": pair_problems,
            "pending_restarts": pending_restarts,
            "successors_ready": successors_ready,
            "successors_seen": successors_seen,
        }
