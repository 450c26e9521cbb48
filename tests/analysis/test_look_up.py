"""What a look-up of stories reads of a ledger."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from brokerdrill.analysis import kernel, messages, stages
from brokerdrill.analysis.columns import table
from brokerdrill.analysis.reading.rows import OP_SCHEMA, having
from brokerdrill.analysis.stories import ASKED, MOST_OPS, WANTED


def ops(**columns: list[object]) -> pa.Table:
    count = len(next(iter(columns.values())))
    return pa.table(
        [pa.array(columns.get(field.name, [None] * count), field.type) for field in OP_SCHEMA], schema=OP_SCHEMA
    )


def test_a_look_up_keeps_rows_that_have_one_of_the_values() -> None:
    table = ops(client=["a", "b", "c", "d"], message_id=["m1", "m2", None, "m1"], op_id=[1, 2, 3, 4])
    only = {"message_id": pa.array(["m1"]), "op_id": pa.array([3], pa.int64())}
    assert having(table, only).column("client").to_pylist() == ["a", "c", "d"]
    assert having(table, {}).num_rows == 0


def test_a_look_up_leaves_a_column_of_a_wrong_type_to_the_check() -> None:
    table = ops(client=["a", "b"], op_id=[1, 2])
    place = table.schema.get_field_index("message_id")
    wrong = table.set_column(place, "message_id", pa.array([5, 6], pa.int64()))
    assert having(wrong, {"message_id": pa.array(["m1"])}).num_rows == 2


def asked(block: pa.Table, *spans: tuple[int, str, int, int]) -> list[int]:
    """Return the op_ids of the rows of `block` that a look-up of what clients did gives."""
    base = duckdb.connect()
    for name, columns in WANTED.items():
        base.register(name, table(spans if name == "span" else (), columns))
    base.register("block", block.append_column("run", pa.array([1] * len(block), pa.int32())))
    found = base.execute(f"SELECT op_id FROM ({ASKED}) ORDER BY op_id, outcome").fetchall()
    return [op_id for (op_id,) in found]


def test_of_a_clients_hours_only_what_went_wrong_is_looked_up() -> None:
    """A client's time may reach to the end of the run, and each of its calls has an intent there."""
    calls = 20 * MOST_OPS
    wrong = {7, 8, 400}
    intents = [(2 * n, None, "unknown", n) for n in range(calls)]
    ends = [(2 * n, 2 * n + 1, "fail" if n in wrong else "ok", n) for n in range(calls)]
    columns = zip(*sorted([*intents, *ends], key=lambda row: (row[0], row[2])), strict=True)
    start, end, outcome, op_id = (list(column) for column in columns)
    block = ops(
        client=["c"] * len(start), op=["receive"] * len(start), start_ns=start, end_ns=end, outcome=outcome, op_id=op_id
    )
    assert asked(block, (1, "c", 0, 2 * calls)) == [7, 7, 8, 8, 400, 400]
    assert asked(block, (1, "c", 100, 2 * calls)) == [400, 400]
    assert asked(block, (1, "other", 0, 2 * calls)) == []


def test_of_a_client_that_fails_for_hours_the_begin_is_looked_up() -> None:
    calls = 20 * MOST_OPS
    block = ops(
        client=["c"] * calls,
        op=["send"] * calls,
        start_ns=list(range(calls)),
        end_ns=list(range(calls)),
        outcome=["fail"] * calls,
        op_id=list(range(calls)),
    )
    assert asked(block, (1, "c", 0, calls)) == list(range(2 * MOST_OPS))


@pytest.mark.parametrize("held", [0, 1 << 20], ids=["tables of DuckDB", "in place"])
def test_a_partition_has_all_its_parcels(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "HELD_BYTES", held)
    given = [
        kernel.Parcel(0, "dead", kernel.pack(table([(1, "dlq", f"m{n}", "")], "run int, dead_letter string, "
                                                   "message_id string, sub string")))
        for n in range(3)
    ]  # fmt: skip
    given.insert(1, kernel.Parcel(kernel.TO_DRIVER, "end", b""))
    with kernel.engine() as base:
        through = list(stages._fill(base, {"dead": messages.EMPTY["dead"], "connect": messages.EMPTY["connect"]},
                                    map(kernel.batch, given)))  # fmt: skip
        assert [one.kind for one in through] == ["end"]
        assert base.execute("SELECT message_id FROM dead ORDER BY ALL").fetchall() == [("m0",), ("m1",), ("m2",)]
        assert base.execute("SELECT count(*) FROM connect").fetchall() == [(0,)]
        stored = base.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'dead'").fetchall()
        assert stored == [(int(held == 0),)]
