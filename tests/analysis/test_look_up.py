"""What a look-up of stories reads of a ledger."""

from __future__ import annotations

import pyarrow as pa

from brokerdrill.analysis.reading import OP_SCHEMA, having


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
