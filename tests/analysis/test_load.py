"""Reading run directories: both forms, bad input in one clear sentence, torn lines, several runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from brokerdrill.analysis.analyze import analyze, analyze_with_series
from brokerdrill.analysis.reading.details import detail_problem
from brokerdrill.analysis.verdict import exit_status
from brokerdrill.base.errors import UsageError
from brokerdrill.ledger.contract import EVENT_COLUMNS, OP_COLUMNS, Clock, PromiseSpec, RunInfo
from brokerdrill.ledger.spool import COLUMN_CODES, END, Header
from tests.analysis.batch import differences, expected
from tests.analysis.generate import generate
from tests.analysis.write import lines, parquet, run_dir

Row = dict[str, Any]
RUN = RunInfo(
    run_id="r",
    outcome="completed",
    clocks={"c": Clock("h")},
    drained={"q": True},
    promises=(PromiseSpec("no_loss"), PromiseSpec("available", bound_ms=5000)),
)
WHO: Row = {"run_id": "r", "clock": "c", "client": "p", "session": 0, "outcome": "ok"}
SEND: Row = {**WHO, "op_id": 0, "op": "send", "start_ns": 10, "end_ns": 20, "address": "q", "message_id": "m"}
GOT: Row = {
    **WHO,
    "client": "c",
    "op_id": 0,
    "op": "receive",
    "start_ns": 5,
    "end_ns": 30,
    "address": "q",
    "message_id": "m",
    "delivery": "d",
}
ACK: Row = {**WHO, "client": "c", "op_id": 1, "op": "ack", "start_ns": 31, "end_ns": 32, "delivery": "d"}
OPS = [SEND, GOT, ACK]
LOAD: Row = {"run_id": "r", "clock": "c", "t_ns": 1, "kind": "phase", "name": "load", "value": "begin"}
EVENTS = [LOAD, {**LOAD, "t_ns": 50, "value": "end"}]

pytestmark = pytest.mark.usefixtures("spark")


def ops_are(*rows: Row | bytes) -> Callable[[Path], None]:
    """Replace the operations by these rows, or by these very bytes."""

    def change(folder: Path) -> None:
        whole = b"".join(row if isinstance(row, bytes) else lines([row]) for row in rows)
        (folder / "ops" / "worker-1.jsonl").write_bytes(whole)

    return change


def events_are(*rows: Row) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "events" / "runner.jsonl").write_bytes(lines(rows))

    return change


def run_says(**values: Any) -> Callable[[Path], None]:
    """Change keys of run.json (None: take the key away)."""

    def change(folder: Path) -> None:
        told = {**json.loads((folder / "run.json").read_text()), **values}
        whole = {key: value for key, value in told.items() if value is not None}
        (folder / "run.json").write_text(json.dumps(whole))

    return change


def parquet_with(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    """Put the operations into a Parquet file, changed."""

    def apply(folder: Path) -> None:
        (folder / "ops" / "worker-1.jsonl").unlink()
        path = folder / "ops" / "part.parquet"
        parquet(path, OPS, OP_COLUMNS)
        pq.write_table(change(pq.read_table(path)), path)

    return apply


def _without(name: str) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.drop_columns([name])


def _replaced(name: str, values: Sequence[Any], kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.set_column(table.column_names.index(name), name, pa.array(values, kind))


def _no_text(name: str) -> Callable[[pa.Table], pa.Table]:
    """A value in a column of strings that is not UTF-8, as some writers leave it."""

    def change(table: pa.Table) -> pa.Table:
        values = [None if value is None else value.encode() for value in table[name].to_pylist()]
        values[0] = b"\xff" + (values[0] or b"")
        _, ends, data = pa.array(values, pa.binary()).buffers()
        text = pa.StringArray.from_buffers(len(values), ends, data)
        return table.set_column(table.column_names.index(name), name, text)

    return change


def _torn_parquet(folder: Path) -> None:
    (folder / "ops" / "part.parquet").write_bytes(b"PAR1 and then the power went")


def _empty_parquet(folder: Path) -> None:
    (folder / "ops" / "part.parquet").touch()


def _strange_file(folder: Path) -> None:
    (folder / "ops" / "notes.txt").write_text("hello")


def _spooled_conflict(folder: Path) -> None:
    header = Header("r", str(SEND["clock"]), "core", [])
    columns = [COLUMN_CODES["address"], "q", COLUMN_CODES["message_id"], "m9"]
    lines = [[END, "p9", 0, 0, "send", outcome, 5, 1, None, *columns] for outcome in ("ok", "fail")]
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    (folder / "ops" / "worker-2.spool").write_bytes(header.line() + text)


def _no_ops(folder: Path) -> None:
    (folder / "ops" / "worker-1.jsonl").unlink()
    (folder / "ops").rmdir()


def _without_run(folder: Path) -> None:
    (folder / "run.json").unlink()


W, P = "ops/worker-1.jsonl, line ", "ops/part.parquet: "
BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "not_json": (ops_are(SEND, b"{oops\n", GOT), W + "2: is not JSON"),
    "torn_in_the_middle": (ops_are(SEND, b'{"run_id":"r","cl\n', GOT, ACK), W + "2: is not JSON"),
    "not_an_object": (ops_are(SEND, b"[1,2]\n"), W + "2: is no JSON object"),
    "text_for_long": (ops_are(SEND, {**GOT, "start_ns": "soon"}), W + "2: start_ns is of a wrong type"),
    "fraction_for_long": (ops_are({**SEND, "op_id": 1.5}), W + "1: op_id is of a wrong type"),
    "number_for_text": (ops_are(SEND, {**GOT, "message_id": 5}), W + "2: message_id is of a wrong type"),
    "text_for_boolean": (ops_are(SEND, {**GOT, "redelivered": "yes"}), W + "2: redelivered is of a wrong type"),
    "missing_client": (ops_are(SEND, {k: v for k, v in GOT.items() if k != "client"}), W + "2: client is missing"),
    "missing_start": (
        ops_are(SEND, {k: v for k, v in GOT.items() if k != "start_ns"}),
        W + "2: operation 0 of c: start",
    ),
    "missing_outcome": (ops_are(SEND, {k: v for k, v in GOT.items() if k != "outcome"}), "outcome is missing"),
    "missing_message": (ops_are({k: v for k, v in SEND.items() if k != "message_id"}), "message_id is missing"),
    "unknown_op": (ops_are(SEND, {**GOT, "op": "recieve"}), W + "2: op has the unknown value 'recieve'"),
    "unknown_outcome": (ops_are(SEND, {**GOT, "outcome": "good"}), W + "2: outcome has the unknown value 'good'"),
    "unknown_protocol": (ops_are({**SEND, "protocol": "smtp"}), W + "1: protocol has the unknown value 'smtp'"),
    "negative_time": (ops_are(SEND, {**GOT, "start_ns": -1}), W + "2: start_ns is negative"),
    "absurd_time": (ops_are({**SEND, "end_ns": 2**62}), W + "1: end_ns is later than any run"),
    "end_before_start": (ops_are(SEND, {**GOT, "start_ns": 40}), W + "2: end_ns is before start_ns"),
    "two_runs": (ops_are(SEND, {**GOT, "run_id": "other"}), W + "2: run_id is 'other', but run.json's is 'r'"),
    "ok_against_fail": (ops_are(SEND, {**SEND, "outcome": "fail"}), "operation 0 of p: outcome is ok in one row"),
    "ok_against_fail_in_a_spool": (_spooled_conflict, "ops/worker-2.spool, line 3: operation 0 of p9: outcome is ok"),
    "two_ops_in_one": (ops_are(SEND, {**SEND, "op": "ack", "delivery": "d"}), "operation 0 of p: op is ack and send"),
    "unknown_kind": (events_are(LOAD, {**LOAD, "kind": "party"}), "events/runner.jsonl, line 2: kind has the unknown"),
    "unknown_role": (events_are({**LOAD, "kind": "role", "value": "king"}), "line 1: value of a role event is 'king'"),
    "map_is_no_map": (events_are({**LOAD, "detail": "text"}), "line 1: detail is of a wrong type"),
    "measure_is_no_number": (
        events_are({**LOAD, "kind": "fault", "detail": {"ttl_s": "soon"}}),
        "line 1: ttl_s in detail is 'soon', no number of seconds",
    ),
    "newer_schema": (run_says(schema_version=2), "run.json: schema_version 2 is newer than 1"),
    "no_schema": (run_says(schema_version=None), "run.json: schema_version is missing"),
    "unknown_run_outcome": (run_says(outcome="fine"), "run.json: outcome is 'fine'"),
    "unknown_promise": (run_says(promises=[{"name": "no_lost"}]), "run.json: promises: name is 'no_lost'"),
    "promise_without_bound": (run_says(promises=[{"name": "available"}]), "available needs a bound"),
    "expectation_without_bound": (run_says(expect={"failover_within": "violated"}), "promises gives it no bound"),
    "no_run_json": (_without_run, "run.json does not exist"),
    "no_ops_folder": (_no_ops, "has no folder ops"),
    "strange_file": (_strange_file, "ops/notes.txt is none of .parquet, "),
    "torn_parquet": (_torn_parquet, "ops/part.parquet is no readable Parquet file"),
    "empty_parquet": (_empty_parquet, "ops/part.parquet is empty"),
    "parquet_without_column": (parquet_with(_without("outcome")), P + "column outcome is missing"),
    "parquet_with_text": (
        parquet_with(_replaced("op_id", ["0", "1", "2"], pa.string())),
        P + "column op_id is of type",
    ),
    "parquet_with_int": (parquet_with(_replaced("client", [1, 2, 3], pa.int32())), P + "column client is of a wrong"),
    "parquet_with_null": (parquet_with(_replaced("client", ["a", None, "b"], pa.string())), P + "client is missing"),
    "parquet_no_text": (parquet_with(_no_text("client")), P + "column client has a value that is not UTF-8"),
    "parquet_no_text_far_off": (parquet_with(_no_text("instance")), P + "column instance has a value that is not"),
    "parquet_unknown_op": (parquet_with(_replaced("op", ["send", "x", "ack"], pa.string())), P + "op has the unknown"),
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> dict[str, dict[str, Any]]:
    """What the analysis of all bad run directories, with a good one among them, says of each."""
    folder = tmp_path_factory.mktemp("bad")
    dirs = []
    for name, (change, _) in BAD.items():
        dirs.append(run_dir(folder / name, RUN, OPS, EVENTS))
        change(dirs[-1])
    dirs.append(run_dir(folder / "good", RUN, OPS, EVENTS))
    result = analyze(dirs).to_json()
    assert result["verdict"] == "unknown"
    assert result["as_expected"] is False
    return dict(zip([*BAD, "good"], result["runs"], strict=True))


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(refused: dict[str, dict[str, Any]], name: str) -> None:
    told = refused[name]
    assert BAD[name][1] in told["error"]
    assert "\n" not in told["error"]
    assert told["verdict"] == "unknown"


@pytest.mark.parametrize(
    ("kind", "detail", "wrong"),
    [
        *(("fault", {"ttl_s": text}, True) for text in ("soon", "inf", "nan", "-1", "")),
        *(("fault", {"ttl_s": text}, False) for text in ("2", "0.5", "60")),
        ("fault", {"from_ns": "soon"}, False),
        *(("log read", {name: "?"}, True) for name in ("from_ns", "until_ns", "lost", "boots")),
        *(("log read", of, False) for of in ({}, {"from_ns": "0", "until_ns": "9", "lost": "0", "instances": "a"})),
        *(("polls", {"gaps": text}, True) for text in ("1", "1-", "-5-7", "1-2,3-4", "1-x")),
        *(("polls", {"gaps": text}, False) for text in ("", "1-2", "1-2, 3-4")),
        ("polls", {"gaps": None}, False),
        ("met", {"packets": "1.5"}, True),
        ("met", {"packets": "12", "fault_id": "x"}, False),
        ("clock", {"offset_ns": "-12"}, False),
        ("clock", {"uncertainty_ns": "?"}, True),
        ("piece", {"bytes": "many"}, True),
        ("pressure", {"stalled_ns": "long"}, True),
    ],
)
def test_what_is_measured_are_numbers(kind: str, detail: dict[str, str | None], wrong: bool) -> None:
    event = {"kind": "note", "name": kind, "detail": detail} if kind == "log read" else {"kind": kind, "detail": detail}
    assert bool(detail_problem({"name": None, **event})) == wrong


def test_the_other_runs_are_judged_all_the_same(refused: dict[str, dict[str, Any]]) -> None:
    good = refused["good"]
    assert (good["verdict"], good["messages"]["ok"]) == ("pass", 1)


def test_a_single_bad_run_raises(tmp_path: Path) -> None:
    folder = run_dir(tmp_path / "run", RUN, [SEND, {**GOT, "end_ns": 1}], EVENTS)
    with pytest.raises(UsageError, match=r"ops/worker-1.jsonl, line 2: end_ns is before start_ns"):
        analyze([folder])
    with pytest.raises(UsageError, match="is no run directory"):
        analyze([tmp_path / "nothing"])


def _extra_columns(folder: Path) -> None:
    ops_are(*({**row, "colour": "red", "n": 7} for row in OPS))(folder)


def _both_forms(folder: Path) -> None:
    parquet(folder / "ops" / "compacted.parquet", OPS, OP_COLUMNS)
    parquet(folder / "events" / "compacted.parquet", EVENTS, EVENT_COLUMNS)


def _narrow_parquet(folder: Path) -> None:
    """As another writer may spell it: longs as 32 bits, columns of nulls without a type, texts as a dictionary."""
    parquet_with(_replaced("op_id", [0, 0, 1], pa.int32()))(folder)
    path = folder / "ops" / "part.parquet"
    table = pq.read_table(path)
    for name in ("key", "redelivered"):
        table = _replaced(name, [None] * 3, pa.null())(table)
    table = table.set_column(table.column_names.index("op"), "op", table["op"].dictionary_encode())
    pq.write_table(table, path)


def _any_case(folder: Path) -> None:
    """A column more whose name differs by its case alone."""
    parquet_with(lambda table: table.add_column(0, "CLIENT", pa.array([1, 2, 3])))(folder)


def _two_groups(folder: Path) -> None:
    parquet_with(lambda table: table)(folder)
    path = folder / "ops" / "part.parquet"
    pq.write_table(pq.read_table(path), path, row_group_size=2)


def _strange_name(folder: Path) -> None:
    parquet_with(lambda table: table)(folder)
    (folder / "ops" / "part.parquet").rename(folder / "ops" / "client=a[1]*'.parquet")


def _empty_files(folder: Path) -> None:
    (folder / "ops" / "worker-2.jsonl").touch()
    (folder / "events" / "more.jsonl").write_bytes(b"\n\n")
    (folder / "ops" / ".worker-3.jsonl.tmp").write_text("{")


def _no_last_newline(folder: Path) -> None:
    path = folder / "ops" / "worker-1.jsonl"
    path.write_bytes(path.read_bytes().rstrip(b"\n"))


def _bare_run(folder: Path) -> None:
    """What a run must say for its messages to be judged: without an outcome it would be one that ended early."""
    told = {"run_id": "r", "schema_version": 1, "outcome": "completed", "drained": {"q": True}}
    (folder / "run.json").write_text(json.dumps(told))


def _as_parquet(folder: Path) -> None:
    parquet_with(lambda table: table)(folder)


GOOD: dict[str, Callable[[Path], None]] = {
    "extra columns": _extra_columns,
    "both forms": _both_forms,
    "narrow [parquet] {1}": _narrow_parquet,
    "parquet": _as_parquet,
    "parquet, any case": _any_case,
    "parquet, two groups": _two_groups,
    "parquet, it's [0-9]": _strange_name,
    "empty files, 100 %": _empty_files,
    "no last newline": _no_last_newline,
    "a bare run.json": _bare_run,
}


def test_what_is_no_bad_input(tmp_path: Path) -> None:
    dirs = [run_dir(tmp_path / name, RUN, OPS, EVENTS) for name in GOOD]
    for folder, change in zip(dirs, GOOD.values(), strict=True):
        change(folder)
    dirs += [f"file://{tmp_path}/parquet", f"file://{tmp_path}/no last newline"]  # type: ignore[list-item]
    result = analyze(dirs, promises=[PromiseSpec("no_loss")])
    told = [(run.error, run.count("ok")) for run in result.runs]
    assert told == [(None, 1)] * len(dirs)
    verdicts = [run.verdict for run in result.runs]
    assert verdicts == ["pass"] * len(dirs)
    assert exit_status(result) == 0


TEAR = b'{"run_id":"r","clock":"c","client":"p","op_id":9,"ses'


def test_a_torn_last_line_is_skipped_counted_and_lets_no_pass_stand(tmp_path: Path) -> None:
    """In a run that completed, so that nothing but the torn line forbids it."""
    whole = run_dir(tmp_path / "whole", RUN, OPS, EVENTS)
    torn_ops = run_dir(tmp_path / "ops", RUN, OPS, EVENTS)
    ops_are(*OPS, TEAR)(torn_ops)
    torn_events = run_dir(tmp_path / "events", RUN, OPS, EVENTS)
    with (torn_events / "events" / "runner.jsonl").open("ab") as file:
        file.write(b'{"run_id":"r","clock"')
    lost = run_dir(tmp_path / "lost", RUN, [SEND], EVENTS)
    ops_are(SEND, TEAR)(lost)
    results = [analyze([folder]) for folder in (whole, torn_ops, torn_events, lost)]
    broken = [result.runs[0] for result in results]
    verdicts = [{p.name: p.verdict for p in one.promises} for one in broken]
    assert verdicts[0] == {"no_phantoms": "pass", "no_loss": "pass", "available": "pass"}
    assert verdicts[1] == {"no_phantoms": "unknown", "no_loss": "unknown", "available": "unknown"}
    assert verdicts[2] == {"no_phantoms": "pass", "no_loss": "unknown", "available": "unknown"}
    assert verdicts[3]["no_loss"] == "fail"
    assert broken[0].notes == ()
    assert "1 torn last line" in broken[1].notes[0]
    assert "ops/worker-1.jsonl" in broken[1].notes[0]
    assert [exit_status(one) for one in results] == [0, 2, 2, 1]


def test_a_clock_that_run_json_does_not_place(tmp_path: Path) -> None:
    ops = [SEND, {**GOT, "clock": "stray"}, ACK]
    (result,) = analyze([run_dir(tmp_path / "run", RUN, ops, EVENTS)]).runs
    assert {p.name: p.verdict for p in result.promises} == {
        "no_phantoms": "pass",
        "no_loss": "pass",
        "available": "unknown",
    }
    assert "clock" in result.notes[0]


def test_generated_ledgers_through_files(tmp_path: Path) -> None:
    """The same verdicts from directories, JSON Lines and Parquet in turn, as from the oracle; and a series of each."""
    ledgers = {f"{seed}": generate(seed) for seed in range(7000, 7012)}
    dirs = [
        run_dir(tmp_path / key, run, ops, events, as_parquet=int(key) % 2 == 0)
        for key, (run, ops, events) in ledgers.items()
    ]
    result, series = analyze_with_series(dirs)
    wrong = []
    for (key, ledger), mine in zip(ledgers.items(), result.runs, strict=True):
        run = ledger[0]
        unlisted = [PromiseSpec(name) for name in sorted(set(run.expect) - {p.name for p in run.promises})]
        assert not unlisted
        wrong += differences(key, mine.to_json(), expected(ledger))
        drawn = json.loads(json.dumps(series[run.run_id].to_json()))
        assert len(drawn["buckets"]) <= 600
    assert not wrong, "\n".join(wrong)
