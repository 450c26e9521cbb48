"""The commands that look across runs: `sweep`, `matrix`, `prove`, `trends`."""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from brokerdrill.base import extras
from brokerdrill.base.errors import (
    EXIT_BROKEN,
    EXIT_INFRASTRUCTURE,
    EXIT_KEPT,
    EXIT_UNKNOWN,
    BrokerdrillError,
    InfrastructureError,
)
from brokerdrill.base.progress import Progress
from brokerdrill.cli.console import console
from brokerdrill.cli.options import (
    A_DRILL,
    RUNS,
    AtOnceOption,
    BenchOption,
    DeployOption,
    MasterOption,
    RepeatOption,
    RunsOption,
    SeedOption,
    TopologyArgument,
    WithinOption,
    radius,
)

if TYPE_CHECKING:
    from brokerdrill.campaigns.execute import CampaignOptions
    from brokerdrill.campaigns.plan import CampaignPlan
    from brokerdrill.campaigns.prove import Kept
    from brokerdrill.campaigns.results import CellOutcome
    from brokerdrill.inventory.topology import Topology
    from brokerdrill.scenario.drill import Drill
    from brokerdrill.scenario.radius import Radius

PROOF = Path("results")

app = typer.Typer()


@app.command()
def sweep(
    drill: Annotated[str, A_DRILL],
    topology: TopologyArgument,
    vary: Annotated[
        list[str],
        typer.Option(
            "--vary",
            help="NAME=A,B,C; repeatable. NAME is a place in the scenario (load.rate, method.kill-active.ttl) or a "
            "variable of the inventory, which is deployed anew for each value.",
        ),
    ],
    repeat: RepeatOption = None,
    seed: SeedOption = 1,
    runs: RunsOption = RUNS,
    deploy: DeployOption = False,
    bench: BenchOption = False,
    at_once: AtOnceOption = None,
    within: WithinOption = None,
    master: MasterOption = None,
) -> None:
    """Run DRILL on TOPOLOGY with every combination of values; started again, it goes on where it was."""
    from brokerdrill.campaigns.execute import CampaignOptions
    from brokerdrill.campaigns.sweep import parse_vary, sweep_plan

    plan = sweep_plan(drill, topology, parse_vary(vary), repeat, seed)
    raise typer.Exit(carry_out(plan, CampaignOptions(runs, deploy, bench, master, radius(at_once, within)), console))


@app.command()
def matrix(
    file: Annotated[str, typer.Argument(help="A matrix's YAML file, or the name of one in chaos/matrices.")],
    repeat: RepeatOption = None,
    seed: SeedOption = 1,
    runs: RunsOption = RUNS,
    deploy: DeployOption = False,
    bench: BenchOption = False,
    at_once: AtOnceOption = None,
    within: WithinOption = None,
    master: MasterOption = None,
) -> None:
    """Run mode × fault × client: one page says what is kept, broken, or kept only with some settings."""
    from brokerdrill.campaigns.execute import CampaignOptions
    from brokerdrill.campaigns.matrix import load_matrix, matrix_plan

    plan = matrix_plan(*load_matrix(file), repeat, seed)
    raise typer.Exit(carry_out(plan, CampaignOptions(runs, deploy, bench, master, radius(at_once, within)), console))


