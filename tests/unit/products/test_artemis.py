import asyncio
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.products.artemis import Artemis, ArtemisDescriptor, ArtemisJolokia
from brokerdrill.products.base import ManagementError
from brokerdrill.products.health.answer import Health, listening_ports
from brokerdrill.products.health.artemis import health_of, may_wait_its_turn, serving, state_of, waits_for_the_store
from brokerdrill.products.logs import role_changes


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
    assert state_of(active, backup, in_sync) == role


def test_a_shared_store_has_nothing_to_synchronise() -> None:
    assert state_of(active=False, backup=True, in_sync=False, policy="shared_store") == "passive"
    assert state_of(active=True, backup=False, in_sync=False, policy="shared_store") == "active"
    assert state_of(active=False, backup=True, in_sync=False, policy="replication") == "syncing"


def test_a_broker_without_its_bean_is_starting() -> None:
    missing = health_of([{"status": 404, "error": "InstanceNotFoundException"}])
    assert (missing.state, missing.in_sync, missing.detail) == ("starting", False, "InstanceNotFoundException")
    value = {"Active": False, "Backup": True, "ReplicaSync": False, "HAPolicy": "Replication Backup"}
    assert health_of([{"status": 200, "value": value}]).state == "syncing"
    assert health_of([{"status": 200, "value": value}], "shared_store").state == "passive"


@pytest.mark.parametrize("attribute", ["Active", "Backup", "ReplicaSync"])
@pytest.mark.parametrize("instead", [None, "ERROR: the broker ends"])
def test_a_broker_without_an_attribute_is_starting(attribute: str, instead: str | None) -> None:
    value: dict[str, Any] = {"Active": True, "Backup": False, "ReplicaSync": False, "HAPolicy": "Replication Primary"}
    if instead is None:
        del value[attribute]
    else:
        value[attribute] = instead
    assert health_of([{"status": 200, "value": value}]).state == "starting"


LISTENERS = [{"name": "core", "port": 61616}, {"name": "core", "port": 61616}, {"name": "console", "port": 8161}]


def test_an_active_broker_whose_acceptor_did_not_start_is_starting() -> None:
    active = Health("active", True, "Primary Only")
    assert serving(active, LISTENERS, {61616, 8161}) == active
    deaf = serving(active, LISTENERS, {8161})
    assert deaf == Health("starting", True, "active, but nothing listens for core (61616)")


def test_a_passive_broker_need_not_listen() -> None:
    passive = Health("passive", True, "Replication Backup")
    assert serving(passive, LISTENERS, {8161}) == passive


def test_the_hosts_own_table_tells_what_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client:
            assert server.getsockname()[1] in listening_ports()
            assert client.getsockname()[1] not in listening_ports()
        port = server.getsockname()[1]
    assert port not in listening_ports()


def test_what_listens_at_an_ipv6_address_counts_too(tmp_path: Path) -> None:
    table = tmp_path / "tcp6"
    table.write_text(
        "  sl  local_address                         remote_address                        st tx_queue\n"
        "   0: 00000000000000000000000000000000:F0B0 00000000000000000000000000000000:0000 0A 00000000:00000000\n"
        "   1: 00000000000000000000000001000000:1FE1 00000000000000000000000001000000:F0B0 01 00000000:00000000\n"
    )
    assert listening_ports([table, tmp_path / "absent"]) == {61616}


NO_BEAN = {"status": 404, "error": "InstanceNotFoundException"}
SPARE = {"ha_policy": "shared_store", "role": "backup", "backups": 2}


def test_one_of_several_backups_of_a_shared_store_is_ready_while_it_waits_its_turn() -> None:
    found = health_of([NO_BEAN], "shared_store", may_wait_its_turn(SPARE))
    assert (found.state, found.in_sync) == ("passive", False)
    refused = {"status": 403, "error": "forbidden"}
    assert health_of([refused], "shared_store", may_wait_its_turn(SPARE)).state == "starting"
    value = {"Active": True, "Backup": False, "ReplicaSync": False, "HAPolicy": "Shared Store Primary"}
    assert health_of([{"status": 200, "value": value}], "shared_store", may_wait=True).state == "active"


