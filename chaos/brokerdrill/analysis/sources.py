"""Which task reads what: the files of runs as pieces for tasks, and the number of partitions that a ledger needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from pyarrow import parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from brokerdrill.analysis.files import LocalFolder, qualified
from brokerdrill.analysis.load import Run
from brokerdrill.analysis.reading.rows import Piece
from brokerdrill.analysis.stages import Owners, Source
from brokerdrill.ledger.contract import OP_COLUMNS, OPS_DIR
from brokerdrill.ledger.spool import SUFFIX

# So much of a ledger makes a partition: some 700,000 operations, of which a task holds the columns that it needs.
PARQUET_BYTES, SPOOL_BYTES, LINES_BYTES = 16 << 20, 20 << 20, 128 << 20
# Below this share of a partition a second task costs more than it spares.
_WORTH = 1 / 32
MOST_PARTITIONS = 512


class Sized(NamedTuple):
    """A piece and how much it is, in partitions; `clients`: the first and the last client in it (None: not known)."""

    piece: Piece
    share: float
    clients: tuple[str, str] | None


def source_of(spark: SparkSession, runs: Sequence[Run], cores: int = 2) -> tuple[Source, int]:
    """Return where the operations of `runs` come from, and into how many partitions they are divided."""
    sized: list[Sized] = []
    frames = []
    size = 0.0
    for run in runs:
        if isinstance(run.folder, LocalFolder):
            sized += _pieces(run)
        else:
            size += sum(
                run.folder.size(file) / (PARQUET_BYTES if file.endswith(".parquet") else _lines_bytes(file))
                for file in run.files[OPS_DIR]
            )
    frames = _read_by_spark(spark, [run for run in runs if not isinstance(run.folder, LocalFolder)])
    size += sum(one.share for one in sized)
    parts = min(MOST_PARTITIONS, max(1 if size < _WORTH else cores, round(size + 0.5)))
    if parts == 1:
        tasks = [[one.piece for one in sized]] if sized else []
        return Source(tasks, whole=not frames, frames=frames), 1
    apart = _apart(sized, parts)
    if apart is not None:
        return Source(apart, whole=not frames, frames=frames), parts
    return Source(_even(sized, parts), whole=False, frames=frames), parts


def pieces(run: Run) -> list[Piece]:
    """Return all operations of a local run as pieces."""
    return [one.piece for one in _pieces(run)]


def _pieces(run: Run) -> Iterator[Sized]:
    assert isinstance(run.folder, LocalFolder)
    for file in run.files[OPS_DIR]:
        path = str((run.folder.path / file).resolve())

        def piece(begin: int, end: int, file: str = file, path: str = path) -> Piece:
            return Piece(run.number, run.info.run_id, file, path, begin, end)

        if file in run.footers:
            footer = run.footers[file]
            for group in range(footer.num_row_groups):
                share = footer.row_group(group).total_byte_size / (PARQUET_BYTES * 4)
                yield Sized(piece(group, group + 1), share, _clients(footer, group))
        else:
            size = run.folder.size(file)
            step = _lines_bytes(file) // 4
            for begin in range(0, size, step):
                end = min(size, begin + step)
                yield Sized(piece(begin, end), (end - begin) / (4 * step), None)


def _lines_bytes(file: str) -> int:
    return SPOOL_BYTES if file.endswith(SUFFIX) else LINES_BYTES


_CLIENT = "client"


def _clients(footer: pq.FileMetaData, group: int) -> tuple[str, str] | None:
    """The first and the last client of a row group, as its statistics say."""
    of = footer.row_group(group)
    for place in range(of.num_columns):
        column = of.column(place)
        if column.path_in_schema == _CLIENT and column.statistics is not None and column.statistics.has_min_max:
            with suppress(UnicodeDecodeError):  # a name that is not UTF-8 is reported by those who read the rows
                return str(column.statistics.min), str(column.statistics.max)
    return None


def _apart(sized: Sequence[Sized], parts: int) -> list[list[Piece]] | None:
    """The pieces in about `parts` tasks so that no client is in two of them; None: that is not known, or the tasks
    would be few."""
    if any(one.clients is None for one in sized):
        return None
    groups: list[list[Sized]] = []
    ordered = sorted(sized, key=lambda one: (one.piece.run, one.clients or ("", "")))
    for one in ordered:
        assert one.clients is not None
        last = groups[-1] if groups else None
        if (
            last
            and last[0].piece.run == one.piece.run
            and one.clients[0] <= max((of.clients or ("", ""))[1] for of in last)
        ):
            last.append(one)
        else:
            groups.append([one])
    enough = sum(one.share for one in sized) / parts
    tasks: list[list[Piece]] = []
    shares: list[float] = []
    for group in groups:
        share = sum(one.share for one in group)
        if share > 2 * enough and len(groups) < 2 * parts:
            return None  # a task much larger than the others: shuffled, its clients are divided
        if not tasks or shares[-1] + share > enough * 1.2:
            tasks.append([])
            shares.append(0.0)
        tasks[-1] += [one.piece for one in group]
        shares[-1] += share
    # The largest first: no core waits long for the last one.
    return [task for _, task in sorted(zip(shares, tasks, strict=True), key=lambda one: -one[0])]


def _even(sized: Sequence[Sized], parts: int) -> list[list[Piece]]:
    """The pieces in at most `parts` tasks of about the same size, neighbours together."""
    enough = sum(one.share for one in sized) / parts
    tasks: list[list[Piece]] = []
    filled = 0.0
    for one in sized:
        if not tasks or filled >= enough:
            tasks.append([])
            filled = 0.0
        tasks[-1].append(one.piece)
        filled += one.share
    return tasks


def _read_by_spark(spark: SparkSession, runs: Sequence[Run]) -> list[tuple[object, str, Owners]]:
    """DataFrames of the runs that are not local, with the owner of each file."""
    frames: list[tuple[object, str, Owners]] = []
    lines: dict[str, tuple[int, str, str, str | None]] = {}
    paths: list[str] = []
    names = [column.name for column in OP_COLUMNS]
    for run in runs:
        for file in run.files[OPS_DIR]:
            path = run.folder.spark_path(file)
            header = next(run.folder.lines(file), "") if file.endswith(SUFFIX) else None
            owner = (run.number, run.info.run_id, file, header)
            if file.endswith(".parquet"):
                found = spark.read.parquet(path)
                columns = [
                    F.col(name) if name in found.columns else F.lit(None).cast("string").alias(name) for name in names
                ]
                rows = found.select(F.col("_metadata.file_path").alias("path"), *columns)
                frames.append((rows, "rows", {qualified(spark, path): owner}))
            else:
                lines[qualified(spark, path)] = owner
                paths.append(path)
    if paths:
        text = spark.read.option("lineSep", "\n").text(paths)
        frames.append((text.select(F.col("_metadata.file_path").alias("path"), "value"), "lines", lines))
    return frames
