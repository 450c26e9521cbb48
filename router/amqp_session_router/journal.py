"""What a successor must know if this process dies without a word: words and texts in memory that outlives it.

The memory is a file without a name (memfd) whose descriptor the supervisor keeps. Flows write their three words a
direction themselves (see `flow`): how many bytes are left of the frame they are in, the pipe that is lent to them, and
by how many bytes what was read is ahead of what was written when nothing is in flight. Light traffic passes through
`hold`, a part of this memory, so that what was read and not yet written is here whenever the process dies: how much it
is, the kernel's own counts of both connections say.
Descriptors are numbers in the table that the process shares with its supervisor, so they need no passing on.
Who reads it is another child of that supervisor, with the same interpreter: facts are in its own format (marshal).
"""

from __future__ import annotations

import marshal
import mmap
import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

AHEAD, LOOK = 8, 16384
"""The hold: room for the beginning of a header that came before, and for what is read at once."""
_HOLD_AT = 8192
_HEAD = _HOLD_AT + 20480
_SLOT = 2048
_TEXT = 128
_WORD = 8
_USED, _ENDS, CELLS, _LENGTH = 0, 1, 2, 8
AT_WORK, PIPE, NO_CELLS, _LISTENERS, HELD = 0, 1, 2, 8, 9
"""Words of the head: the cell of the flow at work (with HOLDING: it holds bytes), the pipe that it uses, cells that
nobody reads (for flows that are not in the journal), the length of the listeners' text, how many bytes are held."""
HOLDING = 1 << 32
UNKNOWN = (1 << 64) - 1
"""In a cell: nobody knows where the stream stands."""
WORDS = 10
_MASK = (1 << 64) - 1
NAME = "amqp-session-router"


def slots_for(descriptors: int) -> int:
    """Return how many sessions a process with so many descriptors can have."""
    return max(16, descriptors // 2)


def create() -> int:
    """Return the descriptor of an empty journal, large enough for this process's limit; its pages come as needed."""
    number = os.memfd_create(NAME)
    os.ftruncate(number, _HEAD + _SLOT * slots_for(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    return number


@dataclass(frozen=True, slots=True)
class Left:
    """One session that is in the journal."""

    slot: int
    facts: dict[str, Any]
    client: int
    broker: int
    rest: tuple[int, int]
    lent: tuple[int, int]
    ahead: tuple[int, int]
    current: tuple[bool, bool]
    """Was the process in the middle of moving bytes of this direction, with the pipe of `Journal.at_work`?"""
    holding: tuple[bool, bool]
    """Was it in the middle of it, with bytes in the hold?"""


class Journal:
    """The journal of one process."""

    def __init__(self, number: int) -> None:
        self._memory = mmap.mmap(number, os.fstat(number).st_size)
        self.cells = memoryview(self._memory).cast("Q")
        self.hold = memoryview(self._memory)[_HOLD_AT : _HOLD_AT + AHEAD + LOOK]
        self._free = [
            slot
            for slot in range((len(self._memory) - _HEAD) // _SLOT - 1, -1, -1)
            if not self.cells[self._base(slot) + _USED]
        ]

    @staticmethod
    def _base(slot: int) -> int:
        return (_HEAD + slot * _SLOT) // _WORD

    def first_cell(self, slot: int) -> int:
        """Return the first cell for a session's flows."""
        return self._base(slot) + CELLS

    def opened(self, facts: dict[str, Any], client: int, broker: int, ahead: tuple[int, int]) -> int | None:
        """Enter a session with its descriptors; returns its slot, None where it does not fit.

        `ahead` is, for each direction, by how many bytes what was read from its source is more than what was written to
        its sink (modulo 2^64), with nothing in flight.
        """
        text = marshal.dumps(facts)
        if not self._free or len(text) > _SLOT - _TEXT:
            return None
        slot = self._free.pop()
        base = self._base(slot)
        at = base * _WORD + _TEXT
        self._memory[at : at + len(text)] = text
        cells = self.cells
        cells[base + _ENDS] = client << 32 | broker
        cells[base + CELLS] = cells[base + CELLS + 1] = cells[base + CELLS + 2] = cells[base + CELLS + 3] = 0
        cells[base + CELLS + 4], cells[base + CELLS + 5] = ahead[0] & _MASK, ahead[1] & _MASK
        cells[base + _LENGTH] = len(text)
        cells[base + _USED] = 1
        return slot

    def closed(self, slot: int) -> None:
        """Strike a session out, before its descriptors are closed."""
        self.cells[self._base(slot) + _USED] = 0
        self._free.append(slot)

    def listeners(self, facts: list[Any]) -> None:
        """Note the listeners; what does not fit is not noted."""
        text = marshal.dumps(facts)
        self.cells[_LISTENERS] = 0
        if len(text) <= _HOLD_AT - _TEXT:
            self._memory[_TEXT : _TEXT + len(text)] = text
            self.cells[_LISTENERS] = len(text)

    # --- the successor's view ---------------------------------------------------------------------------------------

    def left_listeners(self) -> list[Any]:
        """Return what `listeners` noted last."""
        length = self.cells[_LISTENERS]
        found: list[Any] = marshal.loads(self._memory[_TEXT : _TEXT + length]) if length else []
        return found

    @property
    def at_work(self) -> tuple[int, int]:
        """Return both ends (read, write) of the pipe that was in use."""
        return self.cells[PIPE] & 0xFFFFFFFF, self.cells[PIPE] >> 32

    def held(self, count: int) -> bytes:
        """Return the last `count` bytes of what the process held when it died; raises OSError if so many cannot be."""
        # Killed between the read and the note of it, nothing of it can have been written.
        held = self.cells[HELD] or count
        if count > held or held > LOOK:
            raise OSError(0, f"{count} bytes cannot have been in flight")
        return bytes(self.hold[AHEAD + held - count : AHEAD + held])

    def settled(self) -> None:
        """Nobody is at work: what `left`, `at_work` and `held` say has been used."""
        self.cells[AT_WORK] = self.cells[HELD] = 0

    def left(self) -> Iterator[Left]:
        """Yield the sessions that are in the journal."""
        cells = self.cells
        holding, at_work = cells[AT_WORK] >= HOLDING, cells[AT_WORK] % HOLDING
        for slot in range((len(self._memory) - _HEAD) // _SLOT):
            base = self._base(slot)
            if not cells[base + _USED]:
                continue
            at = base * _WORD + _TEXT
            facts = marshal.loads(self._memory[at : at + cells[base + _LENGTH]])
            first = base + CELLS
            ends = cells[base + _ENDS]
            yield Left(
                slot,
                facts,
                ends >> 32,
                ends & 0xFFFFFFFF,
                (cells[first], cells[first + 1]),
                (cells[first + 2], cells[first + 3]),
                (cells[first + 4], cells[first + 5]),
                (not holding and at_work == first, not holding and at_work == first + 1),
                (holding and at_work == first, holding and at_work == first + 1),
            )

    def close(self) -> None:
        """Let go of the memory; the supervisor still has it."""
        self.cells.release()
        self.hold.release()
        self._memory.close()
