"""The commands that make single runs and end them: `run`, `heal`, `demo`, `abort`, `approve`."""

from __future__ import annotations

import datetime
import getpass
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from brokerdrill.base import extras
from brokerdrill.base.errors import BrokerdrillError, InfrastructureError, UsageError
from brokerdrill.base.progress import Progress
from brokerdrill.cli.campaigns import run_everything
from brokerdrill.cli.console import console
from brokerdrill.cli.options import (
    A_DRILL,
    A_TOPOLOGY,
    RUNS,
    AtOnceOption,
    JsonOption,
    MasterOption,
    RunsOption,
    WithinOption,
    radius,
)

if TYPE_CHECKING:
    from brokerdrill.inventory.topology import Topology
    from brokerdrill.scenario.drill import Drill

app = typer.Typer()


@app.command()
def run(
    drill: Annotated[str | None, A_DRILL] = None,
    topology: Annotated[str | None, A_TOPOLOGY] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every drill that applies to TOPOLOGY; name no drill.")
    ] = False,
    repeat: Annotated[int | None, typer.Option(min=1, help="How many runs; without it the drill's own.")] = None,
    rounds: Annotated[
        int | None, typer.Option(help="How often a run takes the method's steps; without it the drill's own.")
    ] = None,
    lasting: Annotated[
        str | None, typer.Option("--for", help="Repeat the method's steps for so long: 90s, 60m, 2h.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run's random choices; without it a new one.")] = None,
    runs: RunsOption = RUNS,
    run_dir: Annotated[Path | None, typer.Option(help="The run's directory, which must not exist yet.")] = None,
    purge: Annotated[
        bool,
        typer.Option(
            "--purge", help="Remove all messages in the drill's addresses first, also those that no drill sent."
        ),
    ] = False,
    json_file: JsonOption = None,
    at_once: AtOnceOption = None,
    within: WithinOption = None,
    master: MasterOption = None,
    judge: Annotated[
        bool, typer.Option(help="Judge the runs; without it they are recorded for `brokerdrill report` to judge.")
    ] = True,
) -> None:
    """Run DRILL on the deployed TOPOLOGY, analyse what was recorded, and write the report."""
    from brokerdrill.scenario.rounds import changes_of, settings_of

    # Said before anything is broken.
    for module in ("ansible", "asyncssh", *(("pyspark",) if judge else ())):
        extras.need(module)
    changes = changes_of(rounds, lasting)
    allowed = radius(at_once, within)
    first = seed if seed is not None else random.SystemRandom().randrange(1_000_000)
    if everything:
        named = _named_alone(drill, topology, one_run=run_dir or json_file, one_drill=changes or purge or not judge)
        raise typer.Exit(run_everything(named, repeat, first, runs, master, console, allowed))
    loaded, where = _named(drill, topology)
    count = repeat or loaded.scenario.repeat
    if run_dir and count > 1:
        raise UsageError("--run-dir names one run; it does not go with --repeat")

    def recorded() -> list[Path]:
        from brokerdrill.runner.recording import record

        seeds = [first + number for number in range(count)]
        settings = settings_of(changes)
        return record(loaded, where, runs, seeds, console, run_dir, settings, changes, radius=allowed, purge=purge)

    if judge:
        _judge(recorded, json_file, master)
    for one in recorded():
        console.print(f"recorded, not judged: {one}", markup=False)


def _named_alone(drill: str | None, topology: str | None, *, one_run: object, one_drill: object) -> str:
    """Return the topology that `--all` names. Raises UsageError where something is given that goes with `one_run` or
    `one_drill` alone."""
    if one_run:
        raise UsageError("--all makes a run directory and a verdict for each drill: --run-dir and --json name one")
    named = [word for word in (drill, topology) if word]
    if len(named) != 1:
        raise UsageError("--all runs every drill that applies: name the topology and nothing else")
    if one_drill:
        raise UsageError("--rounds, --for, --purge and --no-judge are of one drill: name it")
    return named[0]


