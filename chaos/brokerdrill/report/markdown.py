"""A summary in Markdown for the job page of a CI server: what holds, what does not, and the numbers that say so.

GitHub's dialect (tables, `<details>`), which GitLab, Gitea and Forgejo show as well; no picture, no link to anything
that is not beside it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path

from brokerdrill.base.atomic import write
from brokerdrill.ledger.verdict import FAIL, PromiseVerdict, RunVerdict, Verdict
from brokerdrill.report import details, view, words
from brokerdrill.report import format as fmt

# A job's page shows a megabyte at most (GitHub), so that of many runs only the first have details.
MOST_DETAILED = 20
WITNESSES = 3
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~$&])")


def text(value: object) -> str:
    """Return `value` as Markdown that shows just that: one line, nothing in it is mark-up."""
    return _SPECIAL.sub(r"\\\1", " ".join(fmt.clean(value).split()))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = 0) -> list[str]:
    """The lines of a table, its last `numbers` columns to the right; cells are Markdown already."""
    if not rows:
        return []
    left = len(heads) - numbers
    rule = ["---"] * left + ["---:"] * numbers
    return [f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows)] + [""]


_SIGNS = {"good": "✅", "bad": "❌", "doubt": "❔"}


def _promises(result: RunVerdict) -> list[str]:
    rows = [
        [
            f"{row.sign} {row.word}{'' if row.met else ' **(not as expected)**'}",
            text(row.name) + (f" ({text(row.details)})" if row.details else ""),
            text(row.meaning),
            row.bound,
            row.measured,
            row.count,
        ]
        for row in view.promise_rows(result, None)
    ]
    return _table(["verdict", "promise", "what it means", "bound", "measured", "count"], rows, numbers=3)


def _coverage(result: RunVerdict) -> list[str]:
    rows = [
        [text(row.fault), text(row.target), text(row.role), row.at, row.clients, row.in_flight, row.operations]
        for row in details.coverage_rows(result)
    ]
    heads = ["fault", "of", "which was", "at", "clients connected", "operations in flight", "until the heal"]
    return _table(heads, rows, numbers=4)


def _messages(result: RunVerdict) -> list[str]:
    rows = [row for row in view.class_rows(result) if row.count]
    shares = ", ".join(f"{row.text} {text(row.name)} ({row.share})" for row in rows)
    return [f"Messages: {shares}.", ""] if rows else []


def _failovers(result: RunVerdict) -> list[str]:
    found = result.failovers()
    if not found:
        return []
    times = [value for value in found.values() if value is not None]
    slowest = (
        f"slowest next send {fmt.milliseconds(max(times))}" if len(times) == len(found) else "not all clients served"
    )
    return [f"Failovers: {len(found)}, {slowest}. Outages: {len(result.outages)}.", ""]


def _rounds(result: RunVerdict) -> list[str]:
    rows = [
        [text(row.round), text(row.broken), row.start, row.lasted, row.faults, row.failover, row.failback, row.outages]
        for row in details.round_rows(result)
    ]
    heads = ["round", "broken promises", "from", "lasted", "faults", "failover", "failback", "outages"]
    return _table(heads, rows, numbers=6)


def _phases(result: RunVerdict) -> list[str]:
    rows = [
        [text(row.phase), row.seconds, row.kind, row.count, row.per_s, row.p50, row.p95, row.p99, row.max]
        for row in details.phase_rows(result)
        if row.kind
    ]
    return _table(["phase", "lasted", "of", "count", "rate", "p50", "p95", "p99", "slowest"], rows, numbers=6)


def _witnesses(promise: PromiseVerdict) -> list[str]:
    lines = []
    for item in promise.witnesses[:WITNESSES]:
        pairs = [
            f"{text(fmt.label(str(k)))} {text(fmt.value(str(k), v))}" for k, v in item.fields.items() if v is not None
        ]
        lines += [f"- {', '.join(pairs)}"]
        for step in details.story_rows(item.story or ()):
            words_of = (step.time, step.who, step.what, step.outcome, step.took, step.where, step.error)
            lines.append(f"  - {' · '.join(text(word) for word in words_of if word)}")
    more = len(promise.witnesses) - WITNESSES
    return [*lines, *([f"- and {more} more in the report"] if more > 0 else []), ""] if lines else []


def _fold(summary: str, lines: Sequence[str]) -> list[str]:
    # An HTML block: there Markdown's own escapes would be seen.
    return (
        [f"<details><summary>{html.escape(fmt.clean(summary))}</summary>", "", *lines, "</details>", ""]
        if lines
        else []
    )


def _run(result: RunVerdict) -> list[str]:
    lines = [
        f"## {_SIGNS[words.tone(result)]} {text(words.run_name(result))}",
        "",
        f"**{text(words.headline(result))}**",
        "",
    ]
    if result.error:
        return lines
    lines += [f"> {text(note)}  " for note in result.notes] + ([""] if result.notes else [])
    lines += _promises(result) + _coverage(result) + _messages(result) + _failovers(result) + _rounds(result)
    for promise in result.promises:
        if promise.verdict == FAIL:
            lines += _fold(f"Witnesses of {promise.name}, with their stories", _witnesses(promise))
    lines += _fold("Throughput and latency by phase", _phases(result))
    return lines


def markdown(result: Verdict) -> str:
    """Return the summary; see `write_markdown`."""
    runs = result.runs
    lines = []
    if len(runs) > 1:
        good = sum(run.as_expected for run in runs)
        rows = [[_SIGNS[words.tone(run)], text(words.run_name(run)), text(words.headline(run))] for run in runs]
        lines += [
            f"# {_SIGNS[words.tone(result)]} {good} of {len(runs)} runs as expected",
            "",
            *_table(["", "run", "verdict"], rows),
        ]
    for run in runs[:MOST_DETAILED]:
        lines += _run(run)
    if len(runs) > MOST_DETAILED:
        lines += [
            f"{len(runs) - MOST_DETAILED} more runs have their numbers in the table above and in their reports.",
            "",
        ]
    return "\n".join(lines).rstrip() + "\n"


def write_markdown(result: Verdict, path: Path) -> Path:
    """Write `result` as Markdown to `path`, and return that: promises first, then
    messages, failovers, each broken promise's first witnesses with their stories, and quantiles by phase.

    For a CI job's page: `cat summary.md >> "$GITHUB_STEP_SUMMARY"`. Raises InfrastructureError when the file cannot be
    written.
    """
    return write(path, markdown(result).encode("utf-8", errors="replace"))
