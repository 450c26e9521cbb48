"""A restart that is safe in place is a handler: each is notified by a task, and each that is notified is there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.roles.conftest import ROLES, ROOT, load

# A broker's restart moves its role, a ZooKeeper server's costs the ensemble a member: playbooks do these one by one.
# A router's sessions outlive its own, a balancer's connections its worker's reload.
IN_PLACE = ["amqp_router", "balancer", "prometheus", "resolver", "toxiproxy"]


def notified(tasks: list[dict[str, Any]]) -> set[str]:
    """Return the handlers that `tasks`, and the blocks among them, notify."""
    found: set[str] = set()
    for task in tasks:
        notify = task.get("notify", [])
        found |= {notify} if isinstance(notify, str) else set(notify)
        for part in ("block", "rescue", "always"):
            found |= notified(task.get(part, []))
    return found


@pytest.mark.parametrize("role", ROLES)
def test_handlers_are_those_that_tasks_notify(role: str) -> None:
    handlers = ROOT / "roles" / role / "handlers" / "main.yml"
    there = {handler["name"] for handler in load(handlers)} if handlers.exists() else set()
    tasks = [load(path) or [] for path in (ROOT / "roles" / role / "tasks").glob("*.yml")]
    assert there == set().union(*map(notified, tasks))
    assert bool(there) is (role in IN_PLACE)
