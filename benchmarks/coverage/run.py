"""What a run's own evidence costs the load's pace: how busy hosts are and what clocks say, asked all through it.

    .venv/bin/python benchmarks/coverage/run.py TOPOLOGY [--windows N]

TOPOLOGY is deployed. In one run at full pace spans with and without both take turns, in this process: the load's pace
in the one against that in the span beside it. Exit status 1: the median costs more than COST.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from brokerdrill.base.clock import now_ns
from brokerdrill.base.json_lines import entries
from brokerdrill.base.progress import Progress
from brokerdrill.inventory.topology import find_topology
from brokerdrill.ledger.events import EventWriter
from brokerdrill.runner.load import clocks
from brokerdrill.runner.load.worker import Worker
from brokerdrill.runner.request import RunRequest
from brokerdrill.runner.run import run
from brokerdrill.runner.watching.live_file import LIVE_FILE
from brokerdrill.runner.watching.pressure import PressureWatch
from brokerdrill.scenario.drill import load_drill

COST = 0.01
WINDOW_S = 10.0
# What is asked every few seconds has to be asked in each span; the first spans are the JVMs' warming up.
WARM = 4
DRILL = {
    "extends": "defaults",
    "title": "As fast as the replies come, with the run's evidence by turns",
    "description": "No fault: what evidence costs the load.",
    "set": {"load.rate": None},
}


class Turns:
    """Which span it is: with evidence in every other one."""

    def __init__(self) -> None:
        self.base_ns = 0

    def asks(self) -> bool:
        return int((now_ns() - self.base_ns) / 1e9 / WINDOW_S) % 2 == 0

    def take_turns(self) -> None:
        """Have what asks for evidence ask in its turn alone, in all of this process."""
        ask, write, begin = PressureWatch._ask, clocks.write_clocks, PressureWatch.__init__

        async def asks(watch: PressureWatch, name: str, asked_ns: int) -> None:
            if self.asks():
                await ask(watch, name, asked_ns)

        async def writes(workers: Iterable[Worker], events: EventWriter) -> None:
            if self.asks():
                await write(workers, events)

        def begins(watch: PressureWatch, connections: Any, events: EventWriter) -> None:
            self.base_ns = events.base_ns
            begin(watch, connections, events)

        for owner, name, other in (
            (PressureWatch, "_ask", asks),
            (PressureWatch, "__init__", begins),
            (clocks, "write_clocks", writes),
        ):
            setattr(owner, name, other)


def paces(run_dir: Path) -> list[float]:
    """Messages acknowledged a second in each whole span of the load."""
    rows = [(row["t_ns"] / 1e9, row["sent_ok"]) for row in entries(run_dir / LIVE_FILE) if row.get("sent_ok")]
    spans: dict[int, list[tuple[float, int]]] = {}
    for at, sent in rows:
        spans.setdefault(int(at / WINDOW_S), []).append((at, sent))
    whole = [spans[number] for number in sorted(spans)][1:-1]
    return [(span[-1][1] - span[0][1]) / (span[-1][0] - span[0][0]) for span in whole]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topology")
    parser.add_argument("--windows", type=int, default=30)
    words = parser.parse_args()
    turns = Turns()
    turns.take_turns()
    with tempfile.TemporaryDirectory(prefix="brokerdrill-coverage-") as place:
        file, run_dir = Path(place, "drill.yml"), Path(place, "runs", "coverage")
        lasts = (2 * words.windows + WARM + 1) * WINDOW_S
        step = {"type": "probe", "name": "goes-on", "until": "acknowledged", "count": 1, "timeout": 60}
        file.write_text(yaml.safe_dump({**DRILL, "method": [{**step, "pauses": {"after": lasts}}]}))
        request = RunRequest(load_drill(str(file)), find_topology(words.topology), run_dir, 1)
        asyncio.run(run(request, Progress(Console(quiet=True))))
        # The first whole span is the second, which asks nothing.
        found = list(enumerate(paces(run_dir), 1))[WARM:]
    ratios = [
        (one if number % 2 == 0 else other) / (other if number % 2 == 0 else one)
        for (number, one), (_, other) in pairwise(found)
    ]
    ratio = statistics.median(ratios)
    quarter = statistics.quantiles(ratios, n=4)
    without = statistics.median(pace for number, pace in found if number % 2)
    kept = ratio >= 1 - COST
    print(
        "ok  " if kept else "MISS",
        f"pace with the run's evidence over without: {ratio:.4f} (limit ≥ {1 - COST}), quartiles {quarter[0]:.3f} to "
        f"{quarter[2]:.3f} of {len(ratios)} neighbours; without {without:.0f} messages/s",
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
