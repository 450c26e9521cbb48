import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from brokerdrill.products.artemis import Artemis, Jolokia, role_of
from brokerdrill.products.base import ManagementError


@pytest.mark.parametrize(
    ("active", "backup", "in_sync", "role"),
    [
        (True, False, True, "active"),
        (True, False, False, "active"),
        (False, True, True, "passive"),
        (False, True, False, "syncing"),
        (False, False, False, "starting"),
    ],
)
def test_attributes_become_a_role(active: bool, backup: bool, in_sync: bool, role: str) -> None:
    assert role_of(active, backup, in_sync) == role


def test_a_shared_store_has_nothing_to_synchronise() -> None:
    assert role_of(active=False, backup=True, in_sync=False, policy="shared_store") == "passive"
    assert role_of(active=True, backup=False, in_sync=False, policy="shared_store") == "active"
    assert role_of(active=False, backup=True, in_sync=False, policy="replication") == "syncing"


def test_the_log_of_a_failover_and_failback_gives_its_roles_in_order() -> None:
    lines = [
        (1, "INFO  [org.apache.activemq.artemis.core.server] AMQ221000: backup Message Broker is starting"),
        (2, "INFO  [..] AMQ221109: Apache Artemis Backup Server version 2.56.0 started, waiting primary to fail"),
        (3, "INFO  [..] AMQ221024: Backup server ... is synchronized with primary server"),
        (3, "INFO  [..] AMQ221031: backup announced"),
        (4, "INFO  [..] AMQ221037: ... to become 'active'"),
        (5, "INFO  [..] AMQ221007: Server is now active"),
        (6, "INFO  [..] AMQ221007: Server is now active"),
        (7, "artemis.service: Main process exited, code=killed, status=9/KILL"),
        (8, "artemis.service: Failed with result 'signal'."),
    ]
    changes = [(change.t_ns, change.role) for change in Artemis().log_roles(lines)]
    assert changes == [(1, "starting"), (2, "syncing"), (3, "passive"), (5, "active"), (7, "down")]


class Answering(Jolokia):
    """A broker's management that gives one answer."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        self._broker = 'org.apache.activemq.artemis:broker="a1"'
        self._answer = dict(answer)

    async def _call(self, *requests: Mapping[str, Any]) -> list[dict[str, Any]]:
        assert len(requests) == 1
        return [self._answer]


def test_messages_in_transit_are_those_of_all_store_and_forward_queues() -> None:
    two = {"status": 200, "value": {"sf.a": {"MessageCount": 440}, "sf.b": {"MessageCount": 2}}}
    assert asyncio.run(Answering(two).in_transit()) == 442


def test_a_broker_without_a_cluster_has_nothing_in_transit() -> None:
    assert asyncio.run(Answering({"status": 404}).in_transit()) == 0


def test_no_answer_is_not_nothing_in_transit() -> None:
    with pytest.raises(ManagementError, match="forbidden"):
        asyncio.run(Answering({"status": 403, "error": "forbidden"}).in_transit())
