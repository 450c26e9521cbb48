"""Open run directories: run.json, the files of operations and events, their types, and the events themselves, which are
few and read by the driver.

One clear sentence names the file and the line (JSON Lines) or the column (Parquet). A torn last line (no newline, no
JSON) is skipped, counted and reported; a call that never returned and a run that broke off are ordinary input.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from brokerdrill.analysis.events import Event
from brokerdrill.analysis.files import Folder, LocalFolder, open_folder
from brokerdrill.analysis.placing import Placed, Readings, placed
from brokerdrill.analysis.reading.json_lines import parse_line
from brokerdrill.analysis.reading.rows import Problem
from brokerdrill.analysis.reading.valid import NOT_JSON, alike, row_problem
from brokerdrill.base.errors import UsageError
from brokerdrill.ledger.contract import (
    EVENT_COLUMNS,
    EVENTS_DIR,
    OP_COLUMNS,
    OPS_DIR,
    RUN_FILE,
    Column,
    RunInfo,
    parse_run,
)
from brokerdrill.ledger.evidence import ANSWERS, BY_LOG, OFFSET, RESTARTED, SILENT, UNCERTAINTY
from brokerdrill.ledger.spool import SUFFIX

TYPES = {"string": "string", "long": "bigint", "int": "int", "boolean": "boolean", "map": "map<string,string>"}
JSON_SUFFIXES = (".jsonl", ".json", ".ndjson")
SPOOLED = (*JSON_SUFFIXES, SUFFIX)
# What the names of files begin with that `brokerdrill compact` has made.
COMPACTED = "compact-"


@dataclass
class Run:
    """One run directory: `key` is its place among those given and stands for it in all results; `number` in the stages.

    `torn` counts torn lines by folder (ops, events), `tails` has their text by file; `footers` what the footers of
    local Parquet files of operations say. `events` are in run time, in which `clocks` lie so, `unplaced` names
    events on a clock that run.json does not place, `problems` of bad ones."""

    key: str
    number: int
    folder: Folder
    info: RunInfo
    files: dict[str, list[str]] = field(default_factory=dict)
    torn: dict[str, int] = field(default_factory=dict)
    torn_files: list[str] = field(default_factory=list)
    tails: dict[str, str] = field(default_factory=dict)
    footers: dict[str, pq.FileMetaData] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    clocks: Mapping[str, Placed] = field(default_factory=dict)
    unplaced: bool = False
    problems: list[Problem] = field(default_factory=list)


def load(spark: SparkSession | None, run_dirs: Sequence[Path | str]) -> tuple[list[Run], dict[int, str]]:
    """Return the runs in the order of the directories given, and a sentence for each directory that cannot be read (by
    its place). `spark` reads what is not local (None: everything is)."""
    runs: list[Run] = []
    errors: dict[int, str] = {}
    for place, run_dir in enumerate(run_dirs):
        try:
            runs.append(_open(spark, place, run_dir))
        except UsageError as error:
            errors[place] = str(error)
    return runs, errors


def _open(spark: SparkSession | None, place: int, run_dir: Path | str) -> Run:
    folder = open_folder(spark, run_dir)
    info = parse_run(folder.text(RUN_FILE), where=f"{folder.name}/{RUN_FILE}")
    run = Run(f"{place:06d}", place, folder, info)
    for name in (OPS_DIR, EVENTS_DIR):
        found = folder.files(name)
        if found is None and name == OPS_DIR:
            raise UsageError(f"{folder.name} has no folder {OPS_DIR}: there are no operations to analyse")
        run.files[name] = found or []
        for file in run.files[name]:
            written = SPOOLED if name == OPS_DIR else JSON_SUFFIXES
            if not file.endswith((".parquet", *written)):
                raise UsageError(f"{folder.name}/{file} is none of {', '.join(('.parquet', *written))}")
            if file.endswith(written):
                _note_torn(run, name, file, folder.tail(file))
            else:
                _check_parquet(spark, run, name, file)
    rows = [row for file in run.files[EVENTS_DIR] for row in event_rows(run, file) if _is_told(row)]
    run.clocks = read_clocks(rows, info)
    run.unplaced = any(row["clock"] not in info.clocks for row in rows)
    run.events = told_once([place_event(row, run.clocks) for row in rows])
    return run


def _note_torn(run: Run, name: str, file: str, rest: bytes) -> None:
    """Note whether `rest`, what follows a file's last newline, is a line that was cut off."""
    if not rest.strip():
        return
    try:
        json.loads(rest)
    except ValueError:
        run.torn[name] = run.torn.get(name, 0) + 1
        run.torn_files.append(file)
        run.tails[file] = rest.decode("utf-8", "replace")


