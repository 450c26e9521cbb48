"""Write ledgers into run directories, as JSON Lines or as Parquet."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from brokerdrill.ledger.contract import EVENT_COLUMNS, EVENTS_DIR, OP_COLUMNS, OPS_DIR, Column, RunInfo, write_run

Row = Mapping[str, Any]
_ARROW = {
    "string": pa.string(),
    "long": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "map": pa.map_(pa.string(), pa.string()),
}


def lines(rows: Sequence[Row]) -> bytes:
    """Return rows as JSON Lines, absent and null keys left out."""
    return b"".join(
        json.dumps({key: value for key, value in row.items() if value is not None}).encode() + b"\n" for row in rows
    )


def parquet(path: Path, rows: Sequence[Row], columns: Sequence[Column]) -> None:
    """Write rows as a Parquet file of the contract's columns, all nullable."""
    fields = [pa.field(column.name, _ARROW[column.type]) for column in columns]
    full = []
    for row in rows:
        whole = {column.name: row.get(column.name) for column in columns}
        detail = row.get("detail")
        if isinstance(detail, dict):
            whole["detail"] = list(detail.items())
        full.append(whole)
    pq.write_table(pa.Table.from_pylist(full, schema=pa.schema(fields)), path)


def run_dir(
    folder: Path, run: RunInfo, ops: Sequence[Row], events: Sequence[Row] = (), *, as_parquet: bool = False
) -> Path:
    """Write a whole run directory and return it."""
    for name in (OPS_DIR, EVENTS_DIR):
        (folder / name).mkdir(parents=True)
    write_run(folder, run)
    if as_parquet:
        parquet(folder / OPS_DIR / "part-0.parquet", ops, OP_COLUMNS)
        parquet(folder / EVENTS_DIR / "part-0.parquet", events, EVENT_COLUMNS)
    else:
        (folder / OPS_DIR / "worker-1.jsonl").write_bytes(lines(ops))
        (folder / EVENTS_DIR / "runner.jsonl").write_bytes(lines(events))
    return folder
