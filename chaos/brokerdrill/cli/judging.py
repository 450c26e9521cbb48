"""The commands that judge what was recorded: `analyze`, `report`, `compact`; and `synthesize`, which makes ledgers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from brokerdrill.base.atomic import write_json
from brokerdrill.base.errors import UsageError
from brokerdrill.base.progress import Progress
from brokerdrill.cli.console import console
from brokerdrill.cli.options import JsonOption, MasterOption

PromiseOption = Annotated[
    list[str] | None,
    typer.Option("--promise", help="NAME or NAME=BOUND_MS; repeatable; replaces the promises of the run."),
]
LedgerDirs = Annotated[
    list[str], typer.Argument(help="Run directories, or folders of many runs: paths, or URIs that Hadoop knows.")
]
RunDirs = Annotated[list[Path], typer.Argument(help="Run directories.")]

app = typer.Typer()


@app.command()
def analyze(
    run_dirs: LedgerDirs, json_file: JsonOption = None, promise: PromiseOption = None, master: MasterOption = None
) -> None:
    """Judge finished runs from their ledgers alone."""
    from brokerdrill.analysis.analyze import analyze as judge_only
    from brokerdrill.analysis.files import runs_of
    from brokerdrill.analysis.verdict import exit_status
    from brokerdrill.report import print_verdict
    from brokerdrill.results.judging import add_to_table

    found = runs_of(run_dirs)
    result = judge_only(found, parse_promises(promise or []) or None, master)
    for one in result.runs:
        print_verdict(one, console)
    if not promise and not any("://" in str(run_dir) for run_dir in found):  # the table is of this machine's runs
        for run_dir, one in zip(found, result.runs, strict=True):
            if not one.error:
                add_to_table(Path(run_dir), one, console)
    if json_file:
        write_json(json_file, result.to_json())
    raise typer.Exit(exit_status(result))


def parse_promises(words: list[str]) -> list[Any]:
    """Return the PromiseSpecs of `NAME` or `NAME=BOUND_MS` words. Raises UsageError for others."""
    from brokerdrill.ledger.contract import PromiseSpec, check_promise
    from brokerdrill.promises import catalogue

    specs = []
    for word in words:
        name, _, bound = word.partition("=")
        catalogue.promise(name)
        try:
            specs.append(check_promise(PromiseSpec(name, float(bound) if bound else None), "--promise"))
        except ValueError:
            raise UsageError(f"--promise {word}: {bound!r} is no number of milliseconds") from None
    return specs


@app.command()
def report(
    run_dirs: RunDirs,
    out: Annotated[Path | None, typer.Option(help="Directory for the reports; without it beside each run.")] = None,
    master: MasterOption = None,
) -> None:
    """Analyse finished runs and write their HTML, JUnit, Markdown and JSON reports."""
    from brokerdrill.analysis.files import runs_of
    from brokerdrill.analysis.verdict import exit_status
    from brokerdrill.results.judging import judge

    found = [Path(run_dir) for run_dir in runs_of(run_dirs)]
    result, reports = judge(found, console, report_dir=out, master=master)
    for path in reports:
        console.print(f"report: {path}")
    raise typer.Exit(exit_status(result))


@app.command()
def compact(
    run_dirs: RunDirs,
    out: Annotated[Path | None, typer.Option(help="Ledger folder for many runs; without it each run in place.")] = None,
) -> None:
    """Turn the spools of finished runs into Parquet, one row an operation."""
    from brokerdrill.analysis.compact import compact as make

    with Progress(console) as progress:
        make(run_dirs, out, report=progress.step)


@app.command()
def synthesize(
    ops: Annotated[int, typer.Option(min=1, help="How many operations, about.")],
    out: Annotated[Path, typer.Option(help="The run directory to make.")],
    anomalies: Annotated[str, typer.Option(help="KIND=N,...; KIND alone is one; all is one of every kind.")] = "",
    seed: Annotated[int, typer.Option(help="Decides where the anomalies are.")] = 0,
    clients: Annotated[int | None, typer.Option(min=4, help="Producers and consumers in all.")] = None,
    master: MasterOption = None,
) -> None:
    """Make a ledger with known anomalies in known places (see its synthesized.json), to see that checks find them."""
    from brokerdrill.synthesize.plan import parse_anomalies
    from brokerdrill.synthesize.write import synthesize as make

    known = make(out, ops, parse_anomalies(anomalies), seed=seed, clients=clients, master=master)
    planted = sum(len(places) for places in known["placed"].values())
    console.print(f"{out}: {known['messages']} messages, {planted} of them with an anomaly")
