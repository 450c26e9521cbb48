"""Descriptors of brokers that this project did not deploy, from files as the products' own tools write them."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.base.errors import InfrastructureError, UsageError
from brokerdrill.describe import artemis, look
from brokerdrill.describe.found import DescribeOptions, Found, matched
from brokerdrill.describe.look import chosen, describer, seconds
from brokerdrill.hosts.connection import connected
from brokerdrill.inventory.descriptors import parse
from brokerdrill.inventory.topology import Host
from brokerdrill.products.artemis import ArtemisDescriptor
from brokerdrill.products.registry import DESCRIPTORS

# What `artemis create --replicated --clustered` of 2.56.0 writes, with a manager, addresses and a place of its own.
BROKER = """<?xml version='1.0'?>
<configuration xmlns="urn:activemq" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
               xmlns:xi="http://www.w3.org/2001/XInclude"
               xsi:schemaLocation="urn:activemq /schema/artemis-configuration.xsd">
   <core xmlns="urn:activemq:core" xsi:schemaLocation="urn:activemq:core ">
      <name>NAME</name>
      <persistence-enabled>true</persistence-enabled>
      <journal-type>NIO</journal-type>
      <journal-directory>data/journal</journal-directory>
      <connectors>
         <connector name="mine">tcp://ADDRESS:61616</connector>
         <connector name="other">tcp://OTHER:61616?sslEnabled=true</connector>
      </connectors>
      <acceptors>
         <acceptor name="artemis">tcp://0.0.0.0:61616?tcpSendBufferSize=1048576;protocols=AMQP,CORE,STOMP;useEpoll=true</acceptor>
         <acceptor name="amqp">tcp://0.0.0.0:5672?protocols=AMQP;sslEnabled=true;amqpCredits=1000</acceptor>
         <acceptor name="inside">vm://0</acceptor>
      </acceptors>
      <cluster-connections>
         <cluster-connection name="my-cluster">
            <connector-ref>mine</connector-ref>
            <connection-ttl>${ttl:5000}</connection-ttl>
            <message-load-balancing>ON_DEMAND</message-load-balancing>
            <max-hops>0</max-hops>
            <static-connectors><connector-ref>other</connector-ref></static-connectors>
         </cluster-connection>
      </cluster-connections>
      <ha-policy>
         <replication>
            <ROLE>
               <manager>
                  <class-name>org.apache.activemq.artemis.lockmanager.zookeeper.CuratorDistributedLockManager</class-name>
                  <properties>
                     <property key="connect-string" value="10.0.0.1:2181,zk2:2182/artemis"/>
                     <property key="session-ms" value="6000"/>
                  </properties>
               </manager>
               <group-name>orders</group-name>
            </ROLE>
         </replication>
      </ha-policy>
      <address-settings>
         <address-setting match="#"><dead-letter-address>DLQ</dead-letter-address></address-setting>
         <address-setting match="orders.*"><dead-letter-address>orders.DLQ</dead-letter-address></address-setting>
      </address-settings>
      <addresses>
         <address name="DLQ"><anycast><queue name="DLQ" /></anycast></address>
         <address name="orders.new"><anycast><queue name="orders.new" /></anycast></address>
         <address name="prices"><multicast/></address>
      </addresses>
   </core>
</configuration>
"""
BOOTSTRAP = """<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<broker xmlns="http://activemq.apache.org/schema">
   <jaas-security domain="activemq"/>
   <server configuration="file:/srv/mq/etc//broker.xml"/>
   <web path="web" rootRedirectLocation="console">
       <binding name="artemis" uri="http://0.0.0.0:8161"><app name="console" url="console" war="console.war"/></binding>
   </web>
