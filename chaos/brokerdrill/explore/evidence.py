"""What an exploration reads in a run's directory: what it saw, and what broke."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from brokerdrill.base import json_lines
from brokerdrill.campaigns.execute import FAILED, Ended
from brokerdrill.campaigns.results import verdict_of
from brokerdrill.explore.coverage import OK, Situation, observed, of_events
from brokerdrill.explore.defects import breaks, suspects
from brokerdrill.explore.explorer import TrialResult
from brokerdrill.ledger import contract, spool
from brokerdrill.ledger.verdict import UNKNOWN


def came(end: Ended, runs: Path, seconds: float) -> TrialResult:
    """Return what came of a trial that ended so after `seconds`; its run is below `runs`."""
    result = verdict_of(end, runs)
    if result is None or end.run_dir is None:
        return TrialResult(run_dir=end.run_dir, seconds=seconds, error=end.error)
    if end.state == FAILED and not result.coverage:
        # What is broken before the first fault is none of the trial's.
        return TrialResult(run_dir=end.run_dir, seconds=seconds, error=end.error)
    judged = frozenset(one.name for one in result.promises if one.verdict != UNKNOWN)
    found = seen(runs / end.run_dir)
    return TrialResult(breaks(result), judged, found, suspects(result), end.run_dir, seconds, end.error)


def seen(run_dir: Path) -> frozenset[Situation]:
    """Return which operations clients of the run began in which states and under which faults."""
    events = [
        event for path in sorted((run_dir / contract.EVENTS_DIR).glob("*.jsonl")) for event in json_lines.entries(path)
    ]
    roles, faults = of_events(events)
    return observed(roles, faults, _operations(run_dir))


def _operations(run_dir: Path) -> Iterator[tuple[int, str]]:
    """When each operation began (run time, ns), and its kind; one that did not succeed says how it ended."""
    clocks = contract.read_run(run_dir).clocks
    for path in sorted((run_dir / contract.OPS_DIR).glob(f"*{spool.SUFFIX}")):
        kinds: dict[tuple[str, int], tuple[int, str]] = {}
        outcomes: dict[tuple[str, int], str] = {}
        with path.open(encoding="utf-8", errors="replace") as lines:
            try:
                for row in spool.rows(line for line in lines if line.endswith("\n")):
                    key = (row["client"], row["op_id"])
                    if "op" in row and "start_ns" in row:
                        offset = clocks[row["clock"]].offset_ns if row["clock"] in clocks else 0
                        kinds[key] = (row["start_ns"] + offset, row["op"])
                    if "outcome" in row:
                        outcomes[key] = row["outcome"]
            except (ValueError, KeyError, IndexError):
                # What is torn is the judgement's to report; here it was not seen.
                pass
        for key, (at, kind) in kinds.items():
            ended = outcomes.get(key, "unknown")
            yield at, kind if ended == OK else f"{kind} {ended}"
