"""From verdicts to what people read: HTML with pictures, a terminal table, JUnit XML, Markdown.

    write_report(run_dir, result, series, out) -> Path    the page of one run
    write_index([(run_dir, result), …], out) -> Path      the page of several runs, with what their repeats prove
    print_verdict(result, console)                        the table on a terminal, plain lines elsewhere
    write_junit(verdict, path, expect=None) -> Path       one test case a promise
    write_markdown(verdict, path) -> Path                 a summary for a CI job's page

`result` is the verdict on one run, `verdict` that of an analysis (`ledger.verdict`), `series` what the analysis found
over time (`ledger.series`).
"""

from __future__ import annotations

from brokerdrill.report.junit import write_junit
from brokerdrill.report.markdown import write_markdown
from brokerdrill.report.page import write_index, write_report
from brokerdrill.report.terminal import print_verdict

__all__ = ["print_verdict", "write_index", "write_junit", "write_markdown", "write_report"]
