"""The rows of a ledger that stories ask for, in the task that reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import duckdb
import pyarrow as pa

from brokerdrill.analysis.kernel import TO_DRIVER, Parcel, pack, unpack
from brokerdrill.analysis.partials import declare
from brokerdrill.analysis.reading.parquet import divided
from brokerdrill.analysis.reading.pieces import read
from brokerdrill.analysis.reading.rows import OP_SCHEMA, CheckedRows, Only, Piece
from brokerdrill.analysis.reading.valid import invalid
from brokerdrill.analysis.stories import ASKED, followed, narrowed
from brokerdrill.ledger.contract import OP_COLUMNS

# So many rows are asked of at once: each question takes its time.
_ROWS = 100_000
# The columns of an operation that are returned: all but the run_id, for which the run's number stands.
_COLUMNS = tuple(column for column in OP_COLUMNS if column.name != "run_id")
_SCHEMA = pa.schema([*(field for field in OP_SCHEMA if field.name != "run_id"), ("run", pa.int32())])
ROW = declare(
    "row",
    ", ".join(["run int", *(f"{one.name} {one.type}{' ns' * one.name.endswith('_ns')}" for one in _COLUMNS)]),
    "stages.Stages.look_up",
    as_table=False,
).by(ASKED)


def of_blocks(
    base: duckdb.DuckDBPyConnection, blocks: Iterator[tuple[Piece, CheckedRows]], wanted: Mapping[str, pa.Table]
) -> Iterator[Parcel]:
    """Yield the rows of blocks that `wanted` (`stories.WANTED`) asks for, as parcels of the kind `row`."""
    _want(base, wanted)
    yield from _asked(base, blocks)


def of_pieces(
    base: duckdb.DuckDBPyConnection, pieces: Sequence[Piece], wanted: Mapping[str, pa.Table], *, follow: bool
) -> Iterator[Parcel]:
    """As `of_blocks`, of local files. `follow`: and the rows that these rows ask for, which are in these files too."""
    by_query, others = divided(pieces)

    def once(wanted: Mapping[str, pa.Table]) -> Iterator[Parcel]:
        only = narrowed(wanted)
        _want(base, wanted)
        if by_query:
            # A client's rows may be millions: a table of DuckDB, which can spill it.
            base.execute(f"CREATE TEMP TABLE block AS {_narrow_query(base, by_query, only)}")
            yield from ROW.of(base)
            base.execute("DROP TABLE block")
        yield from _asked(base, read(others, only))

    if not follow:
        yield from once(wanted)
        return
    wants = {name: set(map(tuple, (row.values() for row in rows.to_pylist()))) for name, rows in wanted.items()}
    clocks = wanted["clock"]
    del wants["clock"]
    found = followed(wants, clocks, lambda asked: [row for one in once(asked) for row in unpack(one.data).to_pylist()])
    rows = [row for of in found.values() for row in of]
    if rows:
        yield Parcel(TO_DRIVER, ROW.partial.kind, pack(pa.Table.from_pylist(rows, schema=_SCHEMA)))


def _want(base: duckdb.DuckDBPyConnection, wanted: Mapping[str, pa.Table]) -> None:
    for name, rows in wanted.items():
        base.register(name, rows)


def _asked(base: duckdb.DuckDBPyConnection, blocks: Iterator[tuple[Piece, CheckedRows]]) -> Iterator[Parcel]:
    for rows in _together(_numbered(blocks)):
        base.register("block", rows)
        yield from ROW.of(base)
        base.unregister("block")


def _narrow_query(base: duckdb.DuckDBPyConnection, pieces: Sequence[tuple[Piece, str]], only: Only) -> str:
    """The query of the valid rows of pieces that DuckDB reads itself which have one of the values in `only`."""
    for name, values in only.items():
        base.register(f"only_{name}", pa.table({"value": values}))
    any_of = " OR ".join(f'"{name}" IN (SELECT value FROM only_{name})' for name in only) or "false"
    columns = ", ".join(f'"{name}"' for name in _SCHEMA.names if name != "run")
    return " UNION ALL ".join(
        f"SELECT {columns}, {piece.run}::INTEGER AS run FROM ({rows}) "
        f"WHERE ({any_of}) AND NOT coalesce({invalid(piece.run_id)}, false)"
        for piece, rows in pieces
    )


def _numbered(blocks: Iterator[tuple[Piece, CheckedRows]]) -> Iterator[pa.Table]:
    for piece, rows in blocks:
        numbers = pa.array([piece.run] * len(rows.table), pa.int32())
        yield rows.table.drop_columns(["run_id"]).append_column("run", numbers)


def _together(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    some: list[pa.Table] = []
    for rows in tables:
        some.append(rows)
        if sum(map(len, some)) >= _ROWS:
            yield pa.concat_tables(some)
            some = []
    if some:
        yield pa.concat_tables(some)
