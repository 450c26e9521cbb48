"""All that `brokerdrill analyze` tells of one run, in a session that has judged a small one before.

    .venv/bin/python benchmarks/analysis/warm.py SMALL_RUN_DIR RUN_DIR --json FILE

`run.py` starts it as a process of its own. Prints the seconds that the second run took.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from brokerdrill.analysis.analyze import analyze_with_series
from brokerdrill.analysis.spark import stop


def main(small: Path, run_dir: Path, out: Path) -> None:
    """Judge `small`, then the run in `run_dir`, whose verdict's JSON goes to `out`."""
    analyze_with_series([small])
    begun = time.monotonic()
    result, _ = analyze_with_series([run_dir])
    print(time.monotonic() - begun, flush=True)
    out.write_text(json.dumps(result.to_json()))
    stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("small", type=Path)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    words = parser.parse_args()
    main(words.small, words.run_dir, words.json)
