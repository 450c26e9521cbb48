"""Every property of storage lockers: one broker a row, rendered in one play, held against the schema inside the
distribution, and then read back from the beans that the broker itself makes of its configuration.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.roles.conftest import ROOT, inventories, load, playbook, render_all
from tests.roles.test_plugins import cached, plugin
from tests.unpacking import unpack

DEFAULTS = load(ROOT / "roles" / "activemq_classic" / "defaults" / "main.yml")
ARCHIVE = load(ROOT / "roles" / "activemq_classic" / "vars" / "main" / "archive.yml")["__activemq_classic_archives"][
    "5.18.3"
]
SCHEMAS = [
    {"jar": "activemq-spring-", "member": "activemq.xsd"},
    {"jar": "spring-beans-", "member": "org/springframework/beans/factory/xml/spring-beans.xsd"},
]
SHARED_FILE = "org.apache.activemq.store.SharedFileLocker"
DATABASE = "org.apache.activemq.store.jdbc.DefaultDatabaseLocker"
LEASE = "org.apache.activemq.store.jdbc.LeaseDatabaseLocker"
KAHADB = "org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter"
JDBC = "org.apache.activemq.store.jdbc.JDBCPersistenceAdapter"
MYSQL = "jdbc:mysql://db.example:3306/broker"


class StoreRow(NamedTuple):
    """What an inventory sets (without the role's prefix), and what the broker must have understood: bean.property."""

    settings: dict[str, Any]
    expected: dict[str, str]


def kahadb(locker: str = "shared_file", **settings: Any) -> dict[str, Any]:
    return {"persistence_adapter": "kahadb", "locker": locker, **settings}


def jdbc(locker: str = "database", **settings: Any) -> dict[str, Any]:
    return {"persistence_adapter": "jdbc", "locker": locker, **settings}


ROWS: dict[str, StoreRow] = {
    # each combination that the product takes
    "kahadb-default": StoreRow(kahadb("default"), {"adapter.class": KAHADB, "locker.class": SHARED_FILE}),
    "kahadb-shared-file": StoreRow(kahadb(), {"adapter.class": KAHADB, "locker.class": SHARED_FILE}),
    "kahadb-database": StoreRow(kahadb("database"), {"adapter.class": KAHADB, "locker.class": DATABASE}),
    "kahadb-lease": StoreRow(
        kahadb("lease_database"),
        {
            "adapter.class": KAHADB,
            "locker.class": LEASE,
            # The product's own: lease_statements has the same with another end.
            "statements.leaseObtainStatement": "UPDATE ACTIVEMQ_LOCK SET BROKER_NAME=?, TIME=?"
            " WHERE (TIME IS NULL OR TIME < ?) AND ID = 1",
            "statements.leaseUpdateStatement": "UPDATE ACTIVEMQ_LOCK SET BROKER_NAME=?, TIME=?"
            " WHERE BROKER_NAME=? AND ID = 1",
        },
    ),
    "jdbc-default": StoreRow(jdbc("default"), {"adapter.class": JDBC, "locker.class": DATABASE}),
    "jdbc-database": StoreRow(jdbc(), {"adapter.class": JDBC, "locker.class": DATABASE}),
    "jdbc-lease": StoreRow(jdbc("lease_database"), {"adapter.class": JDBC, "locker.class": LEASE}),
    "jdbc-shared-file": StoreRow(
        jdbc("shared_file", store_dir="/srv/shared"), {"locker.class": SHARED_FILE, "locker.directory": "/srv/shared"}
    ),
    "custom": StoreRow(
        kahadb("custom", locker_class=SHARED_FILE, locker_properties={"failIfLocked": True}),
        {"locker.class": SHARED_FILE, "locker.failIfLocked": "True"},
    ),
    # what an inventory brings of its own
    "own": StoreRow(
        kahadb(
            broker_attributes={
                "advisorySupport": False,
                "populateJMSXUserID": "true",
                "offlineDurableSubscriberTimeout": 60000,
            },
            policy_entries='<policyEntry queue="&gt;" producerFlowControl="true" memoryLimit="${queue.memory}"/>'
            '<policyEntry topic="&gt;"><dispatchPolicy><strictOrderDispatchPolicy/></dispatchPolicy></policyEntry>',
            more_plugins="<statisticsBrokerPlugin/><timeStampingBrokerPlugin zeroExpirationOverride='1000'/>",
            more_elements='<networkConnectors><networkConnector name="to-b" uri="static:(ssl://b:61617,ssl://c:61617)" '
            'userName="${net.user}" password="${net.password}" duplex="true"/></networkConnectors>'
            "<destinationInterceptors><virtualDestinationInterceptor><virtualDestinations>"
            '<compositeQueue name="orders"><forwardTo><queue physicalName="audit"/></forwardTo>'
            "</compositeQueue></virtualDestinations>"
            "</virtualDestinationInterceptor></destinationInterceptors>",
            more_beans='<bean id="more" class="java.lang.String"><constructor-arg value="x"/></bean>',
            more_secrets={"net.user": "R&D<4>", "net.password": r"a\b#!=:", "queue.memory": "5mb"},
            login_modules=[
                {"module": "org.apache.activemq.jaas.LDAPLoginModule", "options": {"connectionURL": "ldap://x"}}
            ],
            temporary_authorization={"read": ["admins"], "write": ["admins"], "admin": ["admins"]},
            connectors=[
                {"name": "openwire", "scheme": "ssl", "port": 61617, "attributes": {"updateClusterClients": True}},
                {"name": "plain", "scheme": "nio", "port": 61618},
                {"name": "ws", "scheme": "ws", "port": 61614},
            ],
        ),
        {
            "broker.advisorySupport": "False",
            "broker.populateJMSXUserID": "True",
            "broker.offlineDurableSubscriberTimeout": "60000",
            "adapter.class": KAHADB,
        },
    ),
    # of every locker and adapter
    "sleep": StoreRow(kahadb(lock_acquire_sleep_interval_ms=4321), {"locker.lockAcquireSleepInterval": "4321"}),
    "fail-if-locked": StoreRow(kahadb(fail_if_locked=True), {"locker.failIfLocked": "True"}),
    "use-lock": StoreRow(kahadb(use_lock=False, allow=["no_lock"]), {"adapter.useLock": "False"}),
    "keep-alive": StoreRow(kahadb(lock_keep_alive_period_ms=777), {"adapter.lockKeepAlivePeriod": "777"}),
    "keep-alive-none": StoreRow(
        kahadb(lock_keep_alive_period_ms=0, allow=["no_keep_alive"]), {"adapter.lockKeepAlivePeriod": "0"}
    ),
    # of a lease
    "lease-holder": StoreRow(
        jdbc("lease_database", lease_holder_id="the-first"), {"locker.leaseHolderId": "the-first"}
    ),
    "lease-holder-name": StoreRow(jdbc("lease_database", broker_name="b1"), {"broker.brokerName": "b1"}),
    "lease-duration": StoreRow(
        jdbc("lease_database", lease_duration_ms=3000, lock_acquire_sleep_interval_ms=500),
        {
            "locker.lockAcquireSleepInterval": "500",
            "statements.leaseObtainStatement": "UPDATE ACTIVEMQ_LOCK SET BROKER_NAME=?, TIME=? + 2500"
            " WHERE (TIME IS NULL OR TIME < ?) AND ID = 1",
            "statements.leaseUpdateStatement": "UPDATE ACTIVEMQ_LOCK SET BROKER_NAME=?, TIME=? + 2500"
            " WHERE BROKER_NAME=? AND ID = 1",
        },
    ),
    "lease-duration-none": StoreRow(
        kahadb("lease_database", lease_duration_ms=0),
        {
            "statements.leaseUpdateStatement": "UPDATE ACTIVEMQ_LOCK SET BROKER_NAME=?, TIME=?"
            " WHERE BROKER_NAME=? AND ID = 1",
        },
    ),
    "lease-duration-table": StoreRow(
        kahadb(
            "lease_database",
            lease_duration_ms=1500,
            lock_table_name="our_lock",
            statements={"tablePrefix": "our_"},
        ),
        {
            "statements.lockTableName": "our_lock",
            "statements.leaseUpdateStatement": "UPDATE our_our_lock SET BROKER_NAME=?, TIME=? + 500"
            " WHERE BROKER_NAME=? AND ID = 1",
        },
    ),
    "lease-clock": StoreRow(
        jdbc("lease_database", max_allowable_diff_from_db_time_ms=250), {"locker.maxAllowableDiffFromDBTime": "250"}
    ),
    # of whatever is in a database
    "tables": StoreRow(jdbc(create_tables_on_startup=False), {"adapter.createTablesOnStartup": "False"}),
    "tables-lease": StoreRow(
        jdbc("lease_database", create_tables_on_startup=False), {"locker.createTablesOnStartup": "False"}
    ),
    "tables-kahadb-lease": StoreRow(kahadb("lease_database"), {"locker.createTablesOnStartup": "True"}),
    "query-timeout": StoreRow(jdbc("lease_database", locker_query_timeout_s=7), {"locker.queryTimeout": "7"}),
    "lock-table": StoreRow(
        kahadb("lease_database", lock_table_name="our_lock"), {"statements.lockTableName": "our_lock"}
    ),
    # Nobody else makes a table of that name.
    "lock-table-jdbc": StoreRow(
        jdbc("lease_database", lock_table_name="our_lock"),
        {"statements.lockTableName": "our_lock", "locker.createTablesOnStartup": "True"},
    ),
    "statements": StoreRow(
        jdbc("lease_database", statements={"leaseObtainStatement": "UPDATE x", "stringIdDataType": "VARCHAR(99)"}),
        {"statements.leaseObtainStatement": "UPDATE x", "statements.stringIdDataType": "VARCHAR(99)"},
    ),
    "more-locker": StoreRow(jdbc(locker_properties={"queryTimeout": 3}), {"locker.queryTimeout": "3"}),
    "more-adapter": StoreRow(
        kahadb(persistence_properties={"checkpointInterval": 999}), {"adapter.checkpointInterval": "999"}
    ),
    # IO exception handlers
    "handler-default": StoreRow(kahadb(), {"handler.class": "org.apache.activemq.util.DefaultIOExceptionHandler"}),
    "handler-lease": StoreRow(
        jdbc("lease_database"), {"handler.class": "org.apache.activemq.util.LeaseLockerIOExceptionHandler"}
    ),
    "handler-older": StoreRow(
        jdbc(io_exception_handler="jdbc"), {"handler.class": "org.apache.activemq.store.jdbc.JDBCIOExceptionHandler"}
    ),
    "handler-own": StoreRow(
        kahadb("lease_database", io_exception_handler="org.apache.activemq.util.LeaseLockerIOExceptionHandler"),
        {"handler.class": "org.apache.activemq.util.LeaseLockerIOExceptionHandler"},
    ),
    "handler-properties": StoreRow(
        jdbc(
            io_exception_handler_properties={
                "ignoreAllErrors": True,
                "ignoreNoSpaceErrors": False,
                "ignoreSQLExceptions": False,
                "stopStartConnectors": True,
                "resumeCheckSleepPeriod": 345,
                "sqlExceptionMessage": "gone",
            }
        ),
        {
            "handler.ignoreAllErrors": "True",
            "handler.ignoreNoSpaceErrors": "False",
            "handler.ignoreSQLExceptions": "False",
            "handler.stopStartConnectors": "True",
            "handler.resumeCheckSleepPeriod": "345",
            "handler.sqlExceptionMessage": "gone",
        },
    ),
    # the database
    "url": StoreRow(
        jdbc("lease_database"),
        {
            "database.url": "jdbc:postgresql://192.0.2.1:5432,192.0.2.2:5432/broker?targetServerType=primary&connectTimeout=2"
            "&socketTimeout=5&sslResponseTimeout=2000&loginTimeout=15&tcpKeepAlive=true&sslmode=verify-full&sslrootcert={ca}",
            "database.username": "broker",
        },
    ),
    "url-lock": StoreRow(
        jdbc("database"),
        {
            "database.url": "jdbc:postgresql://192.0.2.1:5432,192.0.2.2:5432/broker?targetServerType=primary&connectTimeout=2"
            "&socketTimeout=5&sslResponseTimeout=2000&loginTimeout=15&tcpKeepAlive=true&sslmode=verify-full&sslrootcert={ca}"
            "&options=-c%20lock_timeout%3D4000",
        },
    ),
    "url-lock-default": StoreRow(
        jdbc("default"),
        {
            "database.url": "jdbc:postgresql://192.0.2.1:5432,192.0.2.2:5432/broker?targetServerType=primary&connectTimeout=2"
            "&socketTimeout=5&sslResponseTimeout=2000&loginTimeout=15&tcpKeepAlive=true&sslmode=verify-full&sslrootcert={ca}"
            "&options=-c%20lock_timeout%3D4000",
        },
    ),
    "url-mysql": StoreRow(
        jdbc(
            "lease_database",
            jdbc_url=MYSQL,
            jdbc_url_options={"useJDBCCompliantTimezoneShift": True},
            jdbc_driver_class="com.mysql.cj.jdbc.Driver",
        ),
        {
            "database.url": f"{MYSQL}?useJDBCCompliantTimezoneShift=true",
            "database.driverClassName": "com.mysql.cj.jdbc.Driver",
        },
    ),
    "pool": StoreRow(jdbc(datasource_properties={"maxTotal": 5}), {"database.maxTotal": "5"}),
    "dialect": StoreRow(jdbc(jdbc_adapter="postgresql-jdbc-adapter"), {"adapter.class": JDBC}),
}

FILES = (
    "activemq.xml",
    "management.xml",
    "jolokia-access.xml",
    "secrets.properties",
    "management-users.properties",
)


def make_key(work: Path) -> tuple[Path, Path]:
    """Return a certificate that stands for the CA's, and a bundle of its key and itself."""
    key, certificate, bundle = work / "key.pem", work / "ca.pem", work / "host.bundle.pem"
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=test"]
    subprocess.run(["openssl", *made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    bundle.write_text(key.read_text() + certificate.read_text())
    return certificate, bundle


@pytest.fixture(scope="module")
def archive() -> Path:
    from brokerdrill.base import paths

    found = cached.keep(paths.cache() / "archives", "apache-activemq-5.18.3-bin.tar.gz", "maven", [ARCHIVE])
    return Path(found["path"])


@pytest.fixture(scope="module")
def understood(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return row → what the broker made of it ("ca": the CA's path in it)."""
    from brokerdrill.base import paths

    work = tmp_path_factory.mktemp("classic")
    certificate, bundle = make_key(work)
    hosts = {}
    for name, row in ROWS.items():
        settings = {f"activemq_classic_{key}": value for key, value in row.settings.items()}
        place = {
            "activemq_classic_config_dir": str(work / "conf" / name),
            "activemq_classic_data_dir": str(work / name),
        }
        hosts[name] = {**place, **settings}
    databases = {"db1": {"ansible_host": "192.0.2.1"}, "db2": {"ansible_host": "192.0.2.2"}}
    shared = {
        "ansible_connection": "local",
        "activemq_classic_address": "127.0.0.1",
        "activemq_classic_management_port": 0,
        "common_inventory_name": "classic",
        "common_tls_ca": str(certificate),
        "common_tls_bundle": str(bundle),
    }
    inventory = work / "hosts.json"
    groups = {"activemq_classic": {"hosts": hosts}, "lease_db": {"hosts": databases}}
    inventory.write_text(json.dumps({"all": {"vars": shared, "children": groups}}))
    templates = {name: f"{name}.j2" for name in FILES}
    rendered = render_all(work, "activemq_classic", "activemq_classic", templates, inventory=inventory)
    host = plugin("action", "host")
    for name, found in rendered.items():
        (work / "conf" / name).mkdir(parents=True)
        for file, text in found["files"].items():
            (work / "conf" / name / file).write_text(text)
        problem = host.schema_problem(found["files"]["activemq.xml"], str(archive), SCHEMAS)
        assert problem is None, f"{name}: {problem}"
    unpack(archive, work / "home")
    (home,) = (work / "home").iterdir()
    jars = [str(path) for path in home.rglob("lib/**/*.jar")]
    more = DEFAULTS["activemq_classic_more_jars"]
    kept = cached.keep(paths.cache() / "archives", "activemq-classic-more-jars.tar", "maven", more)
    unpack(kept["path"], work / "more")
    jars += [str(path) for path in (work / "more").glob("*.jar")]
    files = {name: str(work / "conf" / name / "activemq.xml") for name in ROWS}
    script = str(ROOT / "tests" / "roles" / "classic_check.py")
    done = subprocess.run(
        [sys.executable, script, str(home), *jars, "--", *files.values()], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.strip().splitlines()[-1])
    return {name: {**told[file], "ca": str(certificate)} for name, file in files.items()}


@pytest.mark.parametrize("name", ROWS)
def test_the_broker_understands_each_property_as_it_was_meant(understood: dict[str, dict[str, Any]], name: str) -> None:
    found = understood[name]
    assert "error" not in found, found["error"]
    for path, value in ROWS[name].expected.items():
        bean, _, field = path.partition(".")
        assert found[bean].get(field) == value.replace("{ca}", found["ca"]), path


def test_every_setting_of_lockers_has_a_row() -> None:
    words = (
        "lock",
        "lease",
        "max_allowable",
        "create_tables",
        "fail_if",
        "use_lock",
        "statements",
        "io_exception",
        "jdbc",
    )
    settings = {name.removeprefix("activemq_classic_") for name in DEFAULTS if any(word in name for word in words)} - {
        "clock_offset",
        "jdbc_user",
        "jdbc_password",
    }
    assert settings <= {key for row in ROWS.values() for key in row.settings}


def test_a_database_without_a_primary_is_said_in_time(tmp_path: Path) -> None:
    """Nobody listens where the database should be: one sentence, when the time is up, and no broker is started."""
    task = {"ansible.builtin.include_role": {"name": "brokerdrill.ha.activemq_classic", "tasks_from": "service"}}
    book = tmp_path / "play.yml"
    book.write_text(json.dumps([{"hosts": "classic1", "gather_facts": False, "tasks": [task]}]))
    extra = {
        "ansible_connection": "local",
        "lease_db_address": "127.0.0.1",
        "lease_db_rest_port": 9,
        "activemq_classic_health_timeout_s": 3,
    }
    inventory = ROOT / "inventories" / "classic_lease_kahadb"
    done = playbook([*inventories(inventory), str(book), "-e", json.dumps(extra)], tmp_path / "cache")
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert "None of db1, db2 was the lease database's primary within 3 s" in said
    assert "TASK [brokerdrill.ha.activemq_classic : Unit" not in said
    # A try a second, of both members in turn: without the deadline there would be three of each.
    assert 1 <= said.count("(item=db") <= 5, said
