"""`brokerdrill gameday plan|run|history|approve|tidy|stop-time`, `brokerdrill abort` and `brokerdrill serve`."""

from __future__ import annotations

import datetime
import getpass
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from brokerdrill.base import extras
from brokerdrill.base.errors import EXIT_BROKEN, EXIT_INFRASTRUCTURE, EXIT_KEPT, UsageError
from brokerdrill.base.progress import Progress

FileArgument = Annotated[Path, typer.Argument(help="The game day's YAML file.")]
RunsOption = Annotated[Path, typer.Option("--runs", help="Directory that holds the run directories.")]
RUNS = Path("runs")


def add_to(app: typer.Typer, console: Console) -> None:
    """Add the commands to `app`; they print on `console`."""
    group = typer.Typer(no_args_is_help=True, help="Game days that hold themselves: plan, run, look back.")
    app.add_typer(group, name="gameday")

    @group.command()
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

    @group.command()
    def run(
        file: FileArgument,
        runs: RunsOption = RUNS,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="The same as `gameday plan`.")] = False,
        seed: Annotated[int | None, typer.Option(help="Seed of the first drill; without it a new one.")] = None,
        wait: Annotated[float, typer.Option(min=0, help="Seconds to wait while another game day goes on.")] = 0,
        master: Annotated[str | None, typer.Option(help="Spark master; local without it.")] = None,
    ) -> None:
        """Hold the game day of FILE now; 0 as expected, 1 some verdict is not, 3 anything else."""
        from brokerdrill.gameday.history import EXPECTED, UNEXPECTED
        from brokerdrill.gameday.hold import hold, load

        if dry_run:
            plan(file, runs)
            return
        extras.need("pyspark")
        day = hold(load(file, runs), console, seed, master, wait)
        console.print(f"game day {day.id}: {day.word}{f': {day.why}' if day.why else ''}", markup=False)
        raise typer.Exit({EXPECTED: EXIT_KEPT, UNEXPECTED: EXIT_BROKEN}.get(day.state, EXIT_INFRASTRUCTURE))

    @group.command()
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

    @group.command()
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

    @group.command()
    def tidy(
        file: FileArgument,
        runs: RunsOption = RUNS,
        wait: Annotated[float, typer.Option(min=0, help="Seconds to wait while a game day goes on.")] = 0,
    ) -> None:
        """Heal, report and tell what a game day of FILE left whose runner was killed."""
        from brokerdrill.gameday.hold import load
        from brokerdrill.gameday.hold import tidy as tidy_up

        found = tidy_up(load(file, runs), console, wait)
        console.print("nothing is left over" if not found else f"{len(found)} crashed game days are reported")

    @group.command("stop-time")
    def stop_time(file: FileArgument) -> None:
        """Print the seconds that a game day of FILE may take to end once it is asked to: heals, drain, evidence."""
        from brokerdrill.gameday.ending import stop_s
        from brokerdrill.gameday.model import load_gameday
        from brokerdrill.gameday.plan import wanted
        from brokerdrill.scenario.drill import drills

        _, plan = load_gameday(file)
        print(stop_s(drill.scenario for drill in drills() if wanted(drill, plan.drills)))

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

    @app.command()
    def serve(
        runs: RunsOption = RUNS,
        host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
        port: Annotated[int, typer.Option(min=1, max=65535)] = 8099,
        token_file: Annotated[
            Path | None,
            typer.Option(help="File with the token that may abort, or $BROKERDRILL_TOKEN; without it nobody may."),
        ] = None,
        tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain (PEM).")] = None,
        tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None,
        prefix: Annotated[str, typer.Option(help="Path that a reverse proxy takes away.")] = "",
        name: Annotated[
            list[str] | None, typer.Option(help="A host name under which the page is asked for; repeatable.")
        ] = None,
    ) -> None:
        """Serve a page for the room: the run that goes on, live, an abort button, and what was held before."""
        from brokerdrill.cli.across import applying
        from brokerdrill.results.table import topologies_of
        from brokerdrill.web.serve import TOKEN_VARIABLE, Settings, check
        from brokerdrill.web.serve import serve as serve_runs

        token = os.environ.get(TOKEN_VARIABLE) or None
        if token_file:
            try:
                token = token_file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"{token_file} cannot be read: {error}") from None
        settings = Settings(host, port, tls_cert, tls_key, prefix, tuple(name or ()))
        check(settings, token)
        with Progress(console) as progress:
            known = applying(topologies_of(runs), progress)
        console.print(f"http{'s' if tls_cert else ''}://{host}:{port}{prefix}/ shows {runs}", markup=False)
        serve_runs(runs, settings, token, lambda: known)
