"""The balancer as drills see it: what its page and its log amount to, and who serves behind it."""

from __future__ import annotations

from typing import Any

import pytest

from brokerdrill.base.errors import UsageError
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.products.balancer import Balancer
from brokerdrill.products.health.balancer import state_of
from brokerdrill.products.logs import role_changes
from brokerdrill.runner.load.plan import endpoints
from brokerdrill.scenario.facts import facts
from brokerdrill.workload.client import endpoint_certified
from brokerdrill.workload.config import BrokerEndpoint
from tests.unit.descriptors import instance
from tests.unit.runner.load.test_routing import listener, planned


@pytest.mark.parametrize(("status", "role"), [(200, "active"), (503, "starting")])
def test_an_answer_becomes_a_role(status: int, role: str) -> None:
    assert state_of(status) == role


LOG = [
    (1, "[NOTICE]   (31) : New worker (33) forked"),
    (2, "[NOTICE]   (31) : Loading success."),
    (3, "[WARNING]  (33) : Server own_keys/artemis1 is DOWN, reason: Layer4 connection problem."),
    (4, "balancer.service: Main process exited, code=killed, status=9/KILL"),
    (5, "balancer.service: Failed with result 'signal'."),
    (6, "[NOTICE]   (41) : New worker (43) forked"),
]


def test_the_log_of_a_kill_gives_its_roles_in_order() -> None:
    changes = [(change.t_ns, change.role) for change in role_changes(LOG, Balancer().log_reader)]
    assert changes == [(1, "active"), (4, "down"), (6, "active")]


def broker(name: str, port: int) -> Descriptor:
    own = listener(port + 10, "own", router="r", key="SNI_HOST")
    return instance("artemis", name, store=name, listeners=[listener(port), own], features=["local_partition"])


def balancer(**values: Any) -> Descriptor:
    led = listener(99, "led", router="r", key="SNI_HOST", relays=True, **values)
    return instance("balancer", "balancer1", listeners=[led])


BROKERS = [broker("a1", 1), broker("a2", 2)]


def test_clients_reach_all_brokers_by_it_and_consumers_each_by_itself() -> None:
    found = planned([*BROKERS, balancer(tls=True)], routing_keys=2)["worker-0"]
    assert [(item.instance, item.port, item.relays) for item in found.routers] == [("balancer1", 99, True)]
    assert {item.instance for item in found.endpoints} == {"a1", "a2"}
    assert facts([*BROKERS, balancer()]) == {"artemis", "balancer", "local_partition"}


def test_it_is_no_broker_that_clients_dial_themselves() -> None:
    plain = instance("balancer", "balancer1", listeners=[listener(99, "front", relays=True)])
    assert [item.instance for item in endpoints([*BROKERS, plain], "core")] == ["a1", "a2"]


@pytest.mark.parametrize(("protocol", "tls"), [("core", False), ("stomp", True)])
def test_clients_that_could_not_tell_who_serves_are_refused(protocol: str, tls: bool) -> None:
    with pytest.raises(UsageError, match="only clients of core, with TLS, can tell who serves"):
        planned([*BROKERS, balancer(tls=tls)], protocol, routing_keys=2)


@pytest.mark.parametrize(
    ("names", "instance_name"),
    [
        ({"h1", "balancer1", "192.0.2.99"}, "a1"),
        ({"192.0.2.2", "192.0.2.99"}, "a2"),
        ({"balancer1"}, None),
        ({"h1", "h2"}, None),
        (set(), None),
    ],
)
def test_a_certificate_tells_whose_it_is(names: set[str], instance_name: str | None) -> None:
    ends = (
        BrokerEndpoint("192.0.2.1", 1, "a1", "h1"),
        BrokerEndpoint("192.0.2.1", 2, "a1", "h1"),
        BrokerEndpoint("192.0.2.2", 1, "a2", "h2"),
    )
    found = endpoint_certified(names, ends)
    assert (found.instance if found else None) == instance_name
