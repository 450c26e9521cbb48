"""The verdict on terminals of several widths, and on none."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from brokerdrill.report import format as fmt

from . import sample


def printed(result: dict[str, Any], **options: Any) -> str:
    out = io.StringIO()
    sample.print_verdict(result, Console(file=out, highlight=False, **options))
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 100, 160])
def test_a_table_on_a_terminal(width: int) -> None:
    text = printed(sample.broken(), force_terminal=True, width=width, color_system=None)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    row = next(line for line in lines if line.lstrip().startswith("no_duplicates"))
    assert "✗ broken" in row and " 3 " in row
    assert any(line.lstrip().startswith("no_duplicates") and "3 messages were processed" in line for line in lines)
    assert any("4,127 ms" in line and "6,000 ms" in line and "✓ kept" in line for line in lines)
    assert "verdict: broken, not as expected: no_loss, no_duplicates" in text


def test_plain_lines_elsewhere() -> None:
    text = printed(sample.broken(), force_terminal=False, width=60)
    lines = text.splitlines()
    assert len(lines) == 10
    assert lines[-2].endswith("note: one torn last line was skipped: ops/worker-1.jsonl")
    assert "\x1b" not in text and "│" not in text
    found = next(line for line in lines if "  no_duplicates" in line)
    assert "  broken  " in found and "count 3" in found and found.endswith("3 messages were processed more than once.")
    assert lines[-1].endswith("verdict: broken, not as expected: no_loss, no_duplicates")


def test_what_was_excused_is_said() -> None:
    text = printed(sample.broken(), force_terminal=False)
    found = next(line for line in text.splitlines() if "  ordered  " in line)
    assert "excused 38" in found and "38 excused: late, but flagged as redelivered, or possibly given back" in found


def test_names_are_not_markup_and_steer_no_terminal() -> None:
    evil = "[bold red]x[/] \x1b]0;title\x07"
    for options in ({"force_terminal": True, "width": 200, "color_system": None}, {"force_terminal": False}):
        text = printed(sample.result(evil), **options)
        assert "[bold red]x[/]" in text
        assert "\x1b]" not in text and "\x07" not in text


def test_several_runs_and_one_that_cannot_be_read() -> None:
    gone = {"run_id": None, "run_dir": "runs/gone", "verdict": "unknown", "as_expected": False, "error": "no run.json"}
    result = {"verdict": "unknown", "as_expected": False, "runs": [sample.result("a-run"), gone]}
    for terminal in (True, False):
        text = printed(result, force_terminal=terminal, width=160, color_system=None)
        assert "a-run" in text
        assert "gone" in text and "no run.json" in text


def test_numbers() -> None:
    assert [fmt.milliseconds(value) for value in (0.424, 42.25, 3912.4, 6000, None)] == [
        "0.42 ms",
        "42.2 ms",
        "3,912 ms",
        "6,000 ms",
        "–",
    ]
    assert [fmt.span(value) for value in (84e6, 4.21e9, 125.2e9, 59.9996e9)] == [
        "84 ms",
        "4.21 s",
        "2 min 05 s",
        "60.00 s",
    ]
    assert [fmt.percent(value) for value in (0, 0.1391, 0.9998, 1, 0.00042)] == [
        "0 %",
        "13.9 %",
        "99.9 %",
        "100 %",
        "0.042 %",
    ]
    assert fmt.value("t_ns", 1_500_000_000) == "1.500 s"
    assert fmt.value("redelivered", True) == "yes"