def _named(drill: str | None, topology: str | None) -> tuple[Drill, Topology]:
    """Return the drill and the topology to run it on, which is the drill's own where none is named. Raises UsageError
    where one of them is not known."""
    from brokerdrill.inventory.topology import find_topology
    from brokerdrill.scenario.drill import load_drill

    if drill is None:
        raise UsageError("name a drill and a topology: brokerdrill run DRILL TOPOLOGY")
    loaded = load_drill(drill)
    where = topology or loaded.scenario.topology
    if where is None:
        raise UsageError(f"say where to run it: brokerdrill run {drill} TOPOLOGY (brokerdrill topologies lists them)")
    return loaded, find_topology(where)


def _judge(recorded: Callable[[], list[Path]], json_file: Path | None, master: str | None) -> NoReturn:
    """Judge what `recorded` makes, and exit with the status of the verdict."""
    from brokerdrill.cli.judged import judged
    from brokerdrill.results.warm import warm_up

    warm_up(master)
    status, reports = judged(recorded, console, json_file=json_file, master=master)
    console.print(f"report: {reports[-1]}")
    raise typer.Exit(status)


@app.command()
def heal(runs: Annotated[Path, typer.Argument(help="Directory that holds the run directories.")] = RUNS) -> None:
    """Heal every fault that an ended runner left behind, from the journals, and bring its ledgers home."""
    from brokerdrill.runner.healing import INTERRUPTED, heal_run, unfinished
    from brokerdrill.runner.recording import Interrupted, run_async

    left = unfinished(runs)
    problems = []
    with Progress(console) as progress:
        for item in left:
            try:
                run_async(heal_run(item, progress), console, INTERRUPTED)
            except Interrupted:
                raise
            except BrokerdrillError as error:
                problems.append(str(error))
    if problems:
        raise InfrastructureError("; ".join(problems))
    console.print("nothing is left to heal" if not left else f"{len(left)} runs are healed")


@app.command()
def demo(runs: RunsOption = RUNS) -> None:
    """Bring up a bench, deploy it, kill its active broker under load, and show that the checks can fail."""
    from brokerdrill.cli.demo import run_demo

    raise typer.Exit(run_demo(runs, console))


@app.command("approve")
def approve_run(
    ids: Annotated[list[str] | None, typer.Argument(help="Requests; without any, what is asked for.")] = None,
    runs: RunsOption = RUNS,
    hours: Annotated[float, typer.Option(min=0.1, help="For how long.")] = 24,
) -> None:
    """Allow one run of what another account asked for, where an inventory says `drill_approval: true`."""
    from brokerdrill.runner import approval

    if not ids:
        for path, asked in approval.requests(runs).items():
            said = f"{asked.id}  {asked.drill} on {asked.topology}" if asked else f"{path} is no request"
            console.print(said, markup=False)
        return
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=hours)
    for what in [approval.chosen(runs, one) for one in ids]:
        console.print(f"{what.text}\n" + "\n".join(what.targets), markup=False)
        approval.approve(runs, what, until)
        by = approval.account(os.geteuid())
        console.print(f"{what.id} is approved by {by}, for one run until {until:%Y-%m-%d %H:%M} UTC", markup=False)


@app.command()
def abort(
    run_dir: Annotated[Path | None, typer.Argument(help="The run; without it the one that goes on.")] = None,
    runs: RunsOption = RUNS,
    why: Annotated[str, typer.Option(help="Goes into the ledger.")] = "",
) -> None:
    """Have a run heal every fault and end."""
    from brokerdrill.runner.evidence.run_dir import live_runs
    from brokerdrill.runner.guards.stop_files import ask_to_abort

    found = [run_dir] if run_dir else live_runs(runs)
    if not found:
        raise UsageError(f"no run goes on in {runs}")
    for one in found:
        if one not in live_runs(one.parent):
            raise UsageError(f"{one} is no run that goes on")
        ask_to_abort(one, why or f"by {getpass.getuser()}")
        console.print(f"asked to abort: {one}", markup=False)
