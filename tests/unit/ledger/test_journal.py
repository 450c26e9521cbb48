from pathlib import Path

import pytest

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.ledger.journal import Journal, read, unhealed


def test_unhealed_faults_come_newest_first_and_only_those(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for fault in ("a", "b", "c"):
        journal.write("intent", fault, host="h")
        journal.write("injected", fault)
    journal.write("healed", "b")
    journal.close()
    assert [entry["fault_id"] for entry in unhealed(read(tmp_path / "journal.jsonl"))] == ["c", "a"]


def test_an_intent_is_on_the_disk_before_the_effect(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("intent", "a", host="h")
    assert [entry["fault_id"] for entry in unhealed(read(tmp_path / "journal.jsonl"))] == ["a"]


def test_a_line_torn_by_a_crash_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"phase":"intent","fault_id":"a"}\n{"phase":"hea')
    assert len(unhealed(read(path))) == 1


def test_a_full_disk_is_one_sentence() -> None:
    journal = Journal.__new__(Journal)
    journal.path = Path("/dev/full")
    journal._file = journal.path.open("a")
    with pytest.raises(InfrastructureError, match="No space left on device: /dev/full"):
        journal.write("intent", "a")
    journal.close()


def test_what_is_written_after_a_torn_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"phase":"intent","fault_id":"a"}\n{"phase":"heal_int')
    journal = Journal(tmp_path)
    journal.write("healed", "a")
    journal.close()
    assert unhealed(read(path)) == []


def test_an_entry_may_say_what_some_take_for_the_end_of_a_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("intent", "a", params={"change": "one\u2028two\x85three"})
    journal.close()
    assert len(unhealed(read(journal.path))) == 1
