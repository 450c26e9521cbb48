"""Stage 0: pieces of a ledger's local files, read by the task itself, some rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from brokerdrill.analysis.reading.json_lines import parse
from brokerdrill.analysis.reading.parquet import conform
from brokerdrill.analysis.reading.rows import CheckedRows, Only, Piece, having
from brokerdrill.analysis.reading.spools import parse_spool
from brokerdrill.analysis.reading.valid import checked
from brokerdrill.ledger import spool
from brokerdrill.ledger.contract import OP_COLUMNS

# So much of JSON Lines is parsed at a time, and so many rows of Parquet are taken.
_BLOCK = 8 << 20
_ROWS = 200_000


def read(pieces: Iterable[Piece], only: Only | None = None) -> Iterator[tuple[Piece, CheckedRows]]:
    """Yield the rows of the pieces, some at a time; of Parquet and spools only those that have one of the values in
    `only`. Without it an operation's rows that a spool has near each other come as one."""
    wanted = None if only is None else frozenset(chain.from_iterable(values.to_pylist() for values in only.values()))
    for piece in pieces:
        if piece.path.endswith(".parquet"):
            with pq.ParquetFile(piece.path, pre_buffer=False) as file:
                groups = list(range(piece.begin, piece.end))
                there = set(file.schema_arrow.names)
                names = [column.name for column in OP_COLUMNS if column.name in there]
                for batch in file.iter_batches(_ROWS, row_groups=groups, columns=names):
                    table = conform(pa.Table.from_batches([batch]))
                    if only is not None:
                        table = having(table, only)
                    if len(table):
                        yield piece, checked(table, piece)
        elif piece.path.endswith(spool.SUFFIX):
            with Path(piece.path).open("rb") as file:
                own = piece._replace(header=file.readline().decode("utf-8", "replace"))
            for block in blocks(piece):
                rows = parse_spool(block, own, wanted)
                yield piece, rows if only is None else CheckedRows(having(rows.table, only), rows.problems)
        else:
            for block in blocks(piece):
                yield piece, parse(block, piece)


def blocks(piece: Piece) -> Iterator[bytes]:
    """Yield the whole lines that begin in the piece's bytes."""
    with Path(piece.path).open("rb") as file:
        position = piece.begin
        if position:
            file.seek(position - 1)
            position += len(file.readline()) - 1
        while position < piece.end:
            block = file.read(min(_BLOCK, piece.end - position))
            if not block:
                return
            if not block.endswith(b"\n"):
                block += file.readline()
            position += len(block)
            yield block
