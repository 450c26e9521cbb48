"""What run.json and the timelines say, as small tables that every task gets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from brokerdrill.analysis.columns import table
from brokerdrill.analysis.coverage import disturbing, followed, members
from brokerdrill.analysis.events import NEVER, Epoch, Hit
from brokerdrill.analysis.kernel import pack
from brokerdrill.analysis.measures import base_width, segments
from brokerdrill.analysis.timeline import Timeline
from brokerdrill.ledger.contract import PromiseSpec, RunInfo
from brokerdrill.ledger.coverage import HALTS
from brokerdrill.promises.catalogue import AVAILABLE, PROMISES

NS_PER_MS = 1_000_000
# Successes are compared in slices of the load, so many a partition.
_SLICES = 4
_SHORTEST_NS = 1_000_000_000


def ns(milliseconds: float | None) -> int | None:
    """Return milliseconds in nanoseconds, of more than any run lasts NEVER."""
    return None if milliseconds is None else min(NEVER, round(milliseconds * NS_PER_MS))


Stores = Mapping[str, Sequence[str]]
Runs = Mapping[int, RunInfo]
Specs = Mapping[int, Sequence[PromiseSpec]]
Times = Mapping[int, Timeline]


def stage_tables(runs: Runs, promises: Specs, times: Times, parts: int, *, series: bool) -> dict[str, bytes]:
    """Return the packed tables of stage 1, by name; runs have numbers, times are run time in ns, `parts` is the number
    of partitions of stage 2. Where the run's end decides, `times` may be timelines that end NEVER.

    clocks: clock, c_from and c_to (its own time), since, off and slope of its stretches, tick (its number), u.
    struck: fault, f_at, f_until, whole (it hit no broker), only (a client that it killed; null: all clients count).
    deaths: client, d_at (when it was killed). members: fault, server (of the stores that it hit).
    routed: client, r_from, r_until, behind (whom a router connected it to), router (which; null: not told).
    routers: client. dead: dead_letter (an
    address). phase: drain_begin. served: server (an instance), home (its only store, or null), and all time in
    spans of its epochs: e_store, epoch (its start; null: before the first), e_end, span_from and span_next (where
    it and the next may have begun), span_to (where it may have ended). hits: fault, hit_store, f_at, f_u, hit
    (start of the epoch hit). segments: phase, seg_from, seg_to. widths: width (of a bucket). windows: side (send,
    receive, failback), place (number of the load, of the failback), begins, ends, width (of a slice), store. asked:
    name (of a promise).
    """
    widths = {run: base_width(one.guess) if series else NEVER for run, one in times.items()}
    made = {
        **_when(times, widths),
        **_struck_tables(runs, times),
        "dead": table(
            ((run, dead) for run, info in runs.items() for dead in sorted(set(info.dead_letters.values()))),
            "run int, dead_letter string",
        ),
        "windows": table(
            (row for run, one in times.items() for row in _windows(run, one, promises[run], parts)),
            "run int, side string, place int, begins long, ends long, width long, store string",
        ),
        "asked": table(
            sorted({(run, spec.name) for run, specs in promises.items() for spec in specs}),
            "run int, name string",
        ),
    }
    return {name: pack(one) for name, one in made.items()}


def _when(times: Times, widths: Mapping[int, int]) -> dict[str, pa.Table]:
    """What places operations in time: clocks, who served whom when, the run's phases and buckets."""
    return {
        "clocks": table(
            (
                (run, name, *span, tick, one.u)
                for run, made in times.items()
                for tick, (name, one) in enumerate(sorted(made.clocks.items()))
                for span in one.spans()
            ),
            "run int, clock string, c_from long, c_to long, since long, off long, slope double, tick int, u long",
        ),
        "phase": table(((run, one.drain_begin) for run, one in times.items()), "run int, drain_begin long"),
        "served": table(
            ((run, *row) for run, one in times.items() for row in served_spans(one)),
            "run int, server string, home string, e_store string, epoch long, e_end long, "
            "span_from long, span_next long, span_to long",
        ),
        "segments": table(
            (
                (run, start, until, phase)
                for run, one in times.items()
                for (start, phase), until in _until(segments(one))
            ),
            "run int, seg_from long, seg_to long, phase string",
        ),
        "widths": table(widths.items(), "run int, width long"),
    }


