"""Very many generated ledgers judged beside the oracle, in one process and without Spark; none is judged twice.

    python -m tests.analysis.campaign FILE [--ledgers 10000] [--first SEED] [--batch 250]

FILE has a line of JSON a batch: its first seed, how many ledgers of it agreed in every field, the lines that did not,
and a digest of the sources of both. Batches that FILE has of the same sources are left out. Each batch is judged in one
partition, each fifth in five. Exit status 1: something does not agree.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.analysis.batch import Ledger, differences, expected
from tests.analysis.generate import generate
from tests.analysis.in_process import judging, rows_of

_ROOT = Path(__file__).resolve().parents[2]
_SOURCES = (
    *("chaos/brokerdrill/analysis", "chaos/brokerdrill/ledger", "chaos/brokerdrill/promises"),
    *("tests/analysis/generate", "tests/analysis/oracle"),
)


def sources() -> list[Path]:
    """Return all files that decide what a ledger is and how it is judged."""
    files = [path for folder in _SOURCES for path in sorted((_ROOT / folder).rglob("*.py"))]
    return files + [Path(__file__).with_name(f"{name}.py") for name in ("batch", "in_process")]


def digest() -> str:
    """Return a digest of `sources`."""
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources())).hexdigest()[:16]


def disagreements(ledgers: Mapping[str, Ledger], parts: int) -> dict[str, list[str]]:
    """Return by ledger what the analysis and the oracle tell differently, a line each."""
    with judging(ledgers, rows_of(ledgers), parts=parts) as found:
        results = found.finish().results
    return {
        key: differences(key, results[number].to_json(), expected(ledger))
        for number, (key, ledger) in enumerate(ledgers.items())
    }


def done(file: Path, sources: str) -> list[dict[str, Any]]:
    """Return the batches that `file` has of these sources."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [row for row in map(json.loads, lines) if row["sources"] == sources]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--ledgers", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--batch", type=int, default=250)
    words = parser.parse_args()
    of_now = digest()
    known = {row["first"] for row in done(words.file, of_now)}
    for number, first in enumerate(range(words.first, words.first + words.ledgers, words.batch)):
        if first in known:
            continue
        seeds = range(first, min(first + words.batch, words.first + words.ledgers))
        ledgers = {f"seed {seed}": generate(seed) for seed in seeds}
        wrong = disagreements(ledgers, 1 if (number + 1) % 5 else 5)
        agreed = sum(not lines for lines in wrong.values())
        row = {"first": first, "ledgers": len(seeds), "agreed": agreed, "sources": of_now}
        with words.file.open("a") as out:
            out.write(json.dumps(row | {"wrong": [line for lines in wrong.values() for line in lines][:20]}) + "\n")
    rows = done(words.file, of_now)
    of, agreed = (sum(row[name] for row in rows) for name in ("ledgers", "agreed"))
    print(f"{agreed:,} of {of:,} generated ledgers agree with the oracle")
    return 1 if agreed < of else 0


if __name__ == "__main__":
    raise SystemExit(main())
