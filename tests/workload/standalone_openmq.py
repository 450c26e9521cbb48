"""Real Open MQ brokers of this machine, from the role's archive: one alone, or a conventional cluster."""

from __future__ import annotations

import hashlib
import re
import signal
import socket
import subprocess
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from brokerdrill.base import java, paths
from tests.free_ports import free_port
from tests.pausing import pause
from tests.roles.test_plugins import cached

VERSION = "6.5.1"
ARCHIVE = {
    "coordinate": f"org.glassfish.mq:mq-distribution:{VERSION}:zip",
    "sha256": "ad040a8b84e694e0ddabd12b9698ea0e5807be16c74a0c99143aa3f16678f446",
}
START_DEADLINE_S = 120
USER, PASSWORD = "drill", "a password of this test"
ADMIN = "admin"
ACCESS = """version=JMQFileAccessControlModel/100
connection.NORMAL.allow.user=*
connection.ADMIN.allow.group=admin
queue.*.produce.allow.user=*
queue.*.consume.allow.user=*
queue.*.browse.allow.user=*
queue.create.allow.user=*
topic.*.produce.allow.user=*
topic.*.consume.allow.user=*
topic.create.allow.user=*
"""


def unpack(into: Path) -> Path:
    """Unpack the distribution and return its home."""
    kept = cached.keep(paths.cache() / "archives", f"mq-distribution-{VERSION}.zip", "maven", [ARCHIVE])
    with zipfile.ZipFile(kept["path"]) as content:
        content.extractall(into)
    return into / "mq"


def own_address() -> str:
    """Return an address of this machine that is not on loopback, which clusters of Open MQ refuse."""
    shown = subprocess.run(["hostname", "-I"], check=True, capture_output=True, text=True).stdout
    return next(address for address in shown.split() if "." in address)


def hashed(user: str) -> str:
    """The product's own form of a password: a signed number in hexadecimal digits."""
    digest = hashlib.md5(f"{user}:{PASSWORD}".encode(), usedforsecurity=False).digest()
    return format(int.from_bytes(digest, "big", signed=True), "x")


