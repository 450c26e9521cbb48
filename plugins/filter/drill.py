"""What drills need of a broker where they are allowed: queues of their own, with dead letters of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def with_drill_addresses(
    addresses: Sequence[Mapping[str, Any]], queues: Sequence[str], dead_letters: str
) -> list[dict[str, Any]]:
    """Return Artemis' `addresses` ({"name", "routing"} each) with those of drills behind them: `queues`, dead letters.

    One that is there already stays as it is, but its dead letters go where the drills' do.
    """
    made = {name: {"name": name, "routing": "anycast", "dead_letter": dead_letters} for name in (*queues, dead_letters)}
    found = [{**made.pop(item["name"], {}), **item} for item in addresses]
    return [*found, *made.values()]


def with_drill_matches(
    settings: Sequence[Mapping[str, Any]], drill: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return settings by "match" with the drills' behind them, unless the inventory has one for the same match."""
    there = {item["match"] for item in settings}
    return [*settings, *(item for item in drill if item["match"] not in there)]


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Any]:
        return {"with_drill_addresses": with_drill_addresses, "with_drill_matches": with_drill_matches}