</broker>
"""
COMMAND = ("java", "-Xmx2G", "-Dartemis.home=/opt/artemis", "-Dartemis.instance=/srv/mq", artemis.MARKER, "run")
NONE = DescribeOptions()


def found(host: str = "mq1", other: str = "mq2", role: str = "primary", **changes: str) -> Found:
    """What a host tells; `changes` are texts to replace, by what they replace."""
    text = BROKER.replace("NAME", host).replace("ADDRESS", f"{host}.example").replace("OTHER", f"{other}.example")
    bootstrap = BOOTSTRAP
    for old, new in {"ROLE": role, **changes}.items():
        text, bootstrap = text.replace(old, new), bootstrap.replace(old, new)
    files = {"/srv/mq/etc/broker.xml": text, "/srv/mq/etc/bootstrap.xml": bootstrap}
    return Found(host, f"{host}.example", "mq.service", 2.0, COMMAND, files)


def test_a_broker_of_a_pair() -> None:
    told = artemis.describe(found(), NONE)
    (parsed,) = parse("mq1", {"mq1.json": json.dumps(told)}, DESCRIPTORS)
    assert isinstance(parsed, ArtemisDescriptor)
    assert (parsed.instance, parsed.unit, parsed.role, parsed.store) == ("mq1", "mq.service", "primary", "orders")
    assert (parsed.ha_policy, parsed.data_dir) == ("replication_quorum", "/srv/mq/data")
    assert [(one.name, str(one), one.protocol, one.tls) for one in parsed.listeners] == [
        ("artemis", "mq1.example:61616", "core", False),
        ("artemis", "mq1.example:61616", "amqp", False),
        ("artemis", "mq1.example:61616", "stomp", False),
        ("amqp", "mq1.example:5672", "amqp", True),
    ]
    assert parsed.management
    assert parsed.management.url == "http://mq1.example:8161/console/jolokia/"
    assert [(one.link, one.to, one.port) for one in parsed.dials] == [
        ("broker", "other", 61616),
        ("zookeeper", "10.0.0.1", 2181),
        ("zookeeper", "zk2", 2182),
    ]
    assert {one.name: (one.routing, one.dead_letter) for one in parsed.addresses} == {
        "DLQ": ("anycast", None),
        "orders.new": ("anycast", "orders.DLQ"),
        "prices": ("multicast", "DLQ"),
    }
    settings = parsed.settings
    assert (settings.session_ms, settings.connection_ttl_ms, settings.check_period_ms) == (6000, 5000, 30000)
    assert settings.restart_delay_s == 2
    assert set(parsed.features) == {"replicated", "zookeeper_lock", "duplicate_ids"}


def test_a_pair_knows_its_members_by_name() -> None:
    one, two = artemis.joined([artemis.describe(found(), NONE), artemis.describe(found("mq2", "mq1", "slave"), NONE)])
    assert next((item["link"], item["to"]) for item in one["dials"]) == ("backup", "mq2")
    assert next((item["link"], item["to"]) for item in two["dials"]) == ("primary", "mq1")
    assert "failback" in one["features"], "the backup says it, and it holds for both"
    stays = {"<group-name>": "<allow-failback>false</allow-failback><group-name>"}
    (alone,) = artemis.joined([artemis.describe(found("mq2", "mq1", "backup", **stays), NONE)])
    assert "failback" not in alone["features"]


@pytest.mark.parametrize(
    ("policy", "word", "role", "features"),
    [
        ("<shared-store><backup/></shared-store>", "shared_store", "backup", {"shared_store", "failback"}),
        ("<shared-store><master/></shared-store>", "shared_store", "primary", {"shared_store"}),
        ("<replication><primary/></replication>", "replication", "primary", {"replicated", "vote"}),
        ("<primary-only/>", "primary_only", "primary", set()),
        ("", "primary_only", "primary", set()),
    ],
)
def test_each_policy_has_its_word(policy: str, word: str, role: str, features: set[str]) -> None:
    text = BROKER[BROKER.index("<ha-policy>") : BROKER.index("</ha-policy>") + len("</ha-policy>")]
    changed = found(**{text.replace("ROLE", "primary"): f"<ha-policy>{policy}</ha-policy>" if policy else ""})
    told = artemis.describe(changed, DescribeOptions(store="pair"))
    assert (told["ha_policy"], told["role"], told["store"]) == (word, role, "pair")
    assert set(told["features"]) == features | {"duplicate_ids"}
    if word == "primary_only":
        assert artemis.describe(changed, NONE)["store"] == "mq1", "it is alone"
    else:
        with pytest.raises(UsageError, match="does not say with whom mq1 serves a store: name it by --store"):
            artemis.describe(changed, NONE)


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({"<name>mq1</name>": ""}, NONE, "names no broker"),
        ({"${ttl:5000}": "${ttl}"}, NONE, r"says \$\{ttl\}, which nothing sets"),
        ({"${ttl:5000}": "5s"}, NONE, "connection-ttl is '5s', no number"),
        ({"<connector-ref>other": "<connector-ref>third"}, NONE, "names the connector 'third', which is not there"),
        ({"replication>": "colocation>"}, NONE, "has the HA policy colocation/primary: write its descriptor by hand"),
        ({"<addresses>": '<addresses><xi:include href="x"/>'}, NONE, "includes other files"),
        ({"</core>": ""}, NONE, "is no XML"),
        ({"mq2.example:61616": "mq2.example:port"}, NONE, "connector other is 'tcp://mq2.example:port"),
        ({"mq2.example:61616": "a,b:61616"}, NONE, "no address with a port"),
        ({"0.0.0.0:5672": "0.0.0.0"}, NONE, "acceptor amqp is 'tcp://0.0.0.0[?]"),
        ({"0.0.0.0:8161": "localhost:8161"}, NONE, "the console listens on localhost alone"),
        ({"http://0.0.0.0:8161": "https://0.0.0.0:8161"}, NONE, "is TLS: say by --ca which file"),
        ({"binding": "nothing"}, NONE, "has no web binding: say the URL"),
    ],
)
def test_what_cannot_be_known_ends_with_one_sentence(
    changes: dict[str, str], options: DescribeOptions, said: str
) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        artemis.describe(found(**changes), options)
    assert str(caught.value).startswith("host mq1: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "(tcp://a.example:61616,tcp://b.example:61617)?sslEnabled=true",
        "tcp://a.example:61616?sslEnabled=true#tcp://b.example:61617",
    ],
)
def test_every_address_of_a_connector(url: str) -> None:
    told = artemis.describe(found(**{"tcp://mq2.example:61616?sslEnabled=true": url}), NONE)
    dialled = [(one["to"], one["address"], one["port"]) for one in told["dials"] if one["link"] == "broker"]
    assert dialled == [("other", "a.example", 61616), ("other", "b.example", 61617)]


@pytest.mark.parametrize(
    ("said", "protocols"),
    [
        ("protocols=AMQP,CORE,STOMP", ["core", "amqp", "-stomp"]),
        # Which the drills' STOMP clients write before a queue's name
        ("protocols=AMQP,CORE,STOMP;anycastPrefix=/queue/", ["core", "amqp", "stomp"]),
        ("useEpoll=true", ["core", "openwire", "amqp", "-stomp", "mqtt"]),  # what is not named accepts all
        ("protocols=HORNETQ,STOMP", ["-stomp"]),
        ("protocols=HORNETQ", ["hornetq"]),
        ("protocols=own", ["own"]),
    ],
)
def test_an_acceptor_is_a_listener_for_each_protocol_that_it_speaks(said: str, protocols: list[str]) -> None:
    """-: the drills' clients do not dial it."""
    told = artemis.describe(found(**{"protocols=AMQP,CORE,STOMP": said}), NONE)
    listeners = [one for one in told["listeners"] if one["name"] == "artemis"]
    assert ["-" * (not one["clients"]) + one["protocol"] for one in listeners] == protocols


