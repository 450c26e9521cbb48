"""What a deployment left of the session router, seen from inside after a drill."""

from __future__ import annotations

import json
from typing import Any

from conftest import Instance, connect, topology


def ask(host: Any, instance: Instance, words: str) -> Any:
    return json.loads(host.check_output(f"{instance['control']} --json {words}"))


def started_by(host: Any, pid: str) -> list[str]:
    """Return the processes that this one started."""
    return host.check_output("cat /proc/%s/task/%s/children", pid, pid).split()


def test_systemd_hears_from_it(instance: Instance, host: Any) -> None:
    shown = host.check_output("systemctl show -p Type -p NotifyAccess -p WatchdogUSec %s", instance["unit"])
    properties = dict(line.split("=", 1) for line in shown.splitlines())
    assert properties["Type"] == "notify"
    assert properties["WatchdogUSec"] != "0"


def test_it_may_do_nothing_but_its_work(instance: Instance, host: Any) -> None:
    pid = host.check_output("systemctl show --value -p MainPID %s", instance["unit"]).strip()
    children = started_by(host, pid)
    # Of one worker the main process is the supervisor, else each has one of its own.
    assert len(children) == int(topology().host(instance["host"]).vars.get("amqp_router_workers", 1))
    for process in (pid, *children, *(one for child in children for one in started_by(host, child))):
        status = dict(
            line.split(":", 1) for line in host.check_output("cat /proc/%s/status", process).splitlines() if ":" in line
        )
        assert status["CapBnd"].strip().strip("0") == ""
        assert status["NoNewPrivs"].strip() == "1"
        assert status["Seccomp"].strip() == "2"


def test_every_broker_of_the_inventory_is_a_backend_that_is_ready(instance: Instance, host: Any) -> None:
    backends = {row["name"]: row["healthy"] for row in ask(host, instance, "BACKEND PRINT")}
    assert set(backends) == {host.name for host in topology().group("rabbitmq")}
    assert all(backends.values())


def test_the_state_that_outlives_it_is_private(instance: Instance, host: Any) -> None:
    state = host.file("/var/lib/amqp-session-router")
    assert (state.user, state.mode) == ("amqp-router", 0o700)
    assert host.file(f"{instance['config_dir']}/router.yaml").mode == 0o640


def test_the_virtual_address_is_at_one_router(instance: Instance, host: Any) -> None:
    wanted = topology().host(instance["host"]).vars.get("common_virtual_address", "")
    routers = [connect(one.name) for one in topology().group("amqp_router")]
    having = [one for one in routers if wanted and f" {wanted} " in f"{one.check_output('ip -br address')} "]
    assert len(having) == bool(wanted)
