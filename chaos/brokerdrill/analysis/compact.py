"""`brokerdrill compact`: a run's spools become Parquet, one row an operation; killed at any point, nothing is lost or
doubled.

The new files are written into a hidden folder beside the old ones, flushed, and moved in one by one; only then are the
old ones removed. Between these steps old and new are both there, which says nothing twice: rows of one operation
merge, and equal events count once.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from brokerdrill.analysis.clients import conflicts
from brokerdrill.analysis.columns import ARROW
from brokerdrill.analysis.kernel import add, engine
from brokerdrill.analysis.load import COMPACTED, SPOOLED, Run, event_rows, load
from brokerdrill.analysis.problems import refused
from brokerdrill.analysis.reading.pieces import read
from brokerdrill.analysis.reading.rows import OP_SCHEMA, Problem
from brokerdrill.analysis.sources import pieces
from brokerdrill.analysis.sums import lacking
from brokerdrill.base import atomic
from brokerdrill.base.errors import UsageError
from brokerdrill.ledger.contract import EVENT_COLUMNS, EVENTS_DIR, OP_COLUMNS, OPS_DIR, RUN_FILE
from brokerdrill.ledger.journal import JOURNAL

# A file of operations begins a new one after so many rows, where a client's end.
FILE_ROWS = 250_000
STAGING = ".compact"
# What is kept of a spool whose last line a crash tore, so that the analysis still says so.
TORN = "torn"
_IDENTITY = ("run_id", "clock", "client", "op_id")


def compact(
    run_dirs: Sequence[Path],
    out: Path | None = None,
    *,
    report: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Compact each run where it is, or into `out`/RUN_ID (the run itself stays as it is); return where they are.

    `report` is called with each step. A run that is already in `out`, or has nothing but Parquet, is left alone. Raises
    UsageError for a run with bad input (nothing of it is touched).
    """
    done = []
    for run_dir in run_dirs:
        done.append(_compact_one(run_dir, out, report))
        report(f"{done[-1]} is compact")
    return done


def _compact_one(run_dir: Path, out: Path | None, report: Callable[[str], None]) -> Path:
    runs, errors = load(None, [run_dir])
    if errors:
        raise UsageError(errors[0])
    run = runs[0]
    if missing := lacking(run.folder, run.files[OPS_DIR], run.events):
        raise UsageError(f"{run.folder.name}: {'; '.join(missing)}: it stays as it is, so that this can be seen")
    if out is None:
        target = run_dir
        if not any(file.endswith(SPOOLED) and not _is_torn_rest(file) for file in run.files[OPS_DIR]):
            return target
    else:
        target = out / run.info.run_id
        if (target / RUN_FILE).exists():
            return target
        out.mkdir(parents=True, exist_ok=True)
    with engine() as base:
        _read(base, run)
        for left in (target if out is None else out).glob(f"{STAGING}-*"):
            shutil.rmtree(left, ignore_errors=True)
        staging = (target if out is None else out) / f"{STAGING}-{uuid.uuid4().hex}"
        staging.mkdir()
        try:
            _write(base, run, staging)
            report("the new files are written")
            if out is None:
                publish(run_dir, staging, run.files, report)
            else:
                _complete(run_dir, staging)
                atomic.publish(staging, target)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return target


def _is_torn_rest(file: str) -> bool:
    return Path(file).name.startswith(f"{TORN}-")


def _read(base: duckdb.DuckDBPyConnection, run: Run) -> None:
    """Fill the table `ledger` with the run's operations; raise UsageError where a row, or an operation, is bad."""
    add(base, "ledger", OP_SCHEMA.empty_table())
    problems: list[Problem] = []
    for one in pieces(run):
        for _, rows in read([one]):
            add(base, "ledger", rows.table)
            problems += rows.problems
    found = pa.table({name: [getattr(one, name) for one in problems] for name in Problem._fields})
    base.execute(f"CREATE TEMP VIEW raw AS SELECT {run.number} AS run, * FROM ledger")
    base.execute(
        "CREATE TEMP TABLE clocks (run INT, clock TEXT, c_from BIGINT, c_to BIGINT, since BIGINT, off BIGINT, "
        "slope DOUBLE, tick INT, u BIGINT)"
    )
    partials = {"problem": [found], "conflict": [conflicts(base)]}
    for sentence in refused([run], partials).values():
        raise UsageError(sentence)


