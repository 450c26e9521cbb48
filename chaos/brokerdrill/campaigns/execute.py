"""Carry out a plan: deploy, run, judge, cell after cell, so that a runner killed at any time goes on where it was.

A plan's folder holds `plan.json` and `cells.jsonl`, which says of each cell, on the disk before and after, that it
begins and how it ended. A cell that began and did not end is healed and run again; the run it left stays as evidence.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import math
import time
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from brokerdrill.base import json_lines
from brokerdrill.base.atomic import write_json
from brokerdrill.base.errors import BrokerdrillError, InfrastructureError, UsageError
from brokerdrill.base.locks import held
from brokerdrill.base.progress import Progress
from brokerdrill.campaigns.deployments import Deployments
from brokerdrill.campaigns.plan import CampaignPlan, Cell, digest
from brokerdrill.campaigns.settings import text
from brokerdrill.hosts.connection import away
from brokerdrill.inventory.planned import load_hosts, planned
from brokerdrill.inventory.topology import Topology, find_topology
from brokerdrill.ledger import contract
from brokerdrill.ledger.verdict import FAIL
from brokerdrill.results.judging import judge
from brokerdrill.results.warm import warm_up
from brokerdrill.runner import approval
from brokerdrill.runner.evidence.run_dir import new_run_dir
from brokerdrill.runner.healing import INTERRUPTED, heal_run, unfinished
from brokerdrill.runner.recording import Interrupted, record, run_async
from brokerdrill.scenario.drill import check_changes, load_drill, resolve
from brokerdrill.scenario.radius import Radius, limits, reached, redeployment, too_far

PLAN_FILE = "plan.json"
CELLS_FILE = "cells.jsonl"
PLANS = "plans"
# A host that is up lets in at once; a drill itself waits longer.
LET_IN_S = 5.0

DONE, REFUSED, FAILED = "done", "refused", "failed"


@dataclass(frozen=True)
class Ended:
    """How a cell ended last: `state` done (a run to judge), refused (its settings cannot be deployed or run) or failed
    (the run could not be made). All but the first are tried again when the plan goes on: what refused them may be
    mended. `surprised`: a promise was broken that was not to be."""

    state: str
    run_dir: str | None = None
    error: str | None = None
    surprised: bool = False


@dataclass(frozen=True)
class CampaignOptions:
    """How to carry out a plan: `runs` takes the run directories; `deploy` each topology before its cells even where no
    variable is changed; `bench_hosts`: its hosts are made before and removed after; `master` is Spark's; `radius` holds
    besides the inventories' own; no cell begins after `until_s` of the monotonic clock."""

    runs: Path
    deploy: bool = False
    bench_hosts: bool = False
    master: str | None = None
    radius: Radius | None = None
    until_s: float = math.inf


def plan_folder(plan: CampaignPlan, runs: Path) -> Path:
    return runs / PLANS / plan.folder


