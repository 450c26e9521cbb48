"""What the workers of one router tell each other about names, in memory that all of them map.

Each worker writes to a region of its own only, and reads all: there is no lock, so none is held by a worker that is
killed. What a region says outlives its worker. Names are known by a keyed digest, so that no client can choose two
that meet.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable, Iterator, Sequence

_SECRET = 16
_WORD = 8
_WINDOW = 32
"""Places at which a name may be, from the one that its digest says."""
_IDS = 4096
_ID_BITS = 52
"""So that an id is exact as a floating-point number."""

Values = list[float]
Stale = Callable[[Values], bool]


def size(regions: int, slots: int, columns: int) -> int:
    """Return the bytes of a table."""
    return regions * (slots + _WINDOW) * (1 + columns) * _WORD


def create(sizes: Sequence[int]) -> int:
    """Return the descriptor of memory for tables of these sizes; pages are allocated when they are first used."""
    number = os.memfd_create("amqp-session-router-shared")
    os.ftruncate(number, _SECRET + sum(sizes))
    os.pwrite(number, os.urandom(_SECRET), 0)
    return number


class SharedTable:
    """One table: for each region names with `columns` numbers each. `region` is this worker's own."""

    def __init__(
        self, number: int, offset: int, region: int, regions: int, slots: int, columns: int, stale: Stale
    ) -> None:
        """`slots`, a power of two: places of a region. `stale`: whether numbers say nothing any more."""
        memory = memoryview(mmap.mmap(number, os.fstat(number).st_size))
        self._secret = bytes(memory[:_SECRET])
        begin = _SECRET + offset
        part = memory[begin : begin + size(regions, slots, columns)]
        self._keys, self._values = part.cast("Q"), part.cast("d")
        self._region, self._regions = region, regions
        self._slots, self._columns = slots, columns
        self._stale = stale
        self._places = slots + _WINDOW
        self._ids: dict[tuple[str, ...], int] = {}
        """Of names that were asked for of late."""

    def id_of(self, *name: str) -> int:
        """Return a number that stands for `name`, never 0."""
        found = self._ids.get(name)
        if found is None:
            if len(self._ids) >= _IDS:
                self._ids.clear()
            found = self._ids[name] = self._digest(name)
        return found

    def _digest(self, name: tuple[str, ...]) -> int:
        text = "\0".join(f"{len(part)}:{part}" for part in name).encode("utf-8", "surrogateescape")
        digest = hashlib.blake2b(text, digest_size=8, key=self._secret).digest()
        return int.from_bytes(digest, "big") >> (64 - _ID_BITS) or 1

    def _at(self, region: int, place: int) -> int:
        """Return where the key of a place is; its numbers follow the keys of its region."""
        return region * self._places * (1 + self._columns) + place

    def _numbers(self, region: int, place: int) -> int:
        return self._at(region, self._places) + place * self._columns

    def _find(self, region: int, name: int) -> int:
        first = name % self._slots
        begin = self._at(region, first)
        try:
            return first + self._keys[begin : begin + _WINDOW].tolist().index(name)
        except ValueError:
            return -1

    def said(self, name: int, others: bool = False) -> Iterator[Values]:
        """Yield what each region says of `name`; with `others` without our own."""
        for region in range(self._regions):
            if others and region == self._region:
                continue
            place = self._find(region, name)
            if place >= 0:
                found = self._read(region, place)
                # Its writer may have given the place to another name meanwhile.
                if self._keys[self._at(region, place)] == name:
                    yield found

    def say(self, name: int, *values: float) -> bool:
        """Write our numbers of `name`; returns False if all its places are taken."""
        place = self._find(self._region, name)
        if place < 0:
            place = self._room(name)
            if place < 0:
                return False
            key = self._at(self._region, place)
            self._keys[key] = 0
            self._write(place, values)
            self._keys[key] = name
        else:
            self._write(place, values)
        return True

    def _write(self, place: int, values: Sequence[float]) -> None:
        begin = self._numbers(self._region, place)
        for index, value in enumerate(values):
            self._values[begin + index] = value

    def _room(self, name: int) -> int:
        first = name % self._slots
        for place in range(first, first + _WINDOW):
            if not self._keys[self._at(self._region, place)] or self._stale(self._read(self._region, place)):
                return place
        return -1

    def _read(self, region: int, place: int) -> Values:
        begin = self._numbers(region, place)
        return [*map(float, self._values[begin : begin + self._columns].tolist())]

    def forget(self, name: int) -> None:
        """Say nothing of `name` any more."""
        place = self._find(self._region, name)
        if place >= 0:
            self._keys[self._at(self._region, place)] = 0

    def clear(self, region: int, which: Stale) -> None:
        """Take out what `which` says of a region whose worker is gone."""
        begin = self._at(region, 0)
        for place, key in enumerate(self._keys[begin : begin + self._places].tolist()):
            if key and which(self._read(region, place)):
                self._keys[begin + place] = 0
