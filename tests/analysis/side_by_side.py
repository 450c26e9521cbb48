"""Ledgers of few rows whose names are the same, judged side by side, each by itself and by the oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from brokerdrill.ledger.contract import PromiseSpec
from tests.analysis.batch import Ledger, differences, expected
from tests.analysis.by_hand import (
    RUN,
    Row,
    numbered,
    phases,
)
from tests.analysis.judging import classes, judged

Rows = Sequence[Row | list[Row]]


def ledger(rows: Rows, events: Sequence[Row] = (), promises: Sequence[PromiseSpec] = (), **of_run: Any) -> Ledger:
    return replace(RUN, promises=tuple(promises), **of_run), numbered(rows), list(events) or phases()


def all_told(*ledgers: Ledger) -> list[dict[str, Any]]:
    """What is told of each of ledgers that are judged side by side: of the first the same as by itself, of all the same
    as by the oracle."""
    told = judged(*ledgers)
    for number, one in enumerate(ledgers):
        assert differences(str(number), told[number], expected(one)) == []
    assert differences("by itself", judged(ledgers[0])[0], told[0]) == []
    return told


def all_classes(*rows: Rows, **of_run: Any) -> list[dict[str, int]]:
    return [classes(one) for one in all_told(*(ledger(each, **of_run) for each in rows))]


def promised(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return next(one for one in told["promises"] if one["name"] == name)
