"""The rules for writers: intents before calls, whole lines, nothing after a failure."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.ledger import contract
from brokerdrill.ledger import spool as form
from brokerdrill.ledger.spool import Header
from brokerdrill.workload.client import DONE, Delivery, Message, Outcome
from brokerdrill.workload.config import BrokerEndpoint
from brokerdrill.workload.ledger_writer import ClientLedger, LedgerClock, LedgerError, Spool, piece_path

HERE = BrokerEndpoint("10.0.0.1", 1, "a1", "h1")
HEADER = Header('r"1', "w0", "core", ["producer-0", "producer-0-", "q"], [("h1", "a1")])
COLUMNS = {column.name: column for column in contract.OP_COLUMNS}
TYPES = {"string": str, "long": int, "int": int, "boolean": bool}


class Kernel:
    """What was handed over, write by write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        assert data.endswith(b"\n")
        self.writes.append(data)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [*form.rows(b"".join([HEADER.line(), *self.writes]).decode().split("\n")[:-1])]


def make(kernel: Kernel | None) -> ClientLedger:
    return ClientLedger(kernel.write if kernel else None, LedgerClock(), HEADER, "producer-0")


def batch(size: int) -> list[Message]:
    return [Message(f"producer-0-{n}", n, f"k{n}" if n % 2 else None, b"", "00ff") for n in range(size)]


def valid(row: dict[str, Any]) -> None:
    """The row is one of the contract's: known columns of the right type, the required ones filled, known words."""
    for name, value in row.items():
        column = COLUMNS[name]
        assert type(value) is TYPES[column.type], (name, value)
        assert not column.values or value in column.values, (name, value)
    assert not [name for name, column in COLUMNS.items() if column.required and name not in row]


def test_a_transaction() -> None:
    kernel = Kernel()
    writer = make(kernel)
    txn = writer.name("t")
    first = writer.begin_sends(0, "q", batch(3), 1, txn, True)
    assert len(kernel.writes) == 1, "the intents of one transaction share one write"
    begun = writer.begin("commit", 0, txn=txn)
    writer.end_sends(0, first, [10, 20, 30, 40], DONE, HERE)
    writer.end(begun, Outcome("unknown", "X: y"), HERE, txn=txn)
    assert len(kernel.writes) == 2, "what was learned waits"
    writer.begin("close", 0)
    assert len(kernel.writes) == 3, "for the next intent"
    rows = kernel.rows
    for row in rows:
        valid(row)
    intents, ends = rows[:3], rows[4:7]
    assert [row["op_id"] for row in intents] == [row["op_id"] for row in ends] == [0, 1, 2]
    assert all(row["outcome"] == "unknown" and "end_ns" not in row for row in [*intents, rows[3]])
    assert [row.get("key") for row in intents] == [None, "k1", None]
    assert {row["attempt"] for row in intents} == {1} and {row["txn"] for row in intents} == {txn}
    assert [(row["start_ns"], row["end_ns"]) for row in ends] == [(11, 20), (21, 30), (31, 40)]
    assert all(a["end_ns"] < b["start_ns"] for a, b in pairwise(ends)), "one precedes the next"
    assert {(row["broker"], row["instance"], row["outcome"]) for row in ends} == {("h1", "a1", "ok")}
    assert (rows[7]["op"], rows[7]["outcome"], rows[7]["error"]) == ("commit", "unknown", "X: y")


def test_zero_length_calls_do_not_end_before_they_begin() -> None:
    kernel = Kernel()
    writer = make(kernel)
    writer.end_sends(0, writer.begin_sends(0, "q", batch(2), 0, None, False), [5, 5, 5], DONE, None)
    writer.flush()
    ends = [row for row in kernel.rows if "end_ns" in row]
    assert all(row["start_ns"] <= row["end_ns"] for row in ends) and "broker" not in ends[0]


def test_a_receive() -> None:
    kernel = Kernel()
    writer = make(kernel)
    names = set()
    for n in range(2):
        begun = writer.begin("receive", 3, address="q", txn="t")
        assert len(kernel.writes) == n + 1, "a completion and the next intent share a write"
        names.add(writer.end_receive(begun, Delivery("q", f"m{n}", 2, 7, "k", True, "0f", object()), HERE))
    writer.flush()
    for row in kernel.rows:
        valid(row)
    last = kernel.rows[-1]
    assert len(names) == 2 and last["delivery"] in names
    assert (last["message_id"], last["attempt"], last["producer_seq"], last["key"]) == ("m1", 2, 7, "k")
    assert (last["redelivered"], last["payload_sha"], last["session"]) == (True, "0f", 3)


