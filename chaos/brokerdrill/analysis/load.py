"""Read run directories: operations and events, Parquet or JSON Lines or both, and find what is wrong with them.

One clear sentence names the file and the line (JSON Lines) or the column (Parquet). A torn last line (no newline, no
JSON) is skipped, counted and reported; a call that never returned and a run that broke off are ordinary input.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from brokerdrill.analysis.files import Folder, LocalFolder, open_folder, qualified
from brokerdrill.analysis.spark import gather
from brokerdrill.analysis.tables import table
from brokerdrill.errors import UsageError
from brokerdrill.ledger import (
    EVENT_COLUMNS,
    EVENTS_DIR,
    OP_COLUMNS,
    OPS_DIR,
    PHASE_VALUES,
    POOL_VALUES,
    ROLES,
    RUN_FILE,
    RunInfo,
    parse_run,
)
from brokerdrill.ledger import Column as Field

TYPES = {"string": "string", "long": "bigint", "int": "int", "boolean": "boolean", "map": "map<string,string>"}
JSON_SUFFIXES = (".jsonl", ".json", ".ndjson")
NOT_JSON = "is not JSON"
# A row may amend an earlier one and leave out what that one said, but not whose operation it is.
_EACH_OP_ROW = ("run_id", "clock", "client", "op_id")
# 36 years: a time beyond it is none since a run's start, and sums of such times would overflow.
_LATEST_NS = 1 << 60


@dataclass
class Run:
    """One run directory: `key` stands for its run_id in all DataFrames; `torn` counts torn lines by folder (ops,
    events)."""

    key: str
    folder: Folder
    info: RunInfo
    files: dict[str, list[str]] = field(default_factory=dict)
    torn: dict[str, int] = field(default_factory=dict)
    torn_files: list[str] = field(default_factory=list)


@dataclass
class Loaded:
    """`runs` in the order of the directories given; `errors` has a sentence for each that cannot be read (by its
    place)."""

    runs: list[Run]
    errors: dict[int, str]
    ops: DataFrame
    events: DataFrame

    @property
    def has_lines(self) -> bool:
        """Whether there are operations in JSON Lines."""
        return any(file.endswith(JSON_SUFFIXES) for run in self.runs for file in run.files[OPS_DIR])


def spark_schema(columns: Sequence[Field]) -> str:
    """Return the columns' Spark schema (DDL)."""
    return ", ".join(f"`{column.name}` {TYPES[column.type]}" for column in columns)


def load(spark: SparkSession, run_dirs: Sequence[Path | str]) -> Loaded:
    """Read the run directories. The DataFrames have the contract's columns with `run_id` the run's key, `_src` and
    `_text` (file; line of JSON Lines), and on rows with a problem `_problem`, `_file`, `_raw`, `_line` (else
    null)."""
    runs: list[Run] = []
    errors: dict[int, str] = {}
    frames: dict[str, list[DataFrame]] = {OPS_DIR: [], EVENTS_DIR: []}
    for place, run_dir in enumerate(run_dirs):
        try:
            run = _open(spark, f"{place:06d}", run_dir)
            parquet = {name: _parquet(spark, run, name) for name in (OPS_DIR, EVENTS_DIR)}
        except UsageError as error:
            errors[place] = str(error)
            continue
        runs.append(run)
        for name, found in parquet.items():
            frames[name] += found
    for name in (OPS_DIR, EVENTS_DIR):
        frames[name] += _json_lines(spark, runs, name)
    return Loaded(
        runs, errors, _union(spark, frames[OPS_DIR], OP_COLUMNS), _union(spark, frames[EVENTS_DIR], EVENT_COLUMNS)
    )


def _columns(name: str) -> tuple[Field, ...]:
    return OP_COLUMNS if name == OPS_DIR else EVENT_COLUMNS


def _open(spark: SparkSession, key: str, run_dir: Path | str) -> Run:
    folder = open_folder(spark, run_dir)
    run = Run(key, folder, parse_run(folder.text(RUN_FILE), where=f"{folder.name}/{RUN_FILE}"))
    for name in (OPS_DIR, EVENTS_DIR):
        found = folder.files(name)
        if found is None and name == OPS_DIR:
            raise UsageError(f"{folder.name} has no folder {OPS_DIR}: there are no operations to analyse")
        run.files[name] = found or []
        for file in run.files[name]:
            if not file.endswith((".parquet", *JSON_SUFFIXES)):
                raise UsageError(f"{folder.name}/{file} is neither Parquet (.parquet) nor JSON Lines (.jsonl)")
            if file.endswith(JSON_SUFFIXES) and _is_torn(folder.tail(file)):
                run.torn[name] = run.torn.get(name, 0) + 1
                run.torn_files.append(file)
    return run