def _struck_tables(runs: Runs, times: Times) -> dict[str, pa.Table]:
    """What faults hit."""
    return {
        "struck": table(
            ((run, *row) for run, one in times.items() for row in _struck(one, runs[run].stores)),
            "run int, fault int, f_at long, f_until long, whole boolean, only string",
        ),
        "deaths": table(
            ((run, *death) for run, one in times.items() for death in sorted(one.deaths.items())),
            "run int, client string, d_at long",
        ),
        "members": table(
            (
                (run, fault.number, server)
                for run, one in times.items()
                for fault in disturbing(one)
                for server in sorted(members(fault, one, runs[run].stores))
            ),
            "run int, fault int, server string",
        ),
        "routed": table(
            (
                (run, one.client, one.start, one.until, one.instance, one.router)
                for run, of in times.items()
                for one in of.routed
            ),
            "run int, client string, r_from long, r_until long, behind string, router string",
        ),
        "routers": table(
            ((run, name) for run, one in times.items() for name in sorted(one.routers)), "run int, client string"
        ),
        "hits": table(
            (
                (run, hit.fault.number, hit.epoch.store, hit.fault.at, hit.fault.u, hit.epoch.start)
                for run, one in times.items()
                for hit in one.hits
            ),
            "run int, fault int, hit_store string, f_at long, f_u long, hit long",
        ),
    }


def _struck(times: Timeline, stores: Stores) -> Iterable[tuple[int, int, int, bool, str | None]]:
    for fault in disturbing(times):
        until = NEVER if fault.healed_at is None else fault.healed_at
        # An orderly stop sends clients away before it is over: what it met was there when it may have begun.
        whole = not members(fault, times, stores)
        killed: list[str | None] = [*sorted(times.victims.get(fault.number, ()))]
        for client in killed or [None]:
            yield fault.number, fault.at - fault.u, until, whole, client


def _until(parts: Sequence[tuple[int, str]]) -> Iterable[tuple[tuple[int, str], int]]:
    return zip(parts, [start for start, _ in parts[1:]] + [NEVER], strict=True)