def test_errors_are_escaped_and_names_unique() -> None:
    kernel = Kernel()
    writer = make(kernel)
    one = writer.name("t")
    writer.end(writer.begin("connect", 0), Outcome("fail", 'Nope: "quoted"\n\u2028 \\'))
    two = writer.name("t")
    writer.flush()
    assert kernel.rows[-1]["error"] == 'Nope: "quoted"\n\u2028 \\' and one != two
    assert kernel.rows[-1]["run_id"] == 'r"1'


def test_off() -> None:
    writer = make(None)
    first = writer.begin_sends(0, "q", batch(2), 0, None, True)
    writer.end_sends(0, first, [1, 2, 3], DONE, HERE)
    writer.end(writer.begin("close", 0), DONE)
    writer.flush()


def test_times_are_never_negative() -> None:
    clock = LedgerClock()
    assert clock.now() >= 0 and clock.at(clock.base_ns - 5) == 0 and clock.at(clock.base_ns + 5) == 5


# --- the spool ------------------------------------------------------------------------------------------------------


def test_spool_refuses_a_file_that_exists(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"torn")
    with pytest.raises(LedgerError, match="cannot be made: File exists"):
        Spool(str(tmp_path / "x"))
    with pytest.raises(LedgerError, match="No such file"):
        Spool(str(tmp_path / "no" / "x"))


def test_a_full_disk_cuts_the_file_to_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes half of the second write, then nothing more."""
    path = tmp_path / "x"
    spool = Spool(str(path))
    spool.write(b"one\n")
    real, calls = os.write, []

    def full(fd: int, data: bytes) -> int:
        calls.append(data)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", full)
    for _ in range(2):
        with pytest.raises(LedgerError, match="No space left on device"):
            spool.write(b"two\nthree\n")
    monkeypatch.undo()
    with pytest.raises(LedgerError):
        spool.write(b"four\n")
    assert path.read_bytes() == b"one\n" and len(calls) == 2


def test_a_spool_is_divided_into_pieces_of_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    spool = Spool(str(path), piece_bytes=8)
    for data in (b"one\n", b"two\n", b"three\nfour\nfive\n", b"six\n"):
        spool.write(data)
    spool.close()
    found = {item.name: item.read_bytes() for item in sorted(tmp_path.iterdir())}
    assert found == {
        "w-000001.jsonl": b"one\ntwo\n",
        "w-000002.jsonl": b"three\nfour\nfive\n",
        "w.jsonl": b"six\n",
    }


def test_a_finished_piece_may_be_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    spool = Spool(str(path), piece_bytes=4)
    for number in range(3):
        spool.write(b"one\n")
        piece_path(str(path), number + 1).unlink()
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_a_disk_that_takes_no_new_file_ends_the_spool(tmp_path: Path) -> None:
    """What was written is there, and nothing more is."""
    path = tmp_path / "w.jsonl"
    spool = Spool(str(path), piece_bytes=8)
    piece_path(str(path), 1).write_bytes(b"another's")
    spool.write(b"one\n")
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"w.jsonl cannot be divided: File exists"):
            spool.write(b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"


_KILLED = """
import os, signal, sys
from pathlib import Path
from brokerdrill.workload.ledger_writer import Spool

def dies(*_):
    os.kill(os.getpid(), signal.SIGKILL)

spool = Spool(sys.argv[1], piece_bytes=8)
spool.write(b"one\\n")
spool.write(b"two\\n")
spool.write(b"three\\n")
setattr({"os": os, "Path": Path, "Spool": Spool}[sys.argv[2]], sys.argv[3], dies)
spool.write(b"four\\n")
"""


@pytest.mark.parametrize("step", ["Spool _make", "Path hardlink_to", "Path rename", "os close"])
def test_killed_while_it_divides_a_spool_keeps_every_line(tmp_path: Path, step: str) -> None:
    path = tmp_path / "w.jsonl"
    done = subprocess.run([sys.executable, "-c", _KILLED, path, *step.split()], check=False)
    assert done.returncode == -signal.SIGKILL
    pieces = [*tmp_path.glob("w-*.jsonl"), path]
    lines = [line for item in pieces for line in item.read_bytes().splitlines(keepends=True)]
    # A piece that has its name already may still have the spool's, too.
    assert set(lines) == {b"one\n", b"two\n", b"three\n", b"four\n"} and len(lines) in (4, 6)


def test_spool_takes_lines_from_many_threads(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "x"))

    def write_many(n: int) -> None:
        for i in range(500):
            spool.write(b"%d-%d\n" % (n, i))

    threads = [threading.Thread(target=write_many, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spool.close()
    lines = (tmp_path / "x").read_bytes().splitlines()
    assert sorted(lines) == sorted(b"%d-%d" % (n, i) for n in range(4) for i in range(500))
    with pytest.raises(LedgerError, match="is closed"):
        spool.write(b"late\n")
