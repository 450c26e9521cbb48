"""What the workers of one router share about names, in memory that all of them map.

Each worker writes to a region of its own only, and reads all: there is no lock, so none is held by a worker that is
killed. The contents of a region outlive its worker. Names are known by a keyed digest, so that no client can choose two
that meet.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable, Container, Sequence
from typing import cast

_SECRET = 16
_WORD = 8
_WINDOW = 32
"""Places at which a name may be, from the one that follows from its digest."""
_IDS = 4096
_UNUSED, _FREE = 0, 1
"""Keys of a place that never had a name, and of one that has none any more. A name takes the first place of its window
that is free, so that where that one was never used it is nowhere."""
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
        """`slots`, a power of two: places of a region. `stale`: whether numbers are outdated, so that
        their place is free."""
        memory = memoryview(mmap.mmap(number, os.fstat(number).st_size))
        self._secret = bytes(memory[:_SECRET])
        begin = _SECRET + offset
        part = memory[begin : begin + size(regions, slots, columns)]
        self._keys, self._values = part.cast("Q"), part.cast("d")
        self._region = region
        self._all = range(regions)
        self._others = [one for one in self._all if one != region]
        self._slots, self._columns = slots, columns
        self._stale = stale
        self._places = slots + _WINDOW
        self._words = self._places * (1 + columns)
        """Of a region: first its keys, then their numbers."""
        self._ids: dict[tuple[str, ...], int] = {}
        """Of names that were asked for of late."""

    def id_of(self, *name: str) -> int:
        """Return a number that stands for `name`."""
        found = self._ids.get(name)
        if found is None:
            if len(self._ids) >= _IDS:
                self._ids.clear()
            found = self._ids[name] = self._digest(name)
        return found

    def _digest(self, name: tuple[str, ...]) -> int:
        text = "\0".join(f"{len(part)}:{part}" for part in name).encode("utf-8", "surrogateescape")
        digest = hashlib.blake2b(text, digest_size=8, key=self._secret).digest()
        return max(_FREE + 1, int.from_bytes(digest, "big") >> (64 - _ID_BITS))

    def _find(self, region: int, name: int) -> int:
        """Return where the key of a name is in a region, -1 if it has none."""
        at = region * self._words + name % self._slots
        key = self._keys[at]
        if key == name:
            return at
        if key == _UNUSED:
            return -1
        keys = self._keys[at : at + _WINDOW].tolist()
        return at + keys.index(name) if name in keys else -1

    def _values_at(self, region: int, at: int) -> Values:
        """Return the numbers of the key at this place."""
        begin = self._numbers(region, at)
        return cast(Values, self._values[begin : begin + self._columns].tolist())

    def _numbers(self, region: int, at: int) -> int:
        first = region * self._words
        return first + self._places + (at - first) * self._columns

    def read(self, name: int, others: bool = False) -> list[Values]:
        """Return the numbers of `name` in each region; with `others` without our own."""
        found = []
        for region in self._others if others else self._all:
            at = self._find(region, name)
            if at >= 0:
                values = self._values_at(region, at)
                # Its writer may have given the place to another name meanwhile.
                if self._keys[at] == name:
                    found.append(values)
        return found

    def write(self, name: int, *values: float) -> bool:
        """Write our numbers of `name`; returns False if all its places are taken."""
        at = self._find(self._region, name)
        known = at >= 0
        if not known:
            at = self._room(name)
            if at < 0:
                return False
            self._keys[at] = _FREE
        begin = self._numbers(self._region, at)
        for index, value in enumerate(values):
            self._values[begin + index] = value
        if not known:
            self._keys[at] = name
        return True

    def _room(self, name: int) -> int:
        first = self._region * self._words + name % self._slots
        for at in range(first, first + _WINDOW):
            if self._keys[at] <= _FREE or self._stale(self._values_at(self._region, at)):
                return at
        return -1

    def forget(self, name: int) -> None:
        """Take our numbers of `name` out."""
        at = self._find(self._region, name)
        if at >= 0:
            self._keys[at] = _FREE

    def clear(self, region: int, which: Stale, but: Container[int] = ()) -> None:
        """Take out what `which` selects, `but` for these names, of our own region or of one whose worker is gone."""
        begin = region * self._words
        for at, key in enumerate(self._keys[begin : begin + self._places].tolist(), begin):
            if key > _FREE and key not in but and which(self._values_at(region, at)):
                self._keys[at] = _FREE