@app.command("prove")
def prove_(
    named: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPOLOGY]...", help="Without one all of `topologies`.")
    ] = None,
    drill: Annotated[
        list[str] | None, typer.Option("--drill", help="Only this drill; repeatable. Without it all that apply.")
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="How many runs each drill is to have on each topology.")] = 3,
    again: Annotated[
        bool,
        typer.Option("--again", help="Instead: one more run of each drill whose newest kept run was not as expected."),
    ] = False,
    unchanged: Annotated[
        str,
        typer.Option(help="Which of drill, inventory, roles, engine have to be for a kept run what they are now."),
    ] = "drill,inventory",
    proof: Annotated[Path, typer.Option("--proof", help="The folder of kept rows.")] = PROOF,
    lasting: Annotated[str | None, typer.Option("--for", help="Begin no run after so long: 90m, 8h.")] = None,
    seed: SeedOption = 1,
    runs: RunsOption = RUNS,
    deploy: DeployOption = False,
    bench: BenchOption = False,
    at_once: AtOnceOption = None,
    within: WithinOption = None,
    master: MasterOption = None,
) -> None:
    """Run every drill on every topology so often, and keep a row of each run; what has them is not run again."""
    from brokerdrill.base.errors import UsageError
    from brokerdrill.campaigns.execute import CampaignOptions
    from brokerdrill.campaigns.prove import Kept
    from brokerdrill.inventory.topology import find_topology, topologies
    from brokerdrill.scenario.drill import drills, load_drill
    from brokerdrill.scenario.rounds import lasting_s

    until_s = time.monotonic() + lasting_s(lasting) if lasting is not None else math.inf
    options = CampaignOptions(runs, deploy, bench, master, radius(at_once, within), until_s)
    kept = Kept(proof, [word.strip() for word in unchanged.split(",")])
    if proof.exists() and not proof.is_dir():
        raise UsageError(f"{proof} is no folder of kept rows")
    if again and not kept.there:
        raise UsageError(f"{proof} has no kept row yet, so that nothing can be run again: leave --again out")
    chosen = [load_drill(name) for name in drill] if drill else drills()
    where = [find_topology(name) for name in named or [name for name, _ in topologies()]]
    times = None if again else repeat
    statuses = [prove(topology, chosen, times, seed, kept, options, console) for topology in where]
    if not any(status is not None for status in statuses):
        if again:
            console.print("the newest run of each drill was as expected")
            raise typer.Exit(EXIT_KEPT)
        raise UsageError("nothing to prove: brokerdrill scenarios TOPOLOGY says which drills apply")
    raise typer.Exit(worst([status for status in statuses if status is not None]))


@app.command()
def trends(
    runs: Annotated[Path, typer.Argument(help="Directory that holds the run directories and their table.")] = RUNS,
    out: Annotated[
        Path | None,
        typer.Option(help="The page (its JSON goes beside it); without it RUNS/trends.html."),
    ] = None,
    alpha: Annotated[float, typer.Option(help="The chance of a false alarm that is accepted for a look.")] = 0.05,
    recent: Annotated[int, typer.Option(min=1, help="How many newest runs of a series are held against it.")] = 5,
    since: Annotated[datetime.datetime | None, typer.Option(help="Instead: the runs from this time on (UTC).")] = None,
) -> None:
    """Show failover, violations and coverage over time; 1: something got worse, 2: too few runs to tell."""
    from brokerdrill.base.errors import UsageError
    from brokerdrill.results.regression import exit_status, judged, series_of
    from brokerdrill.results.table import read
    from brokerdrill.results.trends import PAGE_FILE, coverage_rows, write_trends

    if not 0 < alpha < 1:
        raise UsageError(f"--alpha {alpha} is not between 0 and 1")
    rows = read(runs)
    from_then = since.replace(tzinfo=datetime.UTC) if since else None
    found = judged(series_of(rows), alpha, recent, from_then)
    with Progress(console) as progress:
        known = applying({str(row["topology"]) for row in rows}, progress)
    page = write_trends(found, coverage_rows(rows, known), alpha, out or runs / PAGE_FILE)
    for one in found:
        said = "; ".join(f"{test.what}: {test.sentence(alpha)}" for test in one.tests)
        console.print(f"{one.series.name}: {said}", markup=False)
    console.print(f"page: {page}", markup=False)
    raise typer.Exit(exit_status(found, alpha))


def applying(names: set[str], progress: Progress) -> list[tuple[str, str]]:
    """Return (drill, topology) of every drill that applies to one of the shipped topologies in `names`; what applies to
    one that cannot be deployed as it is now stays out, and that is said."""
    from brokerdrill.inventory.planned import planned
    from brokerdrill.inventory.topology import find_topology, topologies
    from brokerdrill.scenario.drill import drills

    here = {}
    for name in (name for name, _ in topologies() if name in names):
        try:
            here[name] = planned(find_topology(name), progress)
        except BrokerdrillError as error:
            progress.step(f"what was never drilled on {name} is not known: {error}")
    shipped = drills() if here else []
    return [(drill.name, name) for drill in shipped for name, found in here.items() if not drill.unmet(found)]


