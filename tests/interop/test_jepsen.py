"""Jepsen histories: its own counts, our classes, and the way back."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from brokerdrill.base.errors import UsageError
from brokerdrill.cli.app import app
from brokerdrill.interop.effects import read_rows
from brokerdrill.interop.folder import read_origin
from brokerdrill.interop.history import HistoryOp, read_history
from brokerdrill.interop.jepsen import import_jepsen
from brokerdrill.interop.jepsen_export import export_jepsen
from brokerdrill.interop.total_queue import total_queue
from brokerdrill.ledger import contract

HERE = Path(__file__).parent / "histories"
EXPECTED: dict[str, dict[str, Any]] = json.loads((HERE / "expected.json").read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_counts_as_jepsens_total_queue(name: str, tmp_path: Path) -> None:
    verdict = import_jepsen(HERE / name, tmp_path / "run")
    assert verdict.to_json() == EXPECTED[name]["total-queue"]
    assert read_origin(tmp_path / "run")["total-queue"] == EXPECTED[name]["total-queue"]


def test_our_verdicts_and_the_way_back(tmp_path: Path) -> None:
    """Imported, judged; exported, imported and judged again: the same classes and the same counts."""
    from brokerdrill.analysis.analyze import analyze

    folders = []
    for name in EXPECTED:
        first, again = tmp_path / f"{name}-1", tmp_path / f"{name}-2"
        before = import_jepsen(HERE / name, first, drained=True)
        export_jepsen(first, tmp_path / f"{name}.edn")
        assert import_jepsen(tmp_path / f"{name}.edn", again) == before
        folders += [first, again]
    result = analyze(folders).to_json()
    for place, name in enumerate(EXPECTED):
        for run in result["runs"][2 * place : 2 * place + 2]:
            assert {word: count for word, count in run["messages"].items() if count} == EXPECTED[name]["classes"], name
            broken = {promise["name"] for promise in run["promises"] if promise["verdict"] == "fail"}
            classes = EXPECTED[name]["classes"]
            assert ("no_loss" in broken) == ("lost" in classes)
            assert ("no_duplicates" in broken) == ("duplicated" in classes)
            assert ("no_phantoms" in broken) == bool({"phantom", "unexpected"} & set(classes))


BROKEN = """{:process 0, :type :invoke, :f :enqueue, :value 1}
{:process 0, :type :fail, :f :enqueue, :value 1, :error [:conn-broken "java.net.SocketException: Broken pipe"]}
{:process 1, :type :invoke, :f :enqueue, :value 2}
{:process 1, :type :fail, :f :enqueue, :value 2, :error :not-allowed}
{:process 2, :type :invoke, :f :enqueue, :value 3}
{:process 2, :type :fail, :f :enqueue, :value 3}
{:process 3, :type :invoke, :f :dequeue}
{:process 3, :type :fail, :f :dequeue, :error "connection broke"}
{:process 4, :type :invoke, :f :drain}
{:process 4, :type :ok, :f :drain, :value [1]}
"""


@pytest.mark.parametrize(
    ("option", "sent", "received"),
    [
        ((), ["fail", "fail", "fail"], "fail"),
        (("--unknown-errors", "(?i)conn"), ["unknown", "fail", "fail"], "unknown"),
        (("--unknown-errors", "^$"), ["fail", "fail", "unknown"], "fail"),
        (("--unknown-errors", ""), ["unknown", "unknown", "unknown"], "unknown"),
    ],
)
def test_who_calls_it_failed_when_its_connection_broke_does_not_know(
    tmp_path: Path, option: tuple[str, ...], sent: list[str], received: str
) -> None:
    (tmp_path / "h.edn").write_text(BROKEN)
    done = CliRunner().invoke(
        app, ["import", "jepsen", str(tmp_path / "h.edn"), "--out", str(tmp_path / "run"), *option]
    )
    assert done.exit_code == 0, done.output
    assert (f"{[*sent, received].count('unknown')} of its failed operations" in done.output) == bool(option)
    rows = list(read_rows(tmp_path / "run", contract.OPS_DIR))
    assert [row["outcome"] for row in rows if row["op"] == "send"] == sent
    assert [row["outcome"] for row in rows if row["op"] == "receive" and row["client"] == "process-3"] == [received]
    assert read_origin(tmp_path / "run")["total-queue"]["recovered-count"] == 1, "to the checker nothing is different"


def test_what_is_no_regular_expression_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--unknown-errors '\(' is no regular expression"):
        import_jepsen(HERE / "sane.edn", tmp_path / "run", unknown_errors="(")


def test_what_was_not_drained_is_not_called_lost(tmp_path: Path) -> None:
    import_jepsen(HERE / "pathological.edn", tmp_path / "run")
    assert contract.read_run(tmp_path / "run").drained == {"queue": False}
    import_jepsen(HERE / "drain.jsonl", tmp_path / "drained")
    assert contract.read_run(tmp_path / "drained").drained == {"queue": True}


def test_a_nemesis_becomes_faults_heals_and_notes(tmp_path: Path) -> None:
    import_jepsen(HERE / "tagged.edn", tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run/events/imported.jsonl").read_text().splitlines()]
    told = [(row["kind"], row["name"], row.get("target"), row["t_ns"], row["uncertainty_ns"]) for row in rows
            if row["kind"] != "phase"]  # fmt: skip
    assert told == [
        ("fault", "kill", '["n1"]', 3_000_000, 500_000),
        ("fault", "partition", ":majority", 5_150_000, 50_000),
        ("heal", "partition", ":majority", 7_150_000, 50_000),
        ("heal", "kill", '["n1"]', 7_350_000, 50_000),
        ("note", "check-offsets", None, 7_500_000, 0),
    ]
    export_jepsen(tmp_path / "run", tmp_path / "again.edn")
    import_jepsen(tmp_path / "again.edn", tmp_path / "again")
    events = [(tmp_path / name / "events/imported.jsonl").read_text() for name in ("run", "again")]
    kept = [[(r["kind"], r["name"], r["t_ns"], r["uncertainty_ns"]) for r in map(json.loads, text.splitlines())
             if r["kind"] in ("fault", "heal")] for text in events]  # fmt: skip
    assert kept[0] == kept[1]


def test_a_crashed_drain_is_beyond_the_checker(tmp_path: Path) -> None:
    path = tmp_path / "h.edn"
    path.write_text(
        "{:process 0 :type :invoke :f :drain :value nil}\n{:process 0 :type :info :f :drain :value nil}\n"
        "{:process 1 :type :invoke :f :drain :value nil}\n{:process 1 :type :ok :f :drain :value [1]}\n"
    )
    verdict = import_jepsen(path, tmp_path / "run")
    assert verdict.valid is None and "line 2: the drain crashed" in str(verdict.error)
    assert contract.read_run(tmp_path / "run").drained == {"queue": False}


def by_lists(ops: Sequence[HistoryOp]) -> dict[str, int]:
    """The checker's counts by plain lists, an element taken out for each that matches it."""

    def values(f: str, kind: str) -> list[str]:
        return [str(op.value) for op in ops if (op.f, op.type) == (f, kind)]

    def minus(many: list[str], few: list[str]) -> list[str]:
        left = list(many)
        for value in few:
            if value in left:
                left.remove(value)
        return left

    attempts, enqueues = values("enqueue", "invoke"), values("enqueue", "ok")
    dequeues = values("dequeue", "ok")
    for op in ops:
        if (op.f, op.type) == ("drain", "ok"):
            dequeues += [str(value) for value in op.value]
    unexpected = [value for value in dequeues if value not in attempts]
    extra = minus(dequeues, attempts)
    ok = minus(dequeues, extra)
    return {
        "attempt-count": len(attempts), "acknowledged-count": len(enqueues), "ok-count": len(ok),
        "unexpected-count": len(unexpected), "duplicated-count": len(minus(extra, unexpected)),
        "lost-count": len(minus(enqueues, dequeues)), "recovered-count": len(minus(ok, enqueues)),
    }  # fmt: skip


