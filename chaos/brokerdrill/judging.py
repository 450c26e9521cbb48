"""From finished runs to what the user gets: verdicts by the analysis, the table, the reports, the exit status."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from brokerdrill import ledger
from brokerdrill.errors import InfrastructureError


def judge(
    run_dirs: Sequence[Path],
    console: Console,
    *,
    promises: Sequence[ledger.PromiseSpec] | None = None,
    master: str | None = None,
    json_file: Path | None = None,
    report_dir: Path | None = None,
) -> tuple[dict[str, Any], list[Path]]:
    """Analyse `run_dirs`, print each verdict, write the reports into `report_dir` (None: beside each run).

    Returns the JSON object of the ledger's contract and the reports' paths.
    """
    from brokerdrill.analysis.analyze import analyze_with_series  # Spark is slow to import: only where it is used
    from brokerdrill.report import print_verdict, write_index, write_junit, write_markdown, write_report

    result, series = analyze_with_series(list(run_dirs), list(promises) if promises else None, master)
    runs = result.get("runs", [result])
    reports = []
    for run_dir, one in zip(run_dirs, runs, strict=True):
        print_verdict(one, console)
        if "error" in one:
            continue
        folder = report_dir / run_dir.name if report_dir else run_dir
        folder.mkdir(parents=True, exist_ok=True)
        reports.append(write_report(run_dir, one, series[one["run_id"]], folder / "report.html"))
        write_junit(one, folder / "junit.xml")
        write_markdown(one, folder / "summary.md")
        _write_json(folder / "verdict.json", one)
        if not promises:  # an answer to another question is none of the run's results
            add_to_table(run_dir, one, console)
    if len(run_dirs) > 1:
        folder = report_dir or run_dirs[-1].parent
        reports.append(write_index(list(zip(run_dirs, runs, strict=True)), folder / "index.html"))
        write_junit(result, folder / "junit.xml")
        write_markdown(result, folder / "summary.md")
    if json_file:
        _write_json(json_file, result)
    return result, reports


def add_to_table(run_dir: Path, result: Mapping[str, Any], console: Console) -> None:
    """Put a run's verdict into the table of results beside it; where that cannot be written, say so and go on."""
    from brokerdrill.trends.table import append

    try:
        append(run_dir, result)
    except InfrastructureError as error:
        console.print(f"the run is not in the table of results: {error}", markup=False)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    try:
        path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise InfrastructureError(f"{path} cannot be written: {error.strerror}") from None
