"""Open MQ: what its attributes and log lines amount to."""

from __future__ import annotations

import pytest

from brokerdrill.products.health.openmq import state_of
from brokerdrill.products.logs import role_changes
from brokerdrill.products.openmq import OpenMq, counts_of, holds


@pytest.mark.parametrize(
    ("service", "broker", "role"),
    [
        ("RUNNING", "OPERATING", "active"),
        ("PAUSED", "OPERATING", "starting"),
        ("RUNNING", "TAKEOVER_STARTED", "starting"),
        ("RUNNING", None, "starting"),
        (None, None, "starting"),
    ],
)
def test_states_become_a_role(service: str | None, broker: str | None, role: str) -> None:
    assert state_of(service, broker) == role


def test_a_queue_counts_what_it_holds_for_others() -> None:
    counts = {
        "NumMsgs": 0,
        "NumMsgsRemote": 1,
        "NumMsgsPendingAcks": 0,
        "NumMsgsInDelayDelivery": 0,
        "NumMsgsIn": 9,
        "NumConsumers": 0,
    }
    assert not counts_of([counts]).empty
    assert counts_of([{**counts, "NumMsgsRemote": 0}]).empty
    assert not counts_of([{**counts, "NumMsgsRemote": 0}, counts]).empty, "of a queue and a topic of one name"


# As a broker lists them (getTransactionInfo): the first was left over by the kill of another broker, and stays.
@pytest.mark.parametrize(
    ("state", "messages", "acknowledgements", "held"),
    [("PREPARED", 0, 0, False), ("PREPARED", 10, 0, True), ("PREPARED", 0, 10, True), ("STARTED", 10, 10, False)],
)
def test_a_prepared_transaction_with_nothing_in_it_holds_nothing(
    state: str, messages: int, acknowledgements: int, held: bool
) -> None:
    assert holds({"XID": None, "StateLabel": state, "NumMsgs": messages, "NumAcks": acknowledgements}) is held


LOG = [
    (1, "[#|2026-11-22T23:00:59.540+0000|FORCE|6.5.1|imq.log.Logger|_T=1;|[B1060]: Loading persistent data..."),
    (2, "[#|2026-11-22T23:01:05.800+0000|FORCE|6.5.1|imq.log.Logger|_T=1;|[B1069]: Running as master broker."),
    (3, '[#|2026-11-22T23:01:06.302+0000|FORCE|6.5.1|imq.log.Logger|_T=1;|[B1039]: Broker "b1@10.0.0.1:7676" ready.'),
    (4, "|#]"),
    (5, "openmq.service: Main process exited, code=killed, status=9/KILL"),
    (6, "openmq.service: Failed with result 'signal'."),
]


def test_the_log_of_a_start_and_a_kill_gives_its_roles_in_order() -> None:
    changes = [(change.t_ns, change.role) for change in role_changes(LOG, OpenMq().log_reader)]
    assert changes == [(1, "starting"), (3, "active"), (5, "down")]
