"""Good ledgers, spoiled: each is refused with one clear sentence that names the place, or counted and reported, or the
spoiling says nothing. Never is there a verdict on what was not understood, and never a defect."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from brokerdrill.analysis import stages
from brokerdrill.analysis.analyze import analyze
from brokerdrill.analysis.reading.rows import OP_SCHEMA
from brokerdrill.base.errors import UsageError
from brokerdrill.ledger.contract import OP_COLUMNS, RUN_FILE
from tests.analysis.generate import generate
from tests.analysis.write import run_dir

LINES = Path("ops") / "worker-1.jsonl"
EVENTS = Path("events") / "runner.jsonl"
PARQUET = Path("ops") / "part-0.parquet"
# Seeds whose ledgers are long enough for every mutation.
SEEDS = st.integers(0, 400)


@dataclass(frozen=True)
class Spoiling:
    """`spoil` changes a run directory at random; what comes of it must be an error with the text `refused`, or a
    verdict of which a note has the text `told` (both None: the verdict of the good ledger)."""

    spoil: Callable[[random.Random, Path], None]
    refused: str | None = None
    told: str | None = None
    parquet: bool = False


def _edit(file: Path, change: Callable[[dict[str, Any]], None]) -> Callable[[random.Random, Path], None]:
    """Change one row of `file`, at random."""

    def spoil(rng: random.Random, folder: Path) -> None:
        lines = (folder / file).read_text().splitlines()
        place = rng.randrange(len(lines))
        row = json.loads(lines[place])
        change(row)
        lines[place] = json.dumps(row)
        (folder / file).write_text("\n".join(lines) + "\n")

    return spoil


def _run(**values: Any) -> Callable[[random.Random, Path], None]:
    def spoil(_: random.Random, folder: Path) -> None:
        known = json.loads((folder / RUN_FILE).read_text())
        (folder / RUN_FILE).write_text(json.dumps(known | values))

    return spoil


def _table(change: Callable[[random.Random, pa.Table], pa.Table]) -> Callable[[random.Random, Path], None]:
    def spoil(rng: random.Random, folder: Path) -> None:
        pq.write_table(change(rng, pq.read_table(folder / PARQUET)), folder / PARQUET)

    return spoil


def _without_a_column(rng: random.Random, table: pa.Table) -> pa.Table:
    return table.drop_columns(rng.choice([column.name for column in OP_COLUMNS if not column.optional]))


def _with_a_number_for_text(rng: random.Random, table: pa.Table) -> pa.Table:
    name = rng.choice([column.name for column in OP_COLUMNS if column.type == "string"])
    place = table.schema.get_field_index(name)
    return table.set_column(place, name, pa.array([1.5] * len(table)))


def _with_one_more(_: random.Random, table: pa.Table) -> pa.Table:
    return table.append_column("remark", pa.array(["x"] * len(table)))


def _torn(rng: random.Random, folder: Path) -> None:
    whole = (folder / LINES).read_bytes()
    last = whole.splitlines()[-1]
    (folder / LINES).write_bytes(whole + last[: rng.randrange(1, len(last) - 1)])


def _empty(_: random.Random, folder: Path) -> None:
    (folder / "ops" / "worker-2.jsonl").write_bytes(b"")


def _empty_parquet(_: random.Random, folder: Path) -> None:
    (folder / "ops" / "part-1.parquet").write_bytes(b"")


def _torn_parquet(rng: random.Random, folder: Path) -> None:
    whole = (folder / PARQUET).read_bytes()
    (folder / PARQUET).write_bytes(whole[: rng.randrange(8, len(whole) - 8)])


def _garbage_within(rng: random.Random, folder: Path) -> None:
    lines = (folder / LINES).read_text().splitlines()
    lines.insert(rng.randrange(len(lines)), '{"run_id": ')
    (folder / LINES).write_text("\n".join(lines) + "\n")


def _jumped(row: dict[str, Any]) -> None:
    """The recorder's clock jumped back between begin and end."""
    row["end_ns"] = row["start_ns"] - 1


def _unplaced(row: dict[str, Any]) -> None:
    row["clock"] = "worker-of-nobody"


SPOILINGS = {
    "missing key": Spoiling(_edit(LINES, lambda row: row.pop("client")), refused="client is missing"),
    "wrong type": Spoiling(_edit(LINES, lambda row: row.update(op_id="seven")), refused="op_id is of a wrong type"),
    "text as number": Spoiling(_edit(LINES, lambda row: row.update(client=7)), refused="client is of a wrong type"),
    "unknown op": Spoiling(_edit(LINES, lambda row: row.update(op="peek")), refused="op has the unknown value 'peek'"),
    "unknown kind": Spoiling(_edit(EVENTS, lambda row: row.update(kind="omen")), refused="kind has the unknown value"),
    "negative time": Spoiling(_edit(LINES, lambda row: row.update(start_ns=-1)), refused="start_ns is negative"),
    "negative event": Spoiling(_edit(EVENTS, lambda row: row.update(t_ns=-5)), refused="t_ns is negative"),
    "end before start": Spoiling(_edit(LINES, _jumped), refused="end_ns is"),
    "endless time": Spoiling(_edit(LINES, lambda row: row.update(start_ns=1 << 62)), refused="later than any run"),
    "another run": Spoiling(_edit(LINES, lambda row: row.update(run_id="other")), refused="run_id is 'other'"),
    "another run's event": Spoiling(_edit(EVENTS, lambda row: row.update(run_id="other")), refused="run_id is 'other'"),
    "no object": Spoiling(_garbage_within, refused="is not JSON"),
    "newer schema": Spoiling(_run(schema_version=99), refused="schema_version 99 is newer"),
    "no such schema": Spoiling(_run(schema_version=0), refused="schema_version 0 never existed"),
    "unknown promise": Spoiling(_run(promises=[{"name": "luck"}]), refused="luck"),
    "unplaced clock": Spoiling(_edit(LINES, _unplaced), told="clock"),
    "torn line": Spoiling(_torn, told="torn"),
    "empty file": Spoiling(_empty),
    "unknown key": Spoiling(_edit(LINES, lambda row: row.update(remark="x"))),
    "missing column": Spoiling(_table(_without_a_column), refused="is missing", parquet=True),
    "column of numbers": Spoiling(_table(_with_a_number_for_text), refused="is of type double", parquet=True),
    "unknown column": Spoiling(_table(_with_one_more), parquet=True),
    "empty Parquet": Spoiling(_empty_parquet, refused="is empty: no Parquet file", parquet=True),
    "torn Parquet": Spoiling(_torn_parquet, refused="is no readable Parquet file", parquet=True),
}