def generated(seed: int) -> list[dict[str, Any]]:
    """A history with everything in it: values that repeat, crashes, failures, drains."""
    rng = random.Random(seed)
    lines: list[dict[str, Any]] = []
    process = time = 0
    for _ in range(rng.randrange(1, 30)):
        f = rng.choices(["enqueue", "dequeue", "drain"], [5, 5, 1])[0]
        kind = rng.choices(["ok", "fail", "info", None], [6, 1, 1, 1])[0]
        if f == "drain" and kind == "info":
            kind = "fail"
        value = rng.randrange(8) if f == "enqueue" else None
        lines.append({"process": process, "type": "invoke", "f": f, "value": value, "time": time})
        time += rng.randrange(3)
        if kind:
            told: Any = value
            if kind == "ok" and f != "enqueue":
                told = rng.randrange(10) if f == "dequeue" else [rng.randrange(10) for _ in range(rng.randrange(4))]
            lines.append({"process": process, "type": kind, "f": f, "value": told, "time": time})
        time += rng.randrange(3)
        process += kind in ("info", None)
    return lines


@given(st.integers(0, 1 << 32))
def test_multisets_agree_with_plain_lists(seed: int) -> None:
    ops = [
        HistoryOp(i, i, o["process"], o["type"], o["f"], o["value"], o["time"]) for i, o in enumerate(generated(seed))
    ]
    assert total_queue(ops).counts == by_lists(ops)


