"""The session journal: what the next worker must know when this one is killed, in memory that outlives it.

The memory is a memfd whose descriptor the supervisor keeps. Flows write three cells (64-bit words) for each direction:
the bytes left of the current frame, the pipe in use, and by how many bytes the count of bytes read exceeds the count of
bytes written when nothing is in flight. The fast path stages its bytes in this memory too, so that what was read and
not yet written is found here; how much that is follows from the kernel's byte counts of both connections.
File descriptors are numbers in the table that the worker shares with its supervisor. The reader is another child of
that supervisor, with the same interpreter, so session facts are marshalled.
"""

from __future__ import annotations

import contextlib
import marshal
import mmap
import os
import resource
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

HEADROOM, READ_SIZE = 64, 16384
"""Bytes of the staging area: for an incomplete header of the read before, and for one read. What is read begins a cache
line: 8 bytes behind the begin of a page the kernel's copy of 16 kB took 9 µs more (AMD EPYC)."""
_OLD_HEADROOM = 8
_STAGING_AT = 8192
_HEAD = _STAGING_AT + 20480
_SLOT = 4096
_TEXT = 128
_WORD = 8
_USED, _ENDS, CELLS, _LENGTH, _PAUSE = 0, 1, 2, 8, 9
_PAUSED, _BLOCKED_SENT, _BLOCKED = 1, 2, 4
_FACTS = struct.Struct("@10Q")
_MARSHAL = 2
"""The version of the format that looks for no equal objects."""
ACTIVE_FLOW, ACTIVE_PIPE, NO_CELLS, _LISTENERS, STAGED = 0, 1, 2, 8, 9
"""Words of the head: the first cell of the flow that is moving bytes (with STAGED_FLAG: in the staging area), the pipe
that it uses, cells for flows that are not in the journal, length of the listeners' text, bytes staged."""
PROGRESS = 10
"""Word of the head: how far the worker is, for its supervisor."""
STARTING, TAKING_OVER, SERVING, LEAVING, LEFT = range(5)
"""Nothing is its own yet; it is being given sessions; everything is its own; it gives all away; nothing is left."""
RELIEVED = 11
"""Word of the head: whether the worker has had its predecessor's last message. Its end of the line is closed then, and
the descriptor's number may belong to another file."""
_FLAGS = 1 << 32
STAGED_FLAG = _FLAGS << 1
"""Bytes are staged behind HEADROOM. A worker from before an upgrade sets _FLAGS instead: behind _OLD_HEADROOM."""
UNKNOWN = (1 << 64) - 1
"""In a cell: the position in the stream is unknown."""
WORDS = 12
_MASK = (1 << 64) - 1
NAME = "amqp-session-router"


_MOST_SLOTS = 1 << 19
"""Of the million descriptors that a kernel gives a process by itself. With "infinity" the journal would be larger
than what can be mapped."""