@pytest.mark.long
@given(seeds=st.lists(SEEDS, min_size=3, max_size=6), chance=st.integers(0, 1 << 30))
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
def test_spoiled_ledgers(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seeds: list[int], chance: int
) -> None:
    """All kinds of spoiling of random ledgers, each beside its good one, in one analysis: a bad run is told, and the
    others are judged all the same."""
    _judge_all(tmp_path_factory.mktemp("spoiled"), seeds, chance)


# In the second one and the last a row of a wrong type was also the only one of its operation with an address.
@pytest.mark.parametrize(
    ("seeds", "chance"), [([11, 12], 5), ([103, 275, 31, 0, 0, 0], 380832), ([0, 0, 0, 134], 0), ([87, 0, 0], 87)]
)
def test_each_spoiling(spark: SparkSession, tmp_path: Path, seeds: list[int], chance: int) -> None:
    _judge_all(tmp_path, seeds, chance)


def _judge_all(folder: Path, seeds: list[int], chance: int) -> None:
    rng = random.Random(chance)
    paths: list[Path] = []
    good: list[Path] = []
    for number, spoiling in enumerate(SPOILINGS.values()):
        run, ops, events = generate(seeds[number % len(seeds)])
        good.append(run_dir(folder / f"good-{number}", run, ops, events, as_parquet=spoiling.parquet))
        paths.append(run_dir(folder / f"bad-{number}", run, ops, events, as_parquet=spoiling.parquet))
        spoiling.spoil(rng, paths[-1])
    results = analyze([*paths, *good]).to_json()["runs"]
    for (name, spoiling), path, found, known in zip(
        SPOILINGS.items(), paths, results[: len(paths)], results[len(paths) :], strict=True
    ):
        assert "error" not in known, (name, known)
        if spoiling.refused is not None:
            assert spoiling.refused in found.get("error", ""), (name, found.get("error"), found.get("verdict"))
            assert path.name in found["error"], name
            assert found["verdict"] == "unknown" and "\n" not in found["error"]
        elif spoiling.told is not None:
            assert any(spoiling.told in note for note in found["notes"]), (name, found)
            assert not [p for p in found["promises"] if p["verdict"] == "pass" and p["name"] == "available"]
        else:
            assert {**found, "notes": []} == {**known, "notes": []}, name


def test_a_single_bad_run_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    run, ops, events = generate(11)
    path = run_dir(tmp_path / "run", run, ops, events)
    _edit(LINES, lambda row: row.update(outcome="perhaps"))(random.Random(3), path)
    with pytest.raises(UsageError, match=r"worker-1.jsonl, line \d+: outcome has the unknown value 'perhaps'"):
        analyze([path])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"op": "sent"}, "op has the unknown value 'sent'"),
        ({"end_ns": 0}, "end_ns is before start_ns"),
        ({"run_id": "it's another"}, "run_id is 'it's another', but run.json's is 'it's run b'"),
    ],
)
def test_files_that_come_together_are_told_apart(change: dict[str, Any], problem: str | None) -> None:
    """What is wrong in one file is said of that one, and the others' rows stand."""
    rows = [
        {"run_id": run_id, "clock": "c", "client": "w", "op_id": number, "op": "send", "outcome": "ok"}
        | {"start_ns": 5, "end_ns": 6}
        for run_id in ("run a", "it's run b")
        for number in range(2)
    ]
    rows[2] |= change
    columns = {name: [row.get(name) for row in rows] for name in OP_SCHEMA.names}
    table = pa.table({"path": ["a", "a", "b", "b"], **columns}, pa.schema([("path", pa.string()), *OP_SCHEMA]))
    # Rows of files are mixed where Spark has divided them.
    table = table.take([0, 2, 1, 3])
    owners = {"a": (0, "run a", "ops/a", None), "b": (1, "it's run b", "ops/b", None)}
    found = list(stages._rows_of(iter(table.to_batches()), "rows", owners))
    assert [(piece.run, rows.table.column("op_id").to_pylist()) for piece, rows in found] == [
        (0, [0, 1]),
        (1, [1] if change else [0, 1]),
    ]
    assert [(one.file, one.problem, one.n) for _, rows in found for one in rows.problems] == (
        [("ops/b", problem, 1)] if problem else []
    )