class CellLog:
    """`cells.jsonl`: appended and on the disk before each step."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / CELLS_FILE

    def append(self, cell: Cell, state: str, **fields: Any) -> None:
        """Append one entry. Raises InfrastructureError where the disk does not take it."""
        at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        json_lines.append(self._path, {"cell": cell.key, "state": state, **fields, "at": at})

    def entries(self) -> list[dict[str, Any]]:
        """Return what is written, oldest first."""
        return json_lines.entries(self._path)

    def ended(self) -> dict[str, Ended]:
        """Return how each cell ended last, by its key; one that began again since has not ended."""
        found: dict[str, Ended] = {}
        for entry in self.entries():
            if entry["state"] in (DONE, REFUSED, FAILED):
                found[entry["cell"]] = Ended(entry["state"], entry.get("run_dir"), entry.get("error"))
            else:
                found.pop(entry["cell"], None)
        return found

    def begun(self) -> set[str]:
        """Return the names of the run directories that cells of this plan began."""
        return {entry["run_dir"] for entry in self.entries() if entry.get("run_dir")}


def checked(plan: CampaignPlan, options: CampaignOptions, console: Console) -> None:
    """Raise UsageError, before anything is touched, where a cell's drill or topology cannot be had, or a cell or its
    deployment goes further than it may."""
    looked: set[str] = set()
    for cell in plan.cells:
        check_changes(load_drill(cell.drill), cell.scenario_changes, ", ".join(cell.labels.values()))
        topology = find_topology(cell.topology)
        if not topology.drill_allowed:
            raise UsageError(f"inventory {topology.name} does not say `drill_allowed: true` for all its hosts")
        what = digest((cell.drill, cell.topology, cell.changes))
        if what not in looked:
            looked.add(what)
            _refuse_too_far(cell, topology, options, console)


def _refuse_too_far(cell: Cell, topology: Topology, options: CampaignOptions, console: Console) -> None:
    """Raise UsageError where the cell's deployment or its drill could go further than it may. What depends on how it is
    deployed is looked at when it is."""
    allowed = limits(topology, options.radius)
    if allowed.unlimited:
        return
    with Progress(console) as progress:
        instances = [*planned(topology, progress), *load_hosts(topology)]
    problems = []
    if (cell.deployment or options.deploy) and not options.bench_hosts:
        problems = too_far(redeployment(instances, allowed.groups_of), allowed)
    drill = load_drill(cell.drill)
    if not problems and not cell.deployment and not drill.unmet(instances):
        scenario = resolve(drill, instances, topology.name, cell.scenario_changes).scenario
        problems = too_far(reached(scenario, instances, allowed.groups_of), allowed)
    if problems:
        raise UsageError(f"{drill.name} on {topology.name}: {'; '.join(problems)}: nothing touched")


def _refuse_away(cells: Sequence[Cell]) -> None:
    """Raise InfrastructureError where not all hosts of any of the cells' topologies let us in: Spark would be started
    for nothing, and its end waited for."""
    why = ""
    for word in dict.fromkeys(cell.topology for cell in cells):
        topology = find_topology(word)
        gone = asyncio.run(away(topology.hosts, LET_IN_S))
        if not gone:
            return
        count = f"{len(gone)} of {len(topology.hosts)} hosts are not up" if len(gone) > 1 else "a host is not up"
        made = f"; `brokerdrill bench up {word}` or --bench makes them" if topology.bench else ""
        why = why or f"{count}: {next(iter(gone.values()))}{made}"
    raise InfrastructureError(why)


def execute(
    plan: CampaignPlan,
    options: CampaignOptions,
    console: Console,
    written: Callable[[dict[str, Ended]], None],
    elsewhere: Container[str] = (),
) -> dict[str, Ended]:
    """Carry out what is left of `plan`; return how each cell ended, by its key. Cells in `elsewhere` are done there.

    `written` is called with that after every cell: it writes the page. Raises UsageError where the plan cannot be
    carried out at all, Interrupted on a signal (healed; the plan goes on when it is started again), InfrastructureError
    where the hosts of none of its topologies are up, or two cells in a row cannot be deployed or run, or three where
    the plan has hosts of its own: these are made anew after each.
    """
    checked(plan, options, console)
    with carrying(plan, options, console) as carrier:
        ended = carrier.ended()
        left = [
            cell
            for cell in plan.cells
            if cell.key not in elsewhere and (cell.key not in ended or ended[cell.key].state != DONE)
        ]
        done = len(plan.cells) - len(left)
        console.print(f"{plan.title}: {done} of {len(plan.cells)} cells are done; {carrier.folder}")
        written(ended)
        if left and not options.bench_hosts:
            _refuse_away(left)
        if left:
            warm_up(options.master)
        if why := _unapproved(left, options, console):
            raise UsageError(f"{why}; nothing touched")
        broken_off = 0
        for number, cell in enumerate(left, start=1):
            if time.monotonic() > options.until_s:
                console.print(f"the time is over: {len(left) - number + 1} cells are left")
                break
            where = ", ".join(f"{axis} {word}" for axis, word in cell.labels.items())
            console.print(f"cell {number} of {len(left)}: {where}, run {cell.repeat}", markup=False)
            ended[cell.key] = end = carrier.run(cell)
            written(ended)
            broken_off = broken_off + 1 if end.state == FAILED else 0
            if broken_off == (3 if options.bench_hosts else 2):
                why = f"{broken_off} runs in a row could not be made, the last one because: {end.error}"
                raise InfrastructureError(why)
            # What such a run may have left on hosts of the plan's own is in no other's way.
            if options.bench_hosts and (end.error or end.surprised or _leaves_something(cell.drill)):
                carrier.deployments.leave()
    return ended


def _leaves_something(drill: str) -> bool:
    """Whether a later run on the same hosts might be judged by what this drill left there."""
    scenario = load_drill(drill).scenario
    # In a broker's memory a backlog may stay after it is delivered.
    return scenario.load.backlog or bool(scenario.leaves)


@dataclass(frozen=True)
class Carrier:
    """Carries out cells in a plan's `folder`, which nobody else does at the same time."""

    folder: Path
    options: CampaignOptions
    console: Console
    record: CellLog
    deployments: Deployments

    def ended(self) -> dict[str, Ended]:
        """Return how each cell ended last, by its key."""
        return self.record.ended()

    def run(self, cell: Cell) -> Ended:
        """Deploy, run and judge a cell; return how it ended. Raises Interrupted on a signal."""
        return self.judge(cell, self.make(cell))

    def make(self, cell: Cell) -> Ended:
        """Deploy and run a cell; return how that ended, for `judge`. Raises Interrupted on a signal."""
        return _made(cell, self.options, self.console, self.record, self.deployments)

    def judge(self, cell: Cell, made: Ended) -> Ended:
        """Judge the run of a cell that was made so, and write down how it ended; return that."""
        return _judged(cell, made, self.options, self.console, self.record)


