"""Ledgers of few rows through the stages in this process."""

from __future__ import annotations

from typing import Any

from tests.analysis.batch import Ledger
from tests.analysis.in_process import judging, rows_of


def judged(*ledgers: Ledger, parts: int = 1) -> list[dict[str, Any]]:
    """The verdicts' JSON of ledgers that are judged together; in several partitions not all clients are in one."""
    given = {str(number): one for number, one in enumerate(ledgers)}
    with judging(given, rows_of(given), parts=parts) as found:
        assert parts == 1 or len(found._first["end"]) > 1
        results = found.finish().results
    return [results[number].to_json() for number in range(len(ledgers))]


def classes(result: dict[str, Any]) -> dict[str, int]:
    return {name: count for name, count in result["messages"].items() if count}
