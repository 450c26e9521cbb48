"""The demo's wall time and the bench's memory, as ratios to what they may be.

    .venv/bin/python benchmarks/demo/run.py [--cold]

Warm: hosts are made anew, everything that is fetched or built once is in the cache. Cold: an empty cache as well.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from brokerdrill.bench import bench
from brokerdrill.inventory.topology import find_topology

ROOT = Path(__file__).resolve().parents[2]
TOPOLOGY = "artemis_quorum"
WARM_S, COLD_S, MEMORY_MIB = 100, 15 * 60, 6 * 1024
SAMPLE_S = 2.0


def sample(peak: list[float], done: threading.Event) -> None:
    """Keep the largest sum of the hosts' memory (MiB) seen until `done`."""
    while not done.wait(SAMPLE_S):
        rows = bench.status(find_topology(TOPOLOGY))
        peak[0] = max(peak[0], sum(row["memory_mib"] or 0 for row in rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cold", action="store_true")
    words = parser.parse_args()
    program = [sys.executable, "-m", "brokerdrill"]
    subprocess.run([*program, "bench", "down", TOPOLOGY], cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory(prefix="brokerdrill-demo-") as folder:
        if words.cold:
            os.environ["BROKERDRILL_CACHE"] = str(Path(folder) / "cache")
        peak, done = [0.0], threading.Event()
        sampler = threading.Thread(target=sample, args=(peak, done))
        sampler.start()
        begun = time.monotonic()
        status = subprocess.run([*program, "demo", "--runs", str(Path(folder) / "runs")], cwd=ROOT).returncode
        took = time.monotonic() - begun
        done.set()
        sampler.join()
    limit = COLD_S if words.cold else WARM_S
    name = "cold" if words.cold else "warm"
    print(f"demo, {name}: {took:.0f} s = {took / limit:.2f} × {limit} s (to reach: ≤ 1); exit status {status}")
    print(f"hosts' memory at most {peak[0]:.0f} MiB = {peak[0] / MEMORY_MIB:.2f} × {MEMORY_MIB} MiB (to reach: ≤ 1)")
    return status


if __name__ == "__main__":
    sys.exit(main())
