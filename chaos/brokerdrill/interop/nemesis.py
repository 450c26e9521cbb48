"""What a Jepsen nemesis did, as faults, heals and notes of the ledger, and back.

A nemesis logs each operation twice, when it asks for it and when it is done, both as `:info`: the effect lies between
the two. Functions have no fixed names; those of jepsen.nemesis and jepsen.nemesis.combined are known here as data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from brokerdrill.interop import edn
from brokerdrill.interop.history import HistoryOp

# function -> the fault that it begins, besides `start-FAULT`
BEGINS = {
    "kill": "kill",
    "crash": "kill",
    "pause": "pause",
    "partition": "partition",
    "bump": "clock",
    "strobe": "clock",
    "scramble": "clock",
    "bump-clock": "clock",
    "strobe-clock": "clock",
}
# function -> the faults that it ends, besides `stop-FAULT`
ENDS = {
    "restart": ("kill",),
    "resume": ("pause",),
    "heal": ("partition",),
    "reset": ("clock",),
    "reset-clock": ("clock",),
}
# The fault of a nemesis that knows `start` and `stop` only.
ANY = "nemesis"


@dataclass(frozen=True, slots=True)
class Change:
    """An event to be: `kind` fault, heal or note, at `t_ns` ± `uncertainty_ns`; `value` is the operation's, as EDN."""

    kind: str
    name: str
    target: str
    t_ns: int
    uncertainty_ns: int
    value: str


def meaning(function: str, others: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Return (kind, names of faults) of a nemesis function in a history that also has the functions `others`."""
    if function in ("start", "stop"):
        # Where there is `kill`, `start` starts the process again (jepsen.nemesis.combined); alone it begins something.
        if function == "start" and {"kill", "crash"} & set(others):
            return "heal", ("kill",)
        return ("fault" if function == "start" else "heal"), (ANY,)
    head, _, fault = function.partition("-")
    if function in BEGINS:
        return "fault", (BEGINS[function],)
    if function in ENDS:
        return "heal", ENDS[function]
    if fault and head in ("start", "stop"):
        return ("fault" if head == "start" else "heal"), (fault,)
    return "note", (function,)


def changes(ops: Sequence[HistoryOp], times: Sequence[int]) -> list[Change]:
    """Return what the processes of `ops` that are no clients changed; `times` are the operations' in nanoseconds.

    A heal ends every fault of its name that is in effect; one that finds none is a note.
    """
    steps = [(op, at) for op, at in zip(ops, times, strict=True) if not op.client]
    functions = {op.f for op, _ in steps}
    found: list[Change] = []
    effective: dict[str, list[str]] = {}
    pending: dict[int | str, tuple[HistoryOp, int]] = {}
    for position, (op, at) in enumerate(steps):
        begun = pending.pop(op.process, None)
        following = steps[position + 1][0] if position + 1 < len(steps) else None
        if begun is None and following and (following.process, following.f) == (op.process, op.f):
            pending[op.process] = (op, at)
            continue
        since = begun[1] if begun else at
        value = edn.write(op.value)
        asked = edn.write(begun[0].value) if begun else value
        target = _target(asked if asked != "nil" else value)
        middle, doubt = (since + at) // 2, (at - since + 1) // 2
        kind, names = meaning(op.f, functions)
        for name in names:
            if kind == "heal":
                healed = effective.pop(name, [])
                found += [Change("heal", name, one, middle, doubt, value) for one in healed]
                if not healed:
                    found.append(Change("note", op.f, target, middle, doubt, value))
                continue
            if kind == "fault":
                effective.setdefault(name, []).append(target)
            found.append(Change(kind, name, target, middle, doubt, value))
    return found


def _target(value: str) -> str:
    """What the fault was aimed at: the value as text; a string without its quotes, nothing for nil."""
    if value == "nil":
        return ""
    return value[1:-1] if value.startswith('"') and value.count('"') == 2 and "\\" not in value else value
