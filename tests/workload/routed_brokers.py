"""Real Artemis brokers on loopback: one that leads clients by connection routers, and those that it leads them to."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from brokerdrill.workload.asking import target_of
from brokerdrill.workload.client import Aim, ClientError
from brokerdrill.workload.config import Credentials, Endpoint, Router, WorkerConfig
from tests.free_ports import free_port
from tests.workload.standalone_broker import QUEUES, USER, Broker

CLUSTER = "cluster1"
LED_DEADLINE_S = 120.0
PASSWORD = "not-a-default"
# By CLIENT_ID not with CORE: its library may ask for a session before it has learnt that the broker takes client ids
# (FINDINGS.md), and is then NULL to the router.
KEYS = ("CLIENT_ID", "SNI_HOST", "SOURCE_IP", "USER_NAME", "ROLE_NAME")


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate of its own for 127.0.0.1; return its file, and one with its key too."""
    certificate, key, bundle = (folder / f"router.{suffix}" for suffix in ("pem", "key", "bundle.pem"))
    name = ["-subj", "/CN=router", "-addext", "subjectAltName=IP:127.0.0.1"]
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *name]
    subprocess.run([*new, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    bundle.write_text(key.read_text() + certificate.read_text())
    return certificate, bundle


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
    `{cluster}` one of the members of the cluster connection that all brokers have.
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
    ) -> None:
        self._routers = routers
        self._check_period_ms = check_period_ms
        self._quorum = quorum
        # A process's JVM knows one: brokers that it meets in turn have the same.
        self.certificate, bundle = certificate or make_certificate(work)
        self.tls = f"sslEnabled=true;keyStoreType=PEM;keyStorePath={bundle}"
        self.trusting = f"sslEnabled=true;trustStoreType=PEMCA;trustStorePath={self.certificate}"
        small = "-Xms48m -Xmx96m -XX:+UseSerialGC -XX:-UsePerfData -XX:TieredStopAtLevel=1 -Dlog4j2.disableJmx=true"
        self.targets = {
            name: Broker(home, work / name, QUEUES, f"{self.tls};anycastPrefix=/queue/", java_args=small)
            for name in targets
        }
        self.router = Broker(home, work / "router", QUEUES, java_args=small, console=True)
        self.ports = {name: free_port() for name in routers}
        for one in (*self.targets.values(), self.router):
            (one.directory / "etc" / "artemis-users.properties").write_text(f"{USER} = {PASSWORD}\n")
        # What each broker's file was made with, and is written anew from.
        self._made = {one.name: file_of(one).read_text() for one in (*self.targets.values(), self.router)}
        for name, one in self.targets.items():
            self._write(one, "</acceptors>" + self._connectors() + cluster(name, ["router"]))
        self._configure(targets)

    def _write(self, broker: Broker, added: str) -> None:
        file_of(broker).write_text(self._made[broker.name].replace("</acceptors>", added, 1))

    def _configure(self, pooled: Sequence[str]) -> None:
        self._write(self.router, f"{self._acceptors()}</acceptors>{self._rest(pooled)}")

    def _connectors(self) -> str:
        brokers = {**self.targets, "router": self.router}
        return "<connectors>{}</connectors>".format(
            "".join(
                f'<connector name="{name}">{one.url}?{"" if name == "router" else self.trusting}</connector>'
                for name, one in brokers.items()
            )
        )

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
            "cluster": f"{pool}<cluster-connection>{CLUSTER}</cluster-connection></pool>",
        }
        routers = "".join(
            f'<connection-router name="{name}">{elements.format(**pools)}</connection-router>'
            for name, elements in self._routers.items()
        )
        return f"{self._connectors()}{cluster('router', pooled)}<connection-routers>{routers}</connection-routers>"

    def start(self) -> None:
        """Start all, and wait until each router with a pool names somebody: its quorum is there."""
        for one in (*self.targets.values(), self.router):
            one.start()
        self._until_led()

    def _until_led(self) -> None:
        end = time.monotonic() + LED_DEADLINE_S
        for name in (name for name, elements in self._routers.items() if "{" in elements):
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
            "endpoints": tuple(Endpoint("127.0.0.1", one.port, n, n) for n, one in self.targets.items()),
            "routers": (self.endpoint(name),),
            "key_type": name if name in KEYS else "SNI_HOST",
            "tls_ca": str(self.certificate),
            "credentials": Credentials(USER, PASSWORD),
            "addresses": ("drill.q0",),
            "transaction": 0,
            "jars": str(self.router.home / "lib"),
        }
        return WorkerConfig(**{**values, **changes})
