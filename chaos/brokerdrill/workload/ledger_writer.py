"""Writes a worker's part of the ledger: a spool (`ledger.spool`), appended to as the rules for writers say.

Two layers: a `Spool` hands bytes to the kernel and lets nothing be written after the first failure; a `ClientLedger`
formats one client's lines. They are formatted by hand: a message costs microseconds. What a client has learned (rows
with an end) may wait in memory for its next intent and share that write; an intent never waits.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from brokerdrill.ledger import spool as form
from brokerdrill.ledger.spool import COLUMN_CODES, Header
from brokerdrill.workload.client import Delivery, Message, Outcome
from brokerdrill.workload.config import BrokerEndpoint

LATE_NS = 1_000_000
# Errors may be many; what comes again and again is few.
MOST_TEXTS = 256
# The columns of which a client has few values.
_FEW = frozenset({"address", "subscription", "broker", "instance", "via", "redelivered", "durable", "error"})


class LedgerError(Exception):
    """The ledger cannot be written: its text is one sentence. Clients must stop at once."""


def piece_path(path: str, number: int) -> Path:
    """Return where the finished piece `number` (from 1) of the spool `path` is: `w.spool` has w-000001.spool."""
    spool = Path(path)
    return spool.with_name(f"{spool.stem}-{number:06d}{spool.suffix}")


def _hand_over(fd: int, data: bytes) -> None:
    """Write all of `data`. Raises OSError."""
    done = 0
    while done < len(data):
        more = os.write(fd, data[done:] if done else data)
        if more == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done += more


class Spool:
    """Append-only files of whole lines: `path`, and the finished pieces that it was divided into, one as soon as it has
    `piece_bytes` (None: never); no piece is written to again. Each begins with the line `header`. Raises LedgerError
    when `path` cannot be made (it must not exist yet)."""

    def __init__(self, path: str, piece_bytes: int | None = None, header: bytes = b"") -> None:
        self._path = path
        self._piece_bytes = piece_bytes
        self._header = header
        self._pieces = 0
        self._lock = threading.Lock()
        self._error: str | None = None
        self._size = len(header)
        try:
            self._fd = self._make(path)
        except OSError as error:
            raise LedgerError(f"the ledger {path} cannot be made: {error.strerror}") from None

    def _make(self, path: str) -> int:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o640)
        _hand_over(fd, self._header)
        return fd

    def write(self, data: bytes) -> None:
        """Hand `data` (whole lines) to the kernel. Raises LedgerError, now and ever after, when that fails; the file
        is then cut back to its last whole line."""
        with self._lock:
            if self._error:
                raise LedgerError(self._error)
            try:
                _hand_over(self._fd, data)
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
        self._fd, self._size = fd, len(self._header)
        self._pieces += 1

    def close(self) -> None:
        """Close the file; a write after that is an error."""
        with self._lock:
            if self._error is None:
                self._error = f"the ledger {self._path} is closed"
                os.close(self._fd)


class LedgerClock:
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


class ClientLedger:
    """The rows of one logical client. Used by one thread; `write` is the spool's, or takes nothing away if None.

    All methods raise LedgerError when the spool does.
    """

    def __init__(self, write: Callable[[bytes], None] | None, clock: LedgerClock, header: Header, client: str) -> None:
        self.clock = clock
        self._write = write
        self._next = 0
        self._held: list[str] = []
        self._name = client
        self._own = {"txn": f"{client}/t", "delivery": f"{client}/d"}
        self._header = header
        self._of = {kind: f"[{kind},{header.text(client)}," for kind in form.KINDS}
        # The JSON of the same few texts and places, which come again and again.
        self._texts: dict[Any, str] = {None: "null", True: "true", False: "false"}
        self._places: dict[BrokerEndpoint | None, str] = {None: "null"}

    def _text(self, text: str | None) -> str:
        known = self._texts.get(text)
        if known is None:
            known = self._header.text(str(text))
            if len(self._texts) < MOST_TEXTS:
                self._texts[text] = known
        return known

    def _place(self, endpoint: BrokerEndpoint | None) -> str:
        known = self._places.get(endpoint)
        if known is None and endpoint:
            known = self._places[endpoint] = self._header.place(endpoint.host, endpoint.instance)
        return known or "null"

    def _named(self, column: str, name: str | None) -> str:
        """The JSON of a transaction's or a delivery's name: of this client's own its number."""
        if name is None:
            return "null"
        own = self._own[column]
        return name[len(own) :] if name.startswith(own) else json.dumps(name)

    def _columns(self, values: dict[str, Any]) -> str:
        """The pairs of the columns that are not None, each with a comma before it."""
        text = ""
        for name, value in values.items():
            if value is None:
                continue
            if name in self._own:
                said = self._named(name, value)
            elif type(value) is int:
                said = str(value)
            else:
                said = self._text(value) if name in _FEW else json.dumps(value)
            text += f",{COLUMN_CODES[name]},{said}"
        return text

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
                f"{self._of[form.INTENT]}{begun.op_id},{session},{self._text(op)},{begun.start_ns}"
                f"{self._columns(columns)}]\n"
            )
            self.flush()
        return begun

    def end(
        self,
        begun: Op,
        outcome: Outcome,
        endpoint: BrokerEndpoint | None = None,
        *,
        end_ns: int | None = None,
        **columns: Any,
    ) -> int:
        """Complete an operation, now or at `end_ns`, and return its end in ns; the row may wait for the next intent."""
        end_ns = self.clock.now() if end_ns is None else end_ns
        if self._write:
            if outcome.error is not None:
                columns["error"] = outcome.error
            self._held.append(
                f"{self._of[form.END]}{begun.op_id},{begun.session},{self._text(begun.op)},"
                f"{self._text(outcome.result)},{begun.start_ns},{end_ns - begun.start_ns},{self._place(endpoint)}"
                f"{self._columns(columns)}]\n"
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
        op_id, the others follow it. Ids and places in their producer's order end in numbers that follow each other."""
        first = self._next
        self._next += len(batch)
        if not self._write:
            return first
        prefix, _, number = batch[0].message_id.rpartition("-")
        prefix += "-"
        keys = "null"
        if batch[0].key is not None or any(message.key is not None for message in batch):
            keys = json.dumps([message.key for message in batch])
        self._held.append(
            f"{self._of[form.SENDS]}{first},{session},{self.clock.now()},{self._text(address)},"
            f"{self._named('txn', txn)},{'1' if durable else '0'},{attempt},{_late(late_ns)},"
            f"{self._text(prefix)},{number},"
            f'{batch[0].seq},{keys},"{",".join([message.sha for message in batch])}"]\n'
        )
        self.flush()
        return first

    def end_sends(
        self, session: int, first: int, times: Sequence[int], outcome: Outcome, endpoint: BrokerEndpoint | None
    ) -> None:
        """Complete the sends from op_id `first`: call i began at times[i] and had returned at times[i + 1], in ns.

        The rows repeat their true beginnings; those of the intents are the time of their common write.
        """
        if not self._write or len(times) < 2:
            return
        lasted = ",".join([str(end - begin) for begin, end in pairwise(times)])
        self._held.append(
            f"{self._of[form.SENT]}{first},{session},{self._text(outcome.result)},{self._place(endpoint)},"
            f"{self._text(outcome.error)},{times[0]},{lasted}]\n"
        )

    # --- the end of a transaction, formatted at speed -----------------------------------------------------------

    def begin_commit(self, session: int, txn: str, late_ns: int = 0) -> Op:
        """Hand over the intent of a commit, as `begin` does, of a batch that began `late_ns` after it was due."""
        return self.begin("commit", session, txn=txn, late_ns=late_ns if late_ns >= LATE_NS else None)

    # --- receives -----------------------------------------------------------------------------------------------

    def end_receive(self, begun: Op, delivery: Delivery, endpoint: BrokerEndpoint | None) -> str:
        """Complete a receive with what it brought; return the delivery's name, unique in the run."""
        if self._write:
            # What came over the wire is quoted, whoever sent it.
            lasted = self.clock.now() - begun.start_ns
            address, message_id, attempt, seq, key, redelivered, sha = delivery[:7]
            self._held.append(
                f"{self._of[form.RECEIVED]}{begun.op_id},{begun.session},{begun.start_ns},{lasted},"
                f"{self._place(endpoint)},{self._text(address)},{json.dumps(message_id)},"
                f"{'null' if attempt is None else attempt},{'null' if seq is None else seq},"
                f'{"null" if key is None else json.dumps(key)},{"1" if redelivered else "0"},"{sha}"]\n'
            )
        return f"{self._name}/d{begun.op_id}"


def _late(late_ns: int) -> str:
    """The column of a batch that began after it was due; a wait as short as a thread's waking up is none."""
    return str(late_ns) if late_ns >= LATE_NS else "null"
