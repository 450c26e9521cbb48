"""A real Artemis on loopback, from the same archive that the roles deploy."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from brokerdrill.base import java, paths
from tests.free_ports import free_port
from tests.unpacking import unpack as unpack_archive

VERSION = "2.56.0"
ARCHIVE = f"apache-artemis-{VERSION}-bin.tar.gz"
COORDINATE = f"org.apache.artemis:apache-artemis:{VERSION}:tar.gz:bin"
USER = "drill"
QUEUES = ("drill.q0", "drill.q1")
# What a JVM of a test does is soon compiled well enough.
SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
JAVA_ARGS = f"-Xms64m -Xmx256m {SHORT_LIVED} -XX:-UsePerfData -Dlog4j2.disableJmx=true -Dartemis.discovery.enabled=true"
# What the broker's own profile would add for its console.
CONSOLE_ARGS = (
    "-Dhawtio.realm=activemq -Dhawtio.roles=amq -Djolokia.policyLocation=classpath:jolokia-access.xml "
    "-Dhawtio.rolePrincipalClasses=org.apache.activemq.artemis.spi.core.security.jaas.RolePrincipal"
)
START_DEADLINE_S = 90


def archive() -> Path:
    """The distribution that ARTEMIS_ARCHIVE names, for another version; else the one in the controller's cache, where
    Maven puts it if it is not there yet."""
    if given := os.environ.get("ARTEMIS_ARCHIVE"):
        return Path(given)
    for folder in ("archives", "downloads"):
        path = paths.cache() / folder / ARCHIVE
        if path.is_file():
            return path
    folder_path = paths.cache() / "downloads"
    subprocess.run(
        ["mvn", "-q", "dependency:copy", f"-Dartifact={COORDINATE}", f"-DoutputDirectory={folder_path}"], check=True
    )
    return folder_path / ARCHIVE


def unpack(into: Path) -> Path:
    """Unpack the distribution into the folder `into`, which holds nothing yet, and return its home."""
    into.mkdir(parents=True, exist_ok=True)
    unpack_archive(archive(), into)
    (home,) = into.iterdir()
    return home


class Broker:
    """One broker instance in `directory`, made at once, started by `start`.

    `acceptor_options` are as in an acceptor's URL. With `anonymous`, clients need no account: for the broker's own
    tools, which take a password only where every user of the machine can read it. With `console`, its management
    answers at `console_url`.
    """

    def __init__(
        self,
        home: Path,
        directory: Path,
        queues: Sequence[str],
        acceptor_options: str = "",
        *,
        anonymous: bool = False,
        console: bool = False,
        java_args: str = JAVA_ARGS,
    ) -> None:
        self.home = home
        self.directory = directory
        self.port = free_port()
        self.password = secrets.token_urlsafe(12)
        self.log = directory.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None
        self._environment = {**os.environ, "JAVA_HOME": str(java.home()), "JAVA_ARGS": java_args}
        if console:
            self._environment["JAVA_ARGS"] += f" {CONSOLE_ARGS}"
        self.name = directory.name
        self._started = b"AMQ241002" if console else b"AMQ221007"
        console_port = free_port()
        self.console_url = f"http://127.0.0.1:{console_port}/console/jolokia/"
        web = ["--http-host", "127.0.0.1", "--http-port", str(console_port)] if console else ["--no-web"]
        options = ["--no-autotune", "--nio", "--silent", *web, "--host", "127.0.0.1", "--name", self.name]
        protocols = [f"--no-{name}-acceptor" for name in ("amqp", "hornetq", "mqtt", "stomp")]
        place = ["--default-port", str(self.port), "--queues", ",".join(queues)]
        account = ["--user", USER, "--password", "replaced", "--allow-anonymous" if anonymous else "--require-login"]
        subprocess.run(
            [home / "bin" / "artemis", "create", directory, *options, *protocols, *place, *account],
            check=True,
            env=self._environment,
            stdout=subprocess.DEVNULL,
        )
        (directory / "etc" / "artemis-users.properties").write_text(f"{USER} = {self.password}\n")
        if acceptor_options:
            file = directory / "etc" / "broker.xml"
            text = file.read_text()
            uri = f"tcp://127.0.0.1:{self.port}?"
            assert uri in text
            file.write_text(text.replace(uri, f"{uri}{acceptor_options};"))

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def start(self) -> None:
        """Start and wait until active (AMQ221007 in its log), or until its console answers (AMQ241002)."""
        self.launch()
        self.says(self._started)

    def launch(self) -> None:
        """Start, and wait for nothing."""
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [self.directory / "bin" / "artemis", "run"],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )

    def says(self, what: bytes, deadline_s: float = START_DEADLINE_S) -> None:
        """Wait until it stands in the log of what was started last."""
        end = time.monotonic() + deadline_s
        while what not in self.log.read_bytes():
            assert self.running(), self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.05)

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stopped(self) -> bool:
        """Whether a test has left it stopped by SIGSTOP."""
        return self.running() and "\nState:\tT" in Path(f"/proc/{self.pid}/status").read_text()

    def kill(self) -> None:
        """SIGKILL, also while stopped, and wait."""
        if self._process:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def stop(self) -> None:
        """Stop in an orderly way, and wait until it is gone."""
        if self._process:
            self._process.terminate()
            self._process.wait(START_DEADLINE_S)
            self._process = None

    def artemis(self, *arguments: str) -> str:
        """Run a command of the broker's own tool that dials an `anonymous` broker; return its output."""
        done = subprocess.run(
            [self.directory / "bin" / "artemis", *arguments, "--url", self.url],
            env={**self._environment, "JAVA_ARGS": f"-Xmx256m {SHORT_LIVED} -Dlog4j2.disableJmx=true"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout


class Relay:
    """A TCP relay to ports on loopback, one after the other, that can hold back what the brokers say, cut its
    connections, and let new ones wait."""

    def __init__(self, *ports: int) -> None:
        self._targets = itertools.cycle(ports)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open = threading.Event()
        self._open.set()
        self._admits = threading.Event()
        self._admits.set()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._admits.wait()
                try:
                    far = socket.create_connection(("127.0.0.1", next(self._targets)))
                except OSError:
                    near.close()
                    continue
                self._pairs.append((near, far))
                for source, sink, held in ((near, far, False), (far, near, True)):
                    threading.Thread(target=self._pump, args=(source, sink, held), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, held: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if held:
                    self._open.wait()
                else:
                    self._to_broker(data)
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _to_broker(self, data: bytes) -> None:
        """Called with what a client sends, before the broker has it."""

    def hold(self) -> None:
        """Let no reply through from now on."""
        self._open.clear()

    def cut(self) -> None:
        """Close all connections, the replies held back included, and let new ones work."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for one in pair:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        self._open.set()

    def restart(self, broker: Broker) -> None:
        """Kill the broker and start it; who connects meanwhile waits until it is active. Asked while it starts, it may
        never answer, and the client's reconnection waits as long as a call may take (seen on a busy machine)."""
        self._admits.clear()
        try:
            broker.kill()
            broker.start()
        finally:
            self._admits.set()

    def close(self) -> None:
        self._listener.close()
        self.cut()
