"""The session router as drills see it: what its page and its log amount to."""

from __future__ import annotations

import pytest

from brokerdrill.products.amqp_router import AmqpRouter
from brokerdrill.products.health.amqp_router import state_of
from brokerdrill.products.logs import RoutedConnect, role_changes


@pytest.mark.parametrize(("status", "role"), [(200, "active"), (503, "starting")])
def test_an_answer_becomes_a_role(status: int, role: str) -> None:
    assert state_of(status) == role


LOG = [
    (1, '{"time": "…", "level": "info", "logger": "process.worker", "message": "ready", "listeners": {"amqp": 5672}}'),
    (2, '{"level": "info", "message": "backend is ready", "backend": "rabbit1"}'),
    (3, "amqp-session-router: killed by signal 9; starting again"),
    (4, '{"level": "warning", "message": "recovered after a kill", "sessions": 8}'),
    (5, '{"level": "info", "message": "ready", "listeners": {"amqp": 5672}}'),
    (6, "amqp-session-router.service: Main process exited, code=killed, status=9/KILL"),
    (7, "amqp-session-router.service: Failed with result 'signal'."),
]


def test_the_log_of_a_kill_of_either_process_gives_its_roles_in_order() -> None:
    changes = [(change.t_ns, change.role) for change in role_changes(LOG, AmqpRouter().log_reader)]
    assert changes == [(1, "active"), (3, "starting"), (5, "active"), (6, "down")]


OPENED = '{"level": "info", "message": "opened", "session": "1f", "client": "10.0.0.9:4711", "backend": "rabbit2"'


@pytest.mark.parametrize(
    ("line", "connect"),
    [
        (OPENED + ', "target": "farm orders", "key": "p-1"}', RoutedConnect("p-1", "rabbit2")),
        (OPENED + ', "target": "farm orders"}', None),
        (OPENED + ', "target": "farm ord', None),
        ('{"message": "closed", "backend": "rabbit2", "key": "p-1"}', None),
        (r'{"message": "closed", "backend": "rabbit2", "key": "\"message\": \"opened\""}', None),
        ("amqp-session-router: killed by signal 9; starting again", None),
    ],
)
def test_the_log_records_which_client_was_connected_where(line: str, connect: RoutedConnect | None) -> None:
    assert AmqpRouter().routed_connect(line) == connect
