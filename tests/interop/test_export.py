"""Ledgers of our own as histories: transactions, retries and doubts become what Jepsen knows, from both file forms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.base.errors import UsageError
from brokerdrill.interop.chaostoolkit import export_chaostoolkit
from brokerdrill.interop.history import read_history
from brokerdrill.interop.jepsen_export import export_jepsen
from brokerdrill.interop.total_queue import total_queue
from brokerdrill.ledger import contract
from tests.analysis.write import run_dir

RUN = contract.new_run(
    "run",
    outcome="completed",
    drained={"q": True},
    dead_letters={"q": "DLQ"},
    clocks={"w": contract.Clock("load1", offset_ns=1000), "controller": contract.Clock("controller")},
)


def op(client: str, op_id: int, kind: str, outcome: str, start: int, end: int | None, **values: Any) -> dict[str, Any]:
    common = {"run_id": "run", "clock": "w", "client": client, "op_id": op_id, "session": 0, "op": kind}
    return common | {"outcome": outcome, "start_ns": start, "end_ns": end, "address": "q"} | values


def send(op_id: int, message: str, outcome: str, start: int, end: int | None, **values: Any) -> dict[str, Any]:
    return op("p", op_id, "send", outcome, start, end, message_id=message, **values)


def receive(op_id: int, message: str, start: int, end: int, **values: Any) -> dict[str, Any]:
    return op("c", op_id, "receive", "ok", start, end, message_id=message, delivery=f"d{op_id}", **values)


OPS = [
    # Begun, then ended: two rows of one operation. Retried: the first attempt's outcome was unknown.
    send(0, "retried", "unknown", 10, None),
    send(0, "retried", "unknown", 10, 20),
    send(1, "retried", "ok", 30, 40, attempt=1),
    # A transaction decides: committed, rolled back, in doubt.
    send(2, "committed", "ok", 50, 55, txn="t1"),
    op("p", 3, "commit", "ok", 56, 60, txn="t1"),
    send(4, "rolled back", "ok", 61, 62, txn="t2"),
    op("p", 5, "rollback", "ok", 63, 64, txn="t2"),
    send(6, "in doubt", "ok", 65, 66, txn="t3"),
    op("p", 7, "commit", "unknown", 67, 70, txn="t3"),
    send(8, "lost", "ok", 71, 72),
    receive(0, "retried", 100, 110),
    op("c", 1, "ack", "ok", 111, 112, delivery="d0"),
    receive(2, "committed", 120, 121, txn="t4"),  # given back
    op("c", 3, "rollback", "ok", 122, 123, txn="t4"),
    receive(4, "committed", 124, 125, txn="t5"),  # twice perhaps processed: the last one is taken as what came out
    op("c", 5, "commit", "unknown", 126, 127, txn="t5"),
    receive(6, "committed", 128, 129),
    op("c", 7, "ack", "unknown", 130, None, delivery="d6"),
    receive(8, "in doubt", 131, 132),
    op("c", 9, "ack", "ok", 133, 134, delivery="d8"),
    receive(10, "dead", 140, 141, address="DLQ"),
]
FAULT = {"run_id": "run", "clock": "controller", "t_ns": 500, "kind": "fault", "target": "a", "instance": "a",
         "name": "kill", "value": "kill-it", "uncertainty_ns": 5, "detail": {"fault_id": "1"}}  # fmt: skip


@pytest.mark.parametrize("as_parquet", [False, True])
def test_what_a_ledger_says_as_a_history(tmp_path: Path, as_parquet: bool) -> None:
    run = run_dir(tmp_path / "run", RUN, OPS, [FAULT], as_parquet=as_parquet)
    export_jepsen(run, tmp_path / "h.edn")
    told = [(op.type, op.f, op.value, op.time) for op in read_history(tmp_path / "h.edn") if op.client]
    assert told == [
        ("invoke", "enqueue", "retried", 1010),
        ("ok", "enqueue", "retried", 1040),
        ("invoke", "enqueue", "committed", 1050),
        ("ok", "enqueue", "committed", 1060),
        ("invoke", "enqueue", "rolled back", 1061),
        ("fail", "enqueue", "rolled back", 1062),
        ("invoke", "enqueue", "in doubt", 1065),
        ("info", "enqueue", "in doubt", 1066),
        ("invoke", "enqueue", "lost", 1071),
        ("ok", "enqueue", "lost", 1072),
        ("invoke", "dequeue", None, 1100),
        ("ok", "dequeue", "retried", 1112),
        ("invoke", "dequeue", None, 1120),
        ("fail", "dequeue", None, 1121),
        ("invoke", "dequeue", None, 1124),
        ("info", "dequeue", "committed", 1125),
        ("invoke", "dequeue", None, 1128),
        ("ok", "dequeue", "committed", 1129),
        ("invoke", "dequeue", None, 1131),
        ("ok", "dequeue", "in doubt", 1134),
        ("invoke", "drain", None, 1135),
        ("ok", "drain", (), 1135),
    ]
    counts = total_queue(read_history(tmp_path / "h.edn")).to_json()
    assert counts["lost"] == {'"lost"': 1} and counts["recovered"] == {'"in doubt"': 1}


def test_a_compaction_that_was_killed_doubles_nothing(tmp_path: Path) -> None:
    run = run_dir(tmp_path / "run", RUN, OPS, [FAULT])
    export_jepsen(run, tmp_path / "before.edn")
    both = run_dir(tmp_path / "both", RUN, OPS, [FAULT], as_parquet=True)
    for name in ("ops", "events"):
        for path in (run / name).iterdir():
            (both / name / path.name).write_bytes(path.read_bytes())
        (both / name / ".compact").mkdir()
        (both / name / ".compact" / "half.parquet").write_bytes(b"PAR1 half")
    export_jepsen(both, tmp_path / "after.edn")
    assert (tmp_path / "after.edn").read_text() == (tmp_path / "before.edn").read_text()
    assert export_chaostoolkit(both, tmp_path / "j.json") == 1


def test_a_torn_last_line_is_left_out_and_a_broken_one_refused(tmp_path: Path) -> None:
    run = run_dir(tmp_path / "run", RUN, OPS)
    path = next((run / "ops").iterdir())
    path.write_bytes(path.read_bytes() + b'{"run_id": "ru')
    assert export_jepsen(run, tmp_path / "h.edn") == 22
    path.write_bytes(b'{"run_id": "ru\n' + json.dumps(OPS[0]).encode() + b"\n")
    with pytest.raises(UsageError, match=r"worker-1\.jsonl, line 1: is not JSON"):
        export_jepsen(run, tmp_path / "h.edn")
    path.write_bytes(b"")
    with pytest.raises(UsageError, match="there is no history to write"):
        export_jepsen(run, tmp_path / "h.edn")
