"""Generated ledgers through the kernels of the analysis without Spark, beside the oracle: whether they agree.

    PYTHONPATH=chaos:. python one_process.py EXPECTED.pickle LEDGERS

The oracle's verdicts are kept in EXPECTED.pickle, which is made where it is not there. Exit status 1: they differ.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.analysis.batch import Ledger, differences, expected, ledger_of
from tests.analysis.generate import generate

from brokerdrill.analysis import groups, judge, messages, stages
from brokerdrill.analysis.groups import by_group
from brokerdrill.analysis.kernel import TO_DRIVER, Parcel, batch, parcels, unpack
from brokerdrill.analysis.messages import by_message
from brokerdrill.analysis.reading import OP_SCHEMA
from brokerdrill.ledger.contract import OP_COLUMNS

# In one partition and in several.
PARTS = (1, 5)
FEW = 30


def source_of(ledgers: Mapping[str, Ledger]) -> stages.Source:
    """Return the ledgers' operations as a table where Spark would have a DataFrame."""
    names = [column.name for column in OP_COLUMNS]
    rows = [{"path": key, **row} for key, (_, of, _) in ledgers.items() for row in of]
    schema = pa.schema([("path", pa.string()), *OP_SCHEMA])
    table = pa.table(
        {name: [row.get(name) for row in rows] for name in schema.names if name in ("path", *names)}, schema
    )
    owners = {
        key: (number, str(of[0]["run_id"]) if of else "", key, None)
        for number, (key, (_, of, _)) in enumerate(ledgers.items())
    }
    return stages.Source(frames=((table, "rows", owners),))  # type: ignore[arg-type]


class OneProcess(stages.Stages):
    """The stages' tasks, one after the other."""

    def first(self, tables: Mapping[str, bytes]) -> stages.Partials:
        plan = self._plan
        spread: list[Parcel] = []
        for table, kind, owners in self._source.frames:
            given = iter(table.to_batches())  # type: ignore[operator]
            spread += parcels(stages._batch_task(kind, owners, plan.parts)(given))
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


def disagreements(ledgers: Mapping[str, Ledger], told: Mapping[str, dict[str, Any]], parts: int) -> list[str]:
    """Return what the analysis and the oracle tell differently, a line each."""
    with judge.Judging(None, source_of(ledgers), ledger_of(ledgers, parts=parts)) as judging:
        first = judging.check()
        assert not first.get("problem") and not first.get("conflict"), first
        results = judging.finish().results
    return [line for number, key in enumerate(ledgers) for line in differences(key, results[number], told[key])]


def main(file: str, count: str) -> int:
    ledgers = {f"seed {seed}": generate(seed) for seed in range(int(count))}
    kept = Path(file)
    if not kept.exists():
        kept.write_bytes(pickle.dumps({key: expected(ledger) for key, ledger in ledgers.items()}))
    told = pickle.loads(kept.read_bytes())
    judge.Stages = OneProcess  # type: ignore[misc]
    # Most mutants differ in the first few.
    few = dict(list(ledgers.items())[:FEW])
    for some, parts in ((few, 1), *((ledgers, parts) for parts in PARTS)):
        if wrong := disagreements(some, told, parts):
            print("\n".join(wrong[:5]))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
