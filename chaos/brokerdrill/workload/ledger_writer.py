"""Writes a worker's part of the ledger: JSON Lines, appended to as the rules for writers say.

Two layers: a `Spool` hands bytes to the kernel and lets nothing be written after the first failure; a `ClientLedger`
formats one client's rows. Rows are formatted by hand: a message costs microseconds. What a client has learned (rows
with an end) may wait in memory for its next intent and share that write; an intent never waits.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from brokerdrill.workload.client import Delivery, Message, Outcome
from brokerdrill.workload.config import Endpoint

LATE_NS = 1_000_000


class LedgerError(Exception):
    """The ledger cannot be written: its text is one sentence. Clients must stop at once."""


def piece_path(path: str, number: int) -> Path:
    """Return where the finished piece `number` (from 1) of the spool `path` is: `w.jsonl` has w-000001.jsonl."""
    spool = Path(path)
    return spool.with_name(f"{spool.stem}-{number:06d}{spool.suffix}")


class Spool:
    """Append-only files of whole lines: `path`, and the finished pieces that it was divided into, one as soon as it has
    `piece_bytes` (None: never); no piece is written to again. Raises LedgerError when `path` cannot be made (it must
    not exist yet)."""

    def __init__(self, path: str, piece_bytes: int | None = None) -> None:
        self._path = path
        self._piece_bytes = piece_bytes
        self._pieces = 0
        self._lock = threading.Lock()
        self._error: str | None = None
        self._size = 0
        try:
            self._fd = self._make(path)
        except OSError as error:
            raise LedgerError(f"the ledger {path} cannot be made: {error.strerror}") from None

    @staticmethod
    def _make(path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o640)

    def write(self, data: bytes) -> None:
        """Hand `data` (whole lines) to the kernel. Raises LedgerError, now and ever after, when that fails; the file
        is then cut back to its last whole line."""
        with self._lock:
            if self._error:
                raise LedgerError(self._error)
            try:
                done = os.write(self._fd, data)
                while done < len(data):
                    more = os.write(self._fd, data[done:])
                    if more == 0:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    done += more
            except OSError as error:
                self._error = f"the ledger {self._path} cannot be written: {error.strerror}"
                try:
                    os.ftruncate(self._fd, self._size)
                except OSError:
                    self._error += " (its last line is torn)"
                raise LedgerError(self._error) from None
            self._size += len(data)
            if self._piece_bytes is not None and self._size >= self._piece_bytes:
                self._divide()

    def _divide(self) -> None:
        """Make what is written a finished piece, and go on in a new file. Killed anywhere in between it leaves `path`
        as it was, perhaps under the piece's name too: rows that are there twice count once."""
        fresh = f"{self._path}.new"
        try:
            fd = self._make(fresh)
            piece_path(self._path, self._pieces + 1).hardlink_to(self._path)
            Path(fresh).rename(self._path)
        except OSError as error:
            self._error = f"the ledger {self._path} cannot be divided: {error.strerror}"
            raise LedgerError(self._error) from None
        os.close(self._fd)
        self._fd, self._size = fd, 0
        self._pieces += 1

    def close(self) -> None:
        """Close the file; a write after that is an error."""
        with self._lock:
            if self._error is None:
                self._error = f"the ledger {self._path} is closed"
                os.close(self._fd)


class Clock:
    """The worker's ledger clock: ns since it was made, never negative."""

    def __init__(self) -> None:
        self.base_ns = time.monotonic_ns()

    def now(self) -> int:
        return time.monotonic_ns() - self.base_ns

    def at(self, monotonic_ns: int) -> int:
        """Turn a time of this process's monotonic clock into one of this clock."""
        return max(0, monotonic_ns - self.base_ns)


class Op(NamedTuple):
    """An operation that was begun: what its completing row must repeat."""

    op_id: int
    session: int
    op: str
    start_ns: int


def _columns(values: dict[str, Any]) -> str:
    """Format columns that are not None, each with a comma before it."""
    text = ""
    for name, value in values.items():
        if value is not None:
            # Integers are most of it, and json.dumps costs more than the rest of the row.
            text += f',"{name}":{value if type(value) is int else _quoted(value)}'
    return text


def _late(late_ns: int) -> str:
    """The column of a batch that began after it was due; a wait as short as a thread's waking up is none."""
    return f',"late_ns":{late_ns}' if late_ns >= LATE_NS else ""


def _error(outcome: Outcome) -> str:
    return "" if outcome.error is None else f',"error":{_quoted(outcome.error)}'


@functools.lru_cache(maxsize=256)
def _quoted(value: Any) -> str:
    """The JSON of a string or boolean; the same few addresses, places and errors come again and again."""
    return json.dumps(value)


