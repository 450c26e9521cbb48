#!/usr/bin/python
"""What state an instance is in, asked on its own host, as its descriptor says."""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: health
short_description: Read an instance's health, and wait for it
description:
  - Reads the descriptor of an instance on its host and asks the instance itself.
    "Started" is not "active" - a passive broker that waits for a lock is healthy.
  - Artemis and ActiveMQ Classic are asked by Jolokia, Patroni by its REST API, ZooKeeper by the four-letter word
    C(srvr) with the host's certificate, toxiproxy by its API; a load host must be able to start its worker's Python.
    The inventory's CA is all that is trusted.
options:
  descriptor: {description: The descriptor's path on the host., type: path, required: true}
  accept:
    description: The states that end the wait.
    type: list
    elements: str
    choices: [active, passive, syncing, starting, failed]
    default: [active, passive]
  in_sync: {description: Wait also until a replicated broker's copy is in sync., type: bool, default: false}
  timeout: {description: Seconds to wait; 0 looks once., type: int, default: 0}
  interval: {description: Seconds between looks., type: float, default: 0.5}
author: ["Brokerdrill developers"]
"""

EXAMPLES = r"""
- name: Wait until the broker serves or is a synchronous copy
  brokerdrill.ha.health:
    descriptor: /etc/brokerdrill/artemis1.json
    in_sync: true
    timeout: 120
"""

RETURN = r"""
instance: {description: The instance's name., type: str, returned: always}
state: {description: "active, passive, syncing, starting or failed", type: str, returned: always}
in_sync: {description: Whether a replicated broker's copy is in sync., type: bool, returned: always}
detail: {description: What the instance answered., type: str, returned: always}
version: {description: The version that its descriptor says., type: str, returned: always}
restart_pending: {description: Whether its files are newer than the running process., type: bool, returned: always}
"""

CALL_TIMEOUT_S = 5


@dataclass(frozen=True)
class Health:
    """A state, whether a copy is in sync, and the words it was read from."""

    state: str
    in_sync: bool
    detail: str


def artemis_state(active: bool, backup: bool, in_sync: bool, policy: str = "") -> str:
    """Return the health that a broker's attributes Active, Backup and ReplicaSync amount to.

    A shared store has nothing to synchronise: whoever waits for its lock is ready.
    """
    if active:
        return "active"
    if backup:
        return "passive" if in_sync or policy == "shared_store" else "syncing"
    return "starting"


def zookeeper_health(answer: str) -> Health:
    """Return the health that the answer to `srvr` amounts to: a member serves once the ensemble has a leader."""
    for line in answer.splitlines():
        if line.startswith("Mode: "):
            return Health("active", True, line.removeprefix("Mode: ").strip())
    return Health("starting", False, (answer.strip() or "no answer").splitlines()[0])


def jolokia(descriptor: dict[str, Any], body: Any) -> Any:
    """Ask an instance's Jolokia, as the user of drills; return its answer to `body`."""
    credentials = json.loads(Path(descriptor["credentials"]["file"]).read_text())
    token = base64.b64encode(f"{credentials['username']}:{credentials['password']}".encode()).decode()
    url = descriptor["management"]["url"]
    headers = {
        "Content-Type": "application/json",
        "Origin": "/".join(url.split("/")[:3]),
        "Authorization": f"Basic {token}",
    }
    context = ssl.create_default_context(cafile=descriptor["tls"]["ca"])
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
    request = Request(url, data=json.dumps(body).encode(), headers=headers)
    with opener.open(request, timeout=CALL_TIMEOUT_S) as reply:
        return json.load(reply)


def artemis(descriptor: dict[str, Any]) -> Health:
    """Ask a broker by Jolokia."""
    name = descriptor["management"]["broker_name"]
    body = {
        "type": "read",
        "mbean": f'org.apache.activemq.artemis:broker="{name}"',
        "attribute": ["Active", "Backup", "ReplicaSync", "HAPolicy"],
    }
    answer = jolokia(descriptor, body)
    value = answer.get("value")
    if answer.get("status") != 200 or not isinstance(value, dict):
        return Health("starting", False, str(answer.get("error", "no broker bean yet")))
    state = artemis_state(value["Active"], value["Backup"], value["ReplicaSync"], descriptor.get("ha_policy", ""))
    return Health(state, bool(value["ReplicaSync"]), str(value["HAPolicy"]))


def activemq_classic_state(slave: bool | None, started: list[bool]) -> str:
    """Return the health that a broker's attribute Slave (None: no such bean yet) and its connectors' Started amount to.

    A slave waits for the lock and has no connectors; a master whose connectors are stopped waits for its store.
    """
    if slave:
        return "passive"
    return "active" if slave is False and any(started) else "starting"


def activemq_classic(descriptor: dict[str, Any]) -> Health:
    """Ask a broker by Jolokia."""
    bean = f"org.apache.activemq:type=Broker,brokerName={descriptor['management']['broker_name']}"
    broker, connectors = jolokia(
        descriptor,
        [
            {"type": "read", "mbean": bean, "attribute": "Slave"},
            {"type": "read", "mbean": f"{bean},connector=clientConnectors,connectorName=*", "attribute": "Started"},
        ],
    )
    found = connectors.get("value") if connectors.get("status") == 200 else None
    started = [bool(one["Started"]) for one in (found or {}).values()]
    slave = broker.get("value") if broker.get("status") == 200 else None
    return Health(activemq_classic_state(slave, started), True, str(broker.get("error", f"slave: {slave}")))


def lease_db_health(answer: dict[str, Any]) -> Health:
    """Return the health that Patroni's answer amounts to: `passive` is a standby that follows its primary."""
    state, role = str(answer.get("state")), str(answer.get("role"))
    detail = f"{role} {state}"
    if state not in ("running", "streaming"):
        return Health("starting", False, detail)
    return Health("active" if role in ("master", "primary") else "passive", bool(answer.get("sync_standby")), detail)


def lease_db(descriptor: dict[str, Any]) -> Health:
    """Ask Patroni; a member without its place answers 503 and says the same in its body."""
    context = ssl.create_default_context(cafile=descriptor["tls"]["ca"])
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
    try:
        with opener.open(f"{descriptor['management']['url']}/patroni", timeout=CALL_TIMEOUT_S) as reply:
            return lease_db_health(json.load(reply))
    except HTTPError as error:
        return lease_db_health(json.load(error))


def zookeeper(descriptor: dict[str, Any]) -> Health:
    """Ask a member by `srvr`, with the host's own certificate."""
    (client,) = [item for item in descriptor["listeners"] if item["name"] == "client"]
    context = ssl.create_default_context(cafile=descriptor["tls"]["ca"])
    context.load_cert_chain(descriptor["tls"]["bundle"])
    with (
        socket.create_connection((client["address"], client["port"]), timeout=CALL_TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=client["address"]) as stream,
    ):
        stream.sendall(b"srvr")
        answer = b""
        while chunk := stream.recv(4096):
            answer += chunk
    return zookeeper_health(answer.decode(errors="replace"))


def toxiproxy(descriptor: dict[str, Any]) -> Health:
    """Ask the server for its version."""
    api = descriptor["api"]
    request = Request(f"http://{api['address']}:{api['port']}/version", headers={"User-Agent": "brokerdrill"})
    with build_opener(ProxyHandler({})).open(request, timeout=CALL_TIMEOUT_S) as reply:
        return Health("active", True, reply.read(200).decode(errors="replace").strip())


def load(descriptor: dict[str, Any]) -> Health:
    """Start the worker's Python with what the role put there."""
    environment = {**os.environ, "PYTHONPATH": descriptor["pythonpath"], "JAVA_HOME": descriptor["java_home"]}
    script = "import jpype; print(jpype.getDefaultJVMPath())"
    done = subprocess.run(
        [descriptor["python"], "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        return Health("failed", False, (done.stderr.strip() or "no output").splitlines()[-1])
    return Health("active", True, done.stdout.strip())


PRODUCTS = {
    "artemis": artemis,
    "activemq_classic": activemq_classic,
    "lease_db": lease_db,
    "zookeeper": zookeeper,
    "toxiproxy": toxiproxy,
    "load": load,
}


def unit_state(unit: str | None) -> str:
    """Return systemd's word for the unit, `active` for an instance without one."""
    if not unit:
        return "active"
    done = subprocess.run(["systemctl", "is-active", unit], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def restart_pending(descriptor: dict[str, Any]) -> bool:
    """Whether a configuration file is newer than the running process; no role restarts an HA member for it."""
    directory, unit = descriptor.get("config_dir"), descriptor.get("unit")
    if not directory or not unit:
        return False
    show = ["systemctl", "show", "--value", "-p", "ActiveEnterTimestampMonotonic", unit]
    shown = subprocess.run(show, capture_output=True, text=True, check=False).stdout.strip()
    if not shown.isdigit() or shown == "0":
        return False
    started = time.time() - (time.clock_gettime(time.CLOCK_MONOTONIC) - int(shown) / 1e6)
    return any(entry.stat().st_mtime > started for entry in os.scandir(directory) if entry.is_file())


def look(descriptor: dict[str, Any]) -> Health:
    """Return the instance's health now."""
    unit = unit_state(descriptor.get("unit"))
    if unit not in ("active", "activating", "reloading"):
        return Health("failed", False, f"{descriptor.get('unit')} is {unit}")
    try:
        return PRODUCTS[descriptor["product"]](descriptor)
    except HTTPError as error:
        return Health("starting", False, f"HTTP {error.code}")
    except (OSError, URLError, ValueError, KeyError) as error:
        return Health("starting", False, f"{type(error).__name__}: {error}")


def main() -> None:
    states = ["active", "passive", "syncing", "starting", "failed"]
    module = AnsibleModule(
        argument_spec={
            "descriptor": {"type": "path", "required": True},
            "accept": {"type": "list", "elements": "str", "choices": states, "default": ["active", "passive"]},
            "in_sync": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 0},
            "interval": {"type": "float", "default": 0.5},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        descriptor = json.loads(Path(params["descriptor"]).read_text())
    except FileNotFoundError:
        if module.check_mode:
            module.exit_json(changed=False, instance="", state="starting", in_sync=False, detail="would be deployed")
        module.fail_json(msg=f"{params['descriptor']} is not there: nothing was deployed")
    except ValueError as error:
        module.fail_json(msg=f"{params['descriptor']} is no JSON: {error}")

    begin = time.monotonic()
    while True:
        found = look(descriptor)
        good = found.state in params["accept"] and (found.in_sync or not params["in_sync"])
        waited = time.monotonic() - begin
        if good or waited >= params["timeout"]:
            break
        time.sleep(params["interval"])
    result: dict[str, Any] = {
        "instance": descriptor["instance"],
        "state": found.state,
        "in_sync": found.in_sync,
        "detail": found.detail,
        "version": str(descriptor.get("version", "")),
    }
    result["restart_pending"] = restart_pending(descriptor)
    if result["restart_pending"]:
        where = descriptor["config_dir"]
        module.warn(f"{descriptor['instance']} runs with an older configuration than {where} holds: restart it")
    if not good:
        wanted = " or ".join(params["accept"]) + (" and in sync" if params["in_sync"] else "")
        seen = f"{descriptor['instance']} is {found.state} after {waited:.0f} s, not {wanted}"
        module.fail_json(msg=f"{seen}; it answered: {found.detail}", **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