def _is_torn(rest: bytes) -> bool:
    """Tell whether `rest`, what follows a file's last newline, is a line that was cut off."""
    if not rest.strip():
        return False
    try:
        json.loads(rest)
    except ValueError:
        return True
    return False


# --- JSON Lines -----------------------------------------------------------------------------------------------------


def _json_lines(spark: SparkSession, runs: Sequence[Run], name: str) -> list[DataFrame]:
    """All JSON Lines of a folder, of all runs, as one DataFrame."""
    files = [
        (run.folder.spark_path(file), run) for run in runs for file in run.files[name] if file.endswith(JSON_SUFFIXES)
    ]
    if not files:
        return []
    text = spark.read.option("lineSep", "\n").text([path for path, _ in files])
    lines = text.select("value", F.col("_metadata.file_path").alias("_src")).where(F.trim("value") != "")
    if len(runs) == 1:
        keyed = lines.select("*", F.lit(runs[0].key).alias("_key"), F.lit(runs[0].info.run_id).alias("_id"))
    else:
        owners = ((qualified(spark, path), run.key, run.info.run_id) for path, run in files)
        keyed = lines.join(F.broadcast(table(spark, owners, "_src string, _key string, _id string")), "_src")
    columns = _columns(name)
    schema = f"{spark_schema(columns)}, _corrupt string"
    parsed = keyed.withColumn(
        "_row", F.from_json("value", schema, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"})
    )
    rows = parsed.select("_src", "_key", "_id", F.col("value").alias("_text"), "_row.*")
    return [_checked(rows, columns, _json_problem(columns))]


def _json_problem(columns: Sequence[Field]) -> Column:
    """What is wrong with a line as JSON: not JSON, no object, or a value of a wrong type; null where nothing is."""
    corrupt = F.col("_corrupt").isNotNull()
    wrong = F.coalesce(
        *(
            F.when(
                F.get_json_object("_text", f"$.{column.name}").isNotNull() & F.col(column.name).isNull(),
                f"{column.name} is of a wrong type, not {column.type}",
            )
            for column in columns
            if column.type != "string"
        ),
        F.lit("is no JSON object"),
    )
    # Spark turns any value into a string: a column of text must be quoted in the line itself.
    names = "|".join(column.name for column in columns if column.type == "string")
    unquoted = F.regexp_extract("_text", f'"({names})"\\s*:\\s*[^"n\\s]', 1)
    return (
        F.when(corrupt & F.try_parse_json("_text").isNull(), NOT_JSON)
        .when(corrupt, wrong)
        .when(unquoted != "", F.concat(unquoted, F.lit(" is of a wrong type, not string")))
    )


# --- Parquet --------------------------------------------------------------------------------------------------------


def _parquet(spark: SparkSession, run: Run, name: str) -> list[DataFrame]:
    """The Parquet files of one run's folder, one DataFrame for each schema that they have."""
    by_form: dict[object, T.StructType] = {}
    by_schema: dict[str, list[str]] = {}
    schemas: dict[str, T.StructType] = {}
    for file in run.files[name]:
        if file.endswith(".parquet"):
            path = run.folder.spark_path(file)
            where = f"{run.folder.name}/{file}"
            if run.folder.size(file) == 0:
                raise UsageError(f"{where} is empty: no Parquet file")
            form = _arrow_schema(run.folder, file, where)
            if form is None or form not in by_form:
                by_form[form] = _spark_schema(spark, path, where)
            schema = by_form[form]
            _check_schema(schema, _columns(name), where)
            by_schema.setdefault(schema.json(), []).append(path)
            schemas[schema.json()] = schema
    return [
        _from_parquet(spark.read.schema(schemas[text]).parquet(*paths), schemas[text], _columns(name), run)
        for text, paths in by_schema.items()
    ]


def _arrow_schema(folder: Folder, file: str, where: str) -> object | None:
    """What a local file's footer says of its columns, which takes no job; None: not local."""
    if not isinstance(folder, LocalFolder):
        return None
    try:
        return str(pq.read_schema(folder.path / file).remove_metadata())
    except (pa.ArrowInvalid, OSError) as error:
        raise UsageError(f"{where} is no readable Parquet file: {str(error).splitlines()[0]}") from None


def _spark_schema(spark: SparkSession, path: str, where: str) -> T.StructType:
    try:
        return spark.read.parquet(path).schema
    except PySparkException as error:
        raise UsageError(f"{where} is no readable Parquet file: {str(error).splitlines()[0]}") from None
    except Exception as error:  # a torn footer surfaces as a bare Py4J error
        raise UsageError(f"{where} is no readable Parquet file ({type(error).__name__})") from None


_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.DecimalType)


def _accepted(kind: T.DataType, wanted: str) -> bool:
    if isinstance(kind, T.NullType):
        return True
    if wanted == "string":
        return isinstance(kind, T.StringType)
    if wanted in ("long", "int"):
        return isinstance(kind, _INTEGERS)
    if wanted == "boolean":
        return isinstance(kind, T.BooleanType)
    return (
        isinstance(kind, T.MapType)
        and isinstance(kind.keyType, T.StringType)
        and isinstance(kind.valueType, T.StringType)
    )


