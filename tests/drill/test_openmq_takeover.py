"""What an enhanced Open MQ cluster does with the state of a broker that died, beside its messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from brokerdrill.hosts.connection import connected
from brokerdrill.hosts.descriptors import read_all, read_credentials
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.topology import Topology
from brokerdrill.runner.load_plan import endpoints
from brokerdrill.workload.config import Credentials, WorkerConfig
from tests.drill.openmq_cluster import command, deployed, on_host
from tests.workload import openmq_process as process
from tests.workload.standalone_openmq import unpack

pytestmark = pytest.mark.long

DEAD, OTHERS = "openmq1", ("openmq2", "openmq3")
QUEUE = "drill.q0"
TAKEN_OVER_S = 60.0
# Clients of the dead broker have the product's own window of two minutes to come back.
CLEANED_S = 240.0
COME_S = 30.0
# Long enough to see that a message does not come; where it would, it comes within milliseconds.
GONE_S = 3.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Topology]:
    with deployed("openmq_enhanced") as found:
        yield found


@pytest.fixture(scope="module")
def config(cluster: Topology, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], WorkerConfig]:
    """Return the configuration of a client of that broker, as the load's clients have it."""
    folder = tmp_path_factory.mktemp("client")

    async def read() -> tuple[list[Descriptor], Credentials, str]:
        async with connected(cluster.hosts) as connections:
            found = [item for item in await read_all(connections.values(), {}) if item.product == "openmq"]
            (first,) = [item for item in found if item.instance == DEAD]
            account = await read_credentials(connections[first.host], first)
            assert first.tls
            trusted = await connections[first.host].sh(f"cat {first.tls.ca}", check=True)
            return found, Credentials(account["username"], account["password"]), trusted.out

    brokers, credentials, trusted = asyncio.run(read())
    (folder / "ca.pem").write_text(trusted)
    home = unpack(folder)

    def made(name: str) -> WorkerConfig:
        return WorkerConfig(
            run_id="takeover",
            worker="w0",
            clock="w0",
            client="openmq",
            endpoints=tuple(one for one in endpoints(brokers, "openmq") if one.instance == name),
            credentials=credentials,
            addresses=(QUEUE,),
            transaction=0,
            tls_ca=str(folder / "ca.pem"),
            jars=str(home / "lib"),
        )

    return made


def until(holds: Callable[[], bool], deadline_s: float) -> None:
    end = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(1)


def temporary(cluster: Topology, host: str) -> str:
    return command(cluster, host, "list dst -tmp")


def test_prepared_transactions_are_kept_and_what_is_transient_goes(
    cluster: Topology, config: Callable[[str], WorkerConfig]
) -> None:
    with process.clients(config(OTHERS[0])) as clients:
        with process.clients(config(DEAD)) as dying:
            dying(process.open_client, config(DEAD), "asker", [], [])
            reply = dying(process.make_temporary, "asker", "reply")
            dying(process.prepare, config(DEAD), QUEUE, 41)
            dying(process.prepare, config(DEAD), QUEUE, 42)
            # The service stays away: systemd would start it again.
            on_host(cluster, DEAD, "systemctl mask --runtime openmq && systemctl kill --signal KILL openmq")
            dying.kill()
        until(lambda: "TAKEOVER_COMPLETE" in command(cluster, OTHERS[0], "list bkr"), TAKEN_OVER_S)
        (heir,) = [name for name in OTHERS if clients(process.prepared, config(name))]
        assert clients(process.prepared, config(heir)) == {41, 42}
        clients(process.open_client, config(OTHERS[1]), "taker", [], [QUEUE])
        assert clients(process.receive, "taker", 1, GONE_S) == 0
        clients(process.commit_prepared, config(heir), 42)
        assert clients(process.receive, "taker", 1, COME_S) == 1
        assert clients(process.prepared, config(heir)) == {41}
        assert reply in temporary(cluster, heir), "kept for its client"
        until(lambda: all(reply not in temporary(cluster, name) for name in OTHERS), CLEANED_S)
        # The broker comes back without what was taken over.
        on_host(cluster, DEAD, "systemctl unmask openmq && systemctl start openmq")
        until(lambda: not clients(process.prepared, config(DEAD)), TAKEN_OVER_S)
        clients(process.roll_back_prepared, config(heir), 41)
        assert clients(process.prepared, config(heir)) == set()
        assert clients(process.receive, "taker", 1, GONE_S) == 0
