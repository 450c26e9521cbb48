"""The stages' tasks one after the other in this process, where Spark would run them: hundreds of ledgers in seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from brokerdrill.analysis import groups, judge, messages, stages
from brokerdrill.analysis.groups import by_group
from brokerdrill.analysis.kernel import TO_DRIVER, Parcel, batch, divide, engine, parcels, unpack
from brokerdrill.analysis.messages import by_message
from brokerdrill.analysis.reading.rows import OP_SCHEMA, Piece, raw
from brokerdrill.analysis.reading.valid import checked
from tests.analysis.batch import Ledger, ledger_of


def rows_of(ledgers: Mapping[str, Ledger]) -> pa.Table:
    """Return the operations of all ledgers as stage 1 takes them; a run's number is its ledger's place."""
    of_each = []
    for number, (_, of, _) in enumerate(ledgers.values()):
        table = pa.table({name: [row.get(name) for row in of] for name in OP_SCHEMA.names}, OP_SCHEMA)
        found = checked(table, Piece(number, str(of[0]["run_id"]) if of else "", "", "", 0, 0))
        assert not found.problems, found.problems
        of_each.append(raw(found.table, number))
    return pa.concat_tables(of_each)


class _InProcess(stages.Stages):
    """The source's one frame is a table of `rows_of` instead of Spark's."""

    def first(self, tables: Mapping[str, bytes]) -> stages.Partials:
        plan = self._plan
        with engine() as base:
            base.register("raw", self._source.frames[0][0])
            spread = list(divide(base, "raw", stages.BY_CLIENT, plan.parts))
        self._told = self._each(spread, stages._client_task(tables, plan, None))
        return self._partials(self._told)

    def rest(self, tables: Mapping[str, bytes]) -> stages.Partials:
        plan = self._plan
        rows = [one for one in self._told if one.part != TO_DRIVER]
        told = self._each(rows, stages._later_task(tables, plan, messages.EMPTY, by_message))
        if plan.asked & {"ordered", "atomic"}:
            told = self._each(told, stages._later_task(tables, plan, groups.EMPTY, by_group))
        return self._partials(told)

    def _each(
        self, given: Iterable[Parcel], task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    ) -> list[Parcel]:
        parts: list[list[Parcel]] = [[] for _ in range(self._plan.parts)]
        for parcel in given:
            parts[parcel.part % self._plan.parts].append(parcel)
        return [found for part in parts for found in parcels(task(map(batch, part)))]

    @staticmethod
    def _partials(told: Iterable[Parcel]) -> stages.Partials:
        found: dict[str, list[pa.Table]] = {}
        for parcel in told:
            if parcel.part == TO_DRIVER:
                found.setdefault(parcel.kind, []).append(unpack(parcel.data))
        return found

    def look_up(self, tables: Mapping[str, pa.Table], *, follow: bool = False) -> list[dict[str, Any]]:
        """Return nothing: there is no ledger to look into."""
        return []


@contextmanager
def judging(
    ledgers: Mapping[str, Ledger], rows: pa.Table, *, parts: int, series: bool = False
) -> Iterator[judge.Judging]:
    """Yield the analysis of ledgers, whose rows are `rows_of` them, after its first stage."""
    source = stages.Source(frames=((rows, "rows", {}),))  # type: ignore[arg-type]
    with (
        patch.object(judge, "Stages", _InProcess),
        judge.Judging(None, source, ledger_of(ledgers, parts=parts, series=series)) as found,
    ):
        first = found.check()
        assert not first.get("problem") and not first.get("conflict"), first
        yield found
