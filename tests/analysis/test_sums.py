"""Files of operations are what their workers had written, by size and sum, or operations are missing."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from brokerdrill.analysis.analyze import analyze
from brokerdrill.analysis.compact import compact
from brokerdrill.analysis.events import Event
from brokerdrill.analysis.files import LocalFolder
from brokerdrill.analysis.sums import lacking
from brokerdrill.base.errors import UsageError
from tests.analysis.batch import Row
from tests.analysis.kept_run import event, kept
from tests.analysis.write import lines, run_dir

CONTENT = b"a line\nand another\n"
SUM = hashlib.sha256(CONTENT).hexdigest()


def told(name: str, size: int | str = len(CONTENT), digest: str | None = SUM) -> Event:
    detail = {"bytes": str(size)} | ({} if digest is None else {"sha256": digest})
    return Event("piece", 5, name=name, detail=tuple(sorted(detail.items())))


def missing(tmp_path: Path, *events: Event, also: str = "") -> list[str]:
    (tmp_path / "ops").mkdir()
    files = ["ops/worker-0.spool", *filter(None, [also])]
    for file in files:
        (tmp_path / file).write_bytes(CONTENT)
    return lacking(LocalFolder(tmp_path), files, events)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (told("worker-0.spool"), ""),
        (told("worker-0.spool", digest=None), ""),
        (told("worker-0.spool", 20), "worker-0.spool has 19 of 20 bytes that its worker had written"),
        (told("worker-0.spool", 18), "worker-0.spool has 19 of 18 bytes that its worker had written"),
        (told("worker-0.spool", digest="0" * 64), "worker-0.spool is not what its worker had written"),
        (told("worker-1.spool"), "worker-1.spool, which a worker had written, is not there"),
        (told("worker-1.spool", "many"), ""),
        (Event("note", 5, name="worker-1.spool"), ""),
    ],
)
def test_a_file_is_held_against_what_was_told_of_it(tmp_path: Path, event: Event, words: str) -> None:
    found = missing(tmp_path, event, *([told("worker-0.spool")] if event.name != "worker-0.spool" else []))
    assert len(found) == bool(words) and all(said.startswith(words) for said in found), found


def test_each_file_has_its_own_sum_and_the_last_that_was_told_counts(tmp_path: Path) -> None:
    events = told("worker-0.spool", 5), told("worker-0.spool"), told("worker-1.spool"), told("worker-2.spool")
    assert [said.split(",")[0] for said in missing(tmp_path, *events)] == ["worker-1.spool", "worker-2.spool"]


def test_a_spool_of_which_nothing_was_told_may_have_been_cut_off(tmp_path: Path) -> None:
    """Its client's rows stop in the middle of the load, at the end of a line, and no sum contradicts that."""
    found = missing(tmp_path, told("worker-0.spool"), also="ops/worker-1.spool")
    assert found == ["of worker-1.spool nobody has said how much its worker had written"]


def test_of_rows_in_another_form_and_where_no_sum_is_known_nothing_has_to_be_told(tmp_path: Path) -> None:
    assert missing(tmp_path, told("worker-0.spool"), also="ops/routed.jsonl") == []
    (tmp_path / "of another run").mkdir()
    assert missing(tmp_path / "of another run", also="ops/worker-1.spool") == []


def test_a_file_that_was_compacted_need_not_be_there(tmp_path: Path) -> None:
    both = told("worker-0.spool"), told("worker-1.spool")
    assert missing(tmp_path, *both, also="ops/compact-1-00000.parquet") == []


def written(tmp_path: Path, digest: str) -> Path:
    run, ops, events = kept()
    content = lines(ops)
    detail = {"bytes": str(len(content)), "sha256": digest or hashlib.sha256(content).hexdigest()}
    row: Row = event("piece", 9000, name="worker-1.jsonl", detail=detail)
    return run_dir(tmp_path / "run", run, ops, [*events, row])


def test_what_is_not_as_it_was_written_can_neither_be_judged_nor_compacted(tmp_path: Path) -> None:
    folder = written(tmp_path, "0" * 64)
    result = analyze([folder]).to_json()
    doubted = {one["name"] for one in result["promises"] if one["verdict"] == "unknown"}
    assert {one["name"] for one in result["promises"]} - doubted == {"failback_within", "stays_up", "alerted_within"}
    assert any("SHA-256" in note for note in result["notes"])
    with pytest.raises(UsageError, match=r"SHA-256 is another one: it stays as it is"):
        compact([folder])


def test_what_is_as_it_was_written_is_judged_compact_or_not(tmp_path: Path) -> None:
    folder = written(tmp_path, "")
    assert analyze([folder]).to_json()["verdict"] == "pass"
    compact([folder])
    assert analyze([folder]).to_json()["verdict"] == "pass"
