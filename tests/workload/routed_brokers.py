"""Real Artemis brokers on loopback: one that leads clients by connection routers, and those that it leads them to."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jpype

from brokerdrill.workload.amqp_jms import JARS, AmqpJms
from brokerdrill.workload.asking import target_of
from brokerdrill.workload.client import Aim, ClientError, known_as
from brokerdrill.workload.config import BrokerEndpoint, ClientAccount, Router, WorkerConfig
from brokerdrill.workload.core_jms import CoreJms
from brokerdrill.workload.jvm import class_path
from tests.free_ports import free_port
from tests.workload.certificate import make_certificate
from tests.workload.conftest import start_jvm
from tests.workload.standalone_broker import QUEUES, USER, Broker

CLUSTER = "cluster1"
# Multicast that stays on loopback: who is bound to its address sends there.
GROUP = "<local-bind-address>127.0.0.1</local-bind-address><group-address>231.7.7.7</group-address>"
LED_DEADLINE_S = 120.0
DEADLINE_S = 90.0
PASSWORD = "not-a-default"
# A broker with the default ones is let in nowhere, and stops all that makes it one of a cluster 30 s later: its
# announcements, too.
MEMBER = f"<cluster-user>member</cluster-user><cluster-password>{PASSWORD}</cluster-password>"
# By CLIENT_ID not with CORE: its library may ask for a session before it has learnt that the broker takes client ids
# (FINDINGS.md), and is then NULL to the router.
KEYS = ("CLIENT_ID", "SNI_HOST", "SOURCE_IP", "USER_NAME", "ROLE_NAME")


def file_of(broker: Broker) -> Path:
    return broker.directory / "etc" / "broker.xml"


def references(names: Sequence[str]) -> str:
    return "".join(f"<connector-ref>{name}</connector-ref>" for name in names)


def cluster(own: str, others: Sequence[str]) -> str:
    """Return a broker's cluster connection, by which no messages go; `own` and `others` are connectors."""
    return (
        f'<cluster-connections><cluster-connection name="{CLUSTER}"><connector-ref>{own}</connector-ref>'
        f"<message-load-balancing>OFF</message-load-balancing>"
        f"<static-connectors>{references(others)}</static-connectors></cluster-connection></cluster-connections>"
    )


