"""`brokerdrill compact`: a run's spools become Parquet, one row an operation; killed at any point, nothing is lost or
doubled.

The new files are written into a hidden folder beside the old ones, flushed, and moved in one by one; only then are the
old ones removed. Between these steps old and new are both there, which says nothing twice: rows of one operation
merge, and equal events count once.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from brokerdrill.analysis.files import LocalFolder, ledger_bytes
from brokerdrill.analysis.load import JSON_SUFFIXES, Loaded, Run, load
from brokerdrill.analysis.problems import problem_rows, refused
from brokerdrill.analysis.spark import session
from brokerdrill.analysis.tables import clocks
from brokerdrill.analysis.units import merge_rows
from brokerdrill.errors import UsageError
from brokerdrill.journal import JOURNAL
from brokerdrill.ledger import EVENT_COLUMNS, EVENTS_DIR, OP_COLUMNS, OPS_DIR, RUN_FILE

STAGING = ".compact"
# What is kept of a spool whose last line a crash tore, so that the analysis still says so.
TORN = "torn"
_IDENTITY = ("run_id", "clock", "client", "op_id")
# Where rows of one operation differ in these the largest stands, in other columns the smallest.
_LARGEST = frozenset({"session", "end_ns", "expires_ns"})


def compact(
    run_dirs: Sequence[Path],
    out: Path | None = None,
    *,
    master: str | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Compact each run where it is, or into `out`/RUN_ID (the run itself stays as it is); return where they are.

    `told` hears of each step. A run that is already in `out`, or has nothing but Parquet, is left alone. Raises
    UsageError for a run with bad input (nothing of it is touched).
    """
    done = []
    for run_dir in run_dirs:
        done.append(_compact_one(run_dir, out, master, told))
        told(f"{done[-1]} is compact")
    return done


def _compact_one(run_dir: Path, out: Path | None, master: str | None, told: Callable[[str], None]) -> Path:
    spark = session(master, ledger_bytes([run_dir]))
    loaded = load(spark, [run_dir])
    if loaded.errors:
        raise UsageError(loaded.errors[0])
    run = loaded.runs[0]
    if out is None:
        target = run_dir
        if not any(file.endswith(JSON_SUFFIXES) and not _is_torn_rest(file) for file in run.files[OPS_DIR]):
            return target
    else:
        target = out / run.info.run_id
        if (target / RUN_FILE).exists():
            return target
        out.mkdir(parents=True, exist_ok=True)
    _refuse(loaded)
    for left in (target if out is None else out).glob(f"{STAGING}-*"):
        shutil.rmtree(left, ignore_errors=True)
    staging = (target if out is None else out) / f"{STAGING}-{uuid.uuid4().hex}"
    staging.mkdir()
    try:
        _write(loaded, run, staging)
        told("the new files are written")
        if out is None:
            publish(run_dir, staging, run.files, told)
        else:
            _complete(run_dir, staging)
            staging.rename(target)
            _flush(out)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return target


def _is_torn_rest(file: str) -> bool:
    return Path(file).name.startswith(f"{TORN}-")


def _refuse(loaded: Loaded) -> None:
    """Raise UsageError where a row, or an operation, is bad."""
    run = loaded.runs[0]
    clock = clocks(loaded.ops.sparkSession, {run.key: run.info})
    found = problem_rows(merge_rows(loaded.ops, clock)).unionByName(problem_rows(loaded.events)).collect()
    for sentence in refused(found, loaded).values():
        raise UsageError(sentence)


def merged(ops: DataFrame, run_id: str) -> DataFrame:
    """Return one row an operation of one clock, of valid rows, in the contract's columns."""
    names = [column.name for column in OP_COLUMNS if column.name not in (*_IDENTITY, "outcome")]
    sure = F.min(F.when(F.col("outcome") != "unknown", F.col("outcome")))
    return (
        ops.groupBy(*_IDENTITY)
        .agg(
            F.coalesce(sure, F.max("outcome")).alias("outcome"),
            *((F.max if name in _LARGEST else F.min)(name).alias(name) for name in names),
        )
        .withColumn("run_id", F.lit(run_id))
        .select(*(column.name for column in OP_COLUMNS))
        .sortWithinPartitions("client", "op_id")
    )


def _write(loaded: Loaded, run: Run, staging: Path) -> None:
    """Write the run's operations and events, and what is left of torn spools, into `staging`, flushed."""
    events = loaded.events.where(F.col("_problem").isNull()).withColumn("run_id", F.lit(run.info.run_id))
    frames = {
        OPS_DIR: merged(loaded.ops.where(F.col("_problem").isNull()), run.info.run_id),
        EVENTS_DIR: events.select(*(column.name for column in EVENT_COLUMNS)).coalesce(1),
    }
    assert isinstance(run.folder, LocalFolder)
    for name, frame in frames.items():
        raw = staging / f"{name}.spark"
        frame.write.parquet(raw.resolve().as_uri())
        (staging / name).mkdir()
        fresh = uuid.uuid4().hex[:12]
        for number, part in enumerate(sorted(raw.glob("part-*"))):
            part.rename(staging / name / f"compact-{fresh}-{number:05d}.parquet")
        shutil.rmtree(raw)
    for file in run.torn_files:
        name, _, rest = file.partition("/")
        kept = Path(rest).name if _is_torn_rest(rest) else f"{TORN}-{fresh}-{Path(rest).name}"
        (staging / name / kept).write_bytes(run.folder.tail(file))
    for path in staging.rglob("*"):
        _flush(path)
    _flush(staging)


def publish(
    run_dir: Path, staging: Path, old: dict[str, list[str]], told: Callable[[str], None] = lambda _: None
) -> None:
    """Move the new files of `staging` into the run, then remove the files `old` (by folder, relative to the run)."""
    for name in (OPS_DIR, EVENTS_DIR):
        (run_dir / name).mkdir(exist_ok=True)
        for file in sorted((staging / name).iterdir()):
            file.replace(run_dir / name / file.name)
            told(f"{name}/{file.name} is in place")
        _flush(run_dir / name)
    for name in (OPS_DIR, EVENTS_DIR):
        for path in old[name]:
            if not _is_torn_rest(path):  # moved in again under the same name
                (run_dir / path).unlink(missing_ok=True)
                told(f"{path} is removed")
        _flush(run_dir / name)


def _complete(run_dir: Path, staging: Path) -> None:
    """Copy what is neither operations nor events."""
    for file in (RUN_FILE, JOURNAL):
        if (run_dir / file).exists():
            shutil.copy2(run_dir / file, staging / file)
            _flush(staging / file)
    _flush(staging)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
