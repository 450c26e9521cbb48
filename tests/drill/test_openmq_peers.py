"""An Open MQ cluster of peers: its record of changes in the database, and what its deployment refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerdrill.base.errors import BrokerdrillError
from brokerdrill.inventory.topology import Topology
from tests.drill.deployment import deployed, run
from tests.drill.openmq_cluster import BROKERS, DRILL_QUEUES, changed, command, newest_backup, queues

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster() -> Iterator[Topology]:
    with deployed("openmq_peers") as found:
        yield found


def test_the_record_is_backed_up_and_restored(cluster: Topology) -> None:
    command(cluster, "openmq2", "create dst -t q -n before")
    run(cluster, "backup")
    command(cluster, "openmq2", "create dst -t q -n after")
    run(cluster, "restore", openmq_restore_file=str(newest_backup(cluster)))
    for host in BROKERS:
        found = queues(cluster, host)
        assert found >= DRILL_QUEUES | {"before"}
        assert "after" not in found


def test_what_is_no_backup_is_refused_and_the_record_is_kept(cluster: Topology, tmp_path: Path) -> None:
    broken = tmp_path / "broken.changes"
    broken.write_bytes(b"no backup of any broker")
    with pytest.raises(BrokerdrillError, match="was not restored, and the record is as it was"):
        run(cluster, "restore", openmq_restore_file=str(broken))
    run(cluster, "verify")
    assert all(queues(cluster, host) >= DRILL_QUEUES | {"before"} for host in BROKERS)


def test_a_wrong_password_of_the_database_is_told_and_changes_nothing(cluster: Topology) -> None:
    with pytest.raises(BrokerdrillError, match="password authentication failed"):
        run(cluster, "site", openmq_jdbc_password="wrong")
    run(cluster, "verify")
    run(cluster, "site")
    assert not changed(run(cluster, "site"))
