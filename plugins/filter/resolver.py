"""Filters of the role resolver: pure functions from plain data."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.brokerdrill.ha.plugins.plugin_utils.hosts import HostVars, address_of

_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.IGNORECASE)


def resolver_names(hosts: Sequence[str], hostvars: HostVars, more: Mapping[str, str]) -> dict[str, str]:
    """Return the address of each name: those of the inventory's `hosts`, and `more`, which win; sorted."""
    own = {host: address_of(host, hostvars[host], "") for host in hosts}
    return dict(sorted({**own, **more}.items()))


def resolver_problems(names: Mapping[str, str], domain: str) -> list[str]:
    """Return what forbids this name server, a sentence each: what is no name, and what is no address."""
    problems = [f"{name!r} is no host name" for name in [*names, domain] if not _NAME.fullmatch(name)]
    for name, address in names.items():
        try:
            ipaddress.ip_address(address)
        except ValueError:
            problems.append(f"the name {name} has the address {address!r}, which is none: resolver_names says one")
    return problems


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {"resolver_names": resolver_names, "resolver_problems": resolver_problems}