def slots_for(descriptors: int) -> int:
    """Return how many sessions a process with this many descriptors can have in its journal."""
    return min(max(16, descriptors // 2), _MOST_SLOTS)


def create() -> int:
    """Return the descriptor of an empty journal for RLIMIT_NOFILE; its pages are allocated on first use."""
    number = os.memfd_create(NAME)
    os.ftruncate(number, _HEAD + _SLOT * slots_for(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    return number


def progress(number: int) -> int:
    """Return how far the worker of the journal with this descriptor is: STARTING, TAKING_OVER or SERVING."""
    return _word(number, PROGRESS)


def relieved(number: int) -> bool:
    """Return whether the worker of the journal with this descriptor needs nothing of a predecessor any more."""
    return bool(_word(number, RELIEVED))


def _word(number: int, index: int) -> int:
    return int.from_bytes(os.pread(number, _WORD, index * _WORD), sys.byteorder)


@dataclass(frozen=True, slots=True)
class JournaledSession:
    """One session of the journal."""

    slot: int
    facts: dict[str, Any]
    client: int
    broker: int
    rest: tuple[int, int]
    pipes: tuple[int, int]
    count_offset: tuple[int, int]
    splicing: tuple[bool, bool]
    """Whether the process was moving bytes of this direction through `Journal.active_pipe`."""
    staging: tuple[bool, bool]
    """Whether it was moving bytes of this direction through the staging area."""
    paused: bool = False
    blocked_sent: bool = False
    blocked: bool = False


class Journal:
    """The journal of one process."""

    def __init__(self, number: int) -> None:
        self._memory = mmap.mmap(number, os.fstat(number).st_size)
        self.cells = memoryview(self._memory).cast("Q")
        self.staging = memoryview(self._memory)[_STAGING_AT : _STAGING_AT + HEADROOM + READ_SIZE]
        self._number = number
        self._slots = (len(self._memory) - _HEAD) // _SLOT
        self._free: list[int] = []
        """Slots that were used and are not any more."""
        self._fresh = 0
        """The first slot behind all that were ever used: to look at one would allocate it."""
        for slot in self._touched():
            self._fresh = slot + 1
            if not self.cells[self._base(slot) + _USED]:
                self._free.append(slot)

    def _touched(self) -> Iterator[int]:
        """Yield the slots that have memory, in order."""
        at = _HEAD
        with contextlib.suppress(OSError):  # ENXIO: there is no more
            while True:
                begin = os.lseek(self._number, at, os.SEEK_DATA)
                at = os.lseek(self._number, begin, os.SEEK_HOLE)
                yield from range((begin - _HEAD) // _SLOT, min((at - _HEAD) // _SLOT, self._slots))

    @staticmethod
    def _base(slot: int) -> int:
        return (_HEAD + slot * _SLOT) // _WORD

    def first_cell(self, slot: int) -> int:
        """Return the first cell for a session's flows."""
        return self._base(slot) + CELLS

    def opened(
        self,
        facts: dict[str, Any],
        client: int,
        broker: int,
        count_offset: tuple[int, int],
        rest: tuple[int, int] = (0, 0),
        pipes: tuple[int, int] = (0, 0),
    ) -> int | None:
        """Enter a session with its descriptors; returns its slot, None if there is none.

        For each direction: `count_offset`, bytes read from its source minus bytes written to its sink, with nothing in
        flight, modulo 2^64; `rest`, bytes left of the current frame, or UNKNOWN; `pipes`, the pipe in use, or 0.
        """
        text = marshal.dumps(facts, _MARSHAL)
        if len(text) > _SLOT - _TEXT:
            return None
        if self._free:
            slot = self._free.pop()
        elif self._fresh < self._slots:
            slot, self._fresh = self._fresh, self._fresh + 1
        else:
            return None
        base = self._base(slot)
        at = base * _WORD + _TEXT
        self._memory[at : at + len(text)] = text
        up, down = count_offset
        ends = client << 32 | broker
        # Words 0 (`_USED`, which comes last) to 9 (`_PAUSE`).
        _FACTS.pack_into(self._memory, base * _WORD, 0, ends, *rest, *pipes, up & _MASK, down & _MASK, len(text), 0)
        self.cells[base + _USED] = 1
        return slot

    def paused(self, slot: int, paused: bool, blocked_sent: bool, blocked: bool = False) -> None:
        """Note whether a session is paused, and whether its client had a Connection.Blocked and no Unblocked since: of
        the router's (`blocked_sent`), of its broker's (`blocked`)."""
        word = paused * _PAUSED | blocked_sent * _BLOCKED_SENT | blocked * _BLOCKED
        self.cells[self._base(slot) + _PAUSE] = word

    def closed(self, slot: int) -> None:
        """Remove a session, before its descriptors are closed."""
        self.cells[self._base(slot) + _USED] = 0
        self._free.append(slot)

    def listeners(self, facts: list[Any]) -> None:
        """Save the listeners; nothing is saved if they do not fit."""
        text = marshal.dumps(facts)
        self.cells[_LISTENERS] = 0
        if len(text) <= _STAGING_AT - _TEXT:
            self._memory[_TEXT : _TEXT + len(text)] = text
            self.cells[_LISTENERS] = len(text)

    def rescued(self, slot: int, index: int, pipe: int) -> None:
        """What a process that died was moving in direction `index` of a session is in `pipe` now (0: there is none):
        only the pipe counts from here on."""
        first = self.first_cell(slot) + index
        self.cells[first] = UNKNOWN
        self.cells[first + 2] = pipe

    def emptied(self, slot: int, index: int) -> None:
        """The pipe of direction `index` of a session is in use no more."""
        self.cells[self.first_cell(slot) + index + 2] = 0

    # --- read by the next worker ------------------------------------------------------------------------------------

    def saved_listeners(self) -> list[Any]:
        """Return what `listeners` saved last."""
        length = self.cells[_LISTENERS]
        found: list[Any] = marshal.loads(self._memory[_TEXT : _TEXT + length]) if length else []
        return found

    @property
    def active_pipe(self) -> tuple[int, int]:
        """Both ends (read, write) of the pipe that was in use."""
        return self.cells[ACTIVE_PIPE] & 0xFFFFFFFF, self.cells[ACTIVE_PIPE] >> 32

    def staged(self, count: int) -> bytes:
        """Return the last `count` bytes that were staged when the process died; raises OSError if there were fewer."""
        # Killed between the read and the update of the count: nothing of it was written.
        staged = self.cells[STAGED] or count
        if count > staged or staged > READ_SIZE:
            raise OSError(0, f"{count} bytes cannot have been in flight")
        end = staged + (HEADROOM if self.cells[ACTIVE_FLOW] & STAGED_FLAG else _OLD_HEADROOM)
        return bytes(self.staging[end - count : end])

    def clear_active(self) -> None:
        """No flow is moving bytes any more: what `sessions`, `active_pipe` and `staged` returned has been used."""
        self.cells[ACTIVE_FLOW] = self.cells[STAGED] = 0

    def sessions(self) -> Iterator[JournaledSession]:
        """Yield the sessions of the journal."""
        cells = self.cells
        staged, active = divmod(cells[ACTIVE_FLOW], _FLAGS)
        for slot in self._touched():
            base = self._base(slot)
            if not cells[base + _USED]:
                continue
            at = base * _WORD + _TEXT
            facts = marshal.loads(self._memory[at : at + cells[base + _LENGTH]])
            first = base + CELLS
            ends = cells[base + _ENDS]
            yield JournaledSession(
                slot,
                facts,
                ends >> 32,
                ends & 0xFFFFFFFF,
                (cells[first], cells[first + 1]),
                (cells[first + 2], cells[first + 3]),
                (cells[first + 4], cells[first + 5]),
                (not staged and active == first, not staged and active == first + 1),
                (bool(staged) and active == first, bool(staged) and active == first + 1),
                bool(cells[base + _PAUSE] & _PAUSED),
                bool(cells[base + _PAUSE] & _BLOCKED_SENT),
                bool(cells[base + _PAUSE] & _BLOCKED),
            )

    def close(self) -> None:
        """Unmap the memory; the supervisor still has it."""
        self.cells.release()
        self.staging.release()
        self._memory.close()