@pytest.mark.parametrize(
    "change", [{"backups": 1}, {"backups": None}, {"role": "primary"}, {"ha_policy": "replication"}]
)
def test_no_other_broker_has_to_wait_its_turn(change: dict[str, Any]) -> None:
    assert not may_wait_its_turn({**SPARE, **change})
    assert health_of([NO_BEAN], "shared_store", may_wait_its_turn({**SPARE, **change})).state == "starting"


RETURNED = {"ha_policy": "shared_store", "role": "primary", "settings": {"allow_failback": False}}
WAITING = {"Active": False, "Backup": False, "ReplicaSync": False, "HAPolicy": "Shared Store Primary"}


def test_a_primary_whose_store_is_kept_by_the_backup_is_ready_while_it_waits() -> None:
    found = health_of(
        [{"status": 200, "value": WAITING}], "shared_store", waits_for_store=waits_for_the_store(RETURNED)
    )
    assert (found.state, found.in_sync) == ("passive", False)
    active = {"status": 200, "value": {**WAITING, "Active": True}}
    assert health_of([active], "shared_store", waits_for_store=True).state == "active"


def test_a_primary_that_does_not_come_up_does_not_wait() -> None:
    """Before its server is STARTED its bean refuses to say whether it is active."""
    refused = {"status": 500, "error": "IllegalStateException: Broker is not started. It can not be managed yet"}
    for reply in (refused, NO_BEAN):
        assert health_of([reply], "shared_store", waits_for_store=True).state == "starting"


@pytest.mark.parametrize(
    "change",
    [
        {"settings": {"allow_failback": True}},
        {"settings": {"allow_failback": None}},
        {"settings": None},
        {"role": "backup"},
        {"ha_policy": "replication"},
    ],
)
def test_any_other_broker_that_is_not_active_yet_is_starting(change: dict[str, Any]) -> None:
    waits = waits_for_the_store({**RETURNED, **change})
    assert not waits
    assert health_of([{"status": 200, "value": WAITING}], "shared_store", waits_for_store=waits).state == "starting"


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
    changes = [(change.t_ns, change.role) for change in role_changes(lines, Artemis().log_reader)]
    assert changes == [(1, "starting"), (2, "syncing"), (3, "passive"), (5, "active"), (7, "down")]


class Answering(ArtemisJolokia):
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


class Deployed(ArtemisJolokia):
    """The management of a described broker that answers that it has no broker bean, or something else."""

    def __init__(self, answer: Mapping[str, Any] = NO_BEAN, **change: Any) -> None:
        self._answer = answer
        fields = {"schema": 1, "product": "artemis", "instance": "a3", "host": "a3", **SPARE, **change}
        management = {"url": "https://192.0.2.1:8161/console/jolokia/", "broker_name": "a3"}
        described = ArtemisDescriptor.model_validate({**fields, "management": management})
        super().__init__(described, {"username": "drill", "password": "not-a-default"}, "")

    async def _call(self, *requests: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [dict(self._answer) for _ in requests]


def test_management_knows_by_the_descriptor_who_may_wait_its_turn() -> None:
    assert asyncio.run(Deployed().role()) == "passive"
    assert asyncio.run(Deployed(backups=1).role()) == "starting"
    assert asyncio.run(Deployed(role="primary").role()) == "starting"


def test_management_knows_by_the_descriptor_who_waits_for_its_store() -> None:
    waiting = {"status": 200, "value": WAITING}
    assert asyncio.run(Deployed(waiting, **RETURNED).role()) == "passive"
    assert asyncio.run(Deployed(**RETURNED).role()) == "starting"
    assert asyncio.run(Deployed(waiting, **{**RETURNED, "settings": {"allow_failback": True}}).role()) == "starting"
