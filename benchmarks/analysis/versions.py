"""The analysis beside an earlier version of itself: what has been added to it since may cost little.

    .venv/bin/python benchmarks/analysis/versions.py EARLIER [--ops 10000 --ops 100000 ...] [--rounds N] [--dir DIR]

EARLIER is a checkout of the earlier version (`git worktree add EARLIER COMMIT`); both run in this environment, on the
same synthesized ledgers, by turns. The ratio at each size is that of the medians of the CPU's seconds, which say more
than the clock's on a machine that others use too. Exit status 1: a ratio is above RATIO.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from run import Took, make_ledger, ours

ROOT = Path(__file__).resolve().parents[2]
SIZES = (10**4, 10**5, 10**6, 10**7)
RATIO = 1.1


def took(checkout: Path, run_dir: Path) -> Took:
    """What `brokerdrill analyze` of a checkout takes."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(checkout / "chaos")
    try:
        return ours(run_dir, ["-m", "brokerdrill", "analyze"])[0]
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("earlier", type=Path)
    parser.add_argument("--ops", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path)
    given = parser.parse_args()
    worst = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        for operations in given.ops or SIZES:
            run_dir = make_ledger(given.dir or Path(scratch), operations)
            both: dict[str, list[Took]] = {"earlier": [], "now": []}
            for checkout in (given.earlier, ROOT):  # each makes what it keeps between runs
                took(checkout, run_dir)
            for _ in range(given.rounds):
                both["earlier"].append(took(given.earlier, run_dir))
                both["now"].append(took(ROOT, run_dir))
            cpu = {name: statistics.median(one.cpu for one in all_of) for name, all_of in both.items()}
            wall = {name: statistics.median(one.seconds for one in all_of) for name, all_of in both.items()}
            ratio = cpu["now"] / cpu["earlier"]
            worst = max(worst, ratio)
            print(
                f"{operations:>10,} operations: {ratio:.2f} × the CPU ({cpu['now']:.1f} s against "
                f"{cpu['earlier']:.1f} s), {wall['now'] / wall['earlier']:.2f} × the time ({wall['now']:.1f} s against "
                f"{wall['earlier']:.1f} s), load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    print(f"at most {worst:.2f} × (allowed {RATIO})")
    return 1 if worst > RATIO else 0


if __name__ == "__main__":
    sys.exit(main())
