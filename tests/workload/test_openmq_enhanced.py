"""What an enhanced cluster of Open MQ does when a broker dies or stands still: real brokers, with their store in a real
PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from brokerdrill.workload.client import ClientError
from brokerdrill.workload.config import BrokerEndpoint, ClientAccount, WorkerConfig
from tests.workload import openmq_process as process
from tests.workload.own_postgres import USER as DATABASE_USER
from tests.workload.own_postgres import Postgres
from tests.workload.standalone_classic import unpack_drivers
from tests.workload.standalone_openmq import PASSWORD, USER, OpenMq, enhanced, unpack

pytestmark = pytest.mark.long

DEADLINE_S = 180.0
COME_S = 60.0
# In doubt after 3 s, failed 2 to 4 s later.
QUICK = {
    "imq.cluster.heartbeat.interval": 1,
    "imq.cluster.heartbeat.threshold": 3,
    "imq.cluster.monitor.interval": 2,
    "imq.cluster.monitor.threshold": 2,
}
# Failed 40 to 60 s after that.
PATIENT = {**QUICK, "imq.cluster.monitor.interval": 20, "imq.cluster.monitor.threshold": 3}
AUTO = {"imq.autocreate.queue": "true"}
# It takes so many a while to be worked through.
BACKLOG = 3000
REFUSED = "C4099"
# In the order in which a broker's log has them: it tries to take over, has taken over, has worked through it.
TRIES, TAKEN, PROCESSED = "[B1216]", "[B1217]", "[B1223]"
TOO_LATE = "[B1191]"
IN_DOUBT, NOT_IN_DOUBT = "[B1288]", "[B1213]"


class Attempt(NamedTuple):
    """A new client's: at which broker, from when to when (Unix time in s), and what it was told; None: accepted."""

    at: str
    begun: float
    ended: float
    error: str | None


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("openmq"))


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_drivers(tmp_path_factory.mktemp("drivers"))


def of(*brokers: OpenMq, again: bool = False) -> WorkerConfig:
    """A client of those brokers; with `again` its library goes on asking until one takes it."""
    return WorkerConfig(
        run_id="enhanced",
        worker="w0",
        clock="w0",
        client="openmq",
        endpoints=tuple(BrokerEndpoint(one.address, one.port, one.name, one.name) for one in brokers),
        credentials=ClientAccount(USER, PASSWORD),
        addresses=("q",),
        transaction=0,
        jars=str(brokers[0].home / "lib"),
        url_params={"imqReconnectEnabled": "true", "imqAddressListIterations": "-1"} if again else {},
        call_timeout_ms=60_000,
    )


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def heir_of(brokers: Mapping[str, OpenMq], said: str) -> OpenMq | None:
    return next((one for one in brokers.values() if one.running() and one.at(said)), None)


def test_a_takeover(home: Path, jars: Path, postgres: Postgres, tmp_path: Path) -> None:
    """Within what the settings say, and at once when it is decided; then new clients wait until all is worked through,
    and those of the dead broker are sent to the one that has its store."""
    url = postgres.make("takeover")
    with (
        enhanced(home, tmp_path, ["e1", "e2", "e3"], url, DATABASE_USER, jars, {**QUICK, **AUTO}) as brokers,
        process.clients(of(*brokers.values())) as clients,
    ):
        e1, e2, e3 = brokers.values()
        # Each knows one broker beside its own: of one of them that is not the heir.
        for other in (e2, e3):
            clients(process.open_client, of(e1, other, again=True), f"led by {other.name}", ["left"], [])
        clients(process.open_client, of(e1), "giver", ["left"], [])
        assert set(clients(process.send, "giver", "left", BACKLOG)) == {"ok"}
        killed = time.time()
        e1.kill()
        attempts: list[Attempt] = []
        while heir_of(brokers, PROCESSED) is None:
            assert time.time() < killed + DEADLINE_S
            for one in (e2, e3):
                begun, error = time.time(), None
                try:
                    clients(process.open_client, of(one), "new", [], [])
                    clients(process.close, "new")
                except ClientError as refused:
                    error = str(refused)
                attempts.append(Attempt(one.name, begun, time.time(), error))
        heir = heir_of(brokers, PROCESSED)
        assert heir is not None
        tries, taken, processed = (heir.at(said) for said in (TRIES, TAKEN, PROCESSED))
        assert tries and taken and processed
        print(f"tried after {tries - killed:.1f} s, taken {taken - tries:.3f}, processed {processed - taken:.1f}")
        # A heartbeat and an entry in the database may have come just before the kill; the machine may be busy.
        assert 3 - 1 + 2 - 1 <= tries - killed <= 3 + 2 * 2 + 1 + 4
        # How long depends on how much there is; it is the smaller part in any case.
        assert taken - tries < processed - taken
        # Whoever else has tried was too late.
        (late,) = (one for one in (e2, e3) if one is not heir)
        assert late.at(TAKEN) is None
        assert late.at(TRIES) is None or late.at(TOO_LATE)
        meanwhile = [one for one in attempts if taken < one.begun and one.ended < processed]
        at_heir = [one for one in meanwhile if one.at == heir.name]
        assert at_heir and all(REFUSED in (one.error or "") for one in at_heir), at_heir
        assert any(one.error is None for one in meanwhile if one.at != heir.name)
        for other in (e2, e3):
            until(lambda other=other: clients(process.port_of, f"led by {other.name}") == heir.port)  # type: ignore[misc]
        clients(process.open_client, of(heir), "taker", [], ["left"])
        assert clients(process.receive, "taker", BACKLOG, COME_S) == BACKLOG


def test_the_sooner_a_broker_is_given_up_the_sooner_a_slow_one_is(
    home: Path, jars: Path, postgres: Postgres, tmp_path: Path
) -> None:
    """Both stand still for the same time; the one that was given up ends when it goes on."""
    for name in ("quick", "patient"):
        (tmp_path / name).mkdir()
    with (
        enhanced(home, tmp_path / "quick", ["q1", "q2"], postgres.make("quick"), DATABASE_USER, jars, QUICK) as quick,
        enhanced(
            home, tmp_path / "patient", ["p1", "p2"], postgres.make("patient"), DATABASE_USER, jars, PATIENT
        ) as patient,
    ):
        slow = [quick["q1"], patient["p1"]]
        for one in slow:
            one.pause()
        quick["q2"].until(PROCESSED)
        patient["p2"].until(IN_DOUBT)
        tries, taken = (quick["q2"].at(said) for said in (TRIES, TAKEN))
        # There is nothing in it.
        assert tries and taken and taken - tries < 5
        for one in slow:
            one.resume()
        until(lambda: not slow[0].running())
        assert "[B3203]" in slow[0].log.read_text()
        patient["p2"].until(NOT_IN_DOUBT)
        assert slow[1].running()
        assert patient["p2"].at(TRIES) is None
