"""Threads that use the same Java classes for the first time at the same moment: a program for tests.

The JVM is started as a JMS worker starts it; until then threads are switched as often as can be.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import Any

import jpype

from brokerdrill.workload.config import ClientAccount, WorkerConfig
from brokerdrill.workload.jms import JmsClient

THREADS = 4
ARGUMENTS: tuple[tuple[Any, ...], ...] = ((), ("a",), (1,), ("a", 1), (1, 2))
# Of many methods whose parameters are of many classes.
CLASSES = [
    "java.nio.file.Files",
    "java.util.Arrays",
    "java.util.Collections",
    "java.util.stream.Collectors",
    "java.util.stream.Stream",
    "java.time.LocalDateTime",
    "java.time.ZonedDateTime",
    "java.time.format.DateTimeFormatter",
    "java.nio.channels.Channels",
    "java.nio.channels.FileChannel",
    "java.net.URL",
    "java.net.Socket",
    "java.lang.Thread",
    "java.lang.ClassLoader",
    "java.lang.Class",
    "java.util.concurrent.CompletableFuture",
    "java.util.concurrent.Executors",
    "java.security.KeyStore",
    "java.util.Locale",
    "javax.net.ssl.SSLContext",
    "java.util.logging.Logger",
    "java.text.NumberFormat",
    "java.util.Optional",
    "java.util.Scanner",
    "java.lang.invoke.MethodHandles",
    "java.lang.ProcessBuilder",
    "java.lang.Module",
    "java.util.ResourceBundle",
    "java.util.TimeZone",
    "java.util.concurrent.ForkJoinPool",
    "java.util.concurrent.ThreadPoolExecutor",
    "java.util.zip.ZipFile",
]


class Bare(JmsClient):
    """A client without a broker."""

    protocol, jars = "bare", ()


def matched(made: Any, names: list[str], together: threading.Barrier) -> None:
    """Have each method look for the overload that takes each of ARGUMENTS, at the same moment as the other threads."""
    for name in names:
        method = getattr(made, name)
        together.wait()
        for arguments in ARGUMENTS:
            with contextlib.suppress(Exception):
                method.matchReport(*arguments)


def main(jars: str) -> None:
    sys.setswitchinterval(1e-6)
    Bare.start_process(WorkerConfig("r", "w", "w", "bare", (), ClientAccount("", ""), ("q",), jars=jars))
    for name in CLASSES:
        made = jpype.JClass(name)
        names = [name for name in dir(made) if isinstance(getattr(made, name, None), jpype.JMethod)]
        work = (made, names, threading.Barrier(THREADS))
        threads = [threading.Thread(target=matched, args=work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(name, len(names))


if __name__ == "__main__":
    main(sys.argv[1])
