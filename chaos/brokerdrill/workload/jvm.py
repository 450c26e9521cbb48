"""The Java virtual machine of a worker process, under JPype: its options, its classes, what it says of an error."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jpype

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.workload.config import WorkerConfig

# A heap that has at once what the clients' working set needs does not grow with each reconnection, as one of 32 MiB did
# for half an hour. WorkerConfig.jvm_options come after and win.
JVM_OPTIONS = (
    "-Xms64m",
    "-Xmx128m",
    "-XX:+AlwaysPreTouch",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xrs",  # signals are the worker's
    "-XX:+ErrorFileToStderr",  # the runner keeps it: a file would stay on the load host
)
# The first compiler alone costs a third less of the processor at a drill's rates. Whoever sends as fast as the replies
# come is past that after seconds, and has a fifth more of both compilers.
KEEPS_A_RATE = ("-XX:TieredStopAtLevel=1",)
# JPype 1.7.1 shows a Java class to all threads before it has the class's conversions, and a thread that converts to it
# in between ends the process. Nothing in between lets go of the interpreter, so that only a forced switch can come
# there; without any the threads still take turns, at each call into Java.
SWITCH_INTERVAL_S = 60.0


def class_path(jars: Path, wanted: Sequence[str]) -> list[str]:
    """Return the directory's jars whose names begin as `wanted`. Raises InfrastructureError when one is missing."""
    found = sorted(str(path) for path in jars.glob("*.jar") if path.name.startswith(tuple(wanted)))
    missing = [name for name in wanted if not any(Path(path).name.startswith(name) for path in found)]
    if missing:
        raise InfrastructureError(f"{jars} lacks the client's jars {', '.join(name + '*.jar' for name in missing)}")
    return found


def jvm_options(config: WorkerConfig, own: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the options of the process's JVM; `own` are the client's."""
    as_fast_as_it_can = config.rate is None and bool(config.producers)
    return (*JVM_OPTIONS, *(() if as_fast_as_it_can else KEEPS_A_RATE), *own, *config.jvm_options)


def start(paths: Sequence[str], options: Sequence[str]) -> None:
    """Start the process's JVM with the jars at `paths`; raises InfrastructureError."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        jpype.startJVM(*options, classpath=list(paths), convertStrings=False)
    except (OSError, RuntimeError, jpype.JVMNotFoundException) as error:
        raise InfrastructureError(f"no Java virtual machine starts: {first_line(str(error))}") from None


def stacks() -> dict[str, list[str]]:
    """Return the calls of each thread that Java knows, innermost first, by the thread's name."""
    threads = jpype.JClass("java.lang.Thread").getAllStackTraces().entrySet()
    return {str(one.getKey().getName()): [_described_call(call) for call in one.getValue()] for one in threads}


def first_line(text: str) -> str:
    """Return the first line of a text, which may have none."""
    return text.splitlines()[0] if text else ""


def described(error: Any) -> str:
    """Return "class: first line of its message" of a Java throwable."""
    return f"{error.getClass().getSimpleName()}: {first_line(str(error.getMessage()))}"


def _described_call(call: Any) -> str:
    """Return "class.method:line" of an element of a Java stack."""
    return f"{call.getClassName()}.{call.getMethodName()}:{call.getLineNumber()}"


def trust_managers(ca_path: str) -> Any:
    """Return Java's trust managers for the PEM file at `ca_path`."""
    store = jpype.JClass("java.security.KeyStore").getInstance("PKCS12")
    store.load(None, None)
    files = jpype.JClass("java.nio.file.Files")
    stream = files.newInputStream(jpype.JClass("java.nio.file.Path").of(ca_path))
    try:
        for number, one in enumerate(
            jpype.JClass("java.security.cert.CertificateFactory").getInstance("X.509").generateCertificates(stream)
        ):
            store.setCertificateEntry(f"ca-{number}", one)
    finally:
        stream.close()
    kind = jpype.JClass("javax.net.ssl.TrustManagerFactory")
    factory = kind.getInstance(kind.getDefaultAlgorithm())
    factory.init(store)
    return factory.getTrustManagers()


def tls_context(ca_path: str) -> Any:
    """Return Java's TLS context that trusts the PEM file at `ca_path`."""
    context = jpype.JClass("javax.net.ssl.SSLContext").getInstance("TLS")
    context.init(None, trust_managers(ca_path), None)
    return context