def run_everything(
    topology: str,
    repeat: int | None,
    seed: int,
    runs: Path,
    master: str | None,
    console: Console,
    within: Radius | None = None,
) -> int:
    """Run every drill that applies to the deployed topology; return the exit status of what was found."""
    from brokerdrill.campaigns.everything import everything_plan
    from brokerdrill.campaigns.execute import CampaignOptions
    from brokerdrill.inventory.planned import planned
    from brokerdrill.inventory.topology import find_topology
    from brokerdrill.scenario.drill import drills

    found = find_topology(topology)
    with Progress(console) as progress:
        instances = planned(found, progress)
    plan = everything_plan(drills(), found, instances, repeat, seed)
    return carry_out(plan, CampaignOptions(runs, master=master, radius=within), console)


def prove(
    topology: Topology,
    drills: Sequence[Drill],
    repeat: int | None,
    seed: int,
    kept: Kept,
    options: CampaignOptions,
    console: Console,
) -> int | None:
    """Have each of `drills` that applies to `topology` run `repeat` times, where its rows are not `kept` (None: once
    more where its newest row is not as expected); return the exit status, None where there is nothing to run. What
    cannot be carried out is printed: the next topology has its turn. Raises Interrupted on a signal."""
    extras.need("pyspark")
    from brokerdrill.campaigns.execute import Ended, execute
    from brokerdrill.campaigns.prove import exit_status, prove_plan
    from brokerdrill.inventory.planned import load_hosts, planned
    from brokerdrill.results.proof import rests_on
    from brokerdrill.runner.recording import Interrupted

    with Progress(console) as progress:
        instances = [*planned(topology, progress), *load_hosts(topology)]
    parts = rests_on(drills, topology)
    if repeat is None:
        times = {name: count + 1 for name, count in kept.unexpected(topology.name, parts).items()}
        plan = prove_plan([one for one in drills if one.name in times], topology, instances, times, seed)
    else:
        plan = prove_plan(drills, topology, instances, repeat, seed)
    if plan is None:
        nothing = "none of the drills applies" if repeat else "no newest run of a drill was unexpected"
        console.print(f"{topology.name}: {nothing}", markup=False)
        return None

    def written(ended: dict[str, Ended]) -> None:
        kept.keep(plan, ended, options.runs, parts)

    try:
        execute(plan, options, console, written, kept.of(plan, parts))
    except Interrupted:
        raise  # who ends a run wants no other to begin
    except InfrastructureError as error:
        console.print(f"{topology.name}: {error}", markup=False)
    rows = kept.of(plan, parts)
    right = sum(bool(row["as_expected"]) for row in rows.values())
    console.print(f"{topology.name}: {len(rows)} of {len(plan.cells)} runs are kept, {right} as expected", markup=False)
    return exit_status(rows.values(), len(plan.cells) - len(rows))


def worst(statuses: Sequence[int]) -> int:
    """Return the exit status of several: the first of 1 (broken), 3 (could not be made), 2 (unknown) that is there."""
    return next((one for one in (EXIT_BROKEN, EXIT_INFRASTRUCTURE, EXIT_UNKNOWN) if one in statuses), EXIT_KEPT)


def carry_out(plan: CampaignPlan, options: CampaignOptions, console: Console) -> int:
    """Carry out a plan with its page kept up to date; return the exit status of what was found."""
    extras.need("pyspark")
    from brokerdrill.campaigns.execute import Ended, execute, plan_folder
    from brokerdrill.campaigns.pages import write_results
    from brokerdrill.campaigns.results import outcomes

    folder = plan_folder(plan, options.runs)

    def written(ended: dict[str, Ended]) -> None:
        write_results(plan, outcomes(plan, ended, options.runs), options.runs, folder)

    ended = execute(plan, options, console, written)
    found = outcomes(plan, ended, options.runs)
    words = [one.word for one in found]
    console.print(", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words)))
    console.print(f"page: {folder / 'index.html'}", markup=False)
    return exit_status(found)


def exit_status(found: list[CellOutcome]) -> int:
    """Return the exit status of a plan: 1 some run is not as expected and its verdict is certain, 3 some cell could not
    be run, 2 some verdict is unknown that should not be, else 0."""
    unexpected = [one for one in found if one.result is not None and not one.result.as_expected]
    if any(one.word in ("kept", "broken") for one in unexpected):
        return EXIT_BROKEN
    if any(one.word in ("failed", "refused", "pending") for one in found):
        return EXIT_INFRASTRUCTURE
    return EXIT_UNKNOWN if unexpected else EXIT_KEPT
