"""`brokerdrill explore`: runs what the explorer asks for, one after the other, and keeps what came of each.

A run is a cell of a plan like any other: an ordinary drill's file, its journal entry before and after, a run directory.
`trials.jsonl` says what came of each, so that an exploration goes on where it was; of what it found the minimal drills
are in a folder of their own, and no later exploration finds them again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from brokerdrill.base import json_lines
from brokerdrill.base.atomic import write
from brokerdrill.base.errors import BrokerdrillError, InfrastructureError, UsageError
from brokerdrill.campaigns.execute import FAILED, REFUSED, CampaignOptions, Carrier, Ended, carrying
from brokerdrill.campaigns.plan import CampaignPlan, Cell
from brokerdrill.explore import document, finds
from brokerdrill.explore.defects import Signature
from brokerdrill.explore.evidence import came
from brokerdrill.explore.explorer import SHRINK, Explorer, Trial, replay
from brokerdrill.explore.pages import write_page
from brokerdrill.explore.schedule import Schedule, ScheduledFault
from brokerdrill.explore.space import Space, space
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.topology import Topology
from brokerdrill.promises.catalogue import AVAILABLE
from brokerdrill.results.warm import warm_up
from brokerdrill.scenario.drill import load_drill, resolve
from brokerdrill.scenario.model import Scenario
from brokerdrill.scenario.radius import limits, reached, redeployment, too_far

KIND = "explore"
JOURNAL_FILE, KNOWN_FILE, DRILLS = "trials.jsonl", "known.json", "drills"
TOXIPROXY = "toxiproxy"
# After so many runs in a row that could not be made the topology is deployed anew, and after so many more it is over.
RENEWED_AFTER, OVER_AFTER = 2, 4
# Runs of one exploration have seeds of their own.
_SEEDS = 100_000


def explore_plan(topology: Topology, seed: int, uniform: bool, shrinks: bool) -> CampaignPlan:
    """Return the plan of an exploration: its cells come one after the other, as what was seen asks for them."""
    how = (", by chance alone" if uniform else "") + ("" if shrinks else ", not shrunk")
    title = f"Exploring {topology.name}, seed {seed}{how}"
    return CampaignPlan(KIND, topology.name, title, ("trial",), (), {topology.name: topology.sha256})


def explored_space(topology: Topology, descriptors: Sequence[Descriptor], options: CampaignOptions) -> Space:
    """Return what can be drawn on `topology`, within the radius. Raises UsageError where that is nothing."""
    whole = space(topology.name, descriptors, {host.name for host in topology.group(TOXIPROXY)})
    allowed = within(topology, descriptors, options, whole)
    near = [one for one in whole.choices if allowed(Schedule((ScheduledFault(one.fault, one.target),)))]
    if not near:
        raise UsageError(f"{topology.name}: no fault of the registry can be drawn there within the radius")
    return replace(whole, choices=tuple(near))


def within(
    topology: Topology, descriptors: Sequence[Descriptor], options: CampaignOptions, drawn: Space
) -> Callable[[Schedule], bool]:
    """Return the function that says whether a schedule goes no further than drills on `topology` may."""
    allowed = limits(topology, options.radius)

    def near(schedule: Schedule) -> bool:
        if allowed.unlimited:
            return True
        scenario = Scenario.model_validate(_whole(document.document(schedule, drawn, "drawn", "drawn")))
        return not too_far(reached(scenario, descriptors, allowed.groups_of), allowed)

    return near


def _whole(drawn: dict[str, object]) -> dict[str, object]:
    load = drawn.get("load")
    return {**drawn, "load": {"addresses": ["drawn"], **(load if isinstance(load, dict) else {})}}


def explore(
    topology: Topology,
    explorer: Explorer,
    plan: CampaignPlan,
    options: CampaignOptions,
    most: int | None,
    kept: Path,
    console: Console,
) -> Path:
    """Explore until `options.until_s`, or until `most` trials are made; return the page's path. Minimal drills are put
    into the folder `kept`. Raises Interrupted on a signal, InfrastructureError where runs can no longer be made."""
    with carrying(plan, options, console) as carrier, ThreadPoolExecutor(1) as judging:
        journal = carrier.folder / JOURNAL_FILE
        explorer.known = finds.known_at_first(carrier.folder / KNOWN_FILE, explorer.known)
        left = deque(replay(explorer, json_lines.entries(journal)))
        console.print(f"{plan.title}: {explorer.trials} trials are done; {carrier.folder}", markup=False)
        warm_up(options.master)
        ended, missed, pending, last = carrier.ended(), 0, deque[_Pending](), time.monotonic()

        def take_in() -> None:
            """Take in what came of the trial that was begun first; the next one may be under way."""
            nonlocal missed, last
            first = pending.popleft()
            end = first.judged.result()
            # Time that two trials share counts for the first.
            since, last = max(first.begun, last), time.monotonic()
            came_of = came(end, options.runs, last - since)
            json_lines.append(journal, {**first.trial.to_json(), **came_of.to_json()})
            if (find := explorer.record(first.trial, came_of)) is not None:
                console.print(f"found: {find.broke.promise} broke ({finds.named(find, explorer)})", markup=False)
            _keep(explorer, topology, kept, console)
            write_page(explorer, plan, carrier.folder, options.runs)
            missed = _renewed(carrier, end, missed, any(one.promise == AVAILABLE for one in came_of.broke))

        while left or (_more(explorer.trials + len(pending), most) and time.monotonic() < options.until_s):
            trial = left.popleft() if left else explorer.next(len(pending))
            json_lines.append(journal, trial.to_json())
            cell = _cell(trial, topology, explorer, carrier.folder)
            console.print(f"trial {trial.number} ({trial.purpose}): {document.in_words(trial.schedule)}", markup=False)
            begun = time.monotonic()
            if (end := ended.get(cell.key)) is not None:
                judged: Future[Ended] = Future()
                judged.set_result(end)
            else:
                # The verdict on the run before is found while this one is under way.
                made = carrier.make(cell)
                judged = judging.submit(carrier.judge, cell, made)
            while pending:
                take_in()
            pending.append(_Pending(trial, begun, judged))
            # What is to be made smaller next depends on each verdict. Whether one is there already must not matter:
            # what is drawn next follows from the seed.
            if trial.purpose == SHRINK or end is not None or explorer.shrinking:
                take_in()
        while pending:
            take_in()
        explorer.settle()
        _keep(explorer, topology, kept, console)
        return write_page(explorer, plan, carrier.folder, options.runs)


class _Pending(NamedTuple):
    """A trial whose run is made and whose verdict is not there yet; `begun` by the monotonic clock."""

    trial: Trial
    begun: float
    judged: Future[Ended]


def _more(trials: int, most: int | None) -> bool:
    return most is None or trials < most


def _cell(trial: Trial, topology: Topology, explorer: Explorer, folder: Path) -> Cell:
    """The cell of a trial, whose drill's file is written."""
    path = folder / DRILLS / f"explored_{explorer.seed}_{trial.number:04}.yml"
    drawn = document.document(
        trial.schedule,
        explorer.space,
        f"Generated: {', then '.join(hit.what for hit in trial.schedule.hits)}",
        f"Trial {trial.number} of `brokerdrill explore {topology.name} --seed {explorer.seed}`: "
        f"{document.in_words(trial.schedule)}.",
    )
    write(path, document.text(drawn).encode())
    return Cell({"trial": str(trial.number)}, 1, str(path), topology.word, {}, explorer.seed * _SEEDS + trial.number)


