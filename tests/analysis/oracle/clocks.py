"""Clocks: by how much each was off, and by how much its times may still be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor

from brokerdrill.ledger.contract import RunInfo
from tests.analysis.oracle.rows import Row, detail


@dataclass
class Watch:
    """One clock: points (its own time, its offset then, uncertainty) by time, and by how much its times may be off."""

    points: list[tuple[int, int, int]]
    uncertainty: int = 0

    def offset(self, t: int) -> int:
        """ "between two it is interpolated, before the first and after the last it stays" """
        if t < self.points[0][0]:
            return self.points[0][1]
        for (since, was, _), (until, became, _) in pairwise(self.points):
            if since <= t < until:
                return was + floor((t - since) * ((became - was) / (until - since)))
        return self.points[-1][1]


def watches(run: RunInfo, events: Sequence[Row]) -> dict[str, Watch]:
    """Each clock of run.json, with what was read of it: "Clocks" """

    def roughly(event: Row) -> int:  # "when it was read is as run.json alone places it"
        return int(event["t_ns"] + (run.clocks[event["clock"]].offset_ns if event["clock"] in run.clocks else 0))

    last = max([0, *map(roughly, events)])
    found = {}
    for name, clock in run.clocks.items():
        told = {(-clock.offset_ns, clock.uncertainty_ns, clock.offset_ns)}  # "at run time 0 as run.json says"
        for event in events:
            if event["kind"] == "clock" and event.get("name") == name and detail(event, "offset_ns") is not None:
                offset = int(detail(event, "offset_ns") or 0)
                told.add((roughly(event) - offset, int(detail(event, "uncertainty_ns") or 0), offset))
        kept: list[tuple[int, int, int]] = []
        for at, off_by, offset in sorted(told):
            if kept:
                # "says less than the one before it still does: its uncertainty and 100 ppm of the time since"
                since, was, by = kept[-1]
                still = by + (at - since) // 10_000
                if at == since or (off_by > still and was - off_by - still <= offset <= was + off_by + still):
                    continue
            kept.append((at, offset, off_by))
        # "of more than 16 beside run.json's each n-th and the last"
        n = 1
        while len(kept) - 1 > 16 * n:
            n += 1
        points = [point for place, point in enumerate(kept) if place % n == 0 or place == len(kept) - 1]
        one = Watch(points)
        doubts = [abs(one.offset(at) - offset) + off_by for at, offset, off_by in kept]
        for place in range(len(points) - 1):
            four = [points[k] if 0 <= k < len(points) else None for k in range(place - 1, place + 3)]
            (since, was, by), (until, became, then_by) = points[place], points[place + 1]
            differ = abs(became - was)
            steady = differ <= (until - since) // 10_000 + by + then_by
            for three in (four[:3], four[1:]):
                if None not in three:
                    steady |= straight(*three)  # type: ignore[arg-type]
            if not steady:
                doubts.append(differ + max(by, then_by))
        if len(points) > 1 or clock.uncertainty_ns:
            at, offset, by = points[-1]
            doubts.append(by + max(0, last - (at + offset)) // 10_000)
        one.uncertainty = max(doubts)
        found[name] = one
    return found


def straight(a: tuple[int, int, int], b: tuple[int, int, int], c: tuple[int, int, int]) -> bool:
    """ "as in the stretch before or after": whether b lies between a and c, give or take all three's uncertainties."""
    return abs(Watch([a, c]).offset(b[0]) - b[1]) <= a[2] + b[2] + c[2]


def on_run_time(row: Row, clocks: Mapping[str, Watch], names: Sequence[str]) -> Row:
    """ "adding that clock's offset gives run time", of all times of a row that of its begin"""
    begin = row["t_ns"] if "t_ns" in row else row["start_ns"]
    offset = clocks[row["clock"]].offset(begin) if row["clock"] in clocks else 0
    return {**row, **{name: row[name] + offset for name in names if row.get(name) is not None}}