@contextlib.contextmanager
def carrying(plan: CampaignPlan, options: CampaignOptions, console: Console) -> Iterator[Carrier]:
    """Hold the plan's folder, heal what a killed runner of it left, and leave the hosts as they were at the end. Raises
    as `execute`."""
    folder = plan_folder(plan, options.runs)
    with held(folder / ".lock", f"another process carries out this plan ({folder})"):
        write_json(folder / PLAN_FILE, asdict(plan), default=str)
        record_ = CellLog(folder)
        _heal(record_.begun(), options.runs, console)
        with Deployments(folder, console, deploy=options.deploy, bench_hosts=options.bench_hosts) as deployments:
            yield Carrier(folder, options, console, record_, deployments)


def _unapproved(cells: Sequence[Cell], options: CampaignOptions, console: Console) -> str | None:
    """Return why a cell's run is not approved where its inventory asks for that; None: all are."""
    wanted: dict[str, approval.ApprovalRequest] = {}
    for cell in cells:
        topology, drill = find_topology(cell.topology), load_drill(cell.drill)
        if not approval.asks(topology):
            continue
        with Progress(console) as progress:
            instances = [*planned(topology, progress, cell.deployment), *load_hosts(topology)]
        if not drill.unmet(instances):
            loaded = resolve(drill, instances, topology.name, cell.scenario_changes)
            reach = reached(loaded.scenario, instances, limits(topology, options.radius).groups_of)
            what = approval.asked(loaded, topology, reach, purge=options.bench_hosts)
            wanted[what.sha256] = what
    return approval.refusal(options.runs, wanted.values(), datetime.datetime.now(datetime.UTC))


def _heal(begun: set[str], runs: Path, console: Console) -> None:
    """Finish what a killed runner of this plan left on the hosts."""
    with Progress(console) as progress:
        for item in unfinished(runs):
            if item.run_dir.name in begun:
                progress.step(f"heal what {item.run_dir.name} left")
                run_async(heal_run(item, progress), console, INTERRUPTED)


def _made(cell: Cell, options: CampaignOptions, console: Console, record_: CellLog, deployments: Deployments) -> Ended:
    """Deploy and run one cell; return how that ended."""
    drill = load_drill(cell.drill)
    run_dir: Path | None = None
    try:
        if why := _unapproved([cell], options, console):
            raise InfrastructureError(why)
        topology = deployments.ready(cell)
        run_dir = new_run_dir(options.runs, drill.name, topology.name, cell.seed)
        record_.append(cell, "begin", run_dir=run_dir.name)
        settings = {name: text(value) for name, value in cell.changes.items()}
        record(
            drill,
            topology,
            options.runs,
            [cell.seed],
            console,
            run_dir,
            settings,
            cell.scenario_changes,
            radius=options.radius,
            # On hosts that were made for the plan there is nothing but what an earlier cell left.
            purge=options.bench_hosts,
        )
        return Ended(DONE, run_dir.name)
    except Interrupted:
        raise
    except UsageError as error:
        return Ended(REFUSED, None, str(error))
    except InfrastructureError as error:
        return Ended(FAILED, run_dir.name if run_dir and (run_dir / contract.RUN_FILE).exists() else None, str(error))


def _judged(cell: Cell, end: Ended, options: CampaignOptions, console: Console, record_: CellLog) -> Ended:
    """Judge the run of a cell that ended so, and write down how that makes it end."""
    if end.run_dir:
        try:
            result, _ = judge([options.runs / end.run_dir], console, master=options.master)
        except BrokerdrillError as error:
            end = Ended(FAILED, end.run_dir, end.error or str(error))
        else:
            (run,) = result.runs
            broken = run.verdict == FAIL
            # A run that broke off because a promise was broken has said what it was to say; one that had not begun
            # with its faults by then only saw what was there before it.
            state = DONE if broken and not run.vacuous else end.state
            end = Ended(state, end.run_dir, end.error, broken and not run.as_expected)
    if end.error:
        console.print(f"{end.state}: {end.error}", markup=False)
    record_.append(cell, end.state, **{name: value for name, value in asdict(end).items() if name != "state" and value})
    return end
