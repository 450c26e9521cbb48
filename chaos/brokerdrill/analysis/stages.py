"""The three stages of the analysis, carried by Spark: by client, by message, by order group.

Spark reads what no task can read itself, shuffles parcels, schedules, retries; each task hands its partition to DuckDB
(`kernel`). Stage 1 runs once; what it hands to stage 2 is kept on disk until the driver has seen its partial results,
which the later stages need.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from brokerdrill.analysis import groups, look_up, messages
from brokerdrill.analysis.clients import Plan, by_client, empty_foreign
from brokerdrill.analysis.columns import table
from brokerdrill.analysis.groups import by_group
from brokerdrill.analysis.kernel import (
    PARCEL_SCHEMA,
    TO_DRIVER,
    Parcel,
    add,
    batch,
    divide,
    engine,
    pack,
    parcels,
    unpack,
)
from brokerdrill.analysis.messages import by_message
from brokerdrill.analysis.partials import declare
from brokerdrill.analysis.reading.json_lines import parse
from brokerdrill.analysis.reading.parquet import conform, divided
from brokerdrill.analysis.reading.pieces import read
from brokerdrill.analysis.reading.rows import RAW, RAW_SCHEMA, CheckedRows, Piece, Problem, raw
from brokerdrill.analysis.reading.spools import parse_spool
from brokerdrill.analysis.reading.valid import all_valid, are_valid, checked
from brokerdrill.analysis.spark import BATCH_ROWS, stopped

# What a task of the later stages holds in Arrow, beside its DuckDB.
HELD_BYTES = 256 << 20
# Keys of a source's rows: the run's number and run_id by the path of its files, as Spark spells it.
Owners = Mapping[str, tuple[int, str, str, str | None]]
# Partial results by kind: a table of each partition that has some.
Partials = Mapping[str, Sequence[pa.Table]]
Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Source:
    """Where operations come from: `pieces` of local files, in tasks, and DataFrames of what Spark reads.

    `whole`: all rows of a client are in one task, so that they need not be shuffled first. `frames` are (DataFrame,
    kind, owners): `lines` with `path` and `value`, `rows` with `path` and the contract's columns."""

    tasks: Sequence[Sequence[Piece]] = ()
    whole: bool = False
    frames: Sequence[tuple[DataFrame, str, Owners]] = field(default_factory=tuple)


_PROBLEM = declare(
    "problem", "run int, file string, problem string, raw string, n long", "problems.refused", as_table=False
)


def _problems(found: Sequence[Problem]) -> Iterator[Parcel]:
    if found:
        yield Parcel(TO_DRIVER, _PROBLEM.kind, pack(table(found, _PROBLEM.text)))


# The table of rows that Python has read, and the view of all rows.
_PARSED, _RAW_VIEW = "parsed", "CREATE OR REPLACE TEMP VIEW raw AS FROM parsed"


def _no_rows(base: duckdb.DuckDBPyConnection) -> None:
    """Make the view `raw` and the table `parsed` below it, empty."""
    add(base, _PARSED, RAW_SCHEMA.empty_table())
    base.execute(_RAW_VIEW)


def _load_pieces(base: duckdb.DuckDBPyConnection, pieces: Sequence[Piece]) -> Iterator[Parcel]:
    """Make the view `raw`; yield what is wrong with rows."""
    _no_rows(base)
    columns = ", ".join(f'"{column.name}"' for column in RAW)
    views = [_RAW_VIEW]
    direct, others = divided(pieces)
    for piece, rows in direct:
        if are_valid(base, rows, piece.run_id):
            views.append(f"SELECT {piece.run}::INTEGER AS run, {columns} FROM ({rows})")
        else:
            others.append(piece)
    base.execute(" UNION ALL ".join(views))
    yield from _put(base, read(others))


