"""All promises of one run and nothing else: what `promises.sql` computes, by the product's own functions.

    .venv/bin/python benchmarks/analysis/promises.py RUN_DIR --json FILE

`run.py` starts it as a process of its own; `brokerdrill analyze` does the same and then explains what it found.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from brokerdrill.analysis import verdict
from brokerdrill.analysis.files import ledger_bytes
from brokerdrill.analysis.judge import judge
from brokerdrill.analysis.load import load
from brokerdrill.analysis.spark import is_large, session, stop


def main(run_dir: Path, out: Path) -> None:
    """Judge the run in `run_dir`; its verdict's JSON goes to `out`."""
    size = ledger_bytes([run_dir])
    spark = session(ledger_bytes=size)
    loaded = load(spark, [run_dir])
    runs = {run.key: run.info for run in loaded.runs}
    specs = {key: verdict.checked(info, None, str(run_dir)) for key, info in runs.items()}
    (result,) = judge(spark, loaded.ops, loaded.events, runs, specs, large=is_large(size)).values()
    out.write_text(json.dumps(result))
    stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    words = parser.parse_args()
    main(words.run_dir, words.json)
