"""A new configuration for the balancer: it goes by it, or the deployment says that it does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.inventory.topology import Topology
from tests.drill.deployment import deployed, on_host, run

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def balanced() -> Iterator[Topology]:
    with deployed("artemis_data_gravity") as found:
        yield found


def workers(topology: Topology) -> set[str]:
    """Return the processes that serve for the balancer."""
    main = "systemctl show --property=MainPID --value balancer"
    return {*on_host(topology, "balancer1", f"pgrep --parent $({main})").split()}


def test_a_configuration_is_gone_by_or_is_told_not_to_be(balanced: Topology) -> None:
    before = workers(balanced)
    run(balanced, "site", balancer_max_connections=4000)
    reloaded = workers(balanced)
    assert reloaded - before

    # Good as a file, but more than the unit may have descriptors.
    with pytest.raises(InfrastructureError, match="balancer1 goes on by its old configuration: the new one brought no"):
        run(balanced, "site", balancer_max_connections=1_000_000, balancer_health_timeout_s=20)
    assert workers(balanced) == reloaded

    run(balanced, "site", balancer_max_connections=4000)
    assert workers(balanced) - reloaded
