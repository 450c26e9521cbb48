"""Generated ledgers through the kernels of the analysis without Spark, beside the oracle: whether they agree.

    PYTHONPATH=chaos:. python one_process.py EXPECTED.pickle LEDGERS

What no mutant changes is kept in EXPECTED.pickle, which is made where it is not there: the ledgers, their rows as
stage 1 takes them, and the oracle's verdicts. Exit status 1: they differ.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from tests.analysis.batch import Ledger, differences, expected, ledger_of
from tests.analysis.generate import generate

from brokerdrill.analysis import groups, judge, messages, stages
from brokerdrill.analysis.groups import by_group
from brokerdrill.analysis.kernel import TO_DRIVER, Parcel, batch, divide, engine, parcels, unpack
from brokerdrill.analysis.messages import by_message
from brokerdrill.analysis.reading import OP_SCHEMA, Piece, checked, raw

# In one partition and in several.
PARTS = (1, 5)
FEW = 30


def rows_of(ledgers: Mapping[str, Ledger]) -> pa.Table:
    """Return the operations of all ledgers as stage 1 takes them."""
    of_each = []
    for number, (_, of, _) in enumerate(ledgers.values()):
        table = pa.table({name: [row.get(name) for row in of] for name in OP_SCHEMA.names}, OP_SCHEMA)
        checked_rows = checked(table, Piece(number, str(of[0]["run_id"]) if of else "", "", "", 0, 0))
        assert not checked_rows.problems, checked_rows.problems
        of_each.append(raw(checked_rows.table, number))
    return pa.concat_tables(of_each)


class OneProcess(stages.Stages):
    """The stages' tasks, one after the other."""

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

    def look_up(self, tables: Mapping[str, pa.Table]) -> list[dict[str, Any]]:
        """Stories are no part of what the oracle tells."""
        return []


def disagreements(
    ledgers: Mapping[str, Ledger], rows: pa.Table, told: Mapping[str, dict[str, Any]], parts: int
) -> list[str]:
    """Return what the analysis and the oracle tell differently, a line each."""
    source = stages.Source(frames=((rows, "rows", {}),))  # type: ignore[arg-type]
    with judge.Judging(None, source, ledger_of(ledgers, parts=parts)) as judging:
        first = judging.check()
        assert not first.get("problem") and not first.get("conflict"), first
        results = judging.finish().results
    return [line for number, key in enumerate(ledgers) for line in differences(key, results[number], told[key])]


def main(file: str, count: str) -> int:
    kept = Path(file)
    if not kept.exists():
        made = {f"seed {seed}": generate(seed) for seed in range(int(count))}
        kept.write_bytes(pickle.dumps((made, rows_of(made), {key: expected(of) for key, of in made.items()})))
    ledgers, rows, told = pickle.loads(kept.read_bytes())
    judge.Stages = OneProcess  # type: ignore[misc]
    # Most mutants differ in the first few.
    few = dict(list(ledgers.items())[:FEW])
    of_few = rows.filter(pc.less(rows.column("run"), FEW))
    for some, of, parts in ((few, of_few, 1), *((ledgers, rows, parts) for parts in PARTS)):
        if wrong := disagreements(some, of, told, parts):
            print("\n".join(wrong[:5]))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
