"""A run's ledger as another tool sees it: what was sent, what came out, with what outcome, one after another.

Small runs only, in memory: histories are for people and for checkers that read whole files. The rules (rows of one
operation merge; a transaction decides over its sends and receives) are those of the ledger's specification.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brokerdrill.base.errors import UsageError
from brokerdrill.ledger import contract, spool

JSON_SUFFIXES = (".jsonl", ".json", ".ndjson")
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Effect:
    """A message's sending or a receive, in run time (ns): `kind` send or receive, `outcome` ok, fail or unknown (for a
    receive: whether the message was taken for good), `end` None where it never returned."""

    kind: str
    client: str
    address: str
    message_id: str | None
    outcome: str
    start: int
    end: int | None
    error: str | None = None


def read_rows(run_dir: Path, name: str) -> Iterator[Row]:
    """Yield the rows of RUN_DIR/`name` (ops or events), JSON Lines and Parquet. Raises UsageError with file and line; a
    torn last line is skipped."""
    folder = run_dir / name
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        if hidden or not path.is_file():
            continue
        if path.suffix in JSON_SUFFIXES:
            yield from _json_rows(path)
        elif path.suffix == spool.SUFFIX:
            yield from _spool_rows(path)
        elif path.suffix == ".parquet":
            yield from _parquet_rows(path)


def _json_rows(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError("no object")
            except ValueError:
                if not line.endswith(b"\n"):
                    return
                raise UsageError(f"{path}, line {number}: is not JSON") from None
            yield row


def _spool_rows(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        whole = itertools.takewhile(lambda line: line.endswith("\n"), file)
        try:
            yield from spool.rows(whole)
        except (ValueError, IndexError, TypeError, KeyError) as error:
            raise UsageError(f"{path} has a line that is none of a spool: {error}") from None


def _parquet_rows(path: Path) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    detail = row.get("detail")
                    yield row | ({"detail": dict(detail)} if isinstance(detail, list) else {})
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None


def placed(run: contract.RunInfo, row: Row, name: str) -> int | None:
    """Return time `name` of `row` in run time; a clock that run.json does not place counts as the run's own."""
    value = row.get(name)
    clock = run.clocks.get(str(row.get("clock")), contract.Clock(""))
    return None if value is None else max(0, int(value) + clock.offset_ns)


def _merged(run: contract.RunInfo, rows: Iterator[Row]) -> list[Row]:
    """One row an operation, by its first time."""
    found: dict[tuple[str, int], Row] = {}
    for row in rows:
        missing = [name for name in ("client", "op_id") if row.get(name) is None]
        if missing:
            raise UsageError(f"the ledger of {run.run_id} has an operation without {', '.join(missing)}")
        row = row | {"start_ns": placed(run, row, "start_ns"), "end_ns": placed(run, row, "end_ns")}
        key = (row["client"], row["op_id"])
        before = found.get(key)
        if before is None:
            found[key] = row
            continue
        decided = next((one["outcome"] for one in (row, before) if one.get("outcome") in ("ok", "fail")), "unknown")
        found[key] = before | {name: value for name, value in row.items() if value is not None} | {"outcome": decided}
    return sorted(found.values(), key=lambda row: (row.get("start_ns") or 0, row["client"], row["op_id"]))


@dataclass(slots=True)
class _Transaction:
    invoked: bool = False
    rolled_back: bool = False
    committed_at: int | None = None
    commits: int = 0
    open: bool = False

    @property
    def send(self) -> str | None:
        """What the transaction makes of its sends: fail, ok, unknown."""
        if self.rolled_back or not self.invoked or (self.commits and self.committed_at is None and not self.open):
            return "fail"
        return "ok" if self.committed_at is not None else "unknown"

    @property
    def receive(self) -> str:
        if self.rolled_back:
            return "fail"
        return "ok" if self.committed_at is not None else "unknown" if self.open else "fail"


