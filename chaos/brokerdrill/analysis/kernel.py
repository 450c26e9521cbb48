"""One partition in DuckDB, within a Spark task: bounded memory, one thread, and parcels of Arrow in and out.

Spark carries parcels: rows (part, kind, data), where `data` is an Arrow stream. A parcel of part >= 0 goes to that
partition of the next stage; one of `TO_DRIVER` is a partial result. A kernel takes the parcels of its partition,
runs a few SQL statements over them and yields parcels.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

# What DuckDB may use within one task; beyond it, it spills to the disk of the task's host.
TASK_MEMORY = "900MB"
TO_DRIVER = -1
PARCEL_SCHEMA = "part int, kind string, data binary"
# So many rows are taken from DuckDB and divided at a time.
_ROWS = 400_000
# DuckDB works in vectors of 2048 rows and gives whole ones.
_PARCEL = pa.schema([("part", pa.int32()), ("kind", pa.string()), ("data", pa.binary())])
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class Parcel(NamedTuple):
    """Rows of one `kind` (an Arrow stream) for the partition `part` of the next stage, or for the driver."""

    part: int
    kind: str
    data: bytes


Kernel = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def pack(table: pa.Table) -> bytes:
    """Return a table as a compressed Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def unpack(data: bytes) -> pa.Table:
    """Return the table of `pack`."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()


@contextmanager
def engine(tables: Mapping[str, bytes] | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database of its own with the packed `tables`, gone with its files at the end."""
    # Where Spark's own files are a task's are too: on the disks meant for them, and gone with them if it is killed.
    place = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    scratch = tempfile.mkdtemp(prefix="brokerdrill-task-", dir=place or None)
    base = duckdb.connect(
        config={
            "threads": 1,
            "memory_limit": TASK_MEMORY,
            "temp_directory": scratch,
            "preserve_insertion_order": False,
        }
    )
    try:
        for name, data in (tables or {}).items():
            add(base, name, unpack(data))
        yield base
    finally:
        base.close()
        shutil.rmtree(scratch, ignore_errors=True)


def add(base: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> None:
    """Put `rows` into the table `name`, which is made where it is not there."""
    base.register("incoming", rows)
    try:
        there = base.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = ?", [name]).fetchone()
        if there and there[0]:
            base.execute(f'INSERT INTO "{name}" BY NAME SELECT * FROM incoming')
        else:
            base.execute(f'CREATE TABLE "{name}" AS SELECT * FROM incoming')
    finally:
        base.unregister("incoming")


def parcels(batches: Iterable[pa.RecordBatch]) -> Iterator[Parcel]:
    """Yield the parcels that Spark brings."""
    for batch in batches:
        for part, kind, data in zip(*(batch.column(name) for name in _PARCEL.names), strict=True):
            yield Parcel(part.as_py(), kind.as_py(), data.as_py())


def batch(parcel: Parcel) -> pa.RecordBatch:
    """Return one parcel as Spark takes it."""
    return pa.RecordBatch.from_arrays([pa.array([value]) for value in parcel], schema=_PARCEL)


def to_driver(base: duckdb.DuckDBPyConnection, kind: str, query: str) -> Iterator[Parcel]:
    """Yield the result of `query`, if it has rows, as a partial result."""
    found = base.sql(query).to_arrow_table()
    if found.num_rows:
        yield Parcel(TO_DRIVER, kind, pack(found))


def divide(base: duckdb.DuckDBPyConnection, kind: str, query: str, parts: int) -> Iterator[Parcel]:
    """Yield the result of `query` by partition of the next stage: its column `place` (a hash), modulo `parts`."""
    reader = base.sql(query).to_arrow_reader(_ROWS)
    for rows in reader:
        if not rows.num_rows:
            continue
        table = pa.Table.from_batches([rows])
        if parts == 1:
            yield Parcel(0, kind, pack(table.drop_columns(["place"])))
            continue
        place = table.column("place").to_numpy() % np.uint64(parts)
        order = np.argsort(place, kind="stable")
        ordered = table.drop_columns(["place"]).take(pa.array(order))
        ends = np.cumsum(np.bincount(place.astype(np.int64), minlength=parts))
        begin = 0
        for part, end in enumerate(ends.tolist()):
            if end > begin:
                yield Parcel(part, kind, pack(ordered.slice(begin, end - begin)))
            begin = end
