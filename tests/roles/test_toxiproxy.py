"""Faults of an armed link against the real toxiproxy that the role installs: seen while they last, and healed."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from jinja2 import Environment

from brokerdrill.base import paths
from brokerdrill.faults.base import HostChange
from brokerdrill.faults.link import ARM, TOXICS, proxy_name
from brokerdrill.faults.registry import FAULTS
from brokerdrill.inventory.descriptors import ToxiproxyDescriptor
from brokerdrill.inventory.targets import Link, Target
from tests.free_ports import free_port
from tests.roles.test_plugins import cached
from tests.unpacking import unpack

ROLE = paths.ROOT / "roles" / "toxiproxy"
# What a type of toxic cannot do without.
NEEDED: dict[str, dict[str, int]] = {
    "bandwidth": {"rate": 100},
    "slow_close": {"delay": 100},
    "timeout": {"timeout": 0},
    "slicer": {"average_size": 100},
    "limit_data": {"bytes": 100},
}
CASES = [("cut", {}), *(("toxic", {"type": name, "attributes": NEEDED.get(name, {})}) for name in TOXICS)]


def server_program(into: Path) -> Path:
    """The server as the role's own task fetches it."""
    defaults = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
    tasks = yaml.safe_load((ROLE / "tasks" / "install.yml").read_text())
    (words,) = (task["vars"] for task in tasks if "common_fetch_name" in task.get("vars", {}))

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(item) for key, item in value.items()}
        return Environment().from_string(value).render(defaults) if isinstance(value, str) else value

    ((kind, source),) = filled(words["common_fetch_source"]).items()
    archive = cached.keep(paths.cache() / "archives", filled(words["common_fetch_name"]), kind, source)
    unpack(archive["path"], into, "toxiproxy-server")
    (program,) = into.rglob("toxiproxy-server")
    return program


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Link]:
    """A link whose host has a running toxiproxy."""
    path = server_program(tmp_path_factory.mktemp("toxiproxy"))
    port = free_port()
    with subprocess.Popen([path, "-host", "127.0.0.1", "-port", str(port)], stderr=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + 60
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                    break
                assert server.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
            api = {"address": "127.0.0.1", "port": port}
            proxy = ToxiproxyDescriptor.model_validate(
                {"schema": 1, "product": "toxiproxy", "instance": "t", "host": "h", "user": "nobody", "api": api}
            )
            yield Link("a→b", "h", "127.0.0.1", port, "b", proxy)
        finally:
            server.kill()


def make_proxy(link: Link) -> None:
    """What arming does in toxiproxy; the rules that lead into it are seen on hosts (tests/bench/test_links.py)."""
    assert link.toxiproxy is not None
    body = {"name": proxy_name(link), "upstream": f"{link.address}:{link.port}", "listen": f"127.0.0.1:{free_port()}"}
    url = f"http://{link.toxiproxy.api}/proxies"
    httpx.post(url, json=body, trust_env=False).raise_for_status()


def succeeds(script: str) -> bool:
    return subprocess.run(["/bin/sh", "-c", script], capture_output=True).returncode == 0


def states(change: HostChange) -> tuple[bool, bool]:
    """Whether the fault is seen, and whether its end is."""
    return succeeds(change.verify), succeeds(change.verify_heal)


@pytest.mark.parametrize(
    ("name", "given"), CASES, ids=lambda value: value if isinstance(value, str) else value.get("type")
)
def test_every_fault_of_an_armed_link_is_seen_and_healed(link: Link, name: str, given: dict[str, Any]) -> None:
    target = Target("link a→b", links=(link,))
    make_proxy(link)
    (change,) = FAULTS[name].plan(target, FAULTS[name].complete(given), "f1")
    assert states(change) == (False, True)
    assert succeeds(change.effect)
    assert states(change) == (True, False)
    for _ in range(2):  # a heal may run any number of times
        assert succeeds(change.heal)
        assert states(change) == (False, True)
    assert succeeds(ARM.plan(target, ARM.complete({}), "f0")[0].heal)
