from typing import Any

import httpx
import pytest

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.products.health.lease_db import health_of
from brokerdrill.products.lease_db import LeaseDb, LeaseDbSettings, Patroni
from brokerdrill.products.logs import role_changes
from brokerdrill.products.registry import managed


@pytest.mark.parametrize(
    ("answer", "role"),
    [
        ({"state": "running", "role": "master"}, "active"),
        ({"state": "running", "role": "primary"}, "active"),
        ({"state": "running", "role": "replica"}, "passive"),
        ({"state": "streaming", "role": "replica"}, "passive"),
        ({"state": "starting", "role": "replica"}, "starting"),
        ({"state": "stopped", "role": "master"}, "starting"),
        ({}, "starting"),
    ],
)
def test_patronis_answer_becomes_a_role(answer: dict[str, str], role: str) -> None:
    assert health_of(answer).state == role


@pytest.mark.parametrize(
    ("answer", "role"),
    [
        ({"state": "streaming", "role": "replica"}, "syncing"),
        ({"state": "streaming", "role": "replica", "sync_standby": True}, "passive"),
        ({"state": "starting", "role": "replica"}, "starting"),
        ({"state": "running", "role": "primary"}, "active"),
    ],
)
def test_a_standby_that_patroni_would_not_promote_yet_is_not_passive(answer: dict[str, Any], role: str) -> None:
    assert health_of(answer, synchronous=True).state == role
    descriptor = one("lease_db").model_copy(update={"settings": LeaseDbSettings(synchronous_standby=True)})
    assert Patroni(descriptor, "").role_of(httpx.Response(200, json=answer)) == role


def test_the_log_of_a_switchover_gives_its_roles_in_order() -> None:
    lines = [
        (1, "2026-11-21 21:07:31,303 INFO: no action. I am (db1), the leader with the lock"),
        (2, "2026-11-21 21:07:32,323 INFO: no action. I am (db1), the leader with the lock"),
        (3, "2026-11-21 21:07:33,000 INFO: manual failover: demoting myself"),
        (4, "2026-11-21 21:07:36,322 INFO: no action. I am (db1), a secondary, and following a leader (db2)"),
        (5, "lease-db.service: Main process exited, code=killed, status=9/KILL"),
    ]
    changes = [(change.t_ns, change.role) for change in role_changes(lines, LeaseDb().log_reader)]
    assert changes == [(1, "active"), (3, "starting"), (4, "passive"), (5, "down")]


def one(product: str) -> Descriptor:
    return Descriptor.model_validate(
        {"schema": 1, "instance": product, "product": product, "host": "h", "management": {"url": "https://h"}}
    )


def test_whoever_clients_send_to_comes_first_and_a_database_alone_cannot_be_drilled() -> None:
    names = [item.product for _, item in managed([one("lease_db"), one("activemq_classic"), one("toxiproxy")])]
    assert names == ["activemq_classic", "lease_db"]
    with pytest.raises(InfrastructureError, match="no host has the descriptor of a broker"):
        managed([one("lease_db")])
