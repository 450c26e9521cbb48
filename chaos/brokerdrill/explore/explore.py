"""`brokerdrill explore`: runs what the explorer asks for, one after the other, and keeps what came of each.

A run is a cell of a plan like any other: an ordinary drill's file, its journal entry before and after, a run directory.
`trials.jsonl` says what came of each, so that an exploration goes on where it was; of what it found the minimal drills
are in a folder of their own, and no later exploration finds them again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from brokerdrill.base import json_lines
from brokerdrill.base.atomic import write
from brokerdrill.base.errors import BrokerdrillError, InfrastructureError, UsageError
from brokerdrill.campaigns.execute import FAILED, REFUSED, Carrier, Ended, Options, carrying
from brokerdrill.campaigns.plan import Cell, Plan
from brokerdrill.explore import document, finds
from brokerdrill.explore.defects import Signature
from brokerdrill.explore.evidence import came
from brokerdrill.explore.explorer import Explorer, Trial, replay
from brokerdrill.explore.pages import write_page
from brokerdrill.explore.schedule import Hit, Schedule
from brokerdrill.explore.space import Space, space
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.topology import Topology
from brokerdrill.results.warm import warm_up
from brokerdrill.scenario.drill import load_drill, resolve
from brokerdrill.scenario.model import Scenario
from brokerdrill.scenario.radius import limits, reached, too_far

KIND = "explore"
JOURNAL_FILE, KNOWN_FILE, DRILLS = "trials.jsonl", "known.json", "drills"
TOXIPROXY = "toxiproxy"
# After so many runs in a row that could not be made the topology is deployed anew, and after so many more it is over.
RENEWED_AFTER, OVER_AFTER = 2, 4
# Runs of one exploration have seeds of their own.
_SEEDS = 100_000


def explore_plan(topology: Topology, seed: int, uniform: bool, shrinks: bool) -> Plan:
    """Return the plan of an exploration: its cells come one after the other, as what was seen asks for them."""
    how = (", by chance alone" if uniform else "") + ("" if shrinks else ", not shrunk")
    title = f"Exploring {topology.name}, seed {seed}{how}"
    return Plan(KIND, topology.name, title, ("trial",), (), {topology.name: topology.sha256})


def explored_space(topology: Topology, descriptors: Sequence[Descriptor], options: Options) -> Space:
    """Return what can be drawn on `topology`, within the radius. Raises UsageError where that is nothing."""
    whole = space(topology.name, descriptors, {host.name for host in topology.group(TOXIPROXY)})
    allowed = within(topology, descriptors, options, whole)
    near = [one for one in whole.choices if allowed(Schedule((Hit(one.fault, one.target),)))]
    if not near:
        raise UsageError(f"{topology.name}: no fault of the registry can be drawn there within the radius")
    return replace(whole, choices=tuple(near))


def within(
    topology: Topology, descriptors: Sequence[Descriptor], options: Options, drawn: Space
) -> Callable[[Schedule], bool]:
    """Return the function that tells whether a schedule goes no further than drills on `topology` may."""
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
    plan: Plan,
    options: Options,
    most: int | None,
    kept: Path,
    console: Console,
) -> Path:
    """Explore until `options.until_s`, or until `most` trials are made; return the page's path. Minimal drills are put
    into the folder `kept`. Raises Interrupted on a signal, InfrastructureError where runs can no longer be made."""
    with carrying(plan, options, console) as carrier:
        journal = carrier.folder / JOURNAL_FILE
        explorer.known = finds.known_at_first(carrier.folder / KNOWN_FILE, explorer.known)
        replay(explorer, json_lines.entries(journal))
        console.print(f"{plan.title}: {explorer.trials} trials are done; {carrier.folder}", markup=False)
        warm_up(options.master)
        made, missed = carrier.ended(), 0
        while (most is None or explorer.trials < most) and time.monotonic() < options.until_s:
            trial = explorer.next()
            cell = _cell(trial, topology, explorer, carrier.folder)
            said = document.in_words(trial.schedule)
            console.print(f"trial {trial.number} ({trial.purpose}): {said}", markup=False)
            begun = time.monotonic()
            end = made.get(cell.key) or carrier.run(cell)
            told = came(end, options.runs, time.monotonic() - begun)
            shape = {"trial": trial.number, "purpose": trial.purpose, "schedule": trial.schedule.to_json()}
            json_lines.append(journal, {**shape, **told.to_json()})
            if (find := explorer.tell(trial, told)) is not None:
                console.print(f"found: {find.broke.promise} broke ({finds.named(find, explorer)})", markup=False)
            _keep(explorer, topology, kept, console)
            write_page(explorer, plan, carrier.folder, options.runs)
            missed = _renewed(carrier, end, missed, any(one.promise == "available" for one in told.broke))
        explorer.settle()
        _keep(explorer, topology, kept, console)
        return write_page(explorer, plan, carrier.folder, options.runs)


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