def test_generated_histories_go_there_and_back(tmp_path: Path) -> None:
    for seed in range(60):
        path = tmp_path / f"{seed}.jsonl"
        path.write_text("".join(json.dumps(op) + "\n" for op in generated(seed)))
        try:
            before = import_jepsen(path, tmp_path / f"{seed}-1")
            export_jepsen(tmp_path / f"{seed}-1", tmp_path / f"{seed}.edn")
        except UsageError as error:
            assert "no message" in str(error)  # drains of an empty queue only
            continue
        again = import_jepsen(tmp_path / f"{seed}.edn", tmp_path / f"{seed}-2")
        runs = [contract.read_run(tmp_path / f"{seed}-{number}") for number in (1, 2)]
        assert again == before, seed
        assert runs[0].drained == runs[1].drained, seed


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "line 1: the history holds no operation"),
        ("{:type :ok :f :enqueue}", "line 1: the operation has no :process"),
        ("{:type :done :f :enqueue :process 1}", "line 1: :type is :done, none of invoke, ok, fail, info"),
        ("{:type :ok :f :read :process 1}",
         "line 1: :f is :read, which is of no queue workload (enqueue, dequeue, drain)"),
        ("\n{:type :ok :f :enqueue :process [1]}", "line 2: :process is [1], neither a number nor a name"),
        ("{:type :ok :f :enqueue :process 1 :time -4}", "line 1: :time is -4, no number of nanoseconds"),
        ("{:type :ok :f :enqueue :process 1 :time 4}\n{:type :ok :f :enqueue :process 1}",
         "line 2: the operation has no :time, but others have"),
        ("{:type :invoke :f :enqueue :process 1}\n{:type :invoke :f :enqueue :process 1}",
         "line 2: process 1 has not ended its operation of line 1"),
        ("{:type :invoke :f :enqueue :process 1}\n{:type :ok :f :dequeue :process 1}",
         "line 2: process 1 ends :dequeue, but began :enqueue"),
        ("{:type :ok :f :enqueue :process 1}\n17", "line 2: an operation is a map, not 17"),
        ('{"type": "ok", "f": "enqueue", "process": 1}\n{"type": ', "line 2: not JSON"),
        ("{:type :ok :f :enqueue :process 1", "line 1: a map that begins here never ends"),
    ],
)  # fmt: skip
def test_bad_histories_are_refused_with_file_and_line(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.edn"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        import_jepsen(path, tmp_path / "run")
    assert f"{path}, {sentence}" in str(caught.value)
    assert sorted(tmp_path.iterdir()) == [path]


def test_nothing_is_overwritten_and_missing_files_are_said(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(UsageError, match="exists already"):
        import_jepsen(HERE / "sane.edn", tmp_path / "run")
    with pytest.raises(UsageError, match="cannot be read"):
        read_history(tmp_path / "none.edn")
    with pytest.raises(UsageError, match="is no run directory"):
        export_jepsen(tmp_path / "run", tmp_path / "out.edn")


def test_the_commands(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["import", "jepsen", str(HERE / "pathological.edn"), "--out", str(tmp_path / "run")])
    assert done.exit_code == 0 and "jepsen total-queue: not valid" in done.output
    assert "  lost                 1" in done.output
    done = CliRunner().invoke(app, ["export", "jepsen", str(tmp_path / "run"), "--out", str(tmp_path / "h.edn")])
    assert done.exit_code == 0 and len(read_history(tmp_path / "h.edn")) == 12
