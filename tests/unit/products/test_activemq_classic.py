import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from brokerdrill.products.activemq_classic import (
    ActiveMQClassic,
    ActiveMQClassicDescriptor,
    ClassicJolokia,
    counts_of,
)
from brokerdrill.products.base import ManagementError
from brokerdrill.products.health.activemq_classic import health_of, state_of
from brokerdrill.products.logs import role_changes
from brokerdrill.workload.openwire_jms import outcome_of


@pytest.mark.parametrize(
    ("slave", "started", "role"),
    [
        (True, [], "passive"),
        (False, [True, True], "active"),
        (False, [False, True], "active"),
        # An IO exception handler has stopped the connectors: a master that serves nobody.
        (False, [False, False], "starting"),
        (False, [], "starting"),
        (None, [], "starting"),
    ],
)
def test_attributes_become_a_role(slave: bool | None, started: list[bool], role: str) -> None:
    assert state_of(slave, started) == role


def test_replies_become_a_health() -> None:
    no_bean = {"status": 404, "error": "not there"}
    assert health_of([no_bean, no_bean]).state == "starting"
    assert health_of([{"status": 200, "value": True}, no_bean]).state == "passive"
    connectors = {"status": 200, "value": {"a": {"Started": False}, "b": {"Started": True}}}
    assert health_of([{"status": 200, "value": False}, connectors]).state == "active"


def test_a_queue_counts_what_is_handed_out() -> None:
    assert not counts_of({"QueueSize": 1, "InFlightCount": 1, "EnqueueCount": 7, "ConsumerCount": 0}).empty
    assert counts_of({"QueueSize": 0, "InFlightCount": 0, "EnqueueCount": 7, "ConsumerCount": 0}).empty


LOG = [
    (1, "INFO  [org.apache.activemq.broker.BrokerService] Using Persistence Adapter: KahaDBPersistenceAdapter[/srv/k]"),
    (
        2,
        "INFO  [..SharedFileLocker] Database /srv/k/lock is locked by another server. This broker is now in slave mode",
    ),
    (3, "INFO  [org.apache.activemq.broker.TransportConnector] Connector openwire started"),
    (4, "INFO  [org.apache.activemq.broker.TransportConnector] Connector stomp started"),
    (5, "INFO  [org.apache.activemq.broker.TransportConnector] Connector openwire stopped"),
    (6, "INFO  [org.apache.activemq.broker.TransportConnector] Connector stomp stopped"),
    (7, "activemq-classic.service: Main process exited, code=exited, status=1/FAILURE"),
    (8, "activemq-classic.service: Failed with result 'exit-code'."),
]


def test_the_log_of_a_takeover_and_of_giving_up_gives_its_roles_in_order() -> None:
    changes = [(change.t_ns, change.role) for change in role_changes(LOG, ActiveMQClassic().log_reader)]
    assert changes == [(1, "starting"), (2, "passive"), (3, "active"), (6, "starting"), (7, "down")]


@pytest.mark.parametrize(
    ("kind", "text", "result", "usable"),
    [
        ("TransactionRolledBackException", "Transaction completion in doubt due to failover.", "unknown", True),
        ("TransactionRolledBackException", "rolled back", "fail", True),
        ("JMSSecurityException", "User drill is not authorized to write to: queue://X", "fail", False),
        ("JMSException", "Failover timeout of 10000 ms reached.", "unknown", False),
    ],
)
def test_an_exception_proves_no_more_than_it_says(kind: str, text: str, result: str, usable: bool) -> None:
    found = outcome_of(kind, text)
    assert (found.result, found.usable) == (result, usable)


class Queues:
    """Jolokia of a broker with these queues, name to messages; that of `refused` may not be purged."""

    def __init__(self, sizes: dict[str, int], refused: str = "") -> None:
        self.sizes = sizes
        self.refused = refused
        self.done: list[str] = []

    async def call(self, *requests: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        name = request["mbean"].rpartition("=")[2]
        if request["type"] == "exec":
            assert request["operation"] == "purge()"
            if name == self.refused:
                return {"status": 403, "error": "forbidden"}
            self.done.append(name)
            return {"status": 200, "value": None}
        if name not in self.sizes:
            return {"status": 404}
        return {
            "status": 200,
            "value": {"QueueSize": self.sizes[name], "InFlightCount": 0, "EnqueueCount": 9, "ConsumerCount": 0},
        }


def purge(queues: Queues, *names: str) -> int:
    management = {"broker_name": "b", "url": "http://b:1/api/jolokia/"}
    descriptor = ActiveMQClassicDescriptor.model_validate(
        {"schema": 1, "product": "activemq_classic", "instance": "b", "host": "b", "management": management}
    )
    jolokia = ClassicJolokia(descriptor, {"username": "u", "password": "p"}, "")
    jolokia._client = queues  # type: ignore[assignment]
    return asyncio.run(jolokia.purge(names))


def test_a_purge_empties_the_queues_that_are_named_and_leaves_their_broker_alone() -> None:
    queues = Queues({"q1": 3, "q2": 0})
    assert purge(queues, "q1", "q2", "q3") == 3
    assert queues.done == ["q1", "q2"]


def test_a_purge_that_is_refused_is_said() -> None:
    with pytest.raises(ManagementError, match="forbidden"):
        purge(Queues({"q1": 3}, refused="q1"), "q1")
