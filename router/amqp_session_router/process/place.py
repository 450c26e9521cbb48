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
    """0 is the leader: it has the control socket and the status pages, and gives the others the configuration."""
    workers: int
    leader: str
    """Path of the socket at which the leader is reached; empty where there is one worker only."""
    line: int
    """Descriptor of that socket, which listens as long as the router runs."""
    shared: int
    """Descriptor of the memory in which the workers share counts and keys."""

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
        return set() if self.alone else {self.line, self.shared}


ALONE = Place(LEADER, 1, "", -1, -1)


def place_of(words: Sequence[str]) -> Place:
    """Return what `Place.words` made; without words there is one worker only."""
    if not words:
        return ALONE
    index, workers, leader, line, shared = words
    return Place(int(index), int(workers), leader, int(line), int(shared))


def regions(workers: int) -> int:
    """Return how many regions the shared memory has."""
    return 2 * workers


def region(place: Place, turn: int) -> int:
    """Return the worker's region of the shared memory: it has two, for in a planned restart there are two of it."""
    return 2 * place.index + turn
