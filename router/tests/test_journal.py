"""The journal takes memory for the sessions that there are, whatever number there might be."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

from amqp_session_router.relay import journal
from amqp_session_router.relay.journal import Journal

FACTS = {"id": "s", "vhost": "/"}


@pytest.fixture
def number() -> Iterator[int]:
    """The descriptor of a journal for a million descriptors."""
    found = os.memfd_create("journal")
    os.ftruncate(found, journal._HEAD + journal._SLOT * journal.slots_for(1 << 20))
    yield found
    os.close(found)


def allocated(number: int) -> int:
    """The bytes of memory that a file has."""
    return os.fstat(number).st_blocks * 512


def test_an_idle_journal_takes_next_to_nothing(number: int) -> None:
    book = Journal(number)
    assert not [*book.sessions()]
    assert allocated(number) < 1 << 16
    slots = [book.opened(FACTS, 3, 4, (0, 0)) for _ in range(100)]
    assert slots == [*range(100)]
    assert allocated(number) < 1 << 20
    book.close()


def test_the_next_one_finds_what_was_used_and_what_is_free(number: int) -> None:
    book = Journal(number)
    for _ in range(10):
        book.opened(FACTS, 3, 4, (0, 0))
    for slot in (2, 7):
        book.closed(slot)
    after = Journal(number)
    assert [one.slot for one in after.sessions()] == [0, 1, 3, 4, 5, 6, 8, 9]
    assert {after.opened(FACTS, 3, 4, (0, 0)) for _ in range(4)} == {2, 7, 10, 11}
    assert len([*after.sessions()]) == 12
    for one in (book, after):
        one.close()


def test_a_full_journal_takes_no_more() -> None:
    number = os.memfd_create("journal")
    os.ftruncate(number, journal._HEAD + journal._SLOT * 16)
    book = Journal(number)
    assert [book.opened(FACTS, 3, 4, (0, 0)) for _ in range(17)] == [*range(16), None]
    book.closed(5)
    assert book.opened(FACTS, 3, 4, (0, 0)) == 5
    assert len([*book.sessions()]) == 16
    book.close()
    os.close(number)


def test_a_limit_of_infinity_is_one_that_can_be_mapped() -> None:
    for most in (resource.RLIM_INFINITY, 1 << 40):
        assert journal.slots_for(most % (1 << 64)) <= 1 << 19
