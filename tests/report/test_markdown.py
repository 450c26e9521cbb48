"""The summary for a CI job, read by a Markdown parser as a forge would."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from lxml import html
from markdown_it import MarkdownIt

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.report.markdown import MOST_DETAILED, text

from . import sample
from .test_page import EVIL, everything_evil, text_of, words_of

SUMMARY_LIMIT = 1 << 20


def shown(result: dict[str, Any]) -> Any:
    """The page that the summary becomes."""
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(sample.markdown(result))
    return html.fromstring(f"<body>{page}</body>")


def rows(page: Any, table: int) -> list[str]:
    return [words_of(row) for row in page.xpath("//table")[table].xpath(".//tbody/tr")]


def test_a_kept_run(tmp_path: Path) -> None:
    path = sample.write_markdown(sample.result(), tmp_path / "summary.md")
    assert path.read_text(encoding="utf-8") == sample.markdown(sample.result())
    page = shown(sample.result())
    assert text_of(page.xpath("//h2")[0]) == "✅ 20251121T100000Z-kill_active-artemis_quorum-4711"
    assert text_of(page.xpath("//strong")[0]) == "kept, as expected: all 8 promises hold"
    promises = rows(page, 0)
    assert len(promises) == 8
    assert promises[5].startswith("✓ kept failover_within") and promises[5].endswith("6,000 ms 4,127 ms 0")
    body = text_of(page)
    assert "20,412 ok (99.7 %)" in body and "Failovers: 1, slowest next send 4,127 ms. Outages: 0." in body
    assert [text_of(node) for node in page.xpath("//summary")] == ["Throughput and latency by phase"]
    assert rows(page, 1)[0].startswith("before the fault 14.20 s send 8,211 578 / s 3.80 ms")


def test_the_first_line_names_what_nobody_expected() -> None:
    result = sample.result(verdict="fail", as_expected=False)
    for promise in result["promises"]:
        if promise["name"] in ("no_loss", "ordered"):
            promise |= {"verdict": "fail", "expected": "known", "as_expected": True}
        elif promise["name"] == "single_active":
            promise |= {"verdict": "unknown", "as_expected": False}
    assert text_of(shown(result).xpath("//strong")[0]) == "broken, not as expected: single_active"


def test_rounds_are_side_by_side() -> None:
    table = rows(shown(sample.result(rounds=sample.rounds())), 1)
    assert table == [
        "1 – 5.000 s 35.00 s 1 4,127 ms 6,528 ms 0",
        "2 failback_within 1, no_loss 2 40.000 s 16.00 s 2 3,902 ms – 3",
    ]


def test_a_broken_run_tells_its_witnesses_stories() -> None:
    page = shown(sample.broken())
    assert text_of(page.xpath("//h2")[0]).startswith("❌")
    assert "one torn last line was skipped: ops/worker-1.jsonl" in text_of(page.xpath("//blockquote")[0])
    assert sum("(not as expected)" in row for row in rows(page, 0)) == 3
    folded = {text_of(node.xpath("./summary")[0]): node for node in page.xpath("//details")}
    lost, twice = (
        folded["Witnesses of no_loss, with their stories"],
        folded["Witnesses of no_duplicates, with their stories"],
    )
    assert "message id 4711-producer-2-00187" in text_of(lost)
    witnesses = twice.xpath("./ul/li")
    assert len(witnesses) == 3
    steps = [text_of(step) for step in witnesses[0].xpath("./ul/li")]
    assert steps[1] == "15.004 s · producer-0 · send, attempt 1 · unknown · no answer · artemis1 · AMQ219014: Timed out"
    assert len(steps) == 7


def test_an_expected_violation_is_a_good_end() -> None:
    result = sample.result(verdict="fail")
    duplicates = next(promise for promise in result["promises"] if promise["name"] == "no_duplicates")
    duplicates |= {"verdict": "fail", "count": 1, "expected": "violated", "as_expected": True}
    page = shown(result)
    assert text_of(page.xpath("//h2")[0]).startswith("✅")
    assert "not as expected" not in text_of(page)


def test_several_runs_begin_with_a_table() -> None:
    gone = {"run_dir": "runs/gone", "verdict": "unknown", "as_expected": False, "error": "no run.json"}
    runs = [*(sample.result(f"run-{index}") for index in range(MOST_DETAILED)), sample.broken(), gone]
    page = shown({"verdict": "fail", "as_expected": False, "runs": runs})
    assert text_of(page.xpath("//h1")[0]) == f"❌ {MOST_DETAILED} of {len(runs)} runs as expected"
    table = rows(page, 0)
    assert len(table) == len(runs)
    assert table[-1] == "❔ gone unknown: the run could not be read – no run.json"
    assert len(page.xpath("//h2")) == MOST_DETAILED
    assert "2 more runs have their numbers" in text_of(page)
    assert len(sample.markdown({"verdict": "fail", "as_expected": False, "runs": runs}).encode()) < SUMMARY_LIMIT


def test_whatever_a_ledger_says_is_shown_as_text() -> None:
    result, _ = everything_evil()
    result["promises"][0]["name"] = result["redelivered"] = EVIL
    result["promises"][0] |= {"verdict": "fail", "count": 1}
    page = shown(result)
    assert not page.xpath("//img | //script | //a | //code | //em")
    # The promises, the rounds and the phases: no cell ended early, no row was broken in two.
    assert [len(table.xpath(".//tbody/tr")) for table in page.xpath("//table")] == [8, 1, 4]
    assert {len(row.xpath("./td")) for row in page.xpath("//table")[0].xpath(".//tbody/tr")} == {6}
    assert "onerror=alert(1)" in text_of(page.xpath("//h2")[0])
    strange = shown({"run_dir": "x", "verdict": "unknown", "as_expected": False, "error": EVIL})
    assert not strange.xpath("//img | //script")


@pytest.mark.parametrize(
    "value", ["a_b_c", "*x*", "`x`", "[x](y)", "<b>", "a|b", "# x", "1\n2", "![i](u)", "a~~b~~", "$x$"]
)
def test_nothing_is_mark_up(value: str) -> None:
    page = html.fromstring(
        MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text(value))
    )
    assert page.tag == "p" and len(page) == 0
    assert page.text == re.sub(r"\s+", " ", value)


def test_a_disk_that_does_not_take_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match=r"summary\.md cannot be written"):
        sample.write_markdown(sample.result(), tmp_path / "file" / "summary.md")
