"""Which member of a pair of Artemis brokers holds the latest data: see the module artemis_journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def newest_data(members: Mapping[str, Mapping[str, Any]], primaries: Sequence[str]) -> dict[str, Any]:
    """Return which member of a pair holds the latest data: {"order": hosts, newest first, "why", "problem"}.

    `members`: host to what the module artemis_journal returned; of members that are equal one of `primaries` comes
    first. A lock manager's activation sequence decides, else the journal's files: a member that went on alone has
    written to later ones. `problem` is a sentence where nothing can be said, else "".
    """
    holding = {host: found for host, found in members.items() if found["there"]}
    if not holding:
        return {"order": [], "why": "", "problem": "no member has a journal"}
    identities = {found["node_id"] for found in holding.values()} - {""}
    if len(identities) > 1:
        named = " and ".join(sorted(holding))
        problem = f"{named} hold journals of different brokers: a copy was never made, and the choice is yours"
        return {"order": [], "why": "", "problem": problem}

    def age(host: str) -> tuple[Any, ...]:
        found = holding[host]
        sequence = found["activation_sequence"]
        return (
            -1 if sequence is None else sequence,
            found["journal_file"],
            found["written"],
            host in primaries,
        )

    order = sorted(holding, key=age, reverse=True)
    first = holding[order[0]]
    others = [holding[host] for host in order[1:]]
    facts = (
        ("activation_sequence", "its activation sequence is {}, the highest"),
        ("journal_file", "its journal goes on to file {}, the last"),
        ("written", "its journal was written last, at {}"),
    )
    why = "its data are as new as any other's"
    for name, words in facts:
        if others and all(other[name] != first[name] for other in others):
            why = words.format(first[name])
            break
    missing = sorted(set(members) - set(holding))
    return {"order": order + missing, "why": f"{order[0]}: {why}", "problem": ""}


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {"newest_data": newest_data}