def _windows(
    run: int, times: Timeline, specs: Sequence[PromiseSpec], parts: int
) -> Iterable[tuple[int, str, int, int, int, int, str | None]]:
    def width(begins: int, ends: int) -> int:
        return max(_SHORTEST_NS, (min(ends, times.guess) - begins) // (_SLICES * parts) + 1)

    for side in sorted({spec.side or "send" for spec in specs if spec.name == AVAILABLE}):
        for number, (begins, ends) in enumerate(times.loads):
            yield run, side, number, begins, ends, width(begins, ends), None
    if any(spec.name == "failback_within" for spec in specs):
        for number, back in enumerate(times.failbacks):
            ends = times.run_end if back.back_at is None else back.back_at
            yield run, "failback", number, back.healed_at, ends, width(back.healed_at, ends), back.store


def message_tables(runs: Runs, promises: Specs, times: Times) -> dict[str, bytes]:
    """Return the packed tables of stages 2 and 3 that run.json and the timelines give.

    dead_letters: address, dead_letter. drains: address, drained. phase: drain_end, run_end. faults: fault (its
    number), name, target (the instance or link that it hit), f_at, healed. hits: fault, server (the active instance
    that it hit) and its store, f_at, f_u, f_next (when at the earliest another step's fault hit that store, or what all
    need), halted (until when that instance sends nothing). specs: spec (the promise's place in the run's list), name,
    bound, scope, side, check_period, cache_timeout, moves. unready: store, n_from, n_to. rounds: round (its place),
    r_from, r_to (the end not in it). known_only: rule or spec, known (the defect's place in the run's list), path (of a
    field that each witness has) and its value, as text. ticks: tick (a clock's number), u. asked: name.
    segments and widths as in `stage_tables`."""
    made = {
        "dead_letters": table(
            ((run, *pair) for run, info in runs.items() for pair in info.dead_letters.items()),
            "run int, address string, dead_letter string",
        ),
        "drains": table(
            ((run, *pair) for run, info in runs.items() for pair in info.drained.items()),
            "run int, address string, drained boolean",
        ),
        "specs": table(
            (
                (run, place, *_spec(spec, times[run]))
                for run, specs in promises.items()
                for place, spec in enumerate(specs)
            ),
            "run int, spec int, name string, bound long, scope string, side string, check_period long, "
            "cache_timeout long, moves string",
        ),
        "hits": table(
            ((run, *row) for run, one in times.items() for row in _hit_rows(one, runs[run].stores)),
            "run int, fault int, server string, store string, f_at long, f_u long, f_next long, halted long",
        ),
        "known_only": table(
            ((run, *row) for run, info in runs.items() for row in _known_only(info, promises[run])),
            "run int, rule string, spec int, known int, path string, value string",
        ),
        **_happened(times),
    }
    return {name: pack(one) for name, one in made.items()}


def _known_only(info: RunInfo, specs: Sequence[PromiseSpec]) -> Iterable[tuple[str | None, int | None, int, str, str]]:
    """What each witness of a known defect has, by the rule or the promise's place that its witnesses name."""
    for number, one in enumerate(info.known):
        rules = PROMISES[one.promise].breaking if one.promise in PROMISES else ()
        places = [place for place, spec in enumerate(specs) if spec.name == one.promise]
        for name, value in one.only.items():
            told = f'$."{name}"', value if isinstance(value, str) else json.dumps(value)
            for rule in (*rules, one.promise):
                yield rule, None, number, *told
            for place in places:
                yield None, place, number, *told


def _spec(spec: PromiseSpec, times: Timeline) -> tuple[str, int | None, str, str, int | None, int | None, str]:
    return (
        spec.name,
        _bound(spec, times),
        spec.scope or "session",
        spec.side or "send",
        ns(spec.check_period_ms or 0),
        ns(spec.cache_timeout_ms or 0),
        spec.moves or "",
    )


def _happened(times: Times) -> dict[str, pa.Table]:
    """What messages are held against: the run's end, faults, stores that were not ready, rounds, clocks."""
    return {
        "phase": table(
            ((run, one.drain_end, one.run_end) for run, one in times.items()),
            "run int, drain_end long, run_end long",
        ),
        "faults": table(
            (
                (run, f.number, f.name, f.instance or f.target, f.at, NEVER if f.healed_at is None else f.healed_at)
                for run, one in times.items()
                for f in one.faults
            ),
            "run int, fault int, name string, target string, f_at long, healed long",
        ),
        "unready": table(
            ((run, *span) for run, one in times.items() for span in one.unready),
            "run int, store string, n_from long, n_to long",
        ),
        "ticks": table(
            (
                (run, tick, one.u)
                for run, made in times.items()
                for tick, (_, one) in enumerate(sorted(made.clocks.items()))
            ),
            "run int, tick int, u long",
        ),
        "rounds": table(
            (
                (run, place, one.start, one.until)
                for run, made in times.items()
                for place, one in enumerate(made.rounds)
            ),
            "run int, round int, r_from long, r_to long",
        ),
    }


def _hit_rows(times: Timeline, stores: Stores) -> Iterable[tuple[int, str, str, int, int, int, int]]:
    nexts = followed(times, stores)
    for hit in times.hits:
        fault, epoch = hit.fault, hit.epoch
        yield (
            fault.number,
            epoch.instance,
            epoch.store,
            fault.at,
            fault.u,
            nexts[fault.number],
            _halted(hit, times),
        )


def _halted(hit: Hit, times: Timeline) -> int:
    """Until when what a fault hit is halted for certain: until its heal, or its next epoch; else until the fault."""
    fault = hit.fault
    if fault.name not in HALTS or fault.vague:
        return fault.at
    again = [one.earliest for one in times.epochs if one.instance == fault.instance and one.start > fault.at]
    return min([NEVER if fault.healed_at is None else fault.healed_at, *again])


def _bound(spec: PromiseSpec, times: Timeline) -> int | None:
    """A promise's bound in ns; of available what a span has to be longer than whatever the clocks are off by."""
    bound = ns(spec.bound_ms)
    return bound if bound is None or spec.name != AVAILABLE else bound + times.slack


def served_spans(times: Timeline) -> list[tuple[str, str | None, str | None, int | None, int | None, int, int, int]]:
    """All time of each instance, in spans that each begin where one of its epochs may have begun; the first knows
    none."""
    rows: list[tuple[str, str | None, str | None, int | None, int | None, int, int, int]] = []
    of: dict[str, list[Epoch]] = {instance: [] for instance in times.homes}
    for epoch in times.epochs:
        of.setdefault(epoch.instance, []).append(epoch)
    for instance, own in of.items():
        home = times.homes.get(instance)
        begins = [epoch.earliest for epoch in own]
        rows.append((instance, home, None, None, None, -NEVER, begins[0] if begins else NEVER, NEVER))
        for epoch, begin, following in zip(own, begins, [*begins, NEVER][1:], strict=True):
            rows.append((instance, home, epoch.store, epoch.start, epoch.end, begin, following, epoch.latest))
    return rows
