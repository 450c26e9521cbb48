"""The commands that look across runs: `sweep`, `matrix`, `trends`."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from brokerdrill.errors import EXIT_BROKEN, EXIT_INFRASTRUCTURE, EXIT_KEPT, EXIT_UNKNOWN

if TYPE_CHECKING:
    from brokerdrill.plans.execute import Options
    from brokerdrill.plans.plan import Plan
    from brokerdrill.plans.results import Outcome

RunsOption = Annotated[Path, typer.Option("--runs", help="Directory that holds the run directories.")]
RepeatOption = Annotated[
    int | None, typer.Option(min=1, help="Runs of each setting; without it what the scenario or matrix says.")
]
SeedOption = Annotated[int, typer.Option(help="Seed of the first run; repeats count on from it.")]
DeployOption = Annotated[bool, typer.Option("--deploy", help="Deploy each topology before its first run.")]
BenchOption = Annotated[
    bool, typer.Option("--bench", help="Make each topology's hosts as containers before, and remove them after.")
]
MasterOption = Annotated[str | None, typer.Option(help="Spark master; local without it.")]
RUNS = Path("runs")


def add_to(app: typer.Typer, console: Console) -> None:
    """Add the commands to `app`; they print on `console`."""

    @app.command()
    def sweep(
        scenario: Annotated[str, typer.Argument(help="A scenario's name, or the path of its YAML file.")],
        vary: Annotated[
            list[str],
            typer.Option(
                "--vary",
                help="NAME=A,B,C; repeatable. NAME is a place in the scenario (load.rate, method.kill-active.ttl) or a "
                "variable of the inventory, which is deployed anew for each value.",
            ),
        ],
        inventory: Annotated[
            str | None, typer.Option("-i", "--inventory", help="Instead of the scenario's own.")
        ] = None,
        repeat: RepeatOption = None,
        seed: SeedOption = 1,
        runs: RunsOption = RUNS,
        deploy: DeployOption = False,
        bench: BenchOption = False,
        master: MasterOption = None,
    ) -> None:
        """Run SCENARIO with every combination of values and compare them; started again, it goes on where it was."""
        from brokerdrill.plans.execute import Options
        from brokerdrill.plans.sweep import parse_vary, sweep_plan

        plan = sweep_plan(scenario, parse_vary(vary), repeat, seed, inventory)
        raise typer.Exit(carry_out(plan, Options(runs, deploy, bench, master), console))

    @app.command()
    def matrix(
        file: Annotated[str, typer.Argument(help="A matrix's YAML file, or the name of one in chaos/matrices.")],
        repeat: RepeatOption = None,
        seed: SeedOption = 1,
        runs: RunsOption = RUNS,
        deploy: DeployOption = False,
        bench: BenchOption = False,
        master: MasterOption = None,
    ) -> None:
        """Run mode × fault × client: one page says what is kept, broken, or kept only with some settings."""
        from brokerdrill.plans.execute import Options
        from brokerdrill.plans.matrix import load_matrix, matrix_plan

        plan = matrix_plan(*load_matrix(file), repeat, seed)
        raise typer.Exit(carry_out(plan, Options(runs, deploy, bench, master), console))

    @app.command()
    def trends(
        runs: Annotated[Path, typer.Argument(help="Directory that holds the run directories and their table.")] = RUNS,
        out: Annotated[
            Path | None,
            typer.Option(help="The page (its JSON goes beside it); without it RUNS/trends.html."),
        ] = None,
        alpha: Annotated[float, typer.Option(help="The chance of a false alarm that is accepted for a look.")] = 0.05,
        recent: Annotated[int, typer.Option(min=1, help="How many newest runs of a series are held against it.")] = 5,
        since: Annotated[
            datetime.datetime | None, typer.Option(help="Instead: the runs from this time on (UTC).")
        ] = None,
    ) -> None:
        """Show failover, violations and coverage over time; 1: something got worse, 2: too few runs to tell."""
        from brokerdrill.errors import UsageError
        from brokerdrill.scenario import scenarios
        from brokerdrill.trends.page import PAGE_FILE, coverage_rows, write_trends
        from brokerdrill.trends.regression import exit_status, judged, series_of
        from brokerdrill.trends.table import read

        if not 0 < alpha < 1:
            raise UsageError(f"--alpha {alpha} is not between 0 and 1")
        rows = read(runs)
        from_then = since.replace(tzinfo=datetime.UTC) if since else None
        found = judged(series_of(rows), alpha, recent, from_then)
        known = [(item.name, item.scenario.topology) for item in scenarios()]
        page = write_trends(found, coverage_rows(rows, known), alpha, out or runs / PAGE_FILE)
        for one in found:
            said = "; ".join(f"{test.what}: {test.sentence(alpha)}" for test in one.tests)
            console.print(f"{one.series.name}: {said}", markup=False)
        console.print(f"page: {page}", markup=False)
        raise typer.Exit(exit_status(found, alpha))


def carry_out(plan: Plan, options: Options, console: Console) -> int:
    """Carry out a plan with its page kept up to date; return the exit status of what was found."""
    from brokerdrill.plans.execute import Ended, execute, plan_folder
    from brokerdrill.plans.pages import write_results
    from brokerdrill.plans.results import outcomes

    folder = plan_folder(plan, options.runs)

    def written(ended: dict[str, Ended]) -> None:
        write_results(plan, outcomes(plan, ended, options.runs), options.runs, folder)

    ended = execute(plan, options, console, written)
    found = outcomes(plan, ended, options.runs)
    words = [one.word for one in found]
    console.print(", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words)))
    console.print(f"page: {folder / 'index.html'}", markup=False)
    return exit_status(found)


def exit_status(found: list[Outcome]) -> int:
    """Return the exit status of a plan: 1 some run is not as expected and its verdict is certain, 3 some cell could not
    be run, 2 some verdict is unknown that should not be, else 0."""
    unexpected = [one for one in found if one.result is not None and not one.result.get("as_expected")]
    if any(one.word in ("kept", "broken") for one in unexpected):
        return EXIT_BROKEN
    if any(one.word in ("failed", "refused", "pending") for one in found):
        return EXIT_INFRASTRUCTURE
    return EXIT_UNKNOWN if unexpected else EXIT_KEPT
