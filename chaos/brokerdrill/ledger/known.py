"""A defect of a product that is known and bounded: what a drill allows to break, and how far. Data of run.json.

Standard library only and Python >= 3.10: the ledger's contract is shipped to load hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from brokerdrill.base.errors import UsageError

# What a ceiling limits: how many breaks; breaks for each unit, transaction or pair that was judged; the worst measure.
CEILINGS = ("count", "rate", "ms")


@dataclass(frozen=True)
class Known:
    """A defect of a product that may break `promise`: `at_most` its ceilings by name (`CEILINGS`), none of which may be
    passed; `finding` where it is described; `seen` what it was seen in (runs, topology, version); `only` the fields
    that each of its witnesses has, with their values: another kind of witness is another defect."""

    promise: str
    at_most: Mapping[str, float]
    finding: str
    seen: Mapping[str, Any] = field(default_factory=dict)
    only: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of run.json."""
        found: dict[str, Any] = {"promise": self.promise, "at_most": dict(self.at_most), "finding": self.finding}
        found |= {"seen": dict(self.seen)} if self.seen else {}
        return found | ({"only": dict(self.only)} if self.only else {})


def known(value: object, where: str) -> Known:
    """Return the `Known` of a JSON object. Raises UsageError that begins with `where`."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: must be an object")
    at_most = value.get("at_most")
    if not isinstance(at_most, Mapping) or not at_most or not set(at_most) <= {*CEILINGS}:
        raise UsageError(f"{where}: at_most must be an object of {', '.join(CEILINGS)}")
    for name, limit in at_most.items():
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or limit < 0:
            raise UsageError(f"{where}: at_most: {name} must be a number that is not negative")
    for name in ("promise", "finding"):
        if not isinstance(value.get(name), str) or not value[name].strip():
            raise UsageError(f"{where}: {name} is missing")
    for name in ("seen", "only"):
        if not isinstance(value.get(name, {}), Mapping):
            raise UsageError(f"{where}: {name} must be an object")
    return Known(
        value["promise"], dict(at_most), value["finding"], dict(value.get("seen", {})), dict(value.get("only", {}))
    )
