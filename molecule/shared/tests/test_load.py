"""What a deployment left of the load hosts, seen from inside after a drill."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path
from typing import Any

import yaml
from conftest import Instance, topology

from brokerdrill.runner.load.shipping import bundle

ROLES = Path(__file__).parents[3] / "roles"
# The worker's own code makes a connection factory of the client: its JVM starts, and its classes are there.
START = """
import sys
code, site, client, jars, ca = sys.argv[1:]
sys.path[:0] = [code, site]
from brokerdrill.workload.client import client_type
from brokerdrill.workload.config import BrokerEndpoint, ClientAccount, WorkerConfig
ends = (BrokerEndpoint("127.0.0.1", 9, "nobody", "nobody"),)
config = WorkerConfig("run", "worker", "worker", client, ends, ClientAccount("", ""), (), tls_ca=ca, jars=jars)
kind = client_type(client)
kind.start_process(config)
print(kind(config, "test")._factory(ends) is not None)
"""


def with_files() -> set[str]:
    """Return the protocols of this topology's products whose clients need files on the load hosts."""
    clients = {
        path.parents[1].name: yaml.safe_load(path.read_text()).get("client") or {}
        for path in ROLES.glob("*/meta/product.yml")
    }
    return {
        protocol
        for product, client in clients.items()
        if topology().group(product) and ("archive" in client or "jars" in client)
        for protocol in (client["protocol"], *client.get("more_protocols", ()))
    }


def test_workers_can_start(instance: Instance, host: Any) -> None:
    assert host.file(instance["spool_dir"]).is_directory
    assert set(instance["jars"]) == with_files()
    code = host.check_output("mktemp -d")
    packed = base64.b64encode(gzip.compress(bundle())).decode()
    host.check_output("echo %s | base64 -d | tar -xz -C %s", packed, code)
    for client, jars in instance["jars"].items():
        command = "JAVA_HOME=%s %s -c %s %s %s %s %s %s"
        place = (code, instance["pythonpath"], client, jars, instance["tls"]["ca"])
        assert host.check_output(command, instance["java_home"], instance["python"], START, *place).endswith("True")
    host.check_output("rm -r %s", code)