class Routed:
    """A broker with a router behind each of its acceptors but the first, and its targets.

    `routers`: the elements of each, by name. `{static}` in them is a pool of all targets by their connectors,
    `{cluster}` one of the members of the cluster connection that all brokers have, `{discovery}` one of the targets
    that announce themselves by multicast; each name of `groups` is of a discovery group of those. `own`: the elements
    of the router of each target that has one itself, at `own_ports`. Without `secure`, no connection is TLS. Without
    `clustered`, no broker has a cluster connection. `accounts` are those that all brokers let in beside USER, by name
    their passwords; with `anonymous` they let in who has none. `beside` is further connectors, by name their ports.
    """

    def __init__(
        self,
        home: Path,
        work: Path,
        routers: Mapping[str, str],
        *,
        targets: Sequence[str] = ("t1", "t2"),
        certificate: tuple[Path, Path] | None = None,
        check_period_ms: int = 200,
        quorum: int = 2,
        own: Mapping[str, str] | None = None,
        secure: bool = True,
        clustered: bool = True,
        accounts: Mapping[str, str] | None = None,
        anonymous: bool = False,
        groups: Sequence[str] = ("announced",),
        beside: Mapping[str, int] | None = None,
    ) -> None:
        self._routers = routers
        self._clustered = clustered
        self._groups = groups
        self._beside = beside or {}
        self._check_period_ms = check_period_ms
        self._quorum = quorum
        # A process's JVM knows one: brokers that it meets in turn have the same.
        self.certificate, bundle = certificate or make_certificate(work)
        self._secure = secure
        self.tls = f"sslEnabled=true;keyStoreType=PEM;keyStorePath={bundle}" if secure else ""
        self.trusting = f"sslEnabled=true;trustStoreType=PEMCA;trustStorePath={self.certificate}" if secure else ""
        small = "-Xms48m -Xmx96m -XX:+UseSerialGC -XX:-UsePerfData -XX:TieredStopAtLevel=1 -Dlog4j2.disableJmx=true"
        self.targets = {
            name: Broker(
                home,
                work / name,
                QUEUES,
                f"{self.tls};anycastPrefix=/queue/",
                java_args=small,
                anonymous=anonymous,
            )
            for name in targets
        }
        self.router = Broker(home, work / "router", QUEUES, java_args=small, console=True, anonymous=anonymous)
        self.ports = {name: free_port() for name in routers}
        self._group = f"{GROUP}<group-port>{free_port()}</group-port>"
        self.own_ports = {name: free_port() for name in own or ()}
        for one in (*self.targets.values(), self.router):
            let_in = {USER: PASSWORD, **(accounts or {})}
            users, roles = (one.directory / "etc" / f"artemis-{kind}.properties" for kind in ("users", "roles"))
            users.write_text("".join(f"{name} = {password}\n" for name, password in let_in.items()))
            roles.write_text(f"amq = {','.join(let_in)}\n")
        # What each broker's file was made with, and is written anew from.
        self._made = {one.name: file_of(one).read_text() for one in (*self.targets.values(), self.router)}
        for name, one in self.targets.items():
            led, router = self._own(name, (own or {}).get(name))
            rest = f"{self._connectors()}{self._announced(name)}{self._cluster(name, ['router'])}{router}"
            self._write(one, f"{led}</acceptors>{rest}")
        self._configure(targets)

    def _announced(self, name: str) -> str:
        return (
            f'<broadcast-groups><broadcast-group name="announce">{self._group}<broadcast-period>250</broadcast-period>'
            f"<connector-ref>{name}</connector-ref></broadcast-group></broadcast-groups>"
        )

    def _own(self, name: str, elements: str | None) -> tuple[str, str]:
        if elements is None:
            return "", ""
        options = f"protocols=CORE,AMQP;router=own;{self.tls}"
        return (
            f'<acceptor name="own">tcp://127.0.0.1:{self.own_ports[name]}?{options}</acceptor>',
            f'<connection-routers><connection-router name="own">{elements}</connection-router></connection-routers>',
        )

    def _cluster(self, own: str, others: Sequence[str]) -> str:
        return cluster(own, others) if self._clustered else ""

    def _write(self, broker: Broker, added: str) -> None:
        file_of(broker).write_text(self._made[broker.name].replace("</acceptors>", added + MEMBER, 1))

    def _configure(self, pooled: Sequence[str]) -> None:
        self._write(self.router, f"{self._acceptors()}</acceptors>{self._rest(pooled)}")

    def _connectors(self) -> str:
        brokers = {**self.targets, "router": self.router}
        of_brokers = "".join(
            f'<connector name="{name}">{one.url}?{"" if name == "router" else self.trusting}</connector>'
            for name, one in brokers.items()
        )
        others = "".join(
            f'<connector name="{name}">tcp://127.0.0.1:{port}</connector>' for name, port in self._beside.items()
        )
        return f"<connectors>{of_brokers}{others}</connectors>"

    def repool(self, pooled: Sequence[str]) -> None:
        """Start the router anew, with those targets in its pools."""
        self.router.kill()
        self._configure(pooled)
        self.router.start()
        self._until_led()

    def _acceptors(self) -> str:
        return "".join(
            f'<acceptor name="{name}">tcp://127.0.0.1:{port}?protocols=CORE,AMQP,OPENWIRE;router={name};{self.tls}</acceptor>'
            for name, port in self.ports.items()
        )

    def _rest(self, pooled: Sequence[str]) -> str:
        refs = references(pooled)
        pool = (
            f"<pool><username>{USER}</username><password>{PASSWORD}</password>"
            f"<check-period>{self._check_period_ms}</check-period>"
            f"<quorum-size>{self._quorum}</quorum-size><quorum-timeout>20000</quorum-timeout>"
        )
        pools = {
            "static": f"{pool}<static-connectors>{refs}</static-connectors></pool>",
            "discovery": f"{pool}<discovery-group-ref discovery-group-name='announced'/></pool>",
            "cluster": f"{pool}<cluster-connection>{CLUSTER}</cluster-connection></pool>",
        }
        routers = "".join(
            f'<connection-router name="{name}">{elements.format(**pools)}</connection-router>'
            for name, elements in self._routers.items()
        )
        discovered = "<discovery-groups>{}</discovery-groups>".format(
            "".join(f'<discovery-group name="{name}">{self._group}</discovery-group>' for name in self._groups)
        )
        led = f"<connection-routers>{routers}</connection-routers>"
        return f"{self._connectors()}{discovered}{self._cluster('router', pooled)}{led}"

    def start(self) -> None:
        """Start all, and wait until each router with a pool names somebody: its quorum is there."""
        for one in (*self.targets.values(), self.router):
            one.start()
        self._until_led()

    def _until_led(self) -> None:
        end = time.monotonic() + LED_DEADLINE_S
        # Who may serve a key themselves need nobody for that.
        for name in (n for n, elements in self._routers.items() if "{" in elements and "local-target" not in elements):
            while True:
                try:
                    target_of(self.config(name), Aim(self.endpoint(name), ""), "anyone")
                    break
                except ClientError:
                    assert self.router.running(), self.router.log.read_text()
                    if time.monotonic() > end:
                        raise

    def kill(self) -> None:
        for one in (*self.targets.values(), self.router):
            one.kill()

    def endpoint(self, name: str) -> Router:
        return Router("127.0.0.1", self.ports[name], "router", "h0", name, self.router.name, self.router.console_url)

    def config(self, name: str, **changes: Any) -> WorkerConfig:
        values: dict[str, Any] = {
            "run_id": "routed",
            "worker": "w0",
            "clock": "w0",
            "client": "core",
            "endpoints": tuple(BrokerEndpoint("127.0.0.1", one.port, n, n) for n, one in self.targets.items()),
            "routers": (self.endpoint(name),),
            "key_type": name if name in KEYS else "SNI_HOST",
            "tls_ca": str(self.certificate) if self._secure else None,
            "credentials": ClientAccount(USER, PASSWORD),
            "addresses": ("drill.q0",),
            "transaction": 0,
            "jars": str(self.router.home / "lib"),
        }
        return WorkerConfig(**{**values, **changes})


