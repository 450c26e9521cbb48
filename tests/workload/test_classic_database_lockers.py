"""What ActiveMQ Classic's lockers do in a real PostgreSQL, by the statements that this has of them."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.workload.own_postgres import USER, Postgres, Said
from tests.workload.standalone_classic import Classic, unpack, unpack_drivers

pytestmark = pytest.mark.long

DATA_SOURCE = """<bean id="database" class="org.apache.commons.dbcp2.BasicDataSource">
    <property name="driverClassName" value="org.postgresql.Driver"/>
    <property name="url" value="{url}"/>
    <property name="username" value="{user}"/>
  </bean>"""
# In ms.
OFTEN = 'lockAcquireSleepInterval="500"'
KEPT = 'lockKeepAlivePeriod="200"'
OWN = 'dataSource="#database" createTablesOnStartup="true"'
STATEMENTS = "<statements><statements{}/></statements>"
LOCKED = r"^SELECT \* FROM \w+ FOR UPDATE"
ASKED = r"^UPDATE {} SET BROKER_NAME=\$1, TIME=\$2 WHERE \(TIME IS NULL"
WARNING = "These values will allow the lease to expire"


class Kind(NamedTuple):
    """A store and its locker. `adapter`: the element and its attributes, with `{store}` for the folder of the pair.
    `locker`: the element with its attributes and what is in it."""

    adapter: str
    locker: str


def jdbc(locker: str, attributes: str = KEPT) -> Kind:
    return Kind(f'jdbcPersistenceAdapter dataSource="#database" {attributes}', locker)


def kahadb(locker: str, attributes: str = KEPT) -> Kind:
    return Kind(f'kahaDB directory="{{store}}" {attributes}', locker)


def lease(attributes: str, inside: str = "") -> str:
    return f"<lease-database-locker {attributes}>{inside}</lease-database-locker>"


KINDS = {
    "jdbc-file": jdbc(f"<shared-file-locker {OFTEN}/>", f'directory="{{store}}" {KEPT}'),
    "jdbc-database": jdbc(f"<database-locker {OFTEN}/>"),
    "jdbc-lease": jdbc(lease(OFTEN)),
    "kahadb-file": kahadb(f"<shared-file-locker {OFTEN}/>"),
    "kahadb-database": kahadb(f"<database-locker {OFTEN} {OWN}>{STATEMENTS.format('')}</database-locker>"),
    "kahadb-lease": kahadb(lease(f"{OFTEN} {OWN}", STATEMENTS.format(""))),
}

Make = Callable[..., Classic]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The home of the distribution, and the folder with the database's driver."""
    drivers = tmp_path_factory.mktemp("drivers")
    return unpack(tmp_path_factory.mktemp("classic")), unpack_drivers(drivers)


@pytest.fixture
def database(postgres: Postgres) -> str:
    """The name of a database of the test's own."""
    name = f"d{next(_numbers)}"
    postgres.make(name)
    return name


@pytest.fixture
def make(postgres: Postgres, database: str, places: tuple[Path, Path], tmp_path: Path) -> Iterator[Make]:
    """A broker of that name and kind; `options` of the server's, for its connections alone."""
    made: list[Classic] = []
    home, drivers = places

    def one(name: str, kind: Kind, options: str = "") -> Classic:
        element = kind.adapter.partition(" ")[0]
        inside = f"<locker>{kind.locker}</locker>" if kind.locker else ""
        store = f"<{kind.adapter.format(store=tmp_path / 'store')}>{inside}</{element}>"
        url = f"jdbc:postgresql://127.0.0.1:{postgres.port}/{database}"
        beans = DATA_SOURCE.format(url=f"{url}?options={options}" if options else url, user=USER)
        made.append(Classic(home, tmp_path / name, name, store=store, beans=beans, jars=drivers))
        return made[-1]

    yield one
    for broker in made:
        broker.kill()


def gaps(said: list[Said] | list[float]) -> list[float]:
    """What lies between each and the next, in s."""
    times = [one.at if isinstance(one, Said) else one for one in said]
    return [after - before for before, after in itertools.pairwise(times)]


