"""The verdict on a terminal: a table for people, plain lines for pipes and logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from brokerdrill.report import format as fmt
from brokerdrill.report import words

STYLES = {"pass": "bold green", "fail": "bold red", "unknown": "bold yellow"}


def _cells(promise: Mapping[str, Any]) -> tuple[str, str, str, str, str, str, str]:
    verdict = str(promise.get("verdict"))
    verdict = verdict if verdict in words.VERDICT_WORDS else "unknown"
    excused = int(promise.get("excused") or 0)
    count = fmt.number(promise.get("count") or 0)
    return (
        fmt.clean(promise.get("name", "")),
        verdict,
        words.verdict_word(verdict),
        fmt.milliseconds(promise.get("bound")),
        fmt.milliseconds(promise.get("measured")),
        f"{count} (+{fmt.number(excused)} excused)" if excused else count,
        words.meaning(promise),
    )


def print_verdict(result: Mapping[str, Any], console: Console) -> None:
    """Print one run's verdict (the JSON object of the ledger's specification), or that of each of its `runs`.

    On a terminal: a table of promises with verdict, bound, measured, count and what it means. Elsewhere: a plain line a
    promise with the same fields, separated by two spaces, without colours or frames.
    """
    if "runs" in result:
        for run in result["runs"]:
            print_verdict(run, console)
        return
    run_id = words.run_name(result)
    headline = words.headline(result)
    if not console.is_terminal:
        # soft_wrap: a line of a log is one line, however long.
        for promise in result.get("promises") or ():
            name, _, word, bound, measured, count, meaning = _cells(promise)
            line = f"{run_id}  {word:<7}  {name:<15}  bound {bound}  measured {measured}  count {count}  {meaning}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        console.print(f"{run_id}  verdict: {headline}", markup=False, highlight=False, soft_wrap=True)
        return
    if result.get("promises"):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False, title=Text(run_id), title_justify="left")
        table.add_column("promise", no_wrap=True)
        table.add_column("verdict", no_wrap=True)
        for head in ("bound", "measured", "count"):
            table.add_column(head, justify="right", no_wrap=True)
        table.add_column("what it means", ratio=1, min_width=24)
        for promise in result["promises"]:
            name, verdict, word, bound, measured, count, meaning = _cells(promise)
            sign = words.VERDICT_WORDS[verdict][1]
            table.add_row(
                Text(name), Text(f"{sign} {word}", style=STYLES[verdict]), bound, measured, count, Text(meaning)
            )
        console.print(table)
    style = "bold green" if result.get("as_expected") else STYLES.get(str(result.get("verdict")), STYLES["unknown"])
    # The table's title already names the run.
    prefix = "verdict: " if result.get("promises") else f"{run_id}: "
    console.print(Text(prefix, style="bold").append(Text(headline, style=style)))