def visit(routed: Routed, name: str, key: str, **changes: Any) -> tuple[str, str]:
    """Connect by that router once; return the broker that was reached and the key by which that was chosen. `changes`:
    of the client's configuration."""
    config = routed.config(name, **changes)
    start_jvm(config)
    client = CoreJms(config, "test")
    aim = Aim(config.routers[0], key)
    client.aim(*aim)
    try:
        client.open(["drill.q0"], [], transacted=False)
        reached = client.served_by()
        known = known_as(config, aim)
        assert reached is not None and known is not None
        return reached.instance, known
    finally:
        client.close()


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.2)


def named(routed: Routed, name: str) -> str | None:
    """Whom the router names for a client, if anybody."""
    try:
        return target_of(routed.config(name), Aim(routed.endpoint(name), ""), "anyone").instance
    except ClientError as error:
        assert "names nobody" in str(error)
        return None


def by_amqp(routed: Routed, router: Router, key: str = "", key_type: str = "SOURCE_IP") -> str | None:
    """Connect once by a client that hears of it when it is refused: CORE's library tries again for ever where a router
    has nobody. Return where it got in; None where it was refused."""
    ends = tuple(BrokerEndpoint("127.0.0.1", one.port, name, name) for name, one in routed.targets.items())
    waits = {"jms.connectTimeout": "90000"}
    own = BrokerEndpoint(router.address, router.port, router.instance, router.host)
    any_name = next(iter(routed.ports))
    config = routed.config(any_name, client="amqp", key_type=key_type, url_params=waits, endpoints=(*ends, own))
    start_jvm(config)
    for jar in class_path(routed.router.home / "lib", JARS):
        jpype.addClassPath(jar)
    client = AmqpJms(config, "test")
    client.aim(router, key)
    try:
        client.open(["drill.q0"], [], transacted=False)
        served = client.served_by()
        assert served is not None
        return served.instance
    except ClientError as error:
        assert "names nobody" in str(error)
        return None
    finally:
        client.close()
