"""`brokerdrill prove`: each drill on each topology that it applies to, so often, and a row of each run that is kept.

A topology is one plan. Its cells have the same names on every machine, and what has a row is not run again: proving
goes on where it ended, here or on another machine, from the folder of rows alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from brokerdrill.base.errors import EXIT_BROKEN, EXIT_INFRASTRUCTURE, EXIT_KEPT, EXIT_UNKNOWN, UsageError
from brokerdrill.campaigns.everything import everything_plan
from brokerdrill.campaigns.execute import DONE, Ended
from brokerdrill.campaigns.plan import CampaignPlan, ordered
from brokerdrill.campaigns.results import verdict_of
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.topology import Topology
from brokerdrill.ledger import contract
from brokerdrill.ledger.verdict import FAIL
from brokerdrill.results import proof
from brokerdrill.scenario.drill import Drill

KIND = "prove"


def prove_plan(
    drills: Sequence[Drill],
    topology: Topology,
    descriptors: Sequence[Descriptor],
    repeat: int | Mapping[str, int],
    seed: int,
) -> CampaignPlan | None:
    """Return the plan that runs each of `drills` that applies to the instances of `topology` `repeat` times (all alike,
    or by the drill's name), in rounds over all of them; seeds count from `seed`. None: none applies."""
    if all(drill.unmet(descriptors) for drill in drills):
        return None
    plan = everything_plan(drills, topology, descriptors, repeat, seed)
    return replace(plan, kind=KIND, cells=ordered(plan.cells))


class Kept:
    """The rows of a folder, and which of them count: those whose `parts` are what they are now. A run that ended early
    after its load had met the faults has a row, or the pages would tell of those alone that went well; it is made again
    all the same, unless it broke a promise.

    Raises UsageError where a part is none, or a file there is no file of rows.
    """

    def __init__(self, folder: Path, parts: Iterable[str] = (proof.DRILL, proof.INVENTORY)) -> None:
        self._folder = folder
        self._parts = tuple(parts)
        if odd := [part for part in self._parts if part not in proof.PARTS]:
            raise UsageError(f"{odd[0]!r} is nothing that a run rests on: {', '.join(proof.PARTS)}")
        self._rows = proof.read(folder)

    @property
    def there(self) -> bool:
        """Whether there is a row at all."""
        return bool(self._rows)

    def of(self, plan: CampaignPlan, rests_on: Mapping[str, Mapping[str, str]]) -> dict[str, Mapping[str, Any]]:
        """Return cell → its newest row that counts, of `plan`'s cells; `rests_on`: drill → what it rests on now."""
        cells = {cell.key: cell for cell in plan.cells}
        return {
            row["cell"]: row
            for row in self._rows
            if (cell := cells.get(row["cell"]))
            and proof.unchanged(row, rests_on[cell.drill], self._parts)
            and (row["outcome"] == "completed" or row["verdict"] == FAIL)
        }

    def unexpected(self, topology: str, rests_on: Mapping[str, Mapping[str, str]]) -> dict[str, int]:
        """Return drill → how many rows that count it has on `topology`, of those whose newest run was not as
        expected."""
        counted: dict[str, list[Mapping[str, Any]]] = {}
        for row in self._rows:
            now = rests_on.get(row["drill"])
            if row["topology"] == topology and now is not None and proof.unchanged(row, now, self._parts):
                counted.setdefault(row["drill"], []).append(row)
        return {name: len(rows) for name, rows in counted.items() if not rows[-1]["as_expected"]}

    def keep(
        self, plan: CampaignPlan, ended: Mapping[str, Ended], runs: Path, rests_on: Mapping[str, Mapping[str, str]]
    ) -> None:
        """Keep a row of each judged run of `plan` that has none. Raises InfrastructureError as `proof.append`."""
        known = {(row["cell"], row["run_id"]) for row in self._rows}
        for cell in plan.cells:
            end = ended.get(cell.key)
            if end is None or end.run_dir is None or (cell.key, end.run_dir) in known:
                continue
            found = verdict_of(end, runs)
            if found is None or (end.state != DONE and found.vacuous):
                continue
            row = proof.row_of(contract.read_run(runs / end.run_dir), found, cell.key, rests_on[cell.drill])
            proof.append(self._folder, row)
            self._rows.append(row)


def exit_status(rows: Iterable[Mapping[str, Any]], lacking: int) -> int:
    """Return the exit status of what is proven: 1 some run broke what it was to keep, 3 some run is `lacking`, 2 some
    run is vacuous or otherwise not known to be as expected, else 0."""
    unexpected = [row for row in rows if not row["as_expected"]]
    if any(row["verdict"] == FAIL for row in unexpected):
        return EXIT_BROKEN
    if lacking:
        return EXIT_INFRASTRUCTURE
    return EXIT_UNKNOWN if unexpected else EXIT_KEPT