def _put(base: duckdb.DuckDBPyConnection, found: Iterable[tuple[Piece, CheckedRows]]) -> Iterator[Parcel]:
    """Put rows into the table `parsed`; yield what is wrong with others."""
    # To add one row takes as long as to add a thousand.
    held: list[pa.Table] = []
    count = 0
    for piece, rows in found:
        held.append(raw(rows.table, piece.run))
        count += len(rows.table)
        if count >= BATCH_ROWS:
            add(base, _PARSED, pa.concat_tables(held))
            held, count = [], 0
        yield from _problems(rows.problems)
    if count:
        add(base, _PARSED, pa.concat_tables(held))


def _rows_of(batches: Batches, kind: str, owners: Owners) -> Iterator[tuple[Piece, CheckedRows]]:
    """The rows of what Spark reads, by file."""
    for given in batches:
        paths = given.column("path").dictionary_encode()
        table = pa.Table.from_batches([given]).drop_columns(["path"])
        pieces = []
        for path in paths.dictionary.to_pylist():
            run, run_id, file, header = owners[path]
            pieces.append(Piece(run, run_id, file, path, 0, 0, header))
        fine = False
        if kind == "rows":
            table = conform(table)
            # Asked once of all files: to ask of each takes longer than the rows of a small one.
            fine = all_valid(table, pa.array([piece.run_id for piece in pieces]).take(paths.indices))
        for number, piece in enumerate(pieces):
            own = table.filter(pc.equal(paths.indices, number))
            if kind == "lines":
                block = "\n".join(own.column("value").to_pylist()).encode() + b"\n"
                yield piece, parse(block, piece) if piece.header is None else parse_spool(block, piece)
            else:
                yield piece, CheckedRows(own) if fine else checked(conform(own), piece)


BY_CLIENT = "SELECT *, hash(run, client) AS place FROM raw"


def _spread(parts: int, base_rows: Callable[[duckdb.DuckDBPyConnection], Iterator[Parcel]]) -> Iterator[pa.RecordBatch]:
    """Stage 0: rows to the partition of their client."""
    with engine() as base:
        for parcel in base_rows(base):
            yield batch(parcel)
        for parcel in divide(base, "raw", BY_CLIENT, parts):
            yield batch(parcel)


def _read_task(tasks: Sequence[Sequence[Piece]], parts: int) -> Callable[[Batches], Batches]:
    def work(batches: Batches) -> Batches:
        for given in batches:
            for number in given.column(0).to_pylist():
                yield from _spread(parts, lambda base, number=number: _load_pieces(base, tasks[number]))  # type: ignore[misc]

    return work


def _batch_task(kind: str, owners: Owners, parts: int) -> Callable[[Batches], Batches]:
    def fill(base: duckdb.DuckDBPyConnection, batches: Batches) -> Iterator[Parcel]:
        _no_rows(base)
        yield from _put(base, _rows_of(batches, kind, owners))

    def work(batches: Batches) -> Batches:
        yield from _spread(parts, lambda base: fill(base, batches))

    return work


def _client_task(
    tables: Mapping[str, bytes], plan: Plan, tasks: Sequence[Sequence[Piece]] | None
) -> Callable[[Batches], Batches]:
    """Stage 1: of whole clients' pieces (`tasks`, by number), or of the parcels of stage 0."""

    def judge(load: Callable[[duckdb.DuckDBPyConnection], Iterator[Parcel]]) -> Batches:
        with engine(tables) as base:
            empty_foreign(base, tables)
            for parcel in load(base):
                yield batch(parcel)
            for parcel in by_client(base, plan):
                yield batch(parcel)

    def of_pieces(batches: Batches) -> Batches:
        assert tasks is not None
        for given in batches:
            for number in given.column(0).to_pylist():
                yield from judge(lambda base, number=number: _load_pieces(base, tasks[number]))  # type: ignore[misc]

    def fill(base: duckdb.DuckDBPyConnection, batches: Batches) -> Iterator[Parcel]:
        _no_rows(base)
        for parcel in parcels(batches):
            if parcel.part == TO_DRIVER:
                yield parcel
            else:
                add(base, _PARSED, unpack(parcel.data))

    def of_parcels(batches: Batches) -> Batches:
        yield from judge(lambda base: fill(base, batches))

    return of_parcels if tasks is None else of_pieces


