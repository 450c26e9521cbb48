"""The deployed hosts as testinfra sees them: reached as the inventory says."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import testinfra

from brokerdrill.inventory.topology import Topology, find_topology

Instance = dict[str, Any]

# Each has a module of tests here, a role and a group of its name, and leaves descriptors on its hosts.
PRODUCTS = [
    path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py") if path.stem != "test_deployed"
]


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


def descriptors(name: str) -> list[Instance]:
    """Return the descriptors on host `name`."""
    listed = connect(name).check_output("ls /etc/brokerdrill/*.json").split()
    return [json.loads(connect(name).file(path).content_string) for path in listed if ".credentials." not in path]


def owner(host: Any, unit: str) -> str:
    """Return the user that the unit's main process runs as."""
    pid = host.check_output("systemctl show --value -p MainPID %s", unit).strip()
    return host.check_output("stat -c %%U /proc/%s", pid).strip()


def listening(host: Any) -> set[str]:
    """Return the addresses with ports that something on the host listens on."""
    sockets = host.check_output("ss -Hltn").splitlines()
    return {line.split()[3].replace("[::ffff:", "").replace("]", "") for line in sockets}


def product_of(module: Any) -> str:
    """Return the product that a module of tests is of; `deployed` for what holds for all."""
    return str(module.__name__).removeprefix("test_")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test with `instance` each descriptor on any host: of its module's product, or all."""
    if "instance" in metafunc.fixturenames:
        product = product_of(metafunc.module)
        found = [item for host in topology().hosts for item in descriptors(host.name)]
        wanted = [item for item in found if product in ("deployed", item["product"])]
        assert bool(wanted) == (product == "deployed" or bool(topology().group(product))), product
        metafunc.parametrize("instance", wanted, ids=[item["instance"] for item in wanted])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of products that the topology has not. (The verifier names each file, so none is ignored.)"""
    absent = [name for name in PRODUCTS if not topology().group(name)]
    beside = [item for item in items if isinstance(item, pytest.Function) and product_of(item.module) in absent]
    config.hook.pytest_deselected(items=beside)
    items[:] = [item for item in items if item not in beside]


@pytest.fixture
def host(instance: Instance) -> Any:
    return connect(instance["host"])
