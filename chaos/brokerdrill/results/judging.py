"""From finished runs to what the user gets: verdicts by the analysis, the table, the reports, the exit status."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from brokerdrill.base.atomic import write_json
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.ledger import contract
from brokerdrill.ledger.verdict import RunVerdict, Verdict


def judge(
    run_dirs: Sequence[Path],
    console: Console,
    *,
    promises: Sequence[contract.PromiseSpec] | None = None,
    master: str | None = None,
    json_file: Path | None = None,
    report_dir: Path | None = None,
) -> tuple[Verdict, list[Path]]:
    """Analyse `run_dirs`, print each verdict, write the reports into `report_dir` (None: beside each run).

    Returns the verdict and the reports' paths.
    """
    from brokerdrill.analysis.analyze import analyze_with_series  # Spark is slow to import: only where it is used
    from brokerdrill.report import print_verdict, write_index, write_junit, write_markdown, write_report

    result, series = analyze_with_series(list(run_dirs), list(promises) if promises else None, master)
    reports = []
    for run_dir, one in zip(run_dirs, result.runs, strict=True):
        print_verdict(one, console)
        if one.error or one.run_id is None:
            continue
        folder = report_dir / run_dir.name if report_dir else run_dir
        folder.mkdir(parents=True, exist_ok=True)
        reports.append(write_report(run_dir, one, series[one.run_id], folder / "report.html"))
        alone = Verdict((one,), one.verdict, one.as_expected)
        write_junit(alone, folder / "junit.xml")
        write_markdown(alone, folder / "summary.md")
        write_json(folder / "verdict.json", one.to_json())
        if not promises:  # an answer to another question is none of the run's results
            add_to_table(run_dir, one, console)
    if len(run_dirs) > 1:
        folder = report_dir or run_dirs[-1].parent
        reports.append(write_index(list(zip(run_dirs, result.runs, strict=True)), folder / "index.html"))
        write_junit(result, folder / "junit.xml")
        write_markdown(result, folder / "summary.md")
    if json_file:
        write_json(json_file, result.to_json())
    return result, reports


def add_to_table(run_dir: Path, result: RunVerdict, console: Console) -> None:
    """Put a run's verdict into the table of results beside it; where that cannot be written, say so and go on."""
    from brokerdrill.results.table import append

    try:
        append(run_dir, result)
    except InfrastructureError as error:
        console.print(f"the run is not in the table of results: {error}", markup=False)