def _fill(base: duckdb.DuckDBPyConnection, empty: Mapping[str, str], batches: Batches) -> Iterator[Parcel]:
    """Make the tables of `empty` (name: columns) of the partition's parcels; yield those that go through. DuckDB reads
    in place what is no more than `HELD_BYTES`; of more it makes tables of its own, which it can spill."""
    held: dict[str, list[pa.Table]] = {name: [] for name in empty}
    size, stored = 0, False

    def store() -> None:
        for name, tables in held.items():
            if tables:
                add(base, name, pa.concat_tables(tables))
                tables.clear()

    for parcel in parcels(batches):
        if parcel.part == TO_DRIVER:
            yield parcel
            continue
        rows = unpack(parcel.data)
        held[parcel.kind].append(rows)
        size += rows.nbytes
        if size > HELD_BYTES:
            store()
            size, stored = 0, True
    if stored:
        store()
    for name, columns in empty.items():
        if held[name]:
            base.register(name, pa.concat_tables(held[name]))
        else:
            base.execute(f'CREATE TEMP TABLE IF NOT EXISTS "{name}" ({columns})')


def _later_task(
    tables: Mapping[str, bytes],
    plan: Plan,
    empty: Mapping[str, str],
    rules: Callable[[duckdb.DuckDBPyConnection, Plan], Iterator[Parcel]],
) -> Callable[[Batches], Batches]:
    """Stages 2 and 3: partial results pass through; the others fill the tables of `empty`."""

    def work(batches: Batches) -> Batches:
        with engine(tables) as base:
            for parcel in _fill(base, empty, batches):
                yield batch(parcel)
            for parcel in rules(base, plan):
                yield batch(parcel)

    return work


def _look_up_task(
    tables: Mapping[str, bytes], tasks: Sequence[Sequence[Piece]], form: tuple[str, Owners] | None, *, follow: bool
) -> Callable[[Batches], Batches]:
    """The rows that stories ask for, of local pieces (tasks by number) or of what Spark reads (`form`)."""

    def work(batches: Batches) -> Batches:
        wanted = {name: unpack(rows) for name, rows in tables.items()}
        with engine() as base:
            if form is not None:
                for parcel in look_up.of_blocks(base, _rows_of(batches, *form), wanted):
                    yield batch(parcel)
                return
            for given in batches:
                for number in given.column(0).to_pylist():
                    for parcel in look_up.of_pieces(base, tasks[number], wanted, follow=follow):
                        yield batch(parcel)

    return work


def _shuffled(parcels_of: DataFrame, parts: int) -> DataFrame:
    """Each parcel in its partition; partial results, which go through, in any."""
    if parts == 1:
        return parcels_of.coalesce(1)
    return parcels_of.repartitionById(parts, F.expr(f"pmod(part, {parts})"))


def _unreadable(error: BaseException | None) -> BaseException | None:
    """Return why an answer of Spark could not be read, of what was raised meanwhile (the JVM's own word is only that
    nobody read on); None: that is not what happened, or the JVM is gone."""
    while error is not None and not isinstance(error, OSError | pa.ArrowInvalid):
        error = error.__context__
    return None if isinstance(error, ConnectionError) else error


def _gathered(parcels_of: DataFrame) -> Partials:
    """The partial results, by kind."""
    found: dict[str, list[pa.Table]] = {}
    chosen = parcels_of.select("kind", "data")
    try:
        rows = chosen.toArrow()
    except Exception as error:
        why = _unreadable(error)
        if why is None or stopped():
            raise
        # Seen once, in a continuous-integration run: the stream from the JVM to this process did not begin with its
        # schema. Nothing is lost by that, so it is asked for once more, with a warning: the cause is not known.
        warnings.warn(f"an answer of Spark could not be read ({why}): asked for again", RuntimeWarning, stacklevel=2)
        rows = chosen.toArrow()
    for kind, data in zip(rows.column("kind").to_pylist(), rows.column("data").to_pylist(), strict=True):
        found.setdefault(kind, []).append(unpack(data))
    return found


