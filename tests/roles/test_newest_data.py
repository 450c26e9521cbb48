"""Both members are down: which one holds the latest data, from what a broker leaves on disk."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from tests.roles.test_plugins import plugin

journal = plugin("modules", "artemis_journal")
newest = plugin("filter", "artemis_journal")


def store(place: Path, node: bytes = b"\x01" * 16, sequence: int | None = None, files: tuple[int, ...] = (1,)) -> Path:
    """Make a data directory as a broker leaves it: `files` are the numbers of journal files with records."""
    directory = place / "journal"
    directory.mkdir(parents=True)
    (directory / "server.lock").write_bytes(b"L\0\0" + node)
    if sequence is not None:
        (directory / "server.activation.sequence").write_bytes(struct.pack(">q", sequence))
    for number in files:
        head = struct.pack(">iiq", 2, 0, number)
        (directory / f"activemq-data-{number}.amq").write_bytes(head + bytes([11]) + b"\0" * 100)
    # Made in advance: a number, and nothing recorded; and one that is all fill.
    (directory / "activemq-data-98.amq").write_bytes(struct.pack(">iiq", 2, 0, 98) + b"\0" * 100)
    (directory / "activemq-data-99.amq").write_bytes(b"J" * 100)
    return place


def test_what_a_directory_says(tmp_path: Path) -> None:
    found = journal.read(store(tmp_path, sequence=7, files=(3, 12)))
    assert (found["there"], found["activation_sequence"], found["journal_file"]) == (True, 7, 12)
    assert found["node_id"] == "01" * 16
    assert found["written"] > 0
    assert found["replaced"] == []


def test_what_was_moved_aside_is_named(tmp_path: Path) -> None:
    store(tmp_path)
    (tmp_path / "journal" / "oldreplica.1").mkdir()
    assert journal.read(tmp_path)["replaced"] == ["oldreplica.1"]


def test_an_empty_directory_says_so(tmp_path: Path) -> None:
    assert journal.read(tmp_path) == {
        "there": False,
        "node_id": "",
        "activation_sequence": None,
        "journal_file": 0,
        "written": 0.0,
        "replaced": [],
    }


def member(**change: Any) -> dict[str, Any]:
    found = {"there": True, "node_id": "aa", "activation_sequence": None, "journal_file": 5, "written": 100.0}
    return {**found, **change}


@pytest.mark.parametrize(
    ("backup", "first", "why"),
    [
        ({"activation_sequence": 4, "journal_file": 2}, "b", "activation sequence is 4"),
        ({"activation_sequence": 2, "journal_file": 9}, "a", "activation sequence is 3"),
        ({"activation_sequence": 3, "journal_file": 9}, "b", "goes on to file 9"),
        ({"activation_sequence": 3, "written": 101.0}, "b", "written last, at 101.0"),
        ({"activation_sequence": 3}, "a", "as new as any other's"),
        ({"there": False}, "a", "as new as any other's"),
    ],
)
def test_the_latest_is_named_with_its_reason(backup: dict[str, Any], first: str, why: str) -> None:
    pair = {"a": member(activation_sequence=3), "b": member(**backup)}
    found = newest.newest_data(pair, ["a"])
    assert sorted(found["order"]) == ["a", "b"]
    assert (found["order"][0], found["problem"]) == (first, "")
    assert found["why"].startswith(f"{first}: ")
    assert why in found["why"]


def test_the_primary_is_first_among_equals() -> None:
    pair = {"a": member(), "b": member()}
    assert newest.newest_data(pair, ["a"])["order"] == ["a", "b"]
    assert newest.newest_data(pair, ["b"])["order"] == ["b", "a"]


def test_without_a_lock_manager_the_journals_decide() -> None:
    pair = {"a": member(journal_file=5), "b": member(journal_file=8)}
    assert newest.newest_data(pair, ["a"])["order"] == ["b", "a"]


def test_journals_of_different_brokers_are_not_compared() -> None:
    pair = {"a": member(), "b": member(node_id="bb")}
    found = newest.newest_data(pair, ["a"])
    assert found["order"] == []
    assert "hold journals of different brokers" in found["problem"]
    gone = {"a": member(there=False), "b": member(there=False)}
    assert newest.newest_data(gone, ["a"])["problem"] == "no member has a journal"