class OpenMq:
    """One broker with its data in `directory`; made at once, started by `start`. `properties`: the broker's own, and
    they win. `jars`: the folder of what it needs beside the distribution."""

    def __init__(
        self,
        home: Path,
        directory: Path,
        name: str = "m1",
        address: str = "127.0.0.1",
        properties: Mapping[str, object] | None = None,
        jars: Path | None = None,
    ) -> None:
        self.home = home
        self.name = name
        self.address = address
        self.port = free_port()
        self._admin_port = free_port()
        self._directory = directory
        self.log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir()
        (directory / "passwd").write_text(f"{USER}:{hashed(USER)}:user:1\n{ADMIN}:{hashed(ADMIN)}:admin:1\n")
        (directory / "accesscontrol.properties").write_text(ACCESS)
        (directory / "passfile").write_text(f"imq.imqcmd.password={PASSWORD}\n")
        (directory / "passfile").chmod(0o600)
        found = {
            "imq.hostname": address,
            "imq.portmapper.port": free_port(),
            "imq.service.activelist": "jms,admin",
            "imq.jms.tcp.port": self.port,
            "imq.admin.tcp.port": self._admin_port,
            "imq.user_repository.file.dirpath": directory,
            "imq.user_repository.file.filename": "passwd",
            "imq.accesscontrol.file.dirpath": directory,
            "imq.accesscontrol.file.filename": "accesscontrol.properties",
            "imq.jmx.connector.activelist": "",
            "imq.log.file.output": "NONE",
            "imq.log.console.output": "ALL",
            **(properties or {}),
        }
        more = [f"{jars}/*"] if jars else []
        self._mapper = f"{address}:{found['imq.portmapper.port']}"
        places = {"home": home, "varhome": directory, "etchome": home / "etc", "libhome": home / "lib"}
        self._java = [
            f"{java.home()}/bin/java",
            *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"),
            *(f"-Dimq.{place}={path}" for place, path in places.items()),
        ]
        self._command = [
            *self._java,
            *("-Xmx192m", "-cp", ":".join((f"{home}/lib/imqbroker.jar", f"{home}/lib/imqutil.jar", *more))),
            *("com.sun.messaging.jmq.jmsserver.Broker", "-varhome", str(directory), "-name", name),
            *(f"-D{key}={value}" for key, value in found.items()),
        ]

    def start(self) -> None:
        """Start and wait until it serves."""
        self.begin()
        self.until_it_serves()

    def begin(self) -> None:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)

    def until(self, said: str) -> None:
        """Wait until its log, since it was started, has `said`."""
        end = time.monotonic() + START_DEADLINE_S
        while said.encode() not in self.log.read_bytes():
            assert self._process is not None and self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.05)

    def until_it_serves(self) -> None:
        """Wait until its log says that it is ready, and it lets clients in: not while it waits for its master."""
        self.until("[B1039]")
        end = time.monotonic() + START_DEADLINE_S
        while True:
            try:
                socket.create_connection((self.address, self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < end, self.log.read_text()
                time.sleep(0.05)

    def until_linked(self, others: int) -> None:
        """Wait until it is linked to so many others: two that start at once may drop their link, and make it anew."""
        end = time.monotonic() + START_DEADLINE_S
        while True:
            said = re.findall(r"\[(B1071|B1072)\]: .*instName=(\w+)", self.log.read_text())
            if sum(code == "B1071" for code in {name: code for code, name in said}.values()) >= others:
                return
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.05)

    def lost_links(self) -> int:
        """Return how often it has lost a link to another one (B1072), since it was started."""
        return self.log.read_text().count("[B1072]")

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def at(self, said: str) -> float | None:
        """Return when its log had `said` first since it was started, as Unix time in s; None where it has not."""
        stamp = None
        for line in self.log.read_text().splitlines():
            if found := re.match(r"\[#\|([^|]+)\|", line):
                stamp = found.group(1)
            if said in line:
                assert stamp, line
                return datetime.fromisoformat(stamp).timestamp()
        return None

    def pause(self) -> None:
        """SIGSTOP, which is over once every thread stands still."""
        pause(self.pid)

    def resume(self) -> None:
        assert self._process
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def command(self, words: str) -> str:
        """Return what the product's imqcmd says. Raises CalledProcessError where it is refused."""
        own = ["-f", "-b", self._mapper, "-u", ADMIN, "-passfile", str(self._directory / "passfile")]
        jar = ["-cp", f"{self.home}/lib/imqadmin.jar", "com.sun.messaging.jmq.admin.apps.broker.BrokerCmd"]
        return subprocess.run(
            [*self._java, *jar, *own, *words.split()], check=True, capture_output=True, text=True, timeout=60
        ).stdout

    def destinations(self, options: str = "") -> set[str]:
        """Return the names of the destinations that it knows."""
        lines = self.command(f"list dst {options}").splitlines()
        return {line.split()[0] for line in lines if re.search(r"\s(Queue|Topic)\s", line)}

    def sent_bytes(self) -> int:
        """Return how many bytes its connections that are open have sent so far."""
        assert self._process
        shown = subprocess.run(["ss", "-Htinp"], check=True, capture_output=True, text=True).stdout
        own = re.findall(rf"pid={self._process.pid},.*\n(.*)", shown)
        return sum(int(found.group(1)) for line in own if (found := re.search(r"bytes_sent:(\d+)", line)))


@contextmanager
def cluster(
    home: Path, folder: Path, names: Sequence[str], properties: Mapping[str, object]
) -> Iterator[dict[str, OpenMq]]:
    """A conventional cluster whose first broker is the master; all are started, and linked."""
    address = own_address()
    mappers = {name: free_port() for name in names}
    own = {
        "imq.cluster.brokerlist": ",".join(f"mq://{address}:{port}" for port in mappers.values()),
        "imq.cluster.masterbroker": f"mq://{address}:{mappers[names[0]]}",
        **properties,
    }
    made = {
        name: OpenMq(home, folder / name, name, address, {**own, "imq.portmapper.port": mappers[name]})
        for name in names
    }
    try:
        for one in made.values():
            one.begin()
        for one in made.values():
            one.until_it_serves()
            one.until_linked(len(names) - 1)
        yield made
    finally:
        for one in made.values():
            one.kill()


@contextmanager
def enhanced(
    home: Path, folder: Path, names: Sequence[str], url: str, user: str, jars: Path, properties: Mapping[str, object]
) -> Iterator[dict[str, OpenMq]]:
    """An enhanced cluster with its store in the PostgreSQL at `url`, for whose driver see `jars`; all are started, and
    linked."""
    address = own_address()
    own = {
        "imq.cluster.ha": "true",
        "imq.cluster.clusterid": "test",
        "imq.persist.store": "jdbc",
        # Whoever is first makes the tables.
        "imq.persist.storecreate.all": "true",
        "imq.persist.jdbc.dbVendor": "postgresql",
        "imq.persist.jdbc.postgresql.user": user,
        "imq.persist.jdbc.postgresql.needpassword": "false",
        "imq.persist.jdbc.postgresql.opendburl": url,
        **properties,
    }
    made = {
        name: OpenMq(home, folder / name, name, address, {**own, "imq.brokerid": name}, jars=jars) for name in names
    }
    try:
        for one in made.values():
            one.start()
        for one in made.values():
            one.until_linked(len(names) - 1)
        yield made
    finally:
        for one in made.values():
            one.kill()
