"""Generated ledgers through the kernels of the analysis without Spark: whether all is told as the tests expect it.

    PYTHONPATH=chaos:. python one_process.py EXPECTED.pickle LEDGERS

What no mutant changes is kept in EXPECTED.pickle, which is made where it is not there: the ledgers, their rows as
stage 1 takes them, and the oracle's verdicts. Exit status 1: something differs from the oracle's verdict, or from
`tests/analysis/snapshot.json`.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from tests.analysis import snapshot
from tests.analysis.batch import Ledger, differences, expected
from tests.analysis.generate import generate
from tests.analysis.in_process import judging, rows_of
from tests.analysis.ledgers import coarse, ended_by_others, judged_by_eye

# In one partition and in several.
PARTS = (1, 5)
# On clocks that tick so often (ns), and where other clients end what one began.
TICKS = (50_000_000, 500_000_000)
FEW = 60


def first(ledgers: Mapping[str, Ledger], rows: pa.Table, count: int) -> tuple[dict[str, Ledger], pa.Table]:
    return dict(islice(ledgers.items(), count)), rows.filter(pc.less(rows.column("run"), count))


def disagreements(
    ledgers: Mapping[str, Ledger], rows: pa.Table, told: Mapping[str, dict[str, Any]], parts: int
) -> list[str]:
    """Return what the analysis and the oracle tell differently, a line each."""
    with judging(ledgers, rows, parts=parts) as found:
        results = found.finish().results
    return [
        line for number, key in enumerate(ledgers) for line in differences(key, results[number].to_json(), told[key])
    ]


def all_wrong(ledgers: Mapping[str, Ledger], rows: pa.Table, told: Mapping[str, dict[str, Any]]) -> Iterator[list[str]]:
    """Yield what each check finds, those first that most mutants do not survive."""
    known = snapshot.known()
    few, of_few = first(ledgers, rows, snapshot.LEDGERS)
    yield snapshot.changes(snapshot.told(few, of_few, 1), known)
    yield snapshot.changes(snapshot.alone(few, of_few), known)
    for parts in PARTS:
        yield disagreements(ledgers, rows, told, parts)


def main(file: str, count: str) -> int:
    kept = Path(file)
    if not kept.exists():
        made = {f"seed {seed}": generate(seed) for seed in range(int(count))}
        few = list(islice(made.items(), FEW))
        made |= {f"{key}, ticks of {tick} ns": coarse(ledger, tick) for tick in TICKS for key, ledger in few}
        made |= {f"{key}, ended by others": ended_by_others(ledger) for key, ledger in few}
        made |= judged_by_eye()
        kept.write_bytes(pickle.dumps((made, rows_of(made), {key: expected(of) for key, of in made.items()})))
    for wrong in all_wrong(*pickle.loads(kept.read_bytes())):
        if wrong:
            print("\n".join(wrong[:5]))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
