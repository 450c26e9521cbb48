"""Spools: what a client writes is what the analysis reads, wherever the file was cut off or is divided."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from brokerdrill.analysis.load import load
from brokerdrill.analysis.reading import spools
from brokerdrill.analysis.reading.pieces import blocks, read
from brokerdrill.analysis.reading.rows import OP_SCHEMA, CheckedRows, Piece
from brokerdrill.analysis.reading.valid import NOT_JSON
from brokerdrill.analysis.sources import pieces
from brokerdrill.interop.effects import read_rows
from brokerdrill.ledger import contract
from brokerdrill.ledger.spool import Header, rows
from brokerdrill.workload.client import DONE, Delivery, Message, Outcome
from brokerdrill.workload.config import BrokerEndpoint
from brokerdrill.workload.ledger_writer import ClientLedger, LedgerClock, Spool, piece_path

KNOWN, OTHER = BrokerEndpoint("10.0.0.1", 1, "a1", "h1"), BrokerEndpoint("10.0.0.2", 1, "a2", "h2")
HEADER = Header("run", "w0", "core", ["producer-0", "producer-0-", "consumer-0", "q"], [("h1", "a1")])


class Ticks(LedgerClock):
    """Each look at it is a microsecond later."""

    def __init__(self) -> None:
        self.base_ns = self._now = 0

    def now(self) -> int:
        self._now += 1000
        return self._now


def filled(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that are not null."""
    return {name: value for name, value in row.items() if value is not None}


class Told(list[dict[str, Any]]):
    """The rows that a spool has to tell."""

    def add(self, client: str, op_id: int, op: str, outcome: str, **values: Any) -> None:
        head = {"run_id": "run", "clock": "w0", "client": client, "op_id": op_id, "session": 0, "op": op}
        self.append({**head, "outcome": outcome} | filled(values))


def _sent(sends: ClientLedger, clock: Ticks, add: Callable[..., None]) -> None:
    """Connect, and send a batch in a transaction, one in another's, and one in none."""
    connect = sends.begin("connect", 0)
    add("producer-0", 0, "connect", "unknown", start_ns=connect.start_ns, protocol="core")
    end = sends.end(connect, Outcome("fail", 'Nope: "ä\n\u2028'), OTHER, via="r1")
    add("producer-0", 0, "connect", "fail", start_ns=connect.start_ns, end_ns=end, broker="h2", instance="a2", via="r1",
        error='Nope: "ä\n\u2028')  # fmt: skip
    for txn, keys, late in (
        (sends.name("t"), ("k,1", None), 0),
        ("another's", (None, None), 5_000_000),
        (None, (None, "k"), 0),
    ):
        batch = [Message(f"producer-0-{7 + n}", 30 + n, key, b"", f"0{n}ff") for n, key in enumerate(keys)]
        at = clock.now() + 1000
        first = sends.begin_sends(0, "q", batch, 1, txn, True, late)
        for n, key in enumerate(keys):
            add("producer-0", first + n, "send", "unknown", start_ns=at, protocol="core", address="q", txn=txn,
                durable=True, attempt=1, late_ns=late or None, message_id=f"producer-0-{7 + n}", producer_seq=30 + n,
                key=key, payload_sha=f"0{n}ff")  # fmt: skip
        sends.end_sends(0, first, [at, at + 7, at + 7], Outcome("ok", "duplicate"), KNOWN)
        for n, (start, stop) in enumerate([(at + 1, at + 7), (at + 8, at + 8)]):
            add("producer-0", first + n, "send", "ok", start_ns=start, end_ns=stop, broker="h1", instance="a1",
                error="duplicate")  # fmt: skip
    sends.flush()


def _got(gets: ClientLedger, clock: Ticks, add: Callable[..., None]) -> None:
    """Receive from elsewhere, and acknowledge as another's."""
    take = gets.begin("receive", 0, address="q", txn="consumer-0/t0")
    add(
        "consumer-0", 0, "receive", "unknown", start_ns=take.start_ns, address="q", txn="consumer-0/t0", protocol="core"
    )
    name = gets.end_receive(take, Delivery("elsewhere", "foreign-\u2028", None, 7, "k", True, "0f", object()), None)
    add("consumer-0", 0, "receive", "ok", start_ns=take.start_ns, end_ns=clock.now() - 1000, delivery=name,
        address="elsewhere", message_id="foreign-\u2028", producer_seq=7, key="k", redelivered=True,
        payload_sha="0f")  # fmt: skip
    ack = gets.begin("ack", 0, address="q", delivery=name)
    add("consumer-0", 1, "ack", "unknown", start_ns=ack.start_ns, address="q", delivery=name, protocol="core")
    end = gets.end(ack, DONE, KNOWN, delivery="another's/d4")
    add(
        "consumer-0",
        1,
        "ack",
        "ok",
        start_ns=ack.start_ns,
        end_ns=end,
        broker="h1",
        instance="a1",
        delivery="another's/d4",
    )
    gets.flush()


