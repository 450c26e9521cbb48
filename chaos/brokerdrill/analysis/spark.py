"""The Spark session of the analysis: local by default, a cluster's where a master is named."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from brokerdrill.analysis import class_archive
from brokerdrill.errors import InfrastructureError

DEFAULT_MASTER = "local[2]"
DRIVER_MEMORY = "2g"
# Up to this size of all files a run is judged sooner with a simple compiler and without generated code.
SMALL_BYTES = 24 << 20
# Up to this size code is not generated: compiling it takes longer than the rows do.
INTERPRETED_BYTES = 128 << 20
# From this size on, narrow passes first prove most messages plain (`large`). They have a high fixed cost: at 10⁶
# operations (35 MiB) they and the whole way took the same (73 and 75 s on two cores).
LARGE_BYTES = 64 << 20
# Compressed or not, this much of a ledger makes a partition that fits a task's memory.
PARTITION_BYTES = 32 << 20
MIN_PARTITIONS, MOST_PARTITIONS = 2, 512
# Up to so many rows are copied to every task; more are shuffled with what they are joined with.
MOST_COPIED = 500_000
# With the usual sizes a small run's JVM collects garbage 35 times, once in full for its classes alone.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms768m -Xmn512m -XX:MetaspaceSize=256m"
_STEADY = "-XX:+UseParallelGC"

_LOG4J = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


def session(master: str | None = None, ledger_bytes: int | None = None) -> SparkSession:
    """Return the running Spark session, or start one on `master` (default: two local cores, 2 GiB, no UI, quiet), set
    up for ledgers of `ledger_bytes` in all (None: not known, taken as large).

    Raises InfrastructureError where the JVM does not start.
    """
    small = ledger_bytes is not None and ledger_bytes <= SMALL_BYTES
    local = (master or DEFAULT_MASTER).startswith("local")
    spark = SparkSession.getActiveSession() or _start(master or DEFAULT_MASTER, local, small)
    if local or ledger_bytes is not None:
        enough = max(MIN_PARTITIONS, min(MOST_PARTITIONS, (ledger_bytes or 0) // PARTITION_BYTES))
        partitions = 1 if small and local else enough
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    # A small ledger takes less time to go through than the code to be generated for it.
    interpreted = ledger_bytes is not None and ledger_bytes <= INTERPRETED_BYTES
    spark.conf.set("spark.sql.codegen.wholeStage", str(not interpreted).lower())
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN" if interpreted else "FALLBACK")
    return spark


def _start(master: str, local: bool, small: bool) -> SparkSession:
    scratch = Path(tempfile.mkdtemp(prefix="brokerdrill-spark-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J, encoding="utf-8")
    java_words = f"{_QUICK} {class_archive.options(os.environ.get('JAVA_HOME'))}" if small else _STEADY
    builder = (
        SparkSession.builder.appName("brokerdrill")
        .master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", DRIVER_MEMORY)
        .config(
            "spark.driver.extraJavaOptions",
            f"-Dlog4j2.configurationFile={log4j.as_uri()} {java_words}",
        )
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", (scratch / "warehouse").as_uri())
        .config("spark.sql.ansi.enabled", "true")
        # Telling the JVM which line of Python made a column takes as many calls as making it.
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        # What is kept is compressed as a whole; trying out a code for each of its columns takes longer than it saves.
        .config("spark.rdd.compress", "true")
        .config("spark.sql.inMemoryColumnarStorage.compressed", "false")
        # Each hashed table takes a whole page, of tens of MiB by default, and a plan here copies dozens of small ones.
        .config("spark.buffer.pageSize", "2m")
    )
    if local:
        builder = (
            builder.config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.local.dir", str(scratch))
            .config("spark.default.parallelism", "1" if small else "2")
            .config("spark.sql.files.minPartitionNum", "2")
            # Adaptive stages cost a small ledger more than they save: many stages of a few rows each.
            .config("spark.sql.adaptive.enabled", "false")
        )
    try:
        with _quiet_stderr(scratch / "jvm.log"):
            return builder.getOrCreate()
    except Exception as error:  # the gateway raises bare RuntimeError or Py4J errors
        raise InfrastructureError(
            f"Spark did not start: {str(error).splitlines()[0]} (is Java 17 installed?)"
        ) from error


class _quiet_stderr:
    """Send the starting JVM's banner lines to `log`; the JVM keeps that file as its stderr."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def __enter__(self) -> None:
        self.saved = os.dup(2)
        handle = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(handle, 2)
        os.close(handle)

    def __exit__(self, *_: object) -> None:
        os.dup2(self.saved, 2)
        os.close(self.saved)


def stop() -> None:
    """Stop the running session, if there is one."""
    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()


def cut(frame: DataFrame, where: StorageLevel = StorageLevel.MEMORY_AND_DISK) -> DataFrame:
    """Return `frame` as a new leaf: computed once, when first needed, kept in memory and on disk where that is short.

    The promises share a dozen frames; with the whole plan under each of them the optimizer takes minutes.
    """
    return frame.localCheckpoint(eager=False, storageLevel=where)


def keep(frame: DataFrame) -> DataFrame:
    """Return `frame`, stored by columns on the executors' disks when it is first computed; a lost part is computed
    again. Spark does not find it again where it is joined with what it was made of: `cut` such a frame."""
    return frame.persist(StorageLevel.DISK_ONLY)


def few(rows: DataFrame, count: int) -> DataFrame:
    """Return `rows`, to be copied to every task where the `count` of them is small, else to be hashed."""
    return F.broadcast(rows) if count <= MOST_COPIED else rows.hint("shuffle_hash")


def is_small(spark: SparkSession) -> bool:
    """Whether the session is set up for a small ledger."""
    return spark.conf.get("spark.sql.shuffle.partitions") == "1"


def is_large(ledger_bytes: int | None) -> bool:
    """Whether a ledger of so many bytes (None: not known) goes the way of large ones."""
    return ledger_bytes is None or ledger_bytes > LARGE_BYTES


def gather(frame: DataFrame, most: int = 1) -> DataFrame:
    """Return `frame` in at most `most` partitions where the session is set up for a small ledger: one spares it most
    exchanges, two are read by both cores."""
    return frame.coalesce(most) if is_small(frame.sparkSession) else frame
