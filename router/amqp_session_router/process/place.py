"""Which worker of a router this is, and by what it reaches the others.

Imports nothing but the standard library: the supervisor loads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

LEADER = 0


@dataclass(frozen=True, slots=True)
class Place:
    """One worker among several."""

    index: int
    """The first is the leader: it has the control socket and the status pages, and the others go by what it says."""
    workers: int
    leader: str
    """Path of the socket at which the leader is reached; empty where there is one worker only."""
    line: int
    """Descriptor of that socket, which listens as long as the router runs."""

    @property
    def leads(self) -> bool:
        """Whether this is the leader."""
        return self.index == LEADER

    @property
    def alone(self) -> bool:
        """Whether there are no others."""
        return self.workers == 1

    def words(self) -> list[str]:
        """Return it as arguments of a program."""
        return [str(value) for value in astuple(self)]

    def descriptors(self) -> set[int]:
        """Return what has to stay open."""
        return set() if self.alone else {self.line}


ALONE = Place(LEADER, 1, "", -1)


def place_of(words: Sequence[str]) -> Place:
    """Return what `Place.words` made; without words there is one worker only."""
    if not words:
        return ALONE
    index, workers, leader, line = words
    return Place(int(index), int(workers), leader, int(line))
