"""Parcels and the database of a task."""

from __future__ import annotations

from collections import defaultdict

import duckdb
import pyarrow as pa
import pytest

from brokerdrill.analysis.kernel import Parcel, add, divide, engine, unpack


def divided(rows: int, values: int, parts: int) -> dict[int, list[Parcel]]:
    query = f"SELECT i, 'client-' || (i % {values}) AS client, (i * 7)::UBIGINT AS place FROM range({rows}) t (i)"
    found = defaultdict(list)
    with engine() as base:
        for parcel in divide(base, "row", query, parts, ("client",)):
            found[parcel.part].append(parcel)
    return found


@pytest.mark.parametrize("values", [3, 5_000])
@pytest.mark.parametrize("parts", [1, 5])
def test_a_row_goes_to_the_part_of_its_place_with_its_values(values: int, parts: int) -> None:
    told = {
        row["i"]: (part, row["client"])
        for part, parcels in divided(10_000, values, parts).items()
        for parcel in parcels
        for row in unpack(parcel.data).to_pylist()
    }
    assert told == {i: (i * 7 % parts, f"client-{i % values}") for i in range(10_000)}


def test_a_parcel_has_no_values_that_are_others() -> None:
    parcels = [unpack(one.data) for of_part in divided(10_000, 10_000, 5).values() for one in of_part]
    for rows in parcels:
        assert sum(len(chunk.dictionary) for chunk in rows.column("client").chunks) == len(rows)
        assert rows.schema == parcels[0].schema


def test_a_task_sees_nothing_of_another() -> None:
    with engine() as first, engine() as second:
        add(first, "own", pa.table({"n": [1]}))
        first.execute("CREATE TEMP VIEW seen AS FROM own")
        with pytest.raises(duckdb.CatalogException):
            second.execute("FROM own")
    with engine() as third:
        for name in ("own", "seen"):
            with pytest.raises(duckdb.CatalogException):
                third.execute(f"FROM {name}")


def test_what_a_task_held_is_free_after_it() -> None:
    held = "SELECT sum(memory_usage_bytes)::BIGINT FROM duckdb_memory()"
    with engine() as base:
        before = base.execute(held).fetchall()[0][0]
        base.execute("CREATE TEMP TABLE large AS SELECT i, i::TEXT AS t FROM range(1000000) t (i)")
        assert base.execute(held).fetchall()[0][0] > before + 10_000_000
    with engine() as base:
        assert base.execute(held).fetchall()[0][0] < before + 1_000_000
