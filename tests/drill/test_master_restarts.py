"""The master broker of a conventional Open MQ cluster is restarted alone, and with its backup."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from brokerdrill.bench import bench
from brokerdrill.inventory.topology import Topology
from tests.drill import own_topology
from tests.drill.deployment import on_host, run
from tests.drill.openmq_cluster import BROKERS, command, newest_backup, queues

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    topology = own_topology.copied(
        tmp_path_factory.mktemp("inventory"),
        "openmq_master",
        "master_restarts",
        "172.30.234",
        {"all": {"drill_allowed": False, "common_metrics": False}},
        without=["load1", "watch1"],
    )
    bench.up(topology, fresh=True, progress=print)
    try:
        run(topology, "site")
        yield topology
    finally:
        bench.down(topology.name)


def test_the_master_restarts_alone_and_with_its_backup_three_times(cluster: Topology) -> None:
    """Each time the whole cluster hears of what is made next; the last backup has all of it, and nothing later."""
    made: set[str] = set()
    for number in range(3):
        on_host(cluster, "openmq1", "systemctl restart openmq")
        run(cluster, "verify")
        command(cluster, "openmq2", f"create dst -t q -n alone.{number}")
        run(cluster, "backup")
        command(cluster, "openmq3", f"create dst -t q -n backed.up.{number}")
        made |= {f"alone.{number}", f"backed.up.{number}"}
        assert all(queues(cluster, host) >= made for host in BROKERS), number
    run(cluster, "restore", openmq_restore_file=str(newest_backup(cluster)))
    for host in BROKERS:
        found = queues(cluster, host)
        assert found >= made - {"backed.up.2"}
        assert "backed.up.2" not in found
