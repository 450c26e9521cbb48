"""Failover time over session-ms: kill the active broker N times under load and print the quantiles as ratios.

    .venv/bin/python benchmarks/failover/run.py [--kills 20] [--runs DIR]

needs the topology deployed (`brokerdrill bench up artemis_quorum`, `brokerdrill deploy artemis_quorum`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
DRILL = ("kill_active", "artemis_quorum")


def quantile(values: list[float], share: float) -> float:
    """The smallest of `values` that at least `share` of them do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 100) * len(ordered) // 100) - 1)]


def session_ms() -> int:
    """The session time that the inventory deploys."""
    for path in sorted((ROOT / "inventories" / "artemis_quorum" / "group_vars").rglob("*.yml")):
        found = (yaml.safe_load(path.read_text()) or {}).get("artemis_quorum_session_ms")
        if found:
            return int(found)
    defaults = yaml.safe_load((ROOT / "roles" / "artemis" / "defaults" / "main.yml").read_text())
    return int(defaults["artemis_quorum_session_ms"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--runs", type=Path, default=Path(tempfile.mkdtemp(prefix="brokerdrill-failover-")))
    words = parser.parse_args()
    verdict = words.runs / "verdict.json"
    command = [sys.executable, "-m", "brokerdrill", "run", *DRILL, "--repeat", str(words.kills)]
    status = subprocess.run([*command, "--runs", str(words.runs), "--json", str(verdict)], cwd=ROOT).returncode
    result = json.loads(verdict.read_text())
    runs = result.get("runs", [result])
    measured = [
        promise["measured"]
        for run in runs
        for promise in run["promises"]
        if promise["name"] == "failover_within" and promise["measured"] is not None
    ]
    lost = sum(run["messages"]["lost"] for run in runs)
    duplicated = sum(run["messages"]["duplicated"] for run in runs)
    session = session_ms()
    print(
        f"session-ms {session}; {len(measured)} failovers of {words.kills} kills; lost {lost}, duplicated {duplicated}"
    )
    bound = 1 - 0.05 ** (1 / len(measured))
    print(f"{len(measured)} failovers without a violation bound its rate: below {bound:.1%} (95 %)")
    for name, share, goal in (("p50", 0.50, 1.25), ("p95", 0.95, 1.5)):
        value = quantile(measured, share)
        print(f"{name} {value:.0f} ms = {value / session:.2f} × session-ms (to reach: ≤ {goal})")
    print(f"min {min(measured):.0f} ms, mean {statistics.mean(measured):.0f} ms, max {max(measured):.0f} ms")
    print(f"runs: {words.runs}")
    return status


if __name__ == "__main__":
    sys.exit(main())