def _transactions(rows: list[Row]) -> dict[str, _Transaction]:
    found: dict[str, _Transaction] = defaultdict(_Transaction)
    for row in rows:
        if row.get("txn") is None or row.get("op") not in ("prepare", "commit", "rollback"):
            continue
        one = found[row["txn"]]
        outcome = row.get("outcome")
        if row["op"] == "rollback":
            one.rolled_back |= outcome == "ok"
            continue
        one.invoked = True
        if row["op"] == "commit":
            one.commits += 1
            one.open |= outcome == "unknown"
            if outcome == "ok":
                ended = int(row.get("end_ns") or row["start_ns"])
                one.committed_at = min(ended, one.committed_at if one.committed_at is not None else ended)
    return found


def effects(run_dir: Path) -> list[Effect]:
    """Return what a run's ledger says of its messages, by start: a sending for each message (all its attempts as one),
    and each receive. Dead-letter addresses are left out. Raises UsageError where the ledger cannot be read."""
    run = contract.read_run(run_dir)
    rows = _merged(run, read_rows(run_dir, contract.OPS_DIR))
    transactions = _transactions(rows)
    dead = set(run.dead_letters.values())
    found = [*_sends(rows, transactions, dead), *_receives(rows, transactions, dead)]
    return sorted(found, key=lambda one: (one.start, one.end or one.start, one.client))


def _sends(rows: list[Row], transactions: dict[str, _Transaction], dead: set[str]) -> Iterator[Effect]:
    attempts: dict[tuple[str, str], list[tuple[str, int, int | None, Row]]] = defaultdict(list)
    for row in rows:
        if row.get("op") != "send" or row.get("message_id") is None or row.get("address") in dead:
            continue
        outcome, end = row["outcome"], row.get("end_ns")
        if row.get("txn") is not None:
            decided = transactions[row["txn"]]
            by_txn = decided.send
            outcome = (
                "fail" if "fail" in (outcome, by_txn) else "ok" if (outcome, by_txn) == ("ok", "ok") else "unknown"
            )
            end = decided.committed_at or end
        attempts[(row.get("address") or "", row["message_id"])].append((outcome, row["start_ns"], end, row))
    for (address, message_id), tries in attempts.items():
        outcomes = [one[0] for one in tries]
        outcome = next((word for word in ("ok", "unknown") if word in outcomes), "fail")
        ends = [end for word, _, end, _ in tries if word == outcome and end is not None]
        end = (min if outcome == "ok" else max)(ends, default=None)
        first = tries[0][3]
        errors = [row["error"] for word, _, _, row in tries if word == outcome != "ok" and row.get("error")]
        start = min(one[1] for one in tries)
        yield Effect("send", first["client"], address, message_id, outcome, start, end, errors[-1] if errors else None)


def _receives(rows: list[Row], transactions: dict[str, _Transaction], dead: set[str]) -> Iterator[Effect]:
    acks: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.get("op") == "ack" and row.get("delivery") is not None:
            acks[row["delivery"]].append(row)
    for row in rows:
        if row.get("op") != "receive" or row.get("address") in dead:
            continue
        outcome, end = row["outcome"], row.get("end_ns")
        if outcome == "ok":
            own = acks.get(row.get("delivery") or "", [])
            names = {one["txn"] for one in [row, *own] if one.get("txn") is not None}
            if names:
                states = [transactions[name].receive for name in names]
                ends = [transactions[name].committed_at for name in names]
            else:
                states = [one["outcome"] for one in own]
                ends = [one.get("end_ns") for one in own if one["outcome"] == "ok"]
            outcome = next((word for word in ("ok", "unknown") if word in states), "fail")
            end = max([time for time in [end, *ends] if time is not None], default=None)
        yield Effect(
            "receive", row["client"], row.get("address") or "", row.get("message_id"), outcome,
            row["start_ns"], end, row.get("error"),
        )  # fmt: skip
