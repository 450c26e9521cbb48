"""Hosts as they run: whether one is booted and lets us in, and what it uses."""

from __future__ import annotations

import concurrent.futures
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, NotFound

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.bench import kernel_limits
from brokerdrill.bench.keys import ssh_command
from brokerdrill.bench.plan import BenchPlan
from brokerdrill.inventory.topology import Host, Topology

BOOT_DEADLINE_S = 90
POLL_S = 0.2
BOOTED = ("running", "degraded")
TRIES = 3
"""How often a host is asked that gives no answer."""


def _output(client: docker.DockerClient, container: str, command: list[str]) -> str:
    """Return what `command` prints in the container, whatever its exit status."""
    output = client.containers.get(container).exec_run(command).output
    return output.decode(errors="replace") if isinstance(output, bytes) else ""


def system_state(client: docker.DockerClient, container: str) -> str:
    """Return systemd's state in the container ("running", "starting", …), or what the engine says of it."""
    for _ in range(TRIES):
        try:
            found = client.containers.get(container)
            if found.status != "running":
                return found.status
            if said := _output(client, container, ["systemctl", "is-system-running"]).strip():
                return said
        except NotFound:
            return "absent"
        except APIError:
            pass
        # No answer says nothing of the host: a busy engine may have had none.
        time.sleep(POLL_S)
    return "starting"


def failed_units(client: docker.DockerClient, container: str) -> list[str]:
    """Return the units of a host that failed."""
    command = ["systemctl", "list-units", "--failed", "--plain", "--no-legend"]
    lines = _output(client, container, command).splitlines()
    return [line.split()[0] for line in lines if line.split()]


def _answers_ssh(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=2) as connection:
            connection.settimeout(2)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def wait_until_up(client: docker.DockerClient, wanted: BenchPlan, host: Host) -> str:
    """Wait until `host` is booted and lets us in by SSH; return systemd's state. Raises InfrastructureError."""
    name = wanted.container(host.name)
    deadline = time.monotonic() + BOOT_DEADLINE_S
    state = "starting"
    while time.monotonic() < deadline:
        if _answers_ssh(host.address, host.port):
            state = system_state(client, name)
            if state in BOOTED:
                break
        elif (now := system_state(client, name)) in ("exited", "dead", "absent"):
            raise InfrastructureError(f"bench host {host.name} ended while it booted: its container is {now}")
        time.sleep(POLL_S)
    else:
        raise kernel_limits.not_up(
            f"bench host {host.name} ({host.address}) is not up within {BOOT_DEADLINE_S} s: systemd is {state}"
        )
    done = subprocess.run([*ssh_command(host), "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise InfrastructureError(f"bench host {host.name} refuses SSH: {said[-1] if said else done.returncode}")
    return state


def host_row(wanted: BenchPlan, host: Host, state: str, **more: Any) -> dict[str, Any]:
    """Return a host's row of `bench.status`."""
    row = {"host": host.name, "address": host.address, "container": wanted.container(host.name), "state": state}
    return {**row, "system": None, "memory_mib": None, "limit_mib": None, **more}


def _memory_mib(pid: int) -> int | None:
    """Return the MiB that the host with init process `pid` uses, without file pages the kernel would drop first.

    Read from the control group itself: an engine reports nothing at all where a single controller is missing.
    """
    base = Path("/sys/fs/cgroup")
    try:
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                group, usage, idle = base / "memory" / path.lstrip("/"), "memory.usage_in_bytes", "total_inactive_file"
                break
            if not controllers:
                inner = path.removesuffix("/init.scope").lstrip("/")
                group, usage, idle = base / inner, "memory.current", "inactive_file"
        pages = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return round((int((group / usage).read_text()) - int(pages[idle])) / 2**20)
    except (OSError, ValueError, KeyError, UnboundLocalError):
        return None


def status_rows(client: docker.DockerClient, topology: Topology, wanted: BenchPlan) -> list[dict[str, Any]]:
    """Return a row for each host of the topology, as `bench.status` does."""

    def one(host: Host) -> dict[str, Any]:
        name = wanted.container(host.name)
        try:
            container = client.containers.get(name)
            if container.status != "running":
                return host_row(wanted, host, container.status)
            return host_row(
                wanted,
                host,
                container.status,
                system=system_state(client, name),
                memory_mib=_memory_mib(container.attrs["State"]["Pid"]),
                limit_mib=round((container.attrs["HostConfig"].get("Memory") or 0) / 2**20) or None,
            )
        except NotFound:
            return host_row(wanted, host, "absent")

    with concurrent.futures.ThreadPoolExecutor(max_workers=8) as pool:
        return list(pool.map(one, topology.hosts))
