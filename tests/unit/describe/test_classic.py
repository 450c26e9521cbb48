"""Descriptors of ActiveMQ Classic brokers that this project did not deploy, from files as 5.18.3 brings them."""

from __future__ import annotations

import json

import pytest

from brokerdrill.base.errors import UsageError
from brokerdrill.describe import activemq_classic
from brokerdrill.describe.found import DescribeOptions, Found
from brokerdrill.inventory.descriptors import parse
from brokerdrill.products.activemq_classic import ActiveMQClassicDescriptor
from brokerdrill.products.registry import DESCRIPTORS

ACTIVEMQ = """<beans xmlns="http://www.springframework.org/schema/beans">
    <bean class="org.springframework.beans.factory.config.PropertyPlaceholderConfigurer">
        <property name="locations"><value>file:${activemq.conf}/credentials.properties</value></property>
    </bean>
    <broker xmlns="http://activemq.apache.org/schema/core" brokerName="localhost" dataDirectory="${activemq.data}">
        <destinationPolicy><policyMap><policyEntries>
            <policyEntry topic=">"><pendingMessageLimitStrategy/></policyEntry>
            <policyEntry queue="drill.>"><deadLetterStrategy><sharedDeadLetterStrategy>
                <deadLetterQueue><queue physicalName="drill.DLQ"/></deadLetterQueue>
            </sharedDeadLetterStrategy></deadLetterStrategy></policyEntry>
        </policyEntries></policyMap></destinationPolicy>
        <destinations>
            <queue physicalName="drill.q0"/><queue physicalName="orders"/><topic physicalName="prices"/>
        </destinations>
        <persistenceAdapter>
            <kahaDB directory="${activemq.data}/kahadb"/>
        </persistenceAdapter>
        <transportConnectors>
            <transportConnector name="openwire" uri="tcp://0.0.0.0:61616?maximumConnections=1000"/>
            <transportConnector name="tls" uri="nio+ssl://10.1.1.1:61617"/>
            <transportConnector name="ws" uri="ws://0.0.0.0:61614?maximumConnections=1000"/>
        </transportConnectors>
    </broker>
    <import resource="jetty.xml"/>
</beans>
"""
JETTY = """<beans xmlns="http://www.springframework.org/schema/beans">
    <bean id="jettyPort" class="org.apache.activemq.web.WebConsolePort" init-method="start">
        <property name="host" value="0.0.0.0"/>
        <property name="port" value="8161"/>
    </bean>
</beans>
"""
COMMAND = (
    *("java", "-Xmx1G", "-Dactivemq.home=/opt/activemq", "-Dactivemq.base=/srv/mq", "-Dactivemq.conf=/srv/mq/conf"),
    *("-Dactivemq.data=/srv/mq/data", "-jar", "/opt/activemq/bin/activemq.jar", "start"),
)
KAHADB = '<kahaDB directory="${activemq.data}/kahadb"/>'
NONE = DescribeOptions()


def found(**changes: str) -> Found:
    """What a host tells; `changes` are texts to replace, by what they replace."""
    config, jetty = ACTIVEMQ, JETTY
    for old, new in changes.items():
        assert old in config + jetty
        config, jetty = config.replace(old, new), jetty.replace(old, new)
    files = {"/srv/mq/conf/activemq.xml": config, "/srv/mq/conf/jetty.xml": jetty}
    return Found("mq1", "mq1.example", "activemq.service", 5.0, COMMAND, files)


def test_a_broker_as_its_archive_brings_it() -> None:
    told = activemq_classic.describe(found(), NONE)
    (parsed,) = parse("mq1", {"mq1.json": json.dumps(told)}, DESCRIPTORS)
    assert isinstance(parsed, ActiveMQClassicDescriptor)
    assert (parsed.instance, parsed.store, parsed.data_dir) == ("mq1", "mq1", "/srv/mq/data/kahadb")
    assert parsed.management
    assert (parsed.management.url, parsed.management.broker_name) == (
        "http://mq1.example:8161/api/jolokia/",
        "localhost",
    )
    assert [(one.name, str(one), one.protocol, one.tls) for one in parsed.listeners] == [
        ("openwire", "mq1.example:61616", "openwire", False),
        ("tls", "10.1.1.1:61617", "openwire", True),
    ]
    assert {one.name: (one.routing, one.dead_letter) for one in parsed.addresses} == {
        "drill.q0": ("anycast", "drill.DLQ"),
        "orders": ("anycast", "ActiveMQ.DLQ"),
        "prices": ("multicast", "ActiveMQ.DLQ"),
    }
    assert (parsed.settings.lock_acquire_sleep_interval_ms, parsed.settings.restart_delay_s) == (10_000, 5)
    assert parsed.features == ["file_lock", "file_store"]


