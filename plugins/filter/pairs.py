"""Filters for every product whose instances stand in pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {"health_states": health_states, "pair_problems": pair_problems}
