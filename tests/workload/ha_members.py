"""Real Artemis brokers on loopback that are members of one cluster, each with an HA policy of its test's own."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jpype

from tests.free_ports import free_port
from tests.workload.conftest import config_for, start_jvm
from tests.workload.standalone_broker import QUEUES, SHORT_LIVED, Broker

Q = QUEUES[0]
# The first start of several on a busy machine.
DEADLINE_S = 100.0
SMALL = f"-Xms32m -Xmx96m {SHORT_LIVED} -XX:-UsePerfData -Dlog4j2.disableJmx=true"
ACTIVE = b"AMQ221007"
# A member of a cluster with the product's own account is let in nowhere.
ACCOUNT = "<cluster-user>member</cluster-user><cluster-password>not-a-default</cluster-password>"


def connection(name: str, own: str, others: Iterable[str]) -> str:
    """The elements of a cluster connection; `own` and `others` are connectors."""
    known = "".join(f"<connector-ref>{other}</connector-ref>" for other in others)
    return (
        f'<cluster-connection name="{name}"><connector-ref>{own}</connector-ref><retry-interval>100</retry-interval>'
        f"<message-load-balancing>OFF</message-load-balancing><static-connectors>{known}</static-connectors>"
        "</cluster-connection>"
    )


def _named(kind: str, uris: Mapping[str, str]) -> str:
    return "".join(f'<{kind} name="{name}">{uri}</{kind}>' for name, uri in uris.items())


class Members:
    """Brokers by name, each made once; `write` says what one is, `clear` ends all and takes their data away."""

    def __init__(
        self,
        home: Path,
        work: Path,
        names: Sequence[str],
        *,
        console: bool = False,
        java_args: str = SMALL,
        datasync: bool = False,
    ) -> None:
        self.work = work
        self._datasync = str(datasync).lower()
        self.of = {name: Broker(home, work / name, (), console=console, java_args=java_args) for name in names}
        start_jvm(config_for(self.of[names[0]]))

    def __getitem__(self, name: str) -> Broker:
        return self.of[name]

    def clear(self) -> None:
        """End all processes, delete all data, and give all other ports."""
        for one in self.of.values():
            one.kill()
            one.port = free_port()
        shutil.rmtree(self.work / "data", ignore_errors=True)

    def data(self, name: str) -> Path:
        """The folder of what a broker stores, unless it uses another's."""
        return self.work / "data" / name

    def write(
        self,
        name: str,
        policy: str,
        *,
        store: str | None = None,
        connectors: Mapping[str, str] | None = None,
        acceptors: Mapping[str, str] | None = None,
        more: str = "",
        connections: str | None = None,
    ) -> None:
        """Write a broker's file: its ha-policy, or what stands in its place; `store`: the broker whose data it uses;
        connectors and acceptors beside its own, by name their URIs; elements beside; its cluster connections, where it
        has not just one to all others."""
        data = self.data(store or name)
        to_all = {other: one.url for other, one in self.of.items()} | dict(connectors or {})
        own = {"core": f"{self[name].url}?protocols=CORE"} | dict(acceptors or {})
        places = "".join(
            f"<{kind}-directory>{data / kind}</{kind}-directory>"
            for kind in ("journal", "bindings", "paging", "large-messages")
        )
        if connections is None:
            connections = connection("cluster1", name, [other for other in self.of if other != name])
        queues = "".join(
            f'<address name="{queue}"><anycast><queue name="{queue}"/></anycast></address>' for queue in QUEUES
        )
        # The schema has no empty one.
        connected_by = f"<cluster-connections>{connections}</cluster-connections>" if connections else ""
        file = self[name].directory / "etc" / "broker.xml"
        file.write_text(
            f'<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core"><name>{name}</name>'
            f"<security-enabled>false</security-enabled><journal-type>NIO</journal-type>{places}"
            f"<journal-datasync>{self._datasync}</journal-datasync>"
            "<journal-min-files>2</journal-min-files>"
            f"<journal-pool-files>2</journal-pool-files><journal-file-size>1M</journal-file-size>{ACCOUNT}"
            f"<connectors>{_named('connector', to_all)}</connectors><acceptors>{_named('acceptor', own)}</acceptors>"
            f"{connected_by}{policy}{more}"
            f"<addresses>{queues}</addresses></core></configuration>"
        )

    def start(self, *names: str, until: bytes = ACTIVE) -> None:
        """Start brokers at the same time, and wait until each says so."""
        for name in names:
            self[name].launch()
        for name in names:
            self.says(name, until)

    def says(self, name: str, what: bytes) -> None:
        """Wait until it stands in the broker's log since its start."""
        self[name].says(what, DEADLINE_S)

    def said(self, name: str, what: str) -> list[str]:
        """The lines of the broker's log since its start that have that in them."""
        return [line for line in self[name].log.read_text().splitlines() if what in line]


def asked(url: str, resource: str, operation: str) -> str:
    """What the management of an active broker answers to an operation without parameters."""
    management = jpype.JClass("org.apache.activemq.artemis.api.core.management.SimpleManagement")(url, None, None)
    try:
        return str(management.open().simpleManagement(resource, operation))
    finally:
        management.close()


@contextlib.contextmanager
def connected(url: str, kind: str = "ActiveMQConnectionFactory", method: str = "createConnection") -> Iterator[Any]:
    """A connection of the product's own factory, started."""
    factory = jpype.JClass(f"org.apache.activemq.artemis.jms.client.{kind}")(url)
    one = getattr(factory, method)()
    try:
        one.start()
        yield one
    finally:
        with contextlib.suppress(jpype.JException):
            one.close()
        factory.close()


def send(url: str, texts: Iterable[str], queue: str = Q) -> None:
    """Send persistent messages of these texts, in one transaction."""
    with connected(url) as connection:
        session = connection.createSession(True, 0)
        producer = session.createProducer(session.createQueue(queue))
        for text in texts:
            producer.send(session.createTextMessage(text))
        session.commit()


def take(url: str, queue: str = Q, *, count: int | None = None) -> list[str]:
    """Take what waits on a queue, in its order, until so many have come or nothing comes."""
    found: list[str] = []
    with connected(url) as connection:
        session = connection.createSession(False, 1)
        consumer = session.createConsumer(session.createQueue(queue))
        while count is None or len(found) < count:
            one = consumer.receive(2_000 if count is None else 30_000)
            if one is None:
                return found
            found.append(str(one.getText()))
    return found