def test_every_address_of_an_acceptor_and_every_cluster_connection() -> None:
    second = (
        '<cluster-connection name="more"><connector-ref>mine</connector-ref><static-connectors>'
        "<connector-ref>third</connector-ref><connector-ref>other</connector-ref></static-connectors>"
        "</cluster-connection></cluster-connections>"
    )
    changes = {
        "tcp://0.0.0.0:5672?": "tcp://0.0.0.0:5672?host=10.0.0.7, 10.0.1.7;",
        "</connectors>": '<connector name="third">tcp://mq3.example:61616</connector></connectors>',
        "</cluster-connections>": second,
    }
    told = artemis.describe(found(**changes), NONE)
    assert [(one["name"], one["address"]) for one in told["listeners"]] == [
        *[("artemis", "mq1.example")] * 3,
        ("amqp", "10.0.0.7"),
        ("amqp", "10.0.1.7"),
    ]
    assert [one["to"] for one in told["dials"] if one["link"] == "broker"] == ["other", "third"]


def test_options_answer_it() -> None:
    told = artemis.describe(
        found(**{"http://0.0.0.0:8161": "https://localhost:8161"}),
        DescribeOptions(store="mine", ca="/etc/ssl/mq.pem", management_url="https://mq1.example/jolokia/"),
    )
    assert (told["store"], told["tls"]) == ("mine", {"ca": "/etc/ssl/mq.pem"})
    assert told["management"]["url"] == "https://mq1.example/jolokia/"


def test_a_broker_that_nobody_gave_a_name_has_its_hosts() -> None:
    told = artemis.describe(found(**{"<name>mq1": "<name>0.0.0.0"}), NONE)
    assert (told["instance"], told["management"]["broker_name"]) == ("mq1", "0.0.0.0")


def test_two_brokers_of_one_name_are_refused() -> None:
    same = [
        artemis.describe(found(**{"<name>mq1": "<name>x"}), NONE),
        artemis.describe(found("mq2", **{"<name>mq2": "<name>x"}), NONE),
    ]
    with pytest.raises(UsageError, match="brokers on mq1, mq2 are all called x"):
        artemis.joined(same)