def waiters(postgres: Postgres, database: str) -> int:
    """Return how many connections wait for a lock that another one has."""
    ((found,),) = postgres.ask(
        f"select count(*) from pg_stat_activity where datname = '{database}' and wait_event_type = 'Lock'"
    )
    return int(found or 0)


@pytest.mark.parametrize("name", KINDS)
def test_each_store_goes_with_each_locker(make: Make, postgres: Postgres, database: str, name: str) -> None:
    """The slave waits as long as the master lives, and then serves what that had."""
    master, slave = make("master", KINDS[name]), make("slave", KINDS[name])
    master.start()
    slave.begin()
    # It asks again and again, but for the database's lock, where it waits in one statement.
    if name.endswith("-database"):
        slave.until_it(lambda: waiters(postgres, database) > 0)
    else:
        slave.until("waiting 0 seconds|failed to acquire lease", 4)
    master.send("q", ["one", "two"])
    assert not slave.serves() and master.serves()
    master.kill()
    slave.until_it_serves()
    assert list(slave.messages("q", 2)) == ["one", "two"]


@pytest.mark.parametrize("name", ["kahadb-database", "kahadb-lease"])
def test_without_its_statements_a_locker_of_files_does_not_start(make: Make, name: str) -> None:
    whole = KINDS[name]
    broker = make("without", whole._replace(locker=whole.locker.replace(STATEMENTS.format(""), "")))
    broker.begin()
    assert broker.until_ended() == 1
    assert broker.lines("NullPointerException|ClassCastException")


def test_with_nothing_written_jdbc_locks_a_table_in_a_long_transaction(
    make: Make, postgres: Postgres, database: str
) -> None:
    """It asks after the lock each 30 s, a slave that the database does not let wait each 10 s; and nothing that is
    deleted meanwhile goes from the disk."""
    nothing = jdbc("", "")
    master, slave = make("master", nothing), make("slave", nothing, "-c%20lock_timeout=1000")
    master.start()
    assert [one.text for one in postgres.said(database, LOCKED)] == ["SELECT * FROM ACTIVEMQ_LOCK FOR UPDATE"]
    slave.begin()
    texts = [f"m{number}" for number in range(50)]
    master.send("q", texts)
    assert list(master.messages("q", 50)) == texts
    slave.until("Sleeping for 10000 milli", 3)
    assert all(11 <= gap < 16 for gap in gaps(slave.times("Sleeping for 10000 milli")))
    kept = r"^UPDATE ACTIVEMQ_LOCK SET TIME = "
    master.until_it(lambda: len(postgres.said(database, kept)) >= 4)
    # At a fixed rate: one that is late is followed by one that is so much sooner.
    assert all(25 < gap < 35 for gap in gaps(postgres.said(database, kept)))
    ((open_s,),) = postgres.ask(
        "select extract(epoch from clock_timestamp() - xact_start)::int from pg_stat_activity"
        f" where datname = '{database}' and state = 'idle in transaction' and backend_xid is not null"
    )
    assert int(open_s or 0) >= 60
    assert dead_rows(postgres, database) == 50
    assert master.serves() and not slave.serves()


def test_a_lease_leaves_no_transaction_open(make: Make, postgres: Postgres, database: str) -> None:
    """What is deleted goes from the disk: the database's lock, above, keeps all of it there."""
    master = make("master", KINDS["jdbc-lease"])
    master.start()
    texts = [f"m{number}" for number in range(50)]
    master.send("q", texts)
    assert list(master.messages("q", 50)) == texts
    master.until_it(lambda: dead_rows(postgres, database) == 0)


def dead_rows(postgres: Postgres, database: str) -> int:
    """Return how many rows of the messages' table are deleted and still there after all was removed that could be."""
    postgres.ask("vacuum activemq_msgs", database)
    ((dead,),) = postgres.ask("select n_dead_tup from pg_stat_user_tables where relname = 'activemq_msgs'", database)
    return int(dead or 0)