def _write(base: duckdb.DuckDBPyConnection, run: Run, staging: Path) -> None:
    """Write the run's operations and events, and what is left of torn spools, into `staging`, flushed.

    Operations become one row each, of one clock; all of a client are in one file, sorted.
    """
    names = [column.name for column in OP_COLUMNS]
    # Where rows of one operation differ the latest end stands, in other columns the smallest value.
    others = ", ".join(
        f'{"max" if name == "end_ns" else "min"}("{name}") AS "{name}"'
        for name in names
        if name not in (*_IDENTITY, "outcome")
    )
    outcome = "coalesce(min(outcome) FILTER (outcome <> 'unknown'), max(outcome)) AS outcome"
    merged = f"SELECT {', '.join(_IDENTITY)}, {outcome}, {others} FROM ledger GROUP BY {', '.join(_IDENTITY)}"
    fresh = uuid.uuid4().hex[:12]
    for name in (OPS_DIR, EVENTS_DIR):
        (staging / name).mkdir()
    spans = base.execute(
        f"SELECT min(client), max(client) FROM (SELECT client, sum(count(*)) OVER (ORDER BY client) // {FILE_ROWS} AS "
        "file FROM ledger GROUP BY client) GROUP BY file ORDER BY file"
    ).fetchall()
    for number, (first, last) in enumerate(spans):
        path = staging / OPS_DIR / f"{COMPACTED}{fresh}-{number:05d}.parquet"
        rows = base.sql(
            f"SELECT {', '.join(names)} FROM ({merged}) WHERE client >= $first AND client <= $last "
            "ORDER BY client, op_id",
            params={"first": first, "last": last},
        )
        with pq.ParquetWriter(path, OP_SCHEMA, compression="zstd") as out:
            for batch in rows.to_arrow_reader(FILE_ROWS):
                out.write_table(pa.Table.from_batches([batch]).cast(OP_SCHEMA), row_group_size=FILE_ROWS)
    events = [dict(row) for file in run.files[EVENTS_DIR] for row in event_rows(run, file)]
    columns = {c.name: [_plain(row.get(c.name)) for row in events] for c in EVENT_COLUMNS}
    schema = pa.schema([(column.name, ARROW[column.type]) for column in EVENT_COLUMNS])
    pq.write_table(pa.table(columns, schema=schema), staging / EVENTS_DIR / f"{COMPACTED}{fresh}-00000.parquet")
    for file in run.torn_files:
        name, _, rest = file.partition("/")
        kept = Path(rest).name if _is_torn_rest(rest) else f"{TORN}-{fresh}-{Path(rest).name}"
        (staging / name / kept).write_bytes(run.folder.tail(file))
    atomic.flush_tree(staging)


def _plain(value: object) -> object:
    return [(key, str(text)) for key, text in value.items()] if isinstance(value, dict) else value


def publish(
    run_dir: Path, staging: Path, old: dict[str, list[str]], report: Callable[[str], None] = lambda _: None
) -> None:
    """Move the new files of `staging` into the run, then remove the files `old` (by folder, relative to the run)."""
    for name in (OPS_DIR, EVENTS_DIR):
        (run_dir / name).mkdir(exist_ok=True)
        for file in sorted((staging / name).iterdir()):
            file.replace(run_dir / name / file.name)
            report(f"{name}/{file.name} is in place")
        atomic.flush(run_dir / name)
    for name in (OPS_DIR, EVENTS_DIR):
        for path in old[name]:
            if not _is_torn_rest(path):  # moved in again under the same name
                (run_dir / path).unlink(missing_ok=True)
                report(f"{path} is removed")
        atomic.flush(run_dir / name)


def _complete(run_dir: Path, staging: Path) -> None:
    """Copy what is neither operations nor events."""
    for file in (RUN_FILE, JOURNAL):
        if (run_dir / file).exists():
            shutil.copy2(run_dir / file, staging / file)
