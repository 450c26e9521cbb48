"""What ActiveMQ Classic's file locker does, most of it with what the product does where nothing is written."""

from __future__ import annotations

import itertools
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from brokerdrill.base import java
from brokerdrill.workload.client import ClientError
from tests.workload.standalone_classic import Classic, unpack

pytestmark = pytest.mark.long

WAITING = r"waiting \d+ seconds for the database to be unlocked"
CORRUPT = "Corrupt journal records found"
# The interface and nothing else: no class of the product's below it. The lock is a file that somebody else makes.
OWN_LOCKER = """package own;

import java.io.File;
import java.io.IOException;
import org.apache.activemq.broker.LockableServiceSupport;
import org.apache.activemq.broker.Locker;
import org.apache.activemq.store.PersistenceAdapter;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

public class OwnLocker implements Locker {
    private static final Logger LOG = LoggerFactory.getLogger(OwnLocker.class);
    private File free;
    public void configure(PersistenceAdapter adapter) { free = new File(adapter.getDirectory(), "free"); }
    public void start() throws InterruptedException {
        while (!free.exists()) {
            LOG.info("own locker waits in " + free.getParent());
            Thread.sleep(100);
        }
    }
    public boolean keepAlive() throws IOException {
        LOG.info("own locker is asked");
        return free.exists();
    }
    public void stop() { }
    public void setLockAcquireSleepInterval(long ms) { }
    public void setName(String name) { }
    public void setFailIfLocked(boolean fail) { }
    public void setLockable(LockableServiceSupport lockable) { }
}
"""

Make = Callable[..., Classic]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("classic"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The folder that brokers share."""
    return tmp_path / "store"


@pytest.fixture
def make(home: Path, tmp_path: Path, store: Path) -> Iterator[Make]:
    """A broker of that name with the shared store: further attributes of its adapter, and its locker's element."""
    made: list[Classic] = []

    def one(name: str, attributes: str = "", locker: str = "", **more: Path) -> Classic:
        inside = f"<locker>{locker}</locker>" if locker else ""
        element = f'<kahaDB directory="{store}" {attributes}>{inside}</kahaDB>'
        made.append(Classic(home, tmp_path / name, name, store=element, **more))
        return made[-1]

    yield one
    for broker in made:
        broker.kill()


def spoilt(first: Classic, second: Classic, reader: Classic) -> set[str]:
    """Let two masters write into their one store in turn, and another broker read it when both are dead; return what
    they had acknowledged and the reader does not deliver."""
    lost = set()
    for turn in range(5):
        for one in (first, second):
            texts = [f"{one.name}-{turn}-{number}" for number in range(20)]
            one.send("q", texts)
            lost.update(texts)
    for one in (first, second):
        one.kill()
    reader.begin()
    # It may end by itself as it starts, or as it delivers.
    if reader.serves_in_the_end():
        with suppress(ClientError):
            for text in reader.messages("q"):
                lost.discard(text)
    return lost


def test_with_nothing_written_a_slave_looks_each_ten_seconds_and_the_master_never(make: Make, store: Path) -> None:
    """So a lock file that somebody deletes makes two masters, and they spoil the store."""
    master, slave, reader = make("master"), make("slave"), make("reader")
    master.start()
    assert (store / "lock").exists()
    slave.begin()
    slave.until(WAITING, 3)
    looks = slave.times(WAITING)
    assert all(9.9 < after - before < 15 for before, after in itertools.pairwise(looks)), looks
    assert "waiting 10 seconds" in slave.lines(WAITING)[0]
    assert not slave.serves()
    (store / "lock").unlink()
    slave.until_it_serves()
    assert spoilt(master, slave, reader)
    assert reader.lines(CORRUPT)


def test_a_slave_that_is_to_fail_ends_and_is_the_master_of_a_free_store(make: Make) -> None:
    to_fail = '<shared-file-locker failIfLocked="true"/>'
    master, slave = make("master", locker=to_fail), make("slave", locker=to_fail)
    master.start()
    slave.begin()
    assert slave.until_ended() == 1
    assert slave.lines("lock' could not be locked")
    assert not slave.lines(WAITING)
    assert master.serves()
    master.kill()
    slave.start()


def test_without_its_lock_a_store_has_two_masters_who_spoil_it(make: Make, store: Path) -> None:
    """With the locker of the test above, which is written and not used."""
    to_fail = '<shared-file-locker failIfLocked="true"/>'
    masters = [make(name, 'useLock="false"', to_fail) for name in ("first", "second")]
    for one in masters:
        one.start()
    assert not (store / "lock").exists()
    assert spoilt(*masters, reader := make("reader"))
    assert reader.lines(CORRUPT)


def test_a_locker_of_ones_own_needs_the_interface_alone(make: Make, home: Path, store: Path, tmp_path: Path) -> None:
    jars = tmp_path / "own"
    jars.mkdir()
    source = tmp_path / "OwnLocker.java"
    source.write_text(OWN_LOCKER)
    javac = [f"{java.home()}/bin/javac", "-cp", f"{home}/lib/*", "-d", str(tmp_path / "classes"), str(source)]
    subprocess.run(javac, check=True, capture_output=True)
    with zipfile.ZipFile(jars / "own.jar", "w") as jar:
        jar.write(tmp_path / "classes" / "own" / "OwnLocker.class", "own/OwnLocker.class")
    bean = '<bean xmlns="http://www.springframework.org/schema/beans" class="own.OwnLocker"/>'
    broker = make("owner", 'lockKeepAlivePeriod="200"', bean, jars=jars)
    store.mkdir()
    broker.begin()
    broker.until("own locker waits in .*store", 3)
    assert not broker.serves()
    (store / "free").touch()
    broker.until_it_serves()
    broker.until("own locker is asked", 3)
    broker.send("q", ["one"])
    assert list(broker.messages("q", 1)) == ["one"]
    # Who has lost the lock is a slave.
    (store / "free").unlink()
    broker.until_it(lambda: not broker.serves())