class ClientLedger:
    """The rows of one logical client. Used by one thread; `write` is the spool's, or takes nothing away if None.

    All methods raise LedgerError when the spool does.
    """

    def __init__(
        self,
        write: Callable[[bytes], None] | None,
        clock: Clock,
        *,
        run_id: str,
        clock_name: str,
        client: str,
        protocol: str,
    ) -> None:
        self.clock = clock
        self._write = write
        self._next = 0
        self._held: list[str] = []
        self._name = json.dumps(client)[1:-1]
        self._head = (
            f'{{"run_id":{json.dumps(run_id)},"clock":{json.dumps(clock_name)},"client":"{self._name}","op_id":'
        )
        self._protocol = f',"protocol":{json.dumps(protocol)}'
        self._places: dict[Endpoint | None, str] = {None: ""}

    def _place(self, endpoint: Endpoint | None) -> str:
        known = self._places.get(endpoint)
        if known is None and endpoint:
            known = self._places[endpoint] = _columns({"broker": endpoint.host, "instance": endpoint.instance})
        return known or ""

    def flush(self) -> None:
        """Hand over all rows that wait in memory: before the client idles."""
        if self._held:
            rows, self._held = self._held, []
            if self._write:
                self._write("".join(rows).encode())

    def name(self, kind: str) -> str:
        """Return a name for the transaction that begins now, unique in the run."""
        return f"{self._name}/{kind}{self._next}"

    # --- any operation ------------------------------------------------------------------------------------------

    def begin(self, op: str, session: int, *, start_ns: int | None = None, **columns: Any) -> Op:
        """Hand over the intent of an operation, before its call. `columns` are the ledger's."""
        begun = Op(self._next, session, op, self.clock.now() if start_ns is None else start_ns)
        self._next += 1
        if self._write:
            self._held.append(
                f'{self._head}{begun.op_id},"session":{session},"op":"{op}","outcome":"unknown",'
                f'"start_ns":{begun.start_ns}{_columns(columns)}{self._protocol}}}\n'
            )
            self.flush()
        return begun

    def end(
        self,
        begun: Op,
        outcome: Outcome,
        endpoint: Endpoint | None = None,
        *,
        end_ns: int | None = None,
        **columns: Any,
    ) -> int:
        """Complete an operation, now or at `end_ns`, and return its end in ns; the row may wait for the next intent."""
        end_ns = self.clock.now() if end_ns is None else end_ns
        if self._write:
            self._held.append(
                f'{self._head}{begun.op_id},"session":{begun.session},"op":"{begun.op}","outcome":"{outcome.result}",'
                f'"start_ns":{begun.start_ns},"end_ns":{end_ns}{_error(outcome)}{_columns(columns)}'
                f"{self._place(endpoint)}}}\n"
            )
        return end_ns

    # --- sends, formatted at speed ------------------------------------------------------------------------------

    def begin_sends(
        self,
        session: int,
        address: str,
        batch: Sequence[Message],
        attempt: int,
        txn: str | None,
        durable: bool,
        late_ns: int = 0,
    ) -> int:
        """Hand over the intents of a batch, which begins `late_ns` after it was due, in one write; return the first
        op_id, the others follow it."""
        first = self._next
        self._next += len(batch)
        if not self._write:
            return first
        held = self._held
        head = self._head
        group = "" if txn is None else f',"txn":"{txn}"'
        middle = (
            f',"session":{session},"op":"send","outcome":"unknown","start_ns":{self.clock.now()},"address":'
            f'{_quoted(address)}{group},"durable":{"true" if durable else "false"}{self._protocol}'
            f'{_late(late_ns)},"attempt":{attempt},"message_id":"'
        )
        for op_id, (message_id, seq, key, _, sha) in enumerate(batch, first):
            grouped = "" if key is None else f',"key":"{key}"'
            held.append(f'{head}{op_id}{middle}{message_id}","producer_seq":{seq}{grouped},"payload_sha":"{sha}"}}\n')
        self.flush()
        return first

    def end_sends(
        self, session: int, first: int, times: Sequence[int], outcome: Outcome, endpoint: Endpoint | None
    ) -> None:
        """Complete the sends from op_id `first`: call i began at times[i] and had returned at times[i + 1], in ns.

        The rows repeat their true beginnings; those of the intents are the time of their common write.
        """
        if not self._write:
            return
        held = self._held
        head = self._head
        middle = f',"session":{session},"op":"send","outcome":"{outcome.result}","start_ns":'
        tail = f"{_error(outcome)}{self._place(endpoint)}}}\n"
        op_id = first
        start_ns = times[0] + 1
        for end_ns in times[1:]:
            # The next call begins after this one's end, though the clock was read once between them.
            held.append(f'{head}{op_id}{middle}{start_ns},"end_ns":{end_ns if end_ns > start_ns else start_ns}{tail}')
            op_id += 1
            start_ns = end_ns + 1

    # --- the end of a transaction, formatted at speed -----------------------------------------------------------

    def begin_commit(self, session: int, txn: str, late_ns: int = 0) -> Op:
        """Hand over the intent of a commit, as `begin` does, of a batch that began `late_ns` after it was due."""
        begun = Op(self._next, session, "commit", self.clock.now())
        self._next += 1
        if self._write:
            self._held.append(
                f'{self._head}{begun.op_id},"session":{session},"op":"commit","outcome":"unknown",'
                f'"start_ns":{begun.start_ns},"txn":"{txn}"{self._protocol}{_late(late_ns)}}}\n'
            )
            self.flush()
        return begun

    # --- receives -----------------------------------------------------------------------------------------------

    def end_receive(self, begun: Op, delivery: Delivery, endpoint: Endpoint | None) -> str:
        """Complete a receive with what it brought; return the delivery's name, unique in the run."""
        name = f"{self._name}/d{begun.op_id}"
        if self._write:
            # What came over the wire is quoted, whoever sent it.
            end_ns = self.clock.now()
            _, message_id, attempt, seq, key, redelivered, sha = delivery[:7]
            known = _columns({"attempt": attempt, "producer_seq": seq})
            group = "" if key is None else f',"key":{json.dumps(key)}'
            self._held.append(
                f'{self._head}{begun.op_id},"session":{begun.session},"op":"receive","outcome":"ok",'
                f'"start_ns":{begun.start_ns},"end_ns":{end_ns},"address":{_quoted(delivery.address)},'
                f'"message_id":{json.dumps(message_id)}{known}{group},"delivery":"{name}",'
                f'"redelivered":{"true" if redelivered else "false"},"payload_sha":"{sha}"{self._place(endpoint)}}}\n'
            )
        return name
