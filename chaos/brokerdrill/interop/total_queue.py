"""What Jepsen's own `total-queue` checker says of a history, by its definitions (jepsen/src/jepsen/checker.clj).

Everything is a multiset of values: attempts are invoked enqueues, enqueues the acknowledged ones, dequeues all that
came out, the elements of drains included. A failed enqueue is an attempt too, so that what came out of it counts as
ok here (and as a phantom in our classes); an order between operations plays no part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from brokerdrill.interop import edn
from brokerdrill.interop.history import HistoryOp

COUNTS = (
    "attempt-count",
    "acknowledged-count",
    "ok-count",
    "unexpected-count",
    "duplicated-count",
    "lost-count",
    "recovered-count",
)
LISTED = ("lost", "unexpected", "duplicated", "recovered")


@dataclass(frozen=True)
class TotalQueue:
    """The checker's answer: `valid` true, false, or None where it gives up with `error`; `counts` by the names of
    `COUNTS`; `values` maps each of `LISTED` to value (as EDN) → multiplicity."""

    valid: bool | None
    counts: dict[str, int]
    values: dict[str, dict[str, int]]
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the answer under Jepsen's own keys; `valid?` is "unknown" where the checker gives up."""
        verdict = {"valid?": "unknown" if self.valid is None else self.valid}
        return verdict | ({"error": self.error} if self.error else {}) | dict(self.counts) | dict(self.values)


def elements(drain: HistoryOp) -> list[str] | None:
    """Return the values, as EDN, that a drain which is ok brought; None where its value is no collection."""
    if drain.value is None:
        return []
    if isinstance(drain.value, edn.Set):
        return [edn.write(item) for item in drain.value.items]
    return [edn.write(item) for item in drain.value] if isinstance(drain.value, (tuple, list)) else None


def total_queue(ops: Iterable[HistoryOp]) -> TotalQueue:
    """Return the checker's answer for a whole history. Where Jepsen throws (a drain that crashed, or brought no
    collection) it is unknown, with the reason and without counts."""
    attempts: Counter[str] = Counter()
    enqueues: Counter[str] = Counter()
    dequeues: Counter[str] = Counter()
    for op in ops:
        if op.f == "enqueue" and op.type in ("invoke", "ok"):
            (attempts if op.type == "invoke" else enqueues)[edn.write(op.value)] += 1
        elif op.f == "dequeue" and op.type == "ok":
            dequeues[edn.write(op.value)] += 1
        elif op.f == "drain" and op.type in ("ok", "info"):
            found = elements(op) if op.type == "ok" else None
            if found is None:
                what = "crashed" if op.type == "info" else "brought no collection of elements"
                return TotalQueue(None, {}, {}, f"line {op.line}: the drain {what}, which the checker cannot judge")
            dequeues.update(found)
    ok = dequeues & attempts
    unexpected = Counter({value: count for value, count in dequeues.items() if value not in attempts})
    sets = {
        "lost": enqueues - dequeues,
        "unexpected": unexpected,
        "duplicated": dequeues - attempts - unexpected,
        "recovered": ok - enqueues,
    }
    named = {"attempt": attempts, "acknowledged": enqueues, "ok": ok} | sets
    return TotalQueue(
        valid=not sets["lost"] and not unexpected,
        counts={name: named[name.removesuffix("-count")].total() for name in COUNTS},
        values={name: dict(sorted(sets[name].items())) for name in LISTED},
    )
