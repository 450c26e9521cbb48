"""The virtual address of some hosts, as the inventory names it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable


def virtual_address_problems(address: str, number: int, own: Iterable[str]) -> list[str]:
    """Return what forbids the virtual `address` (ADDRESS/LENGTH; empty is none) with this `number` in VRRP on hosts
    whose `own` addresses (or names) these are, a sentence each."""
    if not address:
        return []
    try:
        virtual = ipaddress.ip_interface(address)
    except ValueError:
        virtual = None
    if virtual is None or "/" not in address:
        return [
            f"common_virtual_address is {address}, which is no address with the length of its network's prefix, as "
            "10.0.0.9/24"
        ]
    problems = []
    if str(virtual.ip) in own:
        problems.append(f"common_virtual_address is {address}, which is a host's own address")
    if not 1 <= number <= 255:
        problems.append(f"common_virtual_router_id is {number}, and VRRP has the numbers 1 to 255")
    return problems
