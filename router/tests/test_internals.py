"""What docs/internals.md says of the journal and of places in the source is so."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import amqp_session_router
from amqp_session_router.process import keeper, predecessor
from amqp_session_router.relay import journal

PACKAGE = Path(amqp_session_router.__file__).parent
CHECKOUT = PACKAGE.parents[1]
PAGE = (PACKAGE.parent / "docs" / "internals.md").read_text("utf-8")
WORD = 8


def section(heading: str) -> str:
    """Return what stands below a heading, up to the next one of any level."""
    (found,) = re.findall(rf"^#+ {heading}\n(.*?)(?=^#|\Z)", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


def offsets(table: str) -> dict[str, int]:
    """Return the offset of each name in the first two columns of a table, of several offsets the first."""
    rows = re.findall(r"^\| (\d+)(?:, \d+)? \| `(\w+)` \|", table, re.MULTILINE)
    return {name: int(offset) for offset, name in rows}


def test_the_map_of_the_journals_head() -> None:
    head, _ = section("The journal").split("A slot of 4096 bytes")
    words = ["ACTIVE_FLOW", "ACTIVE_PIPE", "NO_CELLS", "_LISTENERS", "STAGED", "PROGRESS", "RELIEVED"]
    bytes_ = ["_TEXT", "_STAGING_AT", "_HEAD"]
    assert offsets(head) == {name: getattr(journal, name) * WORD for name in words} | {
        name: getattr(journal, name) for name in bytes_
    }
    assert [*range(5)] == [journal.STARTING, journal.TAKING_OVER, journal.SERVING, journal.LEAVING, journal.LEFT]
    assert (journal.HEADROOM, journal.READ_SIZE) == (64, 16384)


def test_the_map_of_a_slot() -> None:
    _, slot = section("The journal").split("A slot of 4096 bytes")
    words = ["_USED", "_ENDS", "CELLS", "_LENGTH", "_PAUSE"]
    assert offsets(slot) == {name: getattr(journal, name) * WORD for name in words} | {"_TEXT": journal._TEXT}
    assert (journal._SLOT, journal._SLOT - journal._TEXT) == (4096, 3968)
    assert (journal._PAUSED, journal._BLOCKED_SENT, journal._BLOCKED) == (1, 2, 4)


def test_what_is_opened_stands_where_the_map_says(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with path.open("w+b") as file:
        file.truncate(journal._HEAD + journal._SLOT)
        book = journal.Journal(file.fileno())
        slot = book.opened({"id": "s"}, client=3, broker=4, count_offset=(5, 6), rest=(7, 8), pipes=(9, 10))
        assert slot is not None
        book.paused(slot, paused=True, blocked_sent=False, blocked=True)
        book.close()
    content = path.read_bytes()[28672:]
    words = [int.from_bytes(content[at : at + WORD], sys.byteorder) for at in range(0, 80, WORD)]
    assert words == [1, 3 << 32 | 4, 7, 8, 9, 10, 5, 6, words[8], 1 | 4]
    assert b"id" in content[128 : 128 + words[8]]


@pytest.mark.parametrize("message", ["state", "go", "more"])
def test_what_is_asked_is_understood_by_an_old_worker_and_by_its_keeper(message: str) -> None:
    assert f'{{"ask": "{message}"' in section("A planned restart")
    # `more` is what is left where a keeper is asked neither for the state nor for all.
    assert message == "more" or f'"{message}"' in Path(keeper.__file__).read_text("utf-8")
    assert f'"{message}"' in Path(predecessor.__file__).read_text("utf-8")


def test_each_place_is_there() -> None:
    places = re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.(?:pyx?|ya?ml|json|md))`(?:: `([\w.]+)`)?", PAGE)
    assert len(places) > 60
    for place, symbol in places:
        found = [root / place for root in (PACKAGE, PACKAGE.parent, CHECKOUT) if (root / place).is_file()]
        assert found, place
        if symbol:
            text = found[0].read_text("utf-8")
            assert all(re.search(rf"\b{part}\b", text) for part in symbol.split(".")), (place, symbol)


def test_each_trick_has_its_note() -> None:
    tricks = section("Tricks")
    rows, notes = (
        re.findall(pattern, tricks, re.MULTILINE) for pattern in (r"^\| (\d+) \|", r"^(\d+)\. `[a-z_/]+\.pyx?`")
    )
    assert rows == notes == [str(number + 1) for number in range(len(rows))]
    assert len(rows) > 20
