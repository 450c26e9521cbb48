"""What the analysis tells of generated ledgers, also what the oracle does not know (witnesses, phases, attribution,
series, routes), as digests in `snapshot.json`: whatever changes it is seen.

    python -m tests.analysis.snapshot write               after a change that is meant to tell otherwise
    python -m tests.analysis.snapshot show 'seed 3' NAME   what such a digest stands for
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from brokerdrill.analysis.analyze import judged
from brokerdrill.analysis.files import LocalFolder
from brokerdrill.analysis.load import Run
from tests.analysis.batch import Ledger, ledger_of
from tests.analysis.generate import generate
from tests.analysis.in_process import judging, rows_of

FILE = Path(__file__).with_name("snapshot.json")
LEDGERS = 60
# Judged by themselves, too: among many runs with the same names another run's rows may do.
ALONE = 10
# A sum may be taken in another order.
DIGITS = 9

Told = dict[str, dict[str, Any]]


def made() -> dict[str, Ledger]:
    return {f"seed {seed}": generate(seed) for seed in range(LEDGERS)}


def told(ledgers: Mapping[str, Ledger], rows: pa.Table, parts: int) -> Told:
    """Return all that is told of each ledger, by name: the fields of the verdict's JSON, and `series`."""
    given = ledger_of(ledgers, parts=parts, series=True)
    runs = [
        Run(key, number, LocalFolder(Path(key)), given.runs[number], events=list(given.events[number]))
        for number, key in enumerate(ledgers)
    ]
    with judging(ledgers, rows, parts=parts, series=True) as found:
        results, series = judged(found, runs, with_series=True)
    return {
        run.key: {
            **results[run.number].to_json(),
            "series": drawn.to_json() if (drawn := series.get(run.number)) else None,
        }
        for run in runs
    }


def alone(ledgers: Mapping[str, Ledger], rows: pa.Table) -> Told:
    """As `told`, of the first ledgers, each by itself."""
    found: Told = {}
    for number, (key, ledger) in enumerate(list(ledgers.items())[:ALONE]):
        own = rows.filter(pc.equal(rows.column("run"), number))
        own = own.set_column(0, "run", pa.array([0] * len(own), pa.int32()))
        found |= told({key: ledger}, own, 1)
    return found


def digests(found: Told) -> dict[str, dict[str, str]]:
    """Return a digest of each thing that is told, by ledger."""
    return {
        key: {
            name: hashlib.sha256(json.dumps(_rounded(value), sort_keys=True).encode()).hexdigest()[:12]
            for name, value in sorted(of.items())
        }
        for key, of in found.items()
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    if isinstance(value, Mapping):
        return {str(name): _rounded(of) for name, of in value.items()}
    return [_rounded(of) for of in value] if isinstance(value, list | tuple) else value


def changes(found: Told, known: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return what is told otherwise than `known`, a line each."""
    new = digests(found)
    return [
        f"{key}: {name}"
        for key in new
        for name in {**new[key], **known[key]}
        if new[key].get(name) != known[key].get(name)
    ]


def known() -> dict[str, dict[str, str]]:
    return dict(json.loads(FILE.read_text()))


if __name__ == "__main__":
    ledgers = made()
    found = told(ledgers, rows_of(ledgers), 1)
    if sys.argv[1:] == ["write"]:
        lines = (f"{json.dumps(key)}: {json.dumps(of)}" for key, of in digests(found).items())
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    else:
        print(json.dumps(found[sys.argv[2]][sys.argv[3]], indent=1, default=str))
