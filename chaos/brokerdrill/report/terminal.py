"""The verdict on a terminal: a table for people, plain lines for pipes and logs."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from brokerdrill.ledger.verdict import PromiseVerdict, RunVerdict
from brokerdrill.report import format as fmt
from brokerdrill.report import words

# Columns from which on the sentences have room beside the numbers.
WIDE = 110
STYLES = {"pass": "bold green", "fail": "bold red", "unknown": "bold yellow"}


def _cells(promise: PromiseVerdict) -> tuple[str, ...]:
    return (
        fmt.clean(promise.name),
        promise.verdict,
        words.verdict_word(promise.verdict),
        fmt.milliseconds(promise.bound),
        fmt.milliseconds(promise.measured),
        fmt.number(promise.count),
        fmt.number(promise.excused),
        words.meaning(promise),
    )


def _tables(title: str, rows: Sequence[tuple[str, ...]], wide: bool) -> list[Table]:
    """The table of promises; on a narrow terminal what they mean is a table of its own below."""
    # A column of zeros would only take room from the sentences.
    numbers = ["bound", "measured", "count"] + ["excused"] * any(row[6] != "0" for row in rows)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=Text(title), title_justify="left")
    table.add_column("promise", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for head in numbers:
        table.add_column(head, justify="right", no_wrap=True)
    below = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 1))
    if wide:
        table.add_column("what it means", ratio=1)
    for name, verdict, word, *cells, meaning in rows:
        sign = Text(f"{words.VERDICT_WORDS[verdict][1]} {word}", style=STYLES[verdict])
        table.add_row(Text(name), sign, *cells[: len(numbers)], *([Text(meaning)] if wide else []))
        below.add_row(Text(name), Text(meaning))
    return [table] if wide else [table, below]


def print_verdict(result: RunVerdict, console: Console) -> None:
    """Print one run's verdict.

    On a terminal: a table of promises with verdict, bound, measured, count and what it means. Elsewhere: a plain line a
    promise with the same fields, separated by two spaces, without colours or frames.
    """
    run_id = words.run_name(result)
    headline = words.headline(result)
    if result.vacuous:
        console.print(f"{run_id}  {headline}", markup=False, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        # soft_wrap: a line of a log is one line, however long.
        for promise in result.promises:
            name, _, word, bound, measured, count, excused, meaning = _cells(promise)
            numbers = f"bound {bound}  measured {measured}  count {count}  excused {excused}"
            line = f"{run_id}  {word:<7}  {name:<15}  {numbers}  {meaning}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        for note in result.notes:
            console.print(f"{run_id}  note: {fmt.clean(note)}", markup=False, highlight=False, soft_wrap=True)
        console.print(f"{run_id}  verdict: {headline}", markup=False, highlight=False, soft_wrap=True)
        return
    if result.promises:
        for table in _tables(run_id, [_cells(promise) for promise in result.promises], console.width >= WIDE):
            console.print(table)
    for note in result.notes:
        console.print(Text(f"note: {fmt.clean(note)}"))
    style = "bold green" if result.as_expected else STYLES[result.verdict]
    # The table's title already names the run.
    prefix = "verdict: " if result.promises else f"{run_id}: "
    console.print(Text(prefix, style="bold").append(Text(headline, style=style)))