def _check_parquet(spark: SparkSession | None, run: Run, name: str, file: str) -> None:
    """Raise UsageError for a file that is no Parquet, and for a column that is missing or of a wrong type. A column of
    32-bit integers may be one of nulls only (some writers spell it so); its rows show which."""
    where = f"{run.folder.name}/{file}"
    if run.folder.size(file) == 0:
        raise UsageError(f"{where} is empty: no Parquet file")
    schema = _schema(spark, run, name, file, where)
    for column in OP_COLUMNS if name == OPS_DIR else EVENT_COLUMNS:
        place = schema.get_field_index(column.name)
        if place < 0 and column.optional:
            continue
        if place < 0:
            raise UsageError(f"{where}: column {column.name} is missing")
        kind = schema.field(place).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if not _accepted(kind, column) and kind != pa.int32():
            raise UsageError(f"{where}: column {column.name} is of type {kind}, not {column.type}")


def _accepted(kind: pa.DataType, column: Column) -> bool:
    if column.type == "map":
        text = Column(column.name, "string")
        return pa.types.is_null(kind) or (
            pa.types.is_map(kind) and alike(kind.key_type, text) and alike(kind.item_type, text)
        )
    return alike(kind, column)


def _schema(spark: SparkSession | None, run: Run, name: str, file: str, where: str) -> pa.Schema:
    if isinstance(run.folder, LocalFolder):
        try:
            footer = pq.read_metadata(run.folder.path / file)
        except (pa.ArrowInvalid, OSError) as error:
            raise UsageError(f"{where} is no readable Parquet file: {str(error).splitlines()[0]}") from None
        if name == OPS_DIR:
            run.footers[file] = footer
        return footer.schema.to_arrow_schema()
    assert spark is not None, "a folder that is not local is opened by Spark"
    try:
        return to_arrow_schema(spark.read.parquet(run.folder.spark_path(file)).schema)
    except PySparkException as error:
        raise UsageError(f"{where} is no readable Parquet file: {str(error).splitlines()[0]}") from None
    except Exception as error:  # a torn footer surfaces as a bare Py4J error
        raise UsageError(f"{where} is no readable Parquet file ({type(error).__name__})") from None


# --- events ---------------------------------------------------------------------------------------------------------


def _is_told(row: Mapping[str, Any]) -> bool:
    """Whether an event counts here: of probes and health what is `detected`, and of health who is silent
    and which host was started anew."""
    if row["name"] == "detected" or row["kind"] not in ("probe", "health"):
        return True
    return row["kind"] == "health" and row["value"] in (SILENT, ANSWERS, RESTARTED)


def event_rows(run: Run, file: str) -> Iterator[Mapping[str, Any]]:
    """Yield the valid rows of a file of events; what is wrong with others is added to the run's `problems`."""
    return _event_lines(run, file) if file.endswith(JSON_SUFFIXES) else _event_table(run, file)


