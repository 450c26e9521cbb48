"""What the load has to have met of a fault, so that a verdict says something about it: data of run.json.

Standard library only and Python >= 3.10: the ledger's contract is shipped to load hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from brokerdrill.base.errors import UsageError


@dataclass(frozen=True)
class Minimum:
    """The least that the load has to have met of a fault.

    `clients` connected to what it hit; of their operations so many `in_flight` at its moment, and so many `operations`
    from then until its heal; `messages` stored there. `packets` that met it count only where they were measured.
    """

    clients: int = 0
    in_flight: int = 0
    operations: int = 1
    messages: int = 0
    packets: int = 0

    def to_json(self) -> dict[str, int]:
        """Return the JSON object of run.json."""
        return asdict(self)


# How many ends of a process a fault of these kinds explains: it ends the process itself, once. One of another kind ends
# none itself, and explains any that is no crash.
RESTART_HOST = "restart_host"
# Faults in whose effect a process does nothing at all.
HALTS = frozenset({"kill", "stop", "pause"})
ENDS: Mapping[str, int] = {"kill": 1, "stop": 1}
# What disturbs nothing while it is in effect has not to be met.
NOTHING = Minimum(operations=0)
# A fault of a kind that this version does not know.
ANY = Minimum()


def minimum(value: object, where: str) -> Minimum:
    """Return the `Minimum` of a JSON object; what it leaves out has its default. Raises UsageError that begins with
    `where`."""
    names = [one.name for one in fields(Minimum)]
    if not isinstance(value, Mapping) or not set(value) <= set(names):
        raise UsageError(f"{where}: must be an object of {', '.join(names)}")
    for name, number in value.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise UsageError(f"{where}: {name} must be a whole number that is not negative")
    return Minimum(**value)
