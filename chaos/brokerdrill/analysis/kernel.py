"""One partition in DuckDB, within a Spark task: bounded memory, one thread, and parcels of Arrow in and out.

Spark carries parcels: rows (part, kind, data), where `data` is an Arrow stream. A parcel of part >= 0 goes to that
partition of the next stage; one of `TO_DRIVER` is a partial result. A kernel takes the parcels of its partition,
runs a few SQL statements over them and yields parcels.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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


@cache
def _instance(process: int) -> duckdb.DuckDBPyConnection:
    """The database of a process, by its id: a forked one may not use its parent's. Tasks follow each other in it: a new
    one each would take a tenth of their time, most of it for memory that is given back and asked for again."""
    # Where Spark's own files are a task's are too: on the disks meant for them, and gone with them if it is killed.
    place = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    scratch = tempfile.mkdtemp(prefix="brokerdrill-tasks-", dir=place or None)
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return duckdb.connect(
        config={
            "threads": 1,
            "memory_limit": TASK_MEMORY,
            "temp_directory": scratch,
            "preserve_insertion_order": False,
        }
    )


_NEW = 'CREATE TEMP TABLE "{}" AS SELECT * FROM incoming'


@contextmanager
def engine(tables: Mapping[str, bytes] | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the packed `tables`. What is temporary (`CREATE TEMP`, `add`) no other connection sees, and it
    is gone at the end."""
    base = _instance(os.getpid()).cursor()
    try:
        for name, data in (tables or {}).items():
            with _incoming(base, unpack(data)):
                base.execute(_NEW.format(name))
        yield base
    finally:
        base.close()


def add(base: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> None:
    """Put `rows` into the table `name`, which is made where it is not there."""
    with _incoming(base, rows):
        there = base.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = ?", [name]).fetchone()
        statement = 'INSERT INTO "{}" BY NAME SELECT * FROM incoming' if there and there[0] else _NEW
        base.execute(statement.format(name))


@contextmanager
def _incoming(base: duckdb.DuckDBPyConnection, rows: pa.Table) -> Iterator[None]:
    base.register("incoming", rows)
    try:
        yield
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


def divide(
    base: duckdb.DuckDBPyConnection, kind: str, query: str, parts: int, repeated: Sequence[str] = ()
) -> Iterator[Parcel]:
    """Yield the result of `query` by partition of the next stage: its column `place` (a hash), modulo `parts`. The text
    columns `repeated` have few values, which a parcel keeps once each."""
    for rows in base.sql(query).to_arrow_reader(_ROWS):
        if not rows.num_rows:
            continue
        table = pa.Table.from_batches([rows])
        place = (table.column("place").to_numpy() % np.uint64(parts)).astype(_narrowest(parts))
        table = table.drop_columns(["place"])
        for name in repeated:
            table = _replaced(table, name, pc.dictionary_encode(table.column(name)))
        ordered = table.take(pa.array(np.argsort(place, kind="stable")))
        begin = 0
        for part, end in enumerate(np.cumsum(np.bincount(place, minlength=parts)).tolist()):
            if end > begin:
                yield Parcel(part, kind, pack(_own_values(ordered.slice(begin, end - begin), repeated)))
            begin = end


def _narrowest(parts: int) -> type[np.unsignedinteger]:
    """The type for numbers of partitions: NumPy sorts short ones in linear time."""
    return np.uint16 if parts <= 1 << 16 else np.uint64


def _replaced(table: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, column)


def _own_values(table: pa.Table, repeated: Sequence[str]) -> pa.Table:
    """Return `table` without those values of its `repeated` columns that none of its rows has, where most are such."""
    for name in repeated:
        column = table.column(name)
        if sum(len(chunk.dictionary) for chunk in column.chunks) > len(table):
            table = _replaced(table, name, pc.dictionary_encode(column.cast(pa.string())))
    return table
