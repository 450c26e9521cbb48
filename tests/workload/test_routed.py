"""Clients that a connection router leads: real brokers, one that leads and two that are led to."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.workload.client import Aim, ClientError, known_as
from brokerdrill.workload.config import ClientSpec, Credentials, Endpoint, Router, WorkerConfig
from brokerdrill.workload.core_jms import CoreJms
from tests.workload.conftest import QUEUES, start_jvm
from tests.workload.standalone_broker import USER, Broker, free_port
from tests.workload.worker_process import WorkerProcess, merged, rows_of

PASSWORD = "not-a-default"
# By CLIENT_ID not with CORE: its library may ask for a session before it has learnt that the broker takes client ids
# (FINDINGS.md), and is then NULL to the router.
KEYS = ("CLIENT_ID", "SNI_HOST", "SOURCE_IP", "USER_NAME", "ROLE_NAME")
# By router: its elements besides the pool.
ROUTERS = {
    **{key: f"<key-type>{key}</key-type><cache/><policy name='ROUND_ROBIN'/>" for key in KEYS},
    "forgotten": "<key-type>SNI_HOST</key-type><policy name='ROUND_ROBIN'/>",
    "filtered": "<key-type>SNI_HOST</key-type><key-filter>^[^-]+</key-filter><cache/><policy name='ROUND_ROBIN'/>",
    "nobody": "<key-type>SNI_HOST</key-type><local-target-filter>here</local-target-filter>",
}


class Routed:
    """A broker with a router behind each of its acceptors but the first, and its targets."""

    def __init__(self, home: Path, work: Path) -> None:
        self.certificate = work / "router.pem"
        key = work / "router.key"
        name = ["-subj", "/CN=router", "-addext", "subjectAltName=IP:127.0.0.1"]
        new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *name]
        subprocess.run([*new, "-keyout", key, "-out", self.certificate], check=True, capture_output=True)
        bundle = work / "router.bundle.pem"
        bundle.write_text(key.read_text() + self.certificate.read_text())
        self.tls = f"sslEnabled=true;keyStoreType=PEM;keyStorePath={bundle}"
        self.trusting = f"sslEnabled=true;trustStoreType=PEMCA;trustStorePath={self.certificate}"
        small = "-Xms48m -Xmx96m -XX:+UseSerialGC -XX:-UsePerfData -XX:TieredStopAtLevel=1 -Dlog4j2.disableJmx=true"
        self.targets = {
            name: Broker(home, work / name, QUEUES, f"{self.tls};anycastPrefix=/queue/", java_args=small)
            for name in ("t1", "t2")
        }
        self.router = Broker(home, work / "router", QUEUES, java_args=small, console=True)
        self.ports = {name: free_port() for name in ROUTERS}
        for one in (*self.targets.values(), self.router):
            (one.directory / "etc" / "artemis-users.properties").write_text(f"{USER} = {PASSWORD}\n")
        file = self.router.directory / "etc" / "broker.xml"
        text = file.read_text()
        file.write_text(text.replace("</acceptors>", f"{self._acceptors()}</acceptors>{self._rest()}", 1))

    def _acceptors(self) -> str:
        return "".join(
            f'<acceptor name="{name}">tcp://127.0.0.1:{port}?protocols=CORE,AMQP,OPENWIRE;router={name};{self.tls}</acceptor>'
            for name, port in self.ports.items()
        )

    def _rest(self) -> str:
        connectors = "".join(
            f'<connector name="{n}">{one.url}?{self.trusting}</connector>' for n, one in self.targets.items()
        )
        refs = "".join(f"<connector-ref>{name}</connector-ref>" for name in self.targets)
        pool = (
            f"<pool><username>{USER}</username><password>{PASSWORD}</password><check-period>200</check-period>"
            f"<quorum-size>2</quorum-size><quorum-timeout>20000</quorum-timeout>"
            f"<static-connectors>{refs}</static-connectors></pool>"
        )
        routers = "".join(
            f'<connection-router name="{name}">{elements}{pool if "<policy" in elements else ""}</connection-router>'
            for name, elements in ROUTERS.items()
        )
        return f"<connectors>{connectors}</connectors><connection-routers>{routers}</connection-routers>"

    def start(self) -> None:
        for one in (*self.targets.values(), self.router):
            one.start()

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


@pytest.fixture(scope="module")
def routed(distribution: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routed]:
    made = Routed(distribution, tmp_path_factory.mktemp("routed"))
    try:
        made.start()
        yield made
    finally:
        made.kill()


def visit(routed: Routed, name: str, key: str) -> tuple[str, str]:
    """Connect by that router once; return the broker that was reached and the key by which that was chosen."""
    config = routed.config(name)
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


@pytest.mark.parametrize(
    ("name", "known"), [("SNI_HOST", "anna"), ("SOURCE_IP", "127.0.0.1"), ("USER_NAME", USER), ("ROLE_NAME", "anna")]
)
def test_a_key_reaches_one_target_however_often_it_comes(routed: Routed, name: str, known: str) -> None:
    visits = [visit(routed, name, "anna") for _ in range(4)]
    assert len(set(visits)) == 1
    assert visits[0][0] in routed.targets
    assert visits[0][1] == known


def test_other_keys_reach_other_targets(routed: Routed) -> None:
    found = Counter(visit(routed, "SNI_HOST", f"other-{number}")[0] for number in range(8))
    assert found == {"t1": 4, "t2": 4}


def test_without_a_cache_each_turn_is_another_targets(routed: Routed) -> None:
    visits = [visit(routed, "forgotten", "anna")[0] for _ in range(4)]
    assert Counter(visits) == {"t1": 2, "t2": 2}


def test_the_filter_says_which_part_is_the_key(routed: Routed) -> None:
    assert len({visit(routed, "filtered", f"anna-{number}")[0] for number in range(4)}) == 1


def test_a_key_is_served_where_it_belongs_or_refused(routed: Routed) -> None:
    assert visit(routed, "nobody", "here")[0] == "router"
    with pytest.raises(ClientError, match="rejected"):
        visit(routed, "nobody", "there")


@pytest.mark.parametrize(
    ("protocol", "key_type"),
    [("core", "SNI_HOST"), ("openwire", "CLIENT_ID"), ("amqp", "CLIENT_ID"), ("stomp", "SNI_HOST")],
)
def test_what_a_worker_records(
    routed: Routed, worker: Callable[..., WorkerProcess], tmp_path: Path, protocol: str, key_type: str
) -> None:
    """Each connect has its key, whom it asked and whom it reached; consumers dial the targets themselves."""
    keys = tuple(f"{protocol}-{number}" for number in range(6))
    spool = tmp_path / "w0.jsonl"
    config = routed.config(
        key_type,
        client=protocol,
        producers=(ClientSpec("producer-0", ("drill.q0",), keys=keys),),
        consumers=tuple(ClientSpec(f"consumer-{name}", ("drill.q0",), instances=(name,)) for name in routed.targets),
        spool=str(spool),
        resend=False,
    )
    one = worker(config)
    one.begin()
    one.until_status(lambda status: status["sent_ok"] >= 3 * len(keys))
    one.tell("stop_producers")
    one.until("producers_stopped")
    one.until_status(lambda status: status["received"] == status["sent_ok"])
    one.finish()
    rows = merged(rows_of(spool))
    connects = [row for row in rows if row["op"] == "connect" and row["outcome"] == "ok"]
    led = [row for row in connects if row["client"] == "producer-0"]
    assert [row["key"] for row in led[:12]] == [*keys, *keys]
    assert {row["via"] for row in led} == {"router"}
    assert {row["protocol"] for row in connects} == {protocol}
    by_key = {key: {row["instance"] for row in led if row["key"] == key} for key in keys}
    assert all(len(reached) == 1 for reached in by_key.values())
    assert {name for reached in by_key.values() for name in reached} == set(routed.targets)
    direct = {row["client"]: row["instance"] for row in connects if row["client"] != "producer-0"}
    assert direct == {"consumer-t1": "t1", "consumer-t2": "t2"}
    assert not any("via" in row or "key" in row for row in connects if row["client"] != "producer-0")