def written(path: Path, piece_bytes: int | None = None) -> list[dict[str, Any]]:
    """Write what clients do into a spool; return the rows that it has to tell, by what was done."""
    spool = Spool(str(path), piece_bytes, HEADER.line())
    clock = Ticks()
    told = Told()
    _sent(ClientLedger(spool.write, clock, HEADER, "producer-0"), clock, told.add)
    _got(ClientLedger(spool.write, clock, HEADER, "consumer-0"), clock, told.add)
    spool.close()
    return told


def merged(given: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each operation, as the contract's rule for rows of one operation makes it."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in given:
        found.setdefault((row["client"], row["op_id"]), []).append(filled(row))
    whole = []
    for rows_of in found.values():
        one: dict[str, Any] = {}
        for name in {name for row in rows_of for name in row}:
            values = sorted(row[name] for row in rows_of if name in row)
            one[name] = values[-1] if name in ("end_ns", "session") else values[0]
        outcomes = {row["outcome"] for row in rows_of}
        whole.append(one | {"outcome": (sorted(outcomes - {"unknown"}) or ["unknown"])[0]})
    return whole


def table_rows(found: list[Piece]) -> list[dict[str, Any]]:
    """What the analysis reads of each operation, with the columns that are not null."""
    said = []
    for _, rows_of in read(found):
        assert not rows_of.problems
        said += [filled(row) for row in rows_of.table.to_pylist()]
    return merged(said)


def alike(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    def order(given: list[dict[str, Any]]) -> list[str]:
        return sorted(json.dumps(row, sort_keys=True) for row in given)

    return order(one) == order(other)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "run" / "ops").mkdir(parents=True)
    contract.write_run(tmp_path / "run", contract.new_run("run"))
    return tmp_path / "run"


def test_what_is_written_is_what_is_read(run_dir: Path) -> None:
    path = run_dir / "ops" / "w0.spool"
    told = written(path)
    assert alike([*rows(path.read_text().split("\n")[:-1])], told)
    (run,), _ = load(None, [run_dir])
    assert not run.torn and alike(table_rows(pieces(run)), merged(told))
    assert alike([dict(row) for row in read_rows(run_dir, "ops")], told)


def test_an_intent_and_its_completion_are_read_as_one(run_dir: Path) -> None:
    told = written(run_dir / "ops" / "w0.spool")
    (run,), _ = load(None, [run_dir])
    said = [filled(row) for _, found in read(pieces(run)) for row in found.table.to_pylist()]
    apart = {"receive", "ack"}
    together = [row for row in said if row["op"] not in apart]
    assert alike(together, merged(row for row in told if row["op"] not in apart))
    # Where the two say different things, the rules for that are the stages'.
    assert alike([row for row in said if row["op"] in apart], [row for row in told if row["op"] in apart])


@pytest.mark.parametrize(
    ("intent", "end"),
    [
        # The completion begins before the intent, or ends before it begins.
        ("[0,1,7,0,5,1000]", "[2,1,7,0,5,11,900,50,0]"),
        ("[0,1,7,0,5,1000]", "[2,1,7,0,5,11,1200,-50,0]"),
        # Of another session, and of another operation.
        ("[0,1,7,1,5,1000]", "[2,1,7,0,5,11,1200,50,0]"),
        ("[0,1,7,0,6,1000]", "[2,1,7,0,5,11,1200,50,0]"),
    ],
)
def test_rows_that_do_not_fit_are_left_to_the_rules(run_dir: Path, intent: str, end: str) -> None:
    path = run_dir / "ops" / "w0.spool"
    path.write_bytes(HEADER.line() + f"{intent}\n{end}\n".encode())
    (run,), _ = load(None, [run_dir])
    ((_, found),) = read(pieces(run))
    assert len(found.table) + len(found.problems) == 2


@pytest.mark.parametrize(
    "only",
    [
        {"message_id": ["producer-0-8", "nobody's"]},
        {"message_id": ["foreign-\u2028"]},
        {"client": ["consumer-0"]},
        {"key": ["k,1"]},
        {"delivery": ["another's/d4"]},
        {"txn": ["consumer-0/t0", "another's"]},
        {"op_id": [2], "key": ["k"]},
        {"txn": ["nobody's"]},
        {},
    ],
)
def test_a_look_up_reads_of_a_spool_what_it_asks_for(run_dir: Path, only: dict[str, list[Any]]) -> None:
    path = run_dir / "ops" / "w0.spool"
    told = written(path)
    (run,), _ = load(None, [run_dir])
    values = {name: pa.array(found, OP_SCHEMA.field(name).type) for name, found in only.items()}
    said = [filled(row) for _, found in read(pieces(run), values) for row in found.table.to_pylist()]
    asked = [row for row in told if any(row.get(name) in found for name, found in only.items())]
    assert alike(said, asked)
    assert bool(asked) == (only not in ({}, {"txn": ["nobody's"]}))


def test_a_spool_that_was_cut_off_tells_its_whole_lines(run_dir: Path, tmp_path: Path) -> None:
    """After SIGKILL, or a full disk: at any byte."""
    written(tmp_path / "whole.spool")
    whole = (tmp_path / "whole.spool").read_bytes()
    texts = whole.decode().split("\n")
    path = run_dir / "ops" / "w0.spool"
    ends = {place for place in range(len(whole) + 1) if whole[:place].endswith(b"\n")}
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        # A line that lacks only its end is whole.
        complete = whole[:size].count(b"\n") + (size + 1 in ends)
        torn = {} if size in ends or size + 1 in ends or not size else {"ops": 1}
        runs, errors = load(None, [run_dir])
        assert not errors and runs[0].torn == torn, size
        # Reading takes its time: around each end of a line, and somewhere in between.
        if size and not ({size - 1, size, size + 1} & ends or size % 197 == 0):
            continue
        said: list[dict[str, Any]] = []
        for _, found in read(pieces(runs[0])):
            assert all(p.problem == "is not JSON" and p.raw == runs[0].tails[p.file] for p in found.problems), size
            said += [filled(row) for row in found.table.to_pylist()]
        assert alike(merged(said), merged(rows(texts[:complete]))), size


def test_a_spool_may_be_read_from_any_byte_on(run_dir: Path) -> None:
    """Tasks share a file by its bytes: each line is one task's."""
    path = run_dir / "ops" / "w0.spool"
    told = written(path)
    size = path.stat().st_size
    for middle in range(1, size):
        shares = [Piece(0, "run", "ops/w0.spool", str(path), *span) for span in ((0, middle), (middle, size))]
        assert b"".join(block for share in shares for block in blocks(share)) == path.read_bytes(), middle
    assert alike(table_rows(shares), merged(told))


def test_each_piece_of_a_spool_tells_its_rows_alone(run_dir: Path) -> None:
    path = run_dir / "ops" / "w0.spool"
    told = written(path, len(HEADER.line()) + 200)
    assert piece_path(str(path), 2).exists()
    (run,), _ = load(None, [run_dir])
    assert alike(table_rows(pieces(run)), merged(told))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("[9,0]", "is no line of a spool"),
        ('{"a":1}', "is no line of a spool"),
        ('{"torn', "is not JSON"),
        ("[0,0,1]", "is no line of a spool"),
        ("[0,0,1,0,99999,5]", "is no line of a spool"),
        ("[0,0,1,0,0,-5]", "start_ns is negative"),
        ('[0,0,1,0,"sing",5]', "op has the unknown value 'sing'"),
        ("[0,0,1,0,0,5", "is not JSON"),
        ("5", "is no line of a spool"),
    ],
)
def test_what_is_wrong_is_told_by_line(run_dir: Path, line: str, told: str) -> None:
    path = run_dir / "ops" / "w0.spool"
    good = written(path)
    path.write_bytes(path.read_bytes() + f"{line}\n".encode())
    (run,), _ = load(None, [run_dir])
    problems, said = [], []
    for _, found in read(pieces(run)):
        problems += found.problems
        said += found.table.to_pylist()
    assert [(p.problem, p.raw) for p in problems] == [(told, line)]
    assert alike(merged(said), merged(good))


def test_a_spool_without_a_header_is_told(run_dir: Path) -> None:
    (run_dir / "ops" / "w0.spool").write_text("[0,0,1,0,0,5]\n[0,0,2,0,0,5]\n")
    (run,), _ = load(None, [run_dir])
    ((_, found),) = read(pieces(run))
    assert [(p.problem, p.raw) for p in found.problems] == [("is no header of a spool", "[0,0,1,0,0,5]")]


def test_one_wrong_line_does_not_make_each_line_a_question(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run_dir / "ops" / "w0.spool"
    written(path)
    whole = path.read_bytes()
    header, _, body = whole.partition(b"\n")
    path.write_bytes(header + b"\n" + body * 64 + b'[4,"torn')
    lines = path.read_bytes().count(b"\n")
    asked: list[int] = []
    checked = spools.checked

    def counted(table: Any, piece: Piece) -> CheckedRows:
        asked.append(len(table))
        return checked(table, piece)

    monkeypatch.setattr(spools, "checked", counted)
    (run,), _ = load(None, [run_dir])
    told = [problem for _, found in read(pieces(run)) for problem in found.problems]
    assert [problem.problem for problem in told] == [NOT_JSON]
    assert len(asked) <= lines.bit_length() + 1
