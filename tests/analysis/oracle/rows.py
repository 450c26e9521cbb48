"""Rows as they are told: one dict an operation, and the words of a verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from brokerdrill.ledger.contract import PromiseSpec

Row = dict[str, Any]
MessageKey = tuple[str, str]
UnitKey = tuple[str, str, str | None]

MS = 1_000_000
NEVER = float("inf")
_RANK = {"pass": 0, "unknown": 1, "fail": 2}


def merge(verdicts: Iterable[str]) -> str:
    """ "Verdicts merge by fail > unknown > pass." """
    return max(verdicts, key=lambda verdict: _RANK[verdict], default="unknown")


def merge_rows(ops: Iterable[Row]) -> list[Row]:
    """Return one dict an operation. Raises ValueError for ok against fail."""
    groups: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in ops:
        groups[row["client"], row["op_id"]].append(row)
    merged = []
    for who, rows in groups.items():
        whole: Row = {}
        # "other columns keep what is not null"
        for name in sorted({name for row in rows for name in row}):
            values = [row[name] for row in rows if row.get(name) is not None]
            if not values:
                whole[name] = None
            elif name == "end_ns":
                whole[name] = max(values)  # "a set end beats null"
            elif name != "outcome":
                whole[name] = min(values)
        # "ok or fail beats unknown", "ok against fail is bad input"
        outcomes = {row["outcome"] for row in rows} - {"unknown"}
        if len(outcomes) == 2:
            raise ValueError(f"operation {who} is ok and fail")
        whole["outcome"] = outcomes.pop() if outcomes else "unknown"
        merged.append(whole)
    return merged


def ended(op: Row) -> int:
    """When the operation had ended; its start where the ledger has no end."""
    return op["end_ns"] if op.get("end_ns") is not None else op["start_ns"]


def detail(event: Row, name: str) -> str | None:
    return (event.get("detail") or {}).get(name)


def entry(
    spec: PromiseSpec,
    verdict: str,
    count: int = 0,
    excused: int = 0,
    measured: float | None = None,
    witnesses: Sequence[Row] = (),
) -> Row:
    """One object of the verdict's `promises`."""
    return {
        "name": spec.name,
        "verdict": verdict,
        "count": count,
        "excused": excused,
        "bound": spec.bound_ms,
        "measured": measured,
        "witnesses": list(witnesses),
    }


def in_ms(ns: float) -> float:
    return ns / MS