@pytest.mark.parametrize(
    ("match", "name", "covers"),
    [("#", "a.b", True), ("a.#", "a", True), ("a.*", "a.b", True), ("a.*", "a.b.c", False), ("a.b", "a.c", False)],
)
def test_the_brokers_wildcards(match: str, name: str, covers: bool) -> None:
    assert matched(match, name) is covers


def test_the_unit_is_the_only_one_or_the_one_that_is_said() -> None:
    one: dict[str, Any] = {"unit": "mq.service"}
    two: dict[str, Any] = {"unit": "mq2.service"}
    assert chosen([one], "h", None) is one
    assert chosen([one, two], "h", "mq2") is two
    with pytest.raises(UsageError, match=r"host h: mq.service, mq2.service are brokers: say by --unit which is meant"):
        chosen([one, two], "h", None)
    with pytest.raises(UsageError, match="host h: no broker runs as a service"):
        chosen([], "h", None)
    with pytest.raises(UsageError, match=r"no broker runs as x.service there \(there runs mq.service\)"):
        chosen([one], "h", "x")
    with pytest.raises(UsageError, match="artemis"):
        describer("artemi")


@pytest.mark.parametrize(("span", "found"), [("100ms", 0.1), ("2s", 2), ("1min 30s", 90), ("infinity", 0), ("", 0)])
def test_spans_as_systemd_shows_them(span: str, found: float) -> None:
    assert seconds(span) == pytest.approx(found)


SYSTEMCTL = """#!/bin/sh
case "$1" in
  list-units) echo "ssh.service loaded active running OpenBSD Secure Shell server"
              echo "mq.service loaded active running The order broker" ;;
  show) case "$2" in mq.service) echo MainPID=PID ;; *) echo MainPID=0 ;; esac; echo RestartUSec=1min 500ms ;;
esac
"""


def test_a_host_is_looked_at_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts that run on a host, on this one: only its systemd is made up, and where descriptors lie."""
    etc = tmp_path / "mq" / "etc"
    etc.mkdir(parents=True)
    told = found()
    for path, text in told.files.items():
        (etc / Path(path).name).write_text(text)
    # A broker's command line, some of it in a file as Java reads it, on a process that does nothing.
    options = tmp_path / "java.options"
    options.write_text(f"-Xmx1g\n-Dartemis.instance={tmp_path / 'mq'}\n")
    # Started by a shell that stays, as some products' own scripts do.
    words = shlex.join([sys.executable, "-c", "input()", f"@{options}", artemis.MARKER, "run"])
    idle = subprocess.Popen(["sh", "-c", f"{words}; exit"], stdin=subprocess.PIPE, text=True)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "systemctl").write_text(SYSTEMCTL.replace("PID\n", f"{idle.pid}\n").replace("=PID ", f"={idle.pid} "))
    (programs / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(look, "DIRECTORY", str(tmp_path / "left"))
    monkeypatch.setattr(look, "CREDENTIALS", str(tmp_path / "left" / "{instance}.credentials.json"))
    host = Host("mq1", "192.0.2.1", 22, "root", None, (), {"ansible_connection": "local"})

    async def main() -> tuple[dict[str, Any], list[str], str]:
        async with connected([host]) as connections:
            (one,) = await look.describe(connections, "artemis", None, NONE)
            account = {"username": "drill", "password": "secret"}
            written = await look.leave(connections, [one], account)
            assert await look.leave(connections, [one], account) == written, "its own is replaced"
            (tmp_path / "left" / "mq1.json").write_text("{}")
            with pytest.raises(InfrastructureError) as caught:
                await look.leave(connections, [one], account)
            return one, written, str(caught.value)

    try:
        one, written, refused = asyncio.run(main())
    finally:
        idle.communicate("\n", timeout=30)
    assert (one["unit"], one["settings"]["restart_delay_s"]) == ("mq.service", 60)
    assert (one["listeners"][0]["address"], one["data_dir"]) == ("192.0.2.1", f"{tmp_path / 'mq'}/data")
    assert [path.partition(":")[2] for path in written] == [
        str(tmp_path / "left" / "mq1.json"),
        str(tmp_path / "left" / "mq1.credentials.json"),
    ]
    secret = tmp_path / "left" / "mq1.credentials.json"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert json.loads(secret.read_text()) == {"username": "drill", "password": "secret"}
    assert refused.endswith("mq1.json: a role has left one there")