@pytest.mark.parametrize(
    ("store", "sleep_ms", "keep_alive_ms", "warned"),
    [(jdbc, 1500, 2000, True), (kahadb, 1500, 2000, True), (jdbc, 2000, 2000, False), (kahadb, 3000, 1000, False)],
)
def test_a_lease_that_may_run_out_is_warned_of(
    make: Make, store: Callable[..., Kind], sleep_ms: int, keep_alive_ms: int, warned: bool
) -> None:
    """But not one that is as long as the time between two renewals (FINDINGS.md)."""
    own, inside = (OWN, STATEMENTS.format("")) if store is kahadb else ("", "")
    locker = lease(f'lockAcquireSleepInterval="{sleep_ms}" {own}', inside)
    broker = make("b", store(locker, f'lockKeepAlivePeriod="{keep_alive_ms}"'))
    broker.start()
    assert bool(broker.lines(WARNING)) is warned


def test_with_nothing_written_a_lease_is_lost_by_a_healthy_master(make: Make) -> None:
    """It is renewed each 30 s and lasts 10."""
    master, slave = (make(name, jdbc("<lease-database-locker/>", "")) for name in ("master", "slave"))
    master.start()
    assert master.lines(
        r"keep alive period: 30000, .*lockAcquireSleepInterval: 10000, .*will allow the lease to expire"
    )
    slave.begin()
    # At once where it took longer than that to start.
    slave.until("becoming master with lease expiry")
    (began,), (taken,) = (one.times("becoming master with lease expiry") for one in (master, slave))
    assert taken - began >= 10
    assert master.running()


def test_a_lease_is_as_long_as_the_pause_and_kept_in_a_table_of_ones_own(
    make: Make, postgres: Postgres, database: str
) -> None:
    """And a renewal finds it with what the pause is longer than the keep-alive period."""
    own = 'tablePrefix="our_" lockTableName="leases" leaseOwnerStatement="SELECT BROKER_NAME, TIME FROM our_leases"'
    # Nobody else makes such a table: the store makes the one of the usual name, which is then not used.
    locker = lease('lockAcquireSleepInterval="3000" createTablesOnStartup="true"', STATEMENTS.format(f" {own}"))
    master, slave = (make(name, jdbc(locker, 'lockKeepAlivePeriod="1000"')) for name in ("master", "slave"))
    master.start()
    slave.begin()
    slave.until("failed to acquire lease.  Sleeping for 3000", 4)
    assert all(3 <= gap < 5 for gap in gaps(slave.times("Sleeping for 3000")))
    assert postgres.said(database, r"^SELECT BROKER_NAME, TIME FROM our_leases$")
    assert not postgres.said(database, ASKED.format("ACTIVEMQ_LOCK"))
    renewals = [
        one
        for one in postgres.said(database, r"^UPDATE our_leases .* WHERE BROKER_NAME=")
        if "master" in one.parameters
    ]
    ends = [int(one.parameters[1]) / 1000 for one in renewals]
    assert statistics.median(end - one.at for end, one in zip(ends, renewals, strict=True)) == pytest.approx(3, abs=0.5)
    left = [end - after.at for end, after in zip(ends[1:], renewals[2:], strict=False)]
    assert statistics.median(left) == pytest.approx(3 - 1, abs=0.5)
    master.kill()
    slave.until_it_serves()
    (taken,) = slave.times("becoming master with lease expiry")
    assert taken >= ends[-1]


@pytest.mark.parametrize(
    ("allowed_ms", "behind_s", "corrected"), [(0, 60, False), (2000, 1, False), (2000, 60, True), (2000, -60, True)]
)
def test_times_are_corrected_by_the_databases_where_it_is_allowed(
    make: Make, postgres: Postgres, database: str, allowed_ms: int, behind_s: int, corrected: bool
) -> None:
    """The database's clock is another one to the broker: what it answers when it is asked for the time."""
    asked = f"currentDateTimeStatement=\"SELECT CURRENT_TIMESTAMP - interval '{behind_s} s'\""
    diff = f'maxAllowableDiffFromDBTime="{allowed_ms}"'
    broker = make("b", jdbc(lease(f"{OFTEN} {diff}", STATEMENTS.format(f" {asked}"))))
    broker.start()
    (first, *_) = postgres.said(database, ASKED.format("ACTIVEMQ_LOCK"))
    own_now_s = int(first.parameters[2]) / 1000
    assert first.at - own_now_s == pytest.approx(behind_s if corrected else 0, abs=2)
    assert len(broker.lines("diff adjust from db")) == (1 if allowed_ms else 0)
