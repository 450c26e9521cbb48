"""The deployed hosts as testinfra sees them: reached as the inventory says."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from functools import cache
from typing import Any

import pytest
import testinfra

from brokerdrill.topology import Topology, find_topology


@cache
def topology() -> Topology:
    return find_topology(os.environ["MOLECULE_SCENARIO_NAME"])


@cache
def control_dir() -> str:
    """Return a folder for the sockets of shared SSH connections: ~/.ssh need not exist."""
    made = tempfile.mkdtemp(prefix="bd-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@cache
def connect(name: str) -> Any:
    """Return testinfra's host called `name`; what its commands need is done as root."""
    host = topology().host(name)
    common = str(host.vars.get("ansible_ssh_common_args", ""))
    extra = f"{common} -o ControlMaster=auto -o ControlPath={control_dir()}/%C -o ControlPersist=30"
    return testinfra.get_host(
        f"ssh://{host.user}@{host.address}:{host.port}",
        ssh_identity_file=host.key_file,
        ssh_extra_args=extra,
        sudo=host.user != "root",
    )


def descriptors(name: str) -> list[dict[str, Any]]:
    """Return the descriptors on host `name`."""
    listed = connect(name).check_output("ls /etc/brokerdrill/*.json").split()
    return [json.loads(connect(name).file(path).content_string) for path in listed if ".credentials." not in path]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test with `instance` each descriptor that was left on any host."""
    if "instance" in metafunc.fixturenames:
        found = [item for host in topology().hosts for item in descriptors(host.name)]
        chosen = metafunc.function.__dict__.get("product")
        wanted = [item for item in found if chosen in (None, item["product"])]
        assert wanted, f"no instance of {chosen} was deployed"
        metafunc.parametrize("instance", wanted, ids=[item["instance"] for item in wanted])


@pytest.fixture
def host(instance: dict[str, Any]) -> Any:
    return connect(instance["host"])
