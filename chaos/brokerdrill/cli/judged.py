"""From runs that are made to their verdict, whatever ends them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from brokerdrill.base.errors import EXIT_KEPT, EXIT_UNKNOWN, BrokerdrillError, InfrastructureError, Unmet


def judged(
    record: Callable[[], list[Path]], console: Console, *, json_file: Path | None = None, master: str | None = None
) -> tuple[int, list[Path]]:
    """Make runs by `record` and judge them; return the exit status and the paths of the reports, the last one last.

    What was recorded before something ended the runs is judged and shown first; then that is raised, with the exit
    status that the user gets: the verdict's where a drill ended early (unknown where all that it saw was as expected:
    it did not see all that it was to see), else the error's own.
    """
    from brokerdrill.analysis.verdict import exit_status  # imports Spark's part of the house: only where it is used
    from brokerdrill.results.judging import judge

    try:
        run_dirs = record()
    except BrokerdrillError as error:
        if not error.runs:
            raise
        try:
            result, reports = judge(error.runs, console, json_file=json_file, master=master)
        except BrokerdrillError as second:
            raise InfrastructureError(f"{error}; and what was recorded cannot be judged: {second}") from None
        for path in reports[-1:]:
            console.print(f"report: {path}", markup=False)
        # Where it was interrupted and something did not work on the way out, that counts.
        if isinstance(error.__cause__ or error, Unmet):
            status = exit_status(result)
            error.exit_status = EXIT_UNKNOWN if status == EXIT_KEPT else status
        raise
    result, reports = judge(run_dirs, console, json_file=json_file, master=master)
    return exit_status(result), reports
