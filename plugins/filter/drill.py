"""What drills need of a broker where they are allowed: addresses of their own, and rights on these alone."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

# What the drills' role may do on an address of theirs, and on where its dead letters go if that is not theirs.
ON_OWN = ("send", "consume", "browse", "createNonDurableQueue", "deleteNonDurableQueue")
ON_DEAD_LETTERS = ("browse",)


def with_drill_addresses(
    addresses: Sequence[Mapping[str, Any]], queues: Sequence[str], dead_letters: str
) -> list[dict[str, Any]]:
    """Return Artemis' `addresses` ({"name", "routing"} each) with those of drills behind them: `queues`, dead letters.

    One that is there already stays as it is, but its dead letters go where the drills' do.
    """
    made = {name: {"name": name, "routing": "anycast", "dead_letter": dead_letters} for name in (*queues, dead_letters)}
    found = [{**made.pop(item["name"], {}), **item} for item in addresses]
    return [*found, *made.values()]


def with_drill_marks(addresses: Sequence[Mapping[str, Any]], names: Collection[str]) -> list[dict[str, Any]]:
    """Return a descriptor's `addresses`, each with `drill`: whether it is one of `names`, those of drills."""
    return [{**item, "drill": item["name"] in names} for item in addresses]


def with_drill_matches(
    settings: Sequence[Mapping[str, Any]], drill: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return settings by "match" with the drills' behind them, unless the inventory has one for the same match."""
    there = {item["match"] for item in settings}
    return [*settings, *(item for item in drill if item["match"] not in there)]


def drill_address_settings(names: Sequence[str], dead_letters: str) -> list[dict[str, Any]]:
    """Return Artemis' address-settings of the drills' addresses: where their dead letters go."""
    return [{"match": name, "settings": {"dead-letter-address": dead_letters}} for name in names]


def with_drill_rights(
    settings: Sequence[Mapping[str, Any]], addresses: Sequence[Mapping[str, Any]], role: str
) -> list[dict[str, Any]]:
    """Return Artemis' security `settings` ({"match", "permissions"} each) by which `role` may use the drills' own of
    `addresses` (a descriptor's), and browse where their dead letters go. What others may do there stays as it is."""
    own = {item["name"] for item in addresses if item["drill"]}
    letters = {item["dead_letter"] for item in addresses if item["drill"] and item["dead_letter"]} - own
    granted = {**dict.fromkeys(sorted(own), ON_OWN), **dict.fromkeys(sorted(letters), ON_DEAD_LETTERS)}
    others = [dict(item) for item in settings if item["match"] not in granted]
    return [*others, *(_granted(settings, name, types, role) for name, types in granted.items())]


def _granted(settings: Sequence[Mapping[str, Any]], name: str, types: Sequence[str], role: str) -> dict[str, Any]:
    """The setting of one address: the most specific one that holds for it, and `role` for what is of `types`."""
    holding = [item for item in settings if _covers(item["match"], name)]
    base: Mapping[str, Sequence[str]] = max(holding, key=_certain)["permissions"] if holding else {}
    more = {kind: [*base.get(kind, ()), *([] if role in base.get(kind, ()) else [role])] for kind in types}
    return {"match": name, "permissions": {**base, **more}}


def _covers(match: str, name: str) -> bool:
    """Whether an address's wildcard (words apart by dots, `*` one word, `#` any number) covers `name`."""
    words = {"*": r"\.[^.]+", "#": r"(\.[^.]+)*"}
    pattern = "".join(words.get(word, r"\." + re.escape(word)) for word in match.split("."))
    return re.fullmatch(pattern, f".{name}") is not None


def _certain(setting: Mapping[str, Any]) -> tuple[int, int]:
    """How much of an address a setting's match says: an exact one most."""
    match = setting["match"]
    return (0 if "#" in match else 1 if "*" in match else 2), len(match)


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Any]:
        return {
            "with_drill_addresses": with_drill_addresses,
            "with_drill_marks": with_drill_marks,
            "with_drill_matches": with_drill_matches,
            "with_drill_rights": with_drill_rights,
            "drill_address_settings": drill_address_settings,
        }