class Stages:
    """One analysis: `first` gives the partial results of stage 1, `rest` those of stages 2 and 3; `close` lets go of
    what is kept between them."""

    def __init__(self, spark: SparkSession, source: Source, plan: Plan) -> None:
        self._spark = spark
        self._source = source
        self._plan = plan
        self._kept: DataFrame | None = None

    def first(self, tables: Mapping[str, bytes]) -> Partials:
        """Run stage 1 with `tables` (`tables.stage_tables`); a second time (with what other clients ended) it replaces
        the first."""
        self.close()
        kept = self._clients(tables).persist(StorageLevel.DISK_ONLY)
        self._kept = kept
        return _gathered(kept.where(F.col("part") == TO_DRIVER))

    def rest(self, tables: Mapping[str, bytes]) -> Partials:
        """Run stages 2 and 3 with `tables` (`tables.message_tables` and what stage 1 returned)."""
        assert self._kept is not None, "stage 1 comes first"
        plan = self._plan
        by_place = _shuffled(self._kept.where(F.col("part") != TO_DRIVER), plan.parts)
        parcels = by_place.mapInArrow(_later_task(tables, plan, messages.EMPTY, by_message), PARCEL_SCHEMA)
        if plan.asked & {"ordered", "atomic"}:
            parcels = _shuffled(parcels, plan.parts).mapInArrow(
                _later_task(tables, plan, groups.EMPTY, by_group), PARCEL_SCHEMA
            )
        return _gathered(parcels)

    def look_up(self, tables: Mapping[str, pa.Table], *, follow: bool = False) -> list[dict[str, Any]]:
        """Return the rows of the ledger that `tables` (`stories.WANTED`) ask for; `follow`: and those that these ask
        for, which needs whole clients in a task (`Source.whole`) who end nothing of each other."""
        packed = {name: pack(rows) for name, rows in tables.items()}
        source = self._source
        found = []
        if source.tasks:
            numbers = self._spark.range(0, len(source.tasks), 1, len(source.tasks))
            task = _look_up_task(packed, source.tasks, None, follow=follow)
            found.append(numbers.mapInArrow(task, PARCEL_SCHEMA))
        for frame, kind, owners in source.frames:
            task = _look_up_task(packed, (), (kind, owners), follow=False)
            found.append(frame.mapInArrow(task, PARCEL_SCHEMA))
        parcels_of = _gathered(reduce(DataFrame.unionByName, found))
        return [row for one in parcels_of.get(look_up.ROW.partial.kind, ()) for row in one.to_pylist()]

    def close(self) -> None:
        if self._kept is not None:
            self._kept.unpersist()
            self._kept = None

    def _clients(self, tables: Mapping[str, bytes]) -> DataFrame:
        source, plan, spark = self._source, self._plan, self._spark
        numbers = spark.range(0, len(source.tasks), 1, max(1, len(source.tasks)))
        if source.whole and not source.frames:
            return numbers.mapInArrow(_client_task(tables, plan, source.tasks), PARCEL_SCHEMA)
        spread = [numbers.mapInArrow(_read_task(source.tasks, plan.parts), PARCEL_SCHEMA)] if source.tasks else []
        for frame, kind, owners in source.frames:
            spread.append(frame.mapInArrow(_batch_task(kind, owners, plan.parts), PARCEL_SCHEMA))
        rows = _shuffled(reduce(DataFrame.unionByName, spread), plan.parts)
        return rows.mapInArrow(_client_task(tables, plan, None), PARCEL_SCHEMA)
