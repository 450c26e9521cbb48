"""What the preflight checks of several products share: pure functions from plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

Number = int | str
"""A whole number of an inventory: what was quoted there, or made by a template, comes as text of digits."""


class Archive(TypedDict):
    """Where a distribution comes from: a Maven coordinate, and the checksum that the file must have."""

    coordinate: str
    sha256: str


SESSION_TICKS = (2, 20)
"""ZooKeeper Administrator's Guide, minSessionTimeout and maxSessionTimeout: a session lasts 2 to 20 ticks."""


def session_range_ms(tick_ms: int) -> tuple[int, int]:
    """Return the shortest and the longest session, in ms, that a ZooKeeper server with this tick (in ms) grants."""
    shortest, longest = SESSION_TICKS
    return shortest * tick_ms, longest * tick_ms


def differing(members: Mapping[str, Mapping[str, object]], field: str) -> list[list[str]]:
    """Return, for each pair whose members differ in `field`, one host of each value.

    `members`: host to {"pair", `field`, …}. Pairs and hosts come in sorted order.
    """
    first: dict[str, dict[object, str]] = {}
    for host, member in sorted(members.items()):
        first.setdefault(str(member["pair"]), {}).setdefault(member[field], host)
    return [list(hosts.values()) for _pair, hosts in sorted(first.items()) if len(hosts) > 1]
