"""The Spark session of the analysis: local by default, a cluster's where a master is named."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from brokerdrill.analysis import class_archive
from brokerdrill.base.errors import BrokerdrillError, InfrastructureError

DEFAULT_MASTER = "local[2]"
DRIVER_MEMORY = "2g"
# What Spark hands to a task at a time: rows, or parcels, which may be large.
BATCH_ROWS = 20_000
BATCH_BYTES = 16 << 20
# The stages' rows are with the tasks' DuckDB: what a JVM does is soon compiled well enough.
JVM_OF_LITTLE_WORK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# With the usual sizes a small run's JVM collects garbage 35 times, once in full for its classes alone.
_JVM = f"{JVM_OF_LITTLE_WORK} -Xms512m -Xmn256m -XX:MetaspaceSize=256m"

_LOG4J = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


# What a JVM that was asked to end may still take for that on a busy machine, after it has refused its last call; and
# how long it is looked at where it may have nothing to do with an error.
_ENDS_WITHIN_S = 30.0
_LOOKED_AT_S = 2.0

# Held while a session starts or ends: one that warms up in a thread of its own is everyone's.
_changing = threading.RLock()
_running: list[SparkSession] = []
_scratch: list[Path] = []


def session(master: str | None = None) -> SparkSession:
    """Return the running Spark session, or start one on `master` (default: two local cores, 2 GiB, no UI, quiet).

    Raises InfrastructureError where the JVM does not start.
    """
    with _changing:
        if _running and ended() is not None:
            _forget()
        if not _running:
            _running.append(_start(master or DEFAULT_MASTER))
        return _running[0]


@contextlib.contextmanager
def using(master: str | None = None) -> Iterator[SparkSession]:
    """Give `session(master)`. Raises InfrastructureError, in place of what the libraries then say, where its JVM ends
    before the caller is done; the next one to ask gets another."""
    given = session(master)
    try:
        yield given
    except BrokerdrillError:
        raise
    except Exception as error:
        of_java = type(error).__module__.startswith(("py4j", "pyspark")) or isinstance(error, (OSError, EOFError))
        if stopped() or (how := ended(_ENDS_WITHIN_S if of_java else _LOOKED_AT_S)) is None:
            raise
        raise InfrastructureError(f"Spark's Java virtual machine ended during the work: {how}") from error


def stopped() -> bool:
    """Whether the session was asked to stop: what it then does not answer was not wanted any more."""
    return not _running


def ended(timeout_s: float = 0) -> str | None:
    """Return how the JVM ended, None if it lives. Waits for its end at most that long."""
    process = getattr(SparkContext._gateway, "proc", None)
    try:
        status = None if process is None else process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    if status is None:
        return None
    # Java reports a signal as a shell does, where it could end in order.
    number = -status if status < 0 else status - 128
    try:
        return f"it was ended by {signal.Signals(number).name}"
    except ValueError:
        return f"its exit status was {status}"


def _forget() -> None:
    """Let a session whose JVM is gone be the last of its kind: the library has one JVM a process, and keeps it."""
    _running.clear()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def _not_py4j(record: logging.LogRecord) -> bool:
    """Whether it is not what Py4J writes to the root logger, with stacks, of each call that fails."""
    return record.module not in ("clientserver", "java_gateway")


def _start(master: str) -> SparkSession:
    logging.getLogger().addFilter(_not_py4j)
    scratch = Path(tempfile.mkdtemp(prefix="brokerdrill-spark-"))
    _scratch.append(scratch)
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J, encoding="utf-8")
    java_words = f"{_JVM} {class_archive.options(os.environ.get('JAVA_HOME'))}"
    settings = {
        "spark.app.name": "brokerdrill",
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.maxResultSize": "1g",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()} {java_words}",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.sql.ansi.enabled": "true",
        # To send the JVM the line of Python that made a column takes as many calls as making it.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # The partitions of the stages are chosen, not adapted.
        "spark.sql.adaptive.enabled": "false",
        # A parcel is compressed already.
        "spark.shuffle.compress": "false",
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
        "spark.sql.execution.arrow.maxBytesPerBatch": str(BATCH_BYTES),
    }
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings |= {
            "spark.python.daemon.module": "brokerdrill.analysis.daemon",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(scratch),
        }
    conf = SparkConf().setAll(list(settings.items()))
    try:
        # The banner of a JVM that starts, and what it says later, are not for the user's terminal.
        with (scratch / "jvm.log").open("ab") as log:
            gateway = launch_gateway(conf, {"stderr": log})
        context = SparkContext(conf=conf, gateway=gateway)
        # It would show a stack when the JVM is gone.
        context._accumulatorServer.handle_error = lambda *_: None
        return SparkSession(context)
    except Exception as error:  # the gateway raises bare RuntimeError or Py4J errors
        raise InfrastructureError(f"Spark did not start: {why(str(error))}") from error


def why(message: str) -> str:
    """Return the line of an error of Spark that says most: of one with Java's stack its last cause."""
    lines = message.splitlines() or [""]
    causes = [line.partition(": ")[2] for line in lines if line.startswith(("Caused by: ", ": "))]
    return causes[-1] if causes else f"{lines[0]} (is Java 17 installed?)"


@atexit.register
def stop() -> None:
    """Stop the running session, if there is one, whatever it is doing, and remove its files."""
    with _changing:
        while _running:
            # A JVM that is gone cannot be called.
            with contextlib.suppress(OSError, Py4JError):
                _running.pop().stop()
        while _scratch:
            shutil.rmtree(_scratch.pop(), ignore_errors=True)
