"""The operation playbooks of an Open MQ cluster with a master broker: it serves on, and its destinations are there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from brokerdrill.base.errors import BrokerdrillError
from brokerdrill.inventory.topology import Topology
from tests.drill.deployment import deployed, on_host, run
from tests.drill.openmq_cluster import (
    BROKERS,
    DRILL_QUEUES,
    changed,
    command,
    newest_backup,
    queues,
)

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster() -> Iterator[Topology]:
    with deployed("openmq_master") as found:
        yield found


def test_the_master_changes_and_a_second_run_does_nothing(cluster: Topology) -> None:
    run(cluster, "change_master", openmq_cluster_master="openmq2")
    assert not changed(run(cluster, "change_master", openmq_cluster_master="openmq2"))
    command(cluster, "openmq3", "create dst -t q -n after.change")
    assert all(queues(cluster, host) >= DRILL_QUEUES | {"after.change"} for host in BROKERS)
    run(cluster, "change_master")


def test_a_master_that_lost_its_store_gets_its_record_back(cluster: Topology) -> None:
    run(cluster, "backup")
    newest = newest_backup(cluster)
    on_host(cluster, "openmq1", "systemctl stop openmq && rm -r /var/lib/openmq/openmq1/instances/openmq1/fs370")
    run(cluster, "restore", openmq_restore_file=str(newest))
    assert all(queues(cluster, host) >= DRILL_QUEUES for host in BROKERS)


def test_what_is_no_backup_is_refused_and_all_serve_again(cluster: Topology) -> None:
    with pytest.raises(BrokerdrillError, match="is no file on the controller"):
        run(cluster, "restore", openmq_restore_file="/nowhere")
    run(cluster, "verify")


def test_a_broker_leaves_and_comes_back(cluster: Topology) -> None:
    run(cluster, "remove_broker", openmq_leaving=["openmq3"])
    assert not changed(run(cluster, "remove_broker", openmq_leaving=["openmq3"]))
    gone = on_host(cluster, "openmq3", "hostname -I").split()[0]
    assert all(gone not in command(cluster, host, "list bkr") for host in BROKERS[:2])
    run(cluster, "site")
    assert not changed(run(cluster, "site"))
    assert all(queues(cluster, host) >= DRILL_QUEUES for host in BROKERS)


def test_the_master_does_not_leave(cluster: Topology) -> None:
    with pytest.raises(BrokerdrillError, match="which leaves: make another broker the master first"):
        run(cluster, "remove_broker", openmq_leaving=["openmq1"])