def _keep(explorer: Explorer, topology: Topology, kept: Path, console: Console) -> None:
    """Write the minimal drills of what is found and as small as it gets, each once."""
    for find in explorer.finds:
        if find.ended and (path := finds.keep(find, explorer, kept)):
            rate = find.tally
            console.print(
                f"kept: {path}: {document.in_words(find.minimal)}; broke {rate.broken} of {rate.runs} further runs; "
                f"again: brokerdrill run {path} {topology.name}",
                markup=False,
            )


def _renewed(carrier: Carrier, end: Ended, missed: int, away: bool) -> int:
    """Deploy the topology anew where runs can no longer be made, or nobody is served any more (`away`); return how
    many runs in a row could not be made. Raises InfrastructureError when they still cannot."""
    missed = missed + 1 if end.state in (FAILED, REFUSED) else 0
    if missed >= OVER_AFTER:
        raise InfrastructureError(f"{missed} runs in a row could not be made, the last one because: {end.error}")
    if away or missed == RENEWED_AFTER:
        carrier.deployments.renew()
    return missed


def known(kept: Path, topology: Topology) -> tuple[Signature, ...]:
    """Return the defects of `topology` whose minimal drills are in the folder `kept`."""
    return tuple(one for one in finds.read(kept) if one.topology == topology.name)


def check_deployment(topology: Topology, descriptors: Sequence[Descriptor], options: CampaignOptions) -> None:
    """Raise UsageError where the exploration's deployments could reach further than they may, before anything is
    touched."""
    allowed = limits(topology, options.radius)
    if not options.deploy or options.bench_hosts or allowed.unlimited:
        return
    if problems := too_far(redeployment(descriptors, allowed.groups_of), allowed):
        raise UsageError(f"deploying {topology.name}: {'; '.join(problems)}: nothing touched")


def check_drawn(explorer: Explorer, descriptors: Sequence[Descriptor], folder: Path) -> None:
    """Raise UsageError where the first trial's drill is none that applies, before anything is touched."""
    drawn = document.document(explorer.next().schedule, explorer.space, "drawn", "drawn")
    path = write(folder / "drawn.yml", document.text(drawn).encode())
    try:
        resolve(load_drill(str(path)), descriptors, explorer.space.topology)
    except BrokerdrillError as error:
        raise UsageError(f"a generated drill is none: {error}") from None
    finally:
        path.unlink()
