"""Real ActiveMQ Classic brokers of this machine, from the role's archive: one alone, or several with one store."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from brokerdrill.base import java, paths
from brokerdrill.workload.config import BrokerEndpoint, ClientAccount, WorkerConfig
from brokerdrill.workload.stomp import Frame, StompConnection
from tests import unpacking
from tests.free_ports import free_port
from tests.roles.conftest import ROOT, load
from tests.roles.test_plugins import cached
from tests.workload.standalone_broker import SHORT_LIVED

ROLE = ROOT / "roles" / "activemq_classic"
ARCHIVE = load(ROLE / "vars" / "main" / "archive.yml")["__activemq_classic_archives"]["5.18.3"]
DEADLINE_S = 180
# No message for so long: there is none.
IDLE_S = 10.0
# The folder of the broker's own stands for {data}.
KAHADB = '<kahaDB directory="{data}/kahadb"/>'
XML = """<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
    http://www.springframework.org/schema/beans/spring-beans.xsd
    http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  {beans}
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="{name}" dataDirectory="{data}" useJmx="false">
    <persistenceAdapter>{store}</persistenceAdapter>
    <transportConnectors>
      <transportConnector name="openwire" uri="tcp://127.0.0.1:{openwire}"/>
      <transportConnector name="stomp" uri="stomp://127.0.0.1:{stomp}"/>
    </transportConnectors>
  </broker>
</beans>
"""
# What a locker does is told at that level.
LOGGING = """appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1} %m%n%ex
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
logger.store.name = org.apache.activemq.store
logger.store.level = DEBUG
logger.broker.name = org.apache.activemq.broker.LockableServiceSupport
logger.broker.level = DEBUG
"""


def unpack(into: Path) -> Path:
    """Unpack the distribution and return its home."""
    kept = cached.keep(paths.cache() / "archives", "apache-activemq-5.18.3-bin.tar.gz", "maven", [ARCHIVE])
    unpacking.unpack(kept["path"], into)
    (found,) = into.iterdir()
    return found


def unpack_drivers(into: Path) -> Path:
    """Unpack what the role puts beside the distribution, PostgreSQL's driver in it; return the folder."""
    more = load(ROLE / "defaults" / "main.yml")["activemq_classic_more_jars"]
    kept = cached.keep(paths.cache() / "archives", "activemq-classic-more-jars.tar", "maven", more)
    unpacking.unpack(kept["path"], into)
    return into


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


class Classic:
    """One broker in `directory`; `ports` by protocol. `store`: the element of its persistence adapter, `beans` what
    stands beside the broker, `jars` the folder of what it needs beside the distribution."""

    def __init__(
        self,
        home: Path,
        directory: Path,
        name: str = "c1",
        *,
        store: str = KAHADB,
        beans: str = "",
        jars: Path | None = None,
    ) -> None:
        self.home = home
        self.name = name
        self.ports = {"openwire": free_port(), "stomp": free_port()}
        self.log = directory / "log"
        self._directory = directory
        self._jars = jars
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir()
        filled = XML.format(data=directory, name=name, beans=beans, store=store.format(data=directory), **self.ports)
        (directory / "activemq.xml").write_text(filled)
        (directory / "log4j2.properties").write_text(LOGGING)

    def start(self) -> None:
        """Start and wait until the connectors listen."""
        self.begin()
        self.until_it_serves()

    def begin(self) -> None:
        where = [f"-Dactivemq.{name}={self._directory}" for name in ("base", "conf", "data")]
        logging = f"-Dlog4j2.configurationFile=file:{self._directory}/log4j2.properties"
        command = [Path(java.home()) / "bin" / "java", "-Xmx192m", *SHORT_LIVED.split(), f"-Dactivemq.home={self.home}"]
        more = ["--extdir", str(self._jars)] if self._jars else []
        program = ["-jar", self.home / "bin" / "activemq.jar", *more, "start"]
        config = f"xbean:file:{self._directory}/activemq.xml"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, *where, logging, *program, config], stdout=log, stderr=subprocess.STDOUT
            )

    def until_it_serves(self) -> None:
        self.until_it(self.serves)

    def serves_in_the_end(self) -> bool:
        """Wait until it serves, or its process has ended by itself."""
        self.until_it(lambda: self.serves() or not self.running(), ended=True)
        return self.running()

    def until(self, pattern: str, times: int = 1) -> None:
        """Wait until its log, since it was started, has so many lines with `pattern`, a regular expression."""
        self.until_it(lambda: len(self.lines(pattern)) >= times)

    def until_ended(self) -> int:
        """Wait until the process has ended by itself; return its status."""
        assert self._process
        return self._process.wait(DEADLINE_S)

    def until_it(self, holds: Callable[[], bool], ended: bool = False) -> None:
        end = time.monotonic() + DEADLINE_S
        while not holds():
            assert ended or self.running(), self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.05)

    def serves(self) -> bool:
        return all(listens(port) for port in self.ports.values())

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def lines(self, pattern: str) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if re.search(pattern, line)]

    def times(self, pattern: str) -> list[float]:
        """Return when its log had these lines, as Unix times in s."""
        return [
            datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S.%f").astimezone().timestamp()
            for line in self.lines(pattern)
        ]

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def _connected(self) -> StompConnection:
        endpoint = BrokerEndpoint("127.0.0.1", self.ports["stomp"], self.name, "h1")
        config = WorkerConfig(
            run_id="classic",
            worker="w0",
            clock="w0",
            client="stomp",
            endpoints=(endpoint,),
            addresses=("q",),
            credentials=ClientAccount("drill", "unchecked"),
            call_timeout_ms=60_000,
        )
        return StompConnection(config, endpoint)

    def send(self, queue: str, texts: Sequence[str]) -> None:
        """Send persistent messages, each of which the broker confirms. Raises ClientError."""
        connection = self._connected()
        try:
            for text in texts:
                headers = {"destination": f"/queue/{queue}", "persistent": "true"}
                connection.confirmed(Frame("SEND", headers, text.encode()))
        finally:
            connection.close()

    def messages(self, queue: str, most: int = 1_000_000) -> Iterator[str]:
        """Take messages of a queue, until none comes for a while; give their texts. Raises ClientError."""
        connection = self._connected()
        try:
            headers = {"destination": f"/queue/{queue}", "id": "0", "ack": "client-individual"}
            connection.confirmed(Frame("SUBSCRIBE", headers))
            while most and (frame := connection.message(IDLE_S)) is not None:
                connection.confirmed(Frame("ACK", {"id": frame.headers["ack"]}))
                most -= 1
                yield frame.body.decode()
        finally:
            connection.close()
