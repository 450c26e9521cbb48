"""Both members are down: which one holds the latest data, from what a broker leaves on disk."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from tests.roles.test_plugins import plugin

journal = plugin("modules", "artemis_journal")
preflight = plugin("filter", "preflight")


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


def member(role: str, **change: Any) -> dict[str, Any]:
    found = {"there": True, "node_id": "aa", "activation_sequence": None, "journal_file": 5, "written": 100.0}
    return {"role": role, **found, **change}


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
    pair = {"a": member("primary", activation_sequence=3), "b": member("backup", **backup)}
    found = preflight.newest_data(pair)
    assert sorted(found["order"]) == ["a", "b"]
    assert (found["order"][0], found["problem"]) == (first, "")
    assert found["why"].startswith(f"{first}: ")
    assert why in found["why"]


def test_without_a_lock_manager_the_journals_decide() -> None:
    pair = {"a": member("primary", journal_file=5), "b": member("backup", journal_file=8)}
    assert preflight.newest_data(pair)["order"] == ["b", "a"]


def test_journals_of_different_brokers_are_not_compared() -> None:
    pair = {"a": member("primary"), "b": member("backup", node_id="bb")}
    found = preflight.newest_data(pair)
    assert found["order"] == []
    assert "hold journals of different brokers" in found["problem"]
    gone = {"a": member("primary", there=False), "b": member("backup", there=False)}
    assert preflight.newest_data(gone)["problem"] == "no member has a journal"
