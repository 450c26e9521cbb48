"""Ledgers that are judged beside the oracle: generated ones seen otherwise, and those that were judged by eye."""

from __future__ import annotations

import inspect
import itertools
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from brokerdrill.ledger.contract import PromiseSpec, RunInfo
from brokerdrill.promises.catalogue import PROMISES
from tests.analysis import by_hand, oracle, test_oracle, test_oracle_order, test_oracle_serving, test_oracle_sticky
from tests.analysis.batch import Ledger, Row

# Their ledgers are generated, or their point is a torn file, which is the loader's.
NOT_REPLAYED = ("test_generated", "test_a_torn_line")
BY_EYE = (test_oracle, test_oracle_order, test_oracle_sticky, test_oracle_serving)


def on_other_clocks(ledger: Ledger, rng: random.Random) -> Ledger:
    """The same run as hosts record it whose clocks began at other times: each offset takes back what its times gain, in
    run.json and in each reading that was taken of it."""
    run, ops, events = ledger
    # Earlier by several seconds each: a time before a clock's begin would be refused.
    late = {name: rng.randint(-20_000_000_000, 0) for name in run.clocks}

    def moved(row: Row) -> Row:
        times = ("start_ns", "end_ns", "expires_ns", "t_ns")
        there = {k: v - late[row["clock"]] if k in times and v is not None else v for k, v in row.items()}
        if row.get("kind") == "clock" and row.get("name") in late:
            read = row["detail"]
            there["detail"] = {**read, "offset_ns": str(int(read["offset_ns"]) + late[row["name"]])}
        return there

    clocks = {name: replace(clock, offset_ns=clock.offset_ns + late[name]) for name, clock in run.clocks.items()}
    return replace(run, clocks=clocks), [moved(row) for row in ops], [moved(row) for row in events]


def ended_by_others(ledger: Ledger) -> Ledger:
    """The same run where one client sends and receives, another acknowledges and ends its transactions."""
    run, ops, events = ledger
    others = ("prepare", "commit", "rollback", "ack")
    return run, [{**op, "client": f"other-{op['client']}"} if op["op"] in others else op for op in ops], events


def coarse(ledger: Ledger, tick_ns: int) -> Ledger:
    """The same run on a clock that ticks every `tick_ns` of run time.

    The oracle takes rows of equal times as they stand: they stand as docs/analysis.md orders them.
    """
    run, ops, events = ledger

    def ticked(row: Row) -> Row:
        offset = run.clocks[row["clock"]].offset_ns
        times = ("start_ns", "end_ns", "expires_ns", "t_ns")
        return {
            k: (v + offset) // tick_ns * tick_ns - offset if k in times and v is not None else v for k, v in row.items()
        }

    def whom(event: Row) -> tuple[str, ...]:
        return tuple(event.get(name) or "" for name in ("name", "instance", "target"))

    ordered = sorted(ops, key=lambda op: (op["start_ns"], op["client"], op["op_id"]))
    return run, [ticked(row) for row in ordered], [ticked(row) for row in sorted(events, key=whom)]


def _calls() -> Iterator[tuple[Any, dict[str, Any]]]:
    """The test functions of BY_EYE with each set of their parameters."""
    for name, function in itertools.chain.from_iterable(vars(module).items() for module in BY_EYE):
        if not name.startswith("test_") or name.startswith(NOT_REPLAYED):
            continue
        choices = []
        for mark in getattr(function, "pytestmark", []):
            names = mark.args[0] if not isinstance(mark.args[0], str) else mark.args[0].replace(" ", "").split(",")
            values = [value if len(names) > 1 else (value,) for value in mark.args[1]]
            choices.append([dict(zip(names, value, strict=True)) for value in values])
        assert set(inspect.signature(function).parameters) == {key for choice in choices for key in choice[0]}
        for picked in itertools.product(*choices):
            yield function, {key: value for one in picked for key, value in one.items()}


def judged_by_eye() -> dict[str, Ledger]:
    """Return the ledgers that BY_EYE give the oracle and assert the verdicts of."""
    ledgers: dict[str, Ledger] = {}

    def recorder(run: RunInfo, ops: Sequence[Row], events: Sequence[Row], promises: Sequence[PromiseSpec]) -> Any:
        result = oracle.judge(run, ops, events, promises)  # bad input raises here, and is the loader's to find
        unbounded = any(PROMISES[spec.name].bound and spec.bound_ms is None for spec in promises)
        if not unbounded:
            ledgers[f"ledger {len(ledgers)}"] = (replace(run, promises=tuple(promises), expect={}), [*ops], [*events])
        return result

    with ExitStack() as recording:
        for module in (by_hand, *BY_EYE):
            if hasattr(module, "judge"):
                recording.enter_context(patch.object(module, "judge", recorder))
        for function, values in _calls():
            function(**values)
    return ledgers
