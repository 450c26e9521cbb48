"""Parcels between stages, and what a look-up reads."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from brokerdrill.analysis.kernel import TO_DRIVER, Parcel, given, pack, parcels, taken, unpack
from brokerdrill.analysis.reading import OP_SCHEMA, having


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


@pytest.mark.parametrize("in_files", [True, False])
def test_parcels_arrive_as_they_were_sent(tmp_path: Path, *, in_files: bool) -> None:
    folder = str(tmp_path) if in_files else None
    sent = [
        Parcel(0, "send", pack(rows(1, 2))),
        Parcel(TO_DRIVER, "class", pack(rows(3))),
        Parcel(1, "send", pack(rows(*range(1000)))),
        Parcel(0, "dead", pack(rows())),
    ]
    through_spark = list(parcels(given(iter(sent), folder)))
    assert [parcel[:2] for parcel in through_spark] == [parcel[:2] for parcel in sent]
    for before, after in zip(sent, through_spark, strict=True):
        if before.part == TO_DRIVER:
            assert after == before, "a partial result goes to the driver itself"
        else:
            assert taken(after, folder).equals(unpack(before.data))
    files = list(tmp_path.iterdir())
    assert bool(files) == in_files
    assert sum(len(parcel.data) for parcel in through_spark if parcel.part != TO_DRIVER) < 1000 or not in_files


def test_a_parcel_can_be_taken_before_the_next_is_made(tmp_path: Path) -> None:
    # Where there is one partition only, the next stage is in the same task.
    found = parcels(given((Parcel(0, "send", pack(rows(n))) for n in range(3)), str(tmp_path)))
    for n in range(3):
        assert taken(next(found), str(tmp_path)).equals(rows(n))


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