@pytest.mark.parametrize(
    ("store", "locker", "features", "settings"),
    [
        (
            '<kahaDB directory="/shared/k" lockKeepAlivePeriod="500"><locker><shared-file-locker '
            'lockAcquireSleepInterval="1000"/></locker></kahaDB>',
            "shared_file",
            {"file_lock", "file_store", "lock_checked"},
            (1000, 500, None),
        ),
        ('<kahaDB directory="/shared/k"/>', "shared_file", {"file_lock", "file_store"}, (10_000, 0, None)),
        (
            '<jdbcPersistenceAdapter dataSource="#ds"/>',
            "database",
            {"database_lock", "database_store", "lock_checked"},
            (10_000, 30_000, None),
        ),
        (
            '<jdbcPersistenceAdapter dataSource="#ds" lockKeepAlivePeriod="2000"><locker><lease-database-locker '
            'lockAcquireSleepInterval="6000"/></locker></jdbcPersistenceAdapter>',
            "lease_database",
            {"lease", "database_store", "lock_checked"},
            (6000, 2000, 6000),
        ),
        (
            '<jdbcPersistenceAdapter dataSource="#ds" useLock="false"/>',
            None,
            {"database_store"},
            (10_000, 30_000, None),
        ),
    ],
)
def test_each_locker_has_its_word(
    store: str, locker: str | None, features: set[str], settings: tuple[int, int, int | None]
) -> None:
    changed = found(**{KAHADB: store})
    (parsed,) = parse(
        "mq1", {"mq1.json": json.dumps(activemq_classic.describe(changed, DescribeOptions(store="pair")))}, DESCRIPTORS
    )
    assert isinstance(parsed, ActiveMQClassicDescriptor)
    assert (parsed.locker, set(parsed.features), parsed.store) == (locker, features, "pair")
    said = parsed.settings
    assert (said.lock_acquire_sleep_interval_ms, said.lock_keep_alive_period_ms, said.lease_duration_ms) == settings
    with pytest.raises(UsageError, match="does not say with whom mq1 serves a store: name it by --store"):
        activemq_classic.describe(changed, NONE)


LEASE = (
    '<bean id="leaseLocker" class="org.apache.activemq.store.jdbc.LeaseDatabaseLocker">'
    '<property name="lockAcquireSleepInterval" value="7000"/></bean>'
)


@pytest.mark.parametrize(
    ("store", "beside", "locker"),
    [
        ('<jdbcPersistenceAdapter dataSource="#ds" locker="#leaseLocker"/>', LEASE, "lease_database"),
        ('<jdbcPersistenceAdapter dataSource="#ds" databaseLocker="#leaseLocker"/>', LEASE, "lease_database"),
        (
            f'<jdbcPersistenceAdapter dataSource="#ds"><locker>{LEASE}</locker></jdbcPersistenceAdapter>',
            "",
            "lease_database",
        ),
        (
            '<jdbcPersistenceAdapter><locker><ref bean="leaseLocker"/></locker></jdbcPersistenceAdapter>',
            LEASE,
            "lease_database",
        ),
        (
            '<jdbcPersistenceAdapter locker="#leaseLocker"/>',
            '<lease-database-locker xmlns="http://activemq.apache.org/schema/core" id="leaseLocker" '
            'lockAcquireSleepInterval="7000"/>',
            "lease_database",
        ),
        (
            '<jdbcPersistenceAdapter locker="#l"/>',
            LEASE.replace("leaseLocker", "l").replace("LeaseDatabaseLocker", "DefaultDatabaseLocker"),
            "database",
        ),
        (
            '<kahaDB directory="/shared/k" locker="#l"/>',
            LEASE.replace("leaseLocker", "l").replace("jdbc.LeaseDatabaseLocker", "SharedFileLocker"),
            "shared_file",
        ),
        (
            '<kahaDB directory="/shared/k"><locker><lease-database-locker '
            'lockAcquireSleepInterval="7000"/></locker></kahaDB>',
            "",
            "lease_database",
        ),
        ('<jdbcPersistenceAdapter dataSource="#ds" lockAcquireSleepInterval="7000"/>', "", "database"),
    ],
)
def test_a_locker_that_stands_elsewhere_in_the_file(store: str, beside: str, locker: str) -> None:
    changed = found(**{KAHADB: store, "<import ": f"{beside}<import "})
    told = activemq_classic.describe(changed, DescribeOptions(store="pair"))
    assert (told["locker"], told["settings"]["lock_acquire_sleep_interval_ms"]) == (locker, 7000)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({KAHADB: '<levelDB directory="x"/>'}, "has levelDB: write its descriptor by hand"),
        ({KAHADB: ""}, "has its default store: write its descriptor by hand"),
        ({KAHADB: '<jdbcPersistenceAdapter locker="#mine"/>'}, "names the locker mine, which is not in it"),
        ({"tcp://0.0.0.0:61616": "tcp://0.0.0.0:port"}, "transportConnector openwire is 'tcp://0.0.0.0:port"),
        ({"tcp://0.0.0.0:61616": "tcp://0.0.0.0"}, "maximumConnections=1000', no address with a port"),
        ({'brokerName="localhost"': 'persistent="false"'}, "keeps messages in memory alone"),
        ({KAHADB: "<kahaDB><locker><my-locker/></locker></kahaDB>"}, "has the locker my-locker: write its descriptor"),
        ({KAHADB: '<kahaDB lockKeepAlivePeriod="5s"/>'}, "lockKeepAlivePeriod is '5s', no number"),
        ({'value="0.0.0.0"': 'value="127.0.0.1"'}, "the console listens on 127.0.0.1 alone"),
        ({"jettyPort": "another"}, "no jettyPort in /srv/mq/conf/jetty.xml: say the URL"),
        ({"${activemq.data}/kahadb": "${kahadb.dir}"}, r"says \$\{kahadb.dir\}, which nothing sets"),
        ({"</beans>": ""}, "is no XML"),
    ],
)
def test_what_cannot_be_known_ends_with_one_sentence(changes: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        activemq_classic.describe(found(**changes), NONE)
    assert str(caught.value).startswith("host mq1: ")
    assert "\n" not in str(caught.value)


def test_another_file_of_configuration() -> None:
    here = found()
    other = Found(here.host, here.address, here.unit, 0, (*COMMAND, "xbean:file:/srv/mq/conf/other.xml"), {})
    assert activemq_classic.paths(other) == ["/srv/mq/conf/other.xml", "/srv/mq/conf/jetty.xml"]
    with pytest.raises(UsageError, match=r"activemq.service has no readable /srv/mq/conf/other.xml"):
        activemq_classic.describe(other, NONE)
