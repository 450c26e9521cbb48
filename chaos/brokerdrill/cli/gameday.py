"""The commands `brokerdrill gameday plan|run|history|approve|tidy|stop-time`."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Annotated

import typer

from brokerdrill.base import extras
from brokerdrill.base.errors import EXIT_BROKEN, EXIT_INFRASTRUCTURE, EXIT_KEPT, UsageError
from brokerdrill.base.progress import Progress
from brokerdrill.cli.console import console
from brokerdrill.cli.options import RUNS, RunsOption

FileArgument = Annotated[Path, typer.Argument(help="The game day's YAML file.")]

app = typer.Typer(no_args_is_help=True, help="Game days that hold themselves: plan, run, look back.")


@app.command()
def plan(file: FileArgument, runs: RunsOption = RUNS) -> None:
    """Say what FILE would drill now, and which host would get what; touches no host."""
    from brokerdrill.gameday import windows
    from brokerdrill.gameday.hold import choose, load, unapproved

    loaded = load(file, runs)
    now = datetime.datetime.now(datetime.UTC)
    with Progress(console) as progress:
        chosen, refused = choose(loaded, progress)
    for number, one in enumerate(chosen, start=1):
        last = f"last held {one.last:%Y-%m-%d %H:%M} UTC" if one.last else "never held"
        console.print(f"{number}. {one.drill.name} on {one.topology.name}, {last}", markup=False)
        for step in one.reached.steps:
            console.print(f"   {step.step}: {step.what}", markup=False)
            where = f"      on {', '.join(sorted(step.hosts))}: {' or '.join(step.targets)}"
            console.print(where, markup=False)
        console.print(f"   hit at the same time: at most {one.reached.at_once}")
    for one in refused:
        console.print(f"not held: {one.drill.name} on {one.topology.name}: {'; '.join(one.refused)}", markup=False)
    for why in filter(None, (windows.closed(loaded.plan, now), unapproved(loaded.runs, chosen, now))):
        console.print(f"it could not begin now: {why}", markup=False)


@app.command()
def run(
    file: FileArgument,
    runs: RunsOption = RUNS,
    seed: Annotated[int | None, typer.Option(help="Seed of the first drill; without it a new one.")] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait while another game day goes on.")] = 0,
    master: Annotated[str | None, typer.Option(help="Spark master; local without it.")] = None,
) -> None:
    """Hold the game day of FILE now; 0 as expected, 1 some verdict is not, 3 anything else."""
    from brokerdrill.gameday.history import EXPECTED, UNEXPECTED
    from brokerdrill.gameday.hold import hold, load

    extras.need("pyspark")
    day = hold(load(file, runs), console, seed, master, wait)
    console.print(f"game day {day.id}: {day.word}{f': {day.why}' if day.why else ''}", markup=False)
    raise typer.Exit({EXPECTED: EXIT_KEPT, UNEXPECTED: EXIT_BROKEN}.get(day.state, EXIT_INFRASTRUCTURE))


@app.command()
def history(file: FileArgument, runs: RunsOption = RUNS) -> None:
    """List the game days of FILE and their drills, and say when one is overdue."""
    from brokerdrill.gameday import windows
    from brokerdrill.gameday.history import WORDS, last_begun
    from brokerdrill.gameday.hold import load

    loaded = load(file, runs)
    days = loaded.record.days()
    for day in days:
        console.print(f"{day.id}  {day.word}{f': {day.why}' if day.why else ''}", markup=False)
        for one in day.drills:
            ended = f"{WORDS[one.state]}{f': {one.why}' if one.why else ''}"
            console.print(f"   {one.drill} on {one.topology}  {ended}  {one.run or ''}".rstrip(), markup=False)
    due = windows.missed_since(loaded.plan, last_begun(days), datetime.datetime.now(datetime.UTC))
    if due:
        console.print(f"overdue since {due:%Y-%m-%d %H:%M} UTC")


@app.command()
def approve(
    file: FileArgument,
    runs: RunsOption = RUNS,
    hours: Annotated[float, typer.Option(min=0.1, help="For how long.")] = 24,
) -> None:
    """Approve, once, each drill that FILE would hold now, where its inventory says `drill_approval: true`."""
    from brokerdrill.gameday.hold import choose, load
    from brokerdrill.runner.approval import VARIABLE, account
    from brokerdrill.runner.approval import approve as allow

    loaded = load(file, runs)
    with Progress(console) as progress:
        chosen, _ = choose(loaded, progress)
    wanted = [one.wanted for one in chosen if one.wanted]
    if not wanted:
        raise UsageError(f"no drill that {file} would hold asks for it (`{VARIABLE}: true`): nothing to approve")
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=hours)
    for what in wanted:
        allow(loaded.runs, what, until)
        console.print(f"{what.drill} on {what.topology}: {'; '.join(what.targets)}", markup=False)
    console.print(f"approved by {account(os.geteuid())}, one run each, until {until:%Y-%m-%d %H:%M} UTC")


@app.command()
def tidy(
    file: FileArgument,
    runs: RunsOption = RUNS,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait while a game day goes on.")] = 0,
) -> None:
    """Heal, report and announce what a game day of FILE left whose runner was killed."""
    from brokerdrill.gameday.hold import load
    from brokerdrill.gameday.hold import tidy as tidy_up

    found = tidy_up(load(file, runs), console, wait)
    console.print("nothing is left over" if not found else f"{len(found)} crashed game days are reported")


@app.command("stop-time")
def stop_time(file: FileArgument) -> None:
    """Print the seconds that a game day of FILE may take to end once it is asked to: heals, drain, evidence."""
    from brokerdrill.gameday.ending import stop_s
    from brokerdrill.gameday.model import load_gameday
    from brokerdrill.gameday.plan import wanted
    from brokerdrill.scenario.drill import drills

    _, plan = load_gameday(file)
    print(stop_s(drill.scenario for drill in drills() if wanted(drill, plan.drills)))
