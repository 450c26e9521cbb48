"""Filters for what a host says of its own addresses. Pure functions."""

from __future__ import annotations

import ipaddress
from typing import Any


def loopback_problem(name: str, said: str) -> str:
    """Return why a service must not listen at the host's own `name`, by what `getent ahosts` says of it there; "" where
    it may: what listens on loopback is reached by nobody else."""
    found = dict.fromkeys(line.split()[0] for line in said.splitlines() if line.strip())
    loopback = [address for address in found if ipaddress.ip_address(address.partition("%")[0]).is_loopback]
    if not loopback:
        return ""
    return (
        f"{name} leads to {' and '.join(loopback)} on that host itself, so that nobody else would reach what listens "
        f"there: take {name} out of that line of its /etc/hosts, or give it ansible_host with an address"
    )


class FilterModule:
    """The filter, by the name that the role uses."""

    def filters(self) -> dict[str, Any]:
        return {"loopback_problem": loopback_problem}