def _check_schema(schema: T.StructType, columns: Sequence[Field], where: str) -> None:
    """Raise UsageError for a column that is missing or of a wrong type. A column of 32-bit integers may be one of
    nulls only (some writers spell it so); its rows tell."""
    found = {column.name: column.dataType for column in schema.fields}
    for column in columns:
        if column.name not in found:
            raise UsageError(f"{where}: column {column.name} is missing")
        kind = found[column.name]
        if not _accepted(kind, column.type) and not isinstance(kind, T.IntegerType):
            raise UsageError(f"{where}: column {column.name} is of type {kind.simpleString()}, not {column.type}")


def _from_parquet(rows: DataFrame, schema: T.StructType, columns: Sequence[Field], run: Run) -> DataFrame:
    kinds = {column.name: column.dataType for column in schema.fields}
    problems, values = [], []
    for column in columns:
        value = F.col(column.name)
        if _accepted(kinds[column.name], column.type):
            values.append(value.try_cast(TYPES[column.type]).alias(column.name))
            if column.type in ("int", "long"):
                lost = value.isNotNull() & value.try_cast(TYPES[column.type]).isNull()
                problems.append(F.when(lost, f"column {column.name} is out of range"))
        else:
            values.append(F.lit(None).cast(TYPES[column.type]).alias(column.name))
            problems.append(F.when(value.isNotNull(), f"column {column.name} is of a wrong type, not {column.type}"))
    named = rows.select(
        F.col("_metadata.file_path").alias("_src"),
        F.lit(run.key).alias("_key"),
        F.lit(run.info.run_id).alias("_id"),
        F.lit(None).cast("string").alias("_text"),
        F.coalesce(*problems, F.lit(None).cast("string")).alias("_type_problem"),
        *values,
    )
    return _checked(named, columns, F.col("_type_problem"))


# --- both -----------------------------------------------------------------------------------------------------------


def _checked(rows: DataFrame, columns: Sequence[Field], problem: Column) -> DataFrame:
    """Add the problem of each row, and put the run's key in place of its run_id."""
    is_op = columns is OP_COLUMNS
    required = [column.name for column in columns if (column.name in _EACH_OP_ROW if is_op else column.required)]
    checks = [F.when(F.col(name).isNull(), f"{name} is missing") for name in required]
    checks += [
        F.when(
            F.col(column.name).isNotNull() & ~F.col(column.name).isin(*column.values),
            F.concat(F.lit(f"{column.name} has the unknown value '"), F.col(column.name), F.lit("'")),
        )
        for column in columns
        if column.values
    ]
    times = ("start_ns", "end_ns", "expires_ns") if is_op else ("t_ns", "uncertainty_ns")
    checks += [F.when(F.col(name) < 0, f"{name} is negative") for name in times]
    checks += [F.when(F.col(name) > _LATEST_NS, f"{name} is later than any run") for name in times]
    if is_op:
        checks.append(F.when(F.col("end_ns") < F.col("start_ns"), "end_ns is before start_ns"))
    else:
        kinds = {"role": ROLES, "pool": POOL_VALUES, "phase": PHASE_VALUES}
        checks += [
            F.when(
                (F.col("kind") == kind) & ~F.coalesce(F.col("value").isin(*values), F.lit(False)),
                F.concat(
                    F.lit(f"value of a {kind} event is '"), F.coalesce("value", F.lit("null")), F.lit("', unknown")
                ),
            )
            for kind, values in kinds.items()
        ]
    checks.append(
        F.when(
            F.col("run_id") != F.col("_id"),
            F.concat(F.lit("run_id is '"), F.col("run_id"), F.lit("', but run.json's is '"), F.col("_id"), F.lit("'")),
        )
    )
    found = rows.withColumn("_problem", F.coalesce(problem, *checks))
    bad = F.col("_problem").isNotNull()
    return found.select(
        F.col("_key").alias("run_id"),
        *(column.name for column in columns if column.name != "run_id"),
        "_src",
        "_text",
        "_problem",
        F.when(bad, F.col("_src")).alias("_file"),
        F.when(bad, F.col("_text")).alias("_raw"),
        F.when(bad, F.monotonically_increasing_id()).alias("_line"),
    )


def _union(spark: SparkSession, frames: Sequence[DataFrame], columns: Sequence[Field]) -> DataFrame:
    if frames:
        return gather(reduce(DataFrame.unionByName, frames), 2 if columns is OP_COLUMNS else 1)
    extra = "_src string, _text string, _problem string, _file string, _raw string, _line bigint"
    return spark.createDataFrame([], f"{spark_schema(columns)}, {extra}")
