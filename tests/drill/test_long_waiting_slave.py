"""A slave of ActiveMQ Classic that has waited for longer than ten minutes takes over as one that has just begun to."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from brokerdrill.bench import bench
from brokerdrill.inventory.topology import Topology
from tests.drill import own_topology
from tests.drill.deployment import on_host, run, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

SUBNET = "172.30.235"
WAITED_S = 11 * 60
TAKEN_OVER_S = 60.0
# Master and slave are equal: who has the lock is asked.
PAIRS = {"5.18.3": ("classic1", "classic2"), "6.1.7": ("classic3", "classic4")}
NEWER = {
    "all": {
        "hosts": {f"classic{number}": {"ansible_host": f"{SUBNET}.2{number}"} for number in (3, 4)},
        "children": {
            "orders": {"children": {"orders_pair2": {"hosts": {"classic3": None, "classic4": None}}}},
        },
    }
}
SERVES = "ss -Hltn 'sport = :61617'"
AGE = (
    "echo $(( $(cut -d. -f1 /proc/uptime)"
    " - $(systemctl show --value -p ActiveEnterTimestampMonotonic activemq-classic) / 1000000 ))"
)
STAYS_AWAY = "systemctl mask --runtime --quiet activemq-classic && systemctl kill --signal KILL activemq-classic"


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    """Two pairs, each of its version, on one store."""
    topology = own_topology.copied(
        tmp_path_factory.mktemp("inventory"),
        "classic_shared_file",
        "long_waiting",
        SUBNET,
        {
            "all": {"drill_allowed": False},
            "orders_pair2": {"activemq_classic_pair": "orders_pair2", "activemq_classic_version": "6.1.7"},
        },
        NEWER,
        without=["load1"],
    )
    bench.up(topology, fresh=True, progress=print)
    try:
        run(topology, "site")
        yield topology
    finally:
        bench.down(topology.name)


def test_a_slave_that_has_waited_eleven_minutes_takes_over(pairs: Topology) -> None:
    masters = {
        version: next(host for host in hosts if on_host(pairs, host, SERVES)) for version, hosts in PAIRS.items()
    }
    slaves = {version: next(host for host in hosts if host != masters[version]) for version, hosts in PAIRS.items()}
    for slave in slaves.values():
        until(lambda: int(on_host(pairs, slave, AGE)) >= WAITED_S, WAITED_S + 60, between_s=10)  # noqa: B023
        assert not on_host(pairs, slave, SERVES)
    took = {}
    for version, slave in slaves.items():
        begin = time.monotonic()
        on_host(pairs, masters[version], STAYS_AWAY)
        until(lambda: bool(on_host(pairs, slave, SERVES)), TAKEN_OVER_S)  # noqa: B023
        took[version] = round(time.monotonic() - begin, 1)
    print(took)
