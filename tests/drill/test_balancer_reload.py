"""A new configuration for the balancer: it goes by it, or the deployment says that it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from brokerdrill.bench import bench
from brokerdrill.hosts.connection import connected
from brokerdrill.inventory.topology import Topology, find_topology
from tests.drill.conftest import deployed

pytestmark = pytest.mark.long

WORKERS = "pgrep --parent $(systemctl show --property=MainPID --value balancer)"


@pytest.fixture(scope="module")
def balanced() -> Iterator[Topology]:
    found = find_topology("artemis_data_gravity")
    bench.up(found, fresh=True, progress=print)
    status, said = deployed(found)
    assert status == 0, said
    yield found
    bench.down(found)


def workers(topology: Topology) -> set[str]:
    """Return the processes that serve for the balancer."""

    async def main() -> set[str]:
        hosts = [host for host in topology.hosts if "balancer" in host.groups]
        async with connected(hosts) as connections:
            (one,) = connections.values()
            return {*(await one.sh(WORKERS, check=True)).out.split()}

    return asyncio.run(main())


def test_a_configuration_is_gone_by_or_is_told_not_to_be(balanced: Topology) -> None:
    before = workers(balanced)
    status, said = deployed(balanced, balancer_max_connections=4000)
    assert status == 0, said
    reloaded = workers(balanced)
    assert reloaded - before

    # Good as a file, but more than the unit may have descriptors.
    wrong = {"balancer_max_connections": 1_000_000, "balancer_health_timeout_s": 20}
    status, said = deployed(balanced, **wrong)
    assert status != 0
    assert "balancer1 goes on by its old configuration: the new one brought no worker within 20 s" in said
    assert workers(balanced) == reloaded

    status, said = deployed(balanced, balancer_max_connections=4000)
    assert status == 0, said
    assert workers(balanced) - reloaded