def _event_lines(run: Run, file: str) -> Iterator[Mapping[str, Any]]:
    for line in run.folder.lines(file):
        if not line.strip():
            continue
        row, problem = parse_line(line, EVENT_COLUMNS, run.info.run_id)
        if problem is None:
            yield row
        elif not (problem == NOT_JSON and line == run.tails.get(file)):
            run.problems.append(Problem(run.number, file, problem, line))


def _event_table(run: Run, file: str) -> Iterator[Mapping[str, Any]]:
    names = [column.name for column in EVENT_COLUMNS]
    with pq.ParquetFile(io.BytesIO(run.folder.read(file))) as table:
        for batch in table.iter_batches(columns=names):
            for row in batch.to_pylist():
                row["detail"] = dict(row["detail"] or ())
                wrong = [c for c in EVENT_COLUMNS if c.type == "string" and isinstance(row[c.name], int)]
                problem = (
                    f"column {wrong[0].name} is of a wrong type, not string"
                    if wrong
                    else row_problem(row, EVENT_COLUMNS, run.info.run_id)
                )
                if problem is None:
                    yield row
                else:
                    run.problems.append(Problem(run.number, file, problem, None))


def read_clocks(rows: Sequence[Mapping[str, Any]], info: RunInfo) -> dict[str, Placed]:
    """Return where the clocks of run.json lie in run time, by what it and the readings among a run's events say. When a
    clock was read is as run.json alone places it."""
    readings = Readings()
    for row in rows:
        clock = info.clocks.get(row["clock"])
        at = row["t_ns"] + (clock.offset_ns if clock else 0)
        readings.last = max(readings.last, at)
        if row["kind"] == "clock" and row.get("name") in info.clocks:
            detail = row.get("detail") or {}
            with suppress(KeyError, ValueError):
                readings.add(row["name"], at, int(detail[OFFSET]), int(detail.get(UNCERTAINTY, 0)))
    return placed(info.clocks, readings)


def place_event(row: Mapping[str, Any], clocks: Mapping[str, Placed]) -> Event:
    """Return a row of events in run time. "The uncertainty of an event is its own plus its clock's." """
    clock = clocks.get(row["clock"], _NOWHERE)
    return Event(
        kind=row["kind"],
        at=row["t_ns"] + clock.offset(row["t_ns"]),
        u=(row.get("uncertainty_ns") or 0) + clock.u,
        target=row.get("target"),
        instance=row.get("instance"),
        store=row.get("store"),
        name=row.get("name"),
        value=row.get("value"),
        detail=tuple(sorted((key, str(value)) for key, value in (row.get("detail") or {}).items())),
        clock=row["clock"],
    )


# A clock that run.json does not place.
_NOWHERE = Placed()


def told_once(events: Sequence[Event]) -> list[Event]:
    """Return the events each once (a spooled file and its compacted copy may both be there), without roles that repeat
    the instance's last one and are no surer, where their clock has others; the first line of the instance's log that
    shows a role is kept."""
    found: list[Event] = []
    last: dict[str, tuple[str | None, str | None]] = {}
    surest: dict[str, int] = {}
    clocks: set[str] = set()
    logged: set[str] = set()

    def order(event: Event) -> tuple[Any, ...]:
        texts = (event.value, event.store, event.name, event.target)
        return (
            event.at,
            *((text is not None, text or "") for text in texts[:2]),
            event.u,
            *(t or "" for t in texts[2:]),
        )

    for event in sorted(set(events), key=order):
        if event.kind == "role" and event.instance is not None:
            same = last.get(event.instance) == (event.value, event.store)
            said = same and event.u >= surest[event.instance]
            if not same:
                logged.discard(event.instance)
            if said and event.clock in clocks and (event.name != BY_LOG or event.instance in logged):
                continue
            surest[event.instance] = min(event.u, surest[event.instance]) if same else event.u
            logged |= {event.instance} if event.name == BY_LOG else set()
            last[event.instance] = (event.value, event.store)
        clocks.add(event.clock)
        found.append(event)
    return found
