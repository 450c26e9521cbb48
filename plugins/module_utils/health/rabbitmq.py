"""RabbitMQ: its management API."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from .answer import Health, get_json

# Asks this broker alone: what another one does holds up no answer.
SERVES = "/api/health/checks/virtual-hosts"
NODES = "/api/nodes?columns=name,running,partitions"


def state_of(status: int, nodes: list[dict[str, Any]], own: str) -> str:
    """Return the state that the status of the answer to `SERVES`, and the answer to `NODES`, amount to.

    Every broker of a cluster serves; the node `own` is `syncing` where it counts others as of another part of a cluster
    that came apart: they run, and it has nothing to do with them until one side is started again.
    """
    if status != 200:
        return "starting"
    apart = any(node["name"] == own and node.get("partitions") for node in nodes)
    return "syncing" if apart else "active"


def whole(nodes: list[dict[str, Any]], members: list[str]) -> bool:
    """Whether the answer to `NODES` shows a complete cluster: all of `members` are there, run and see each other."""
    seen = {node["name"] for node in nodes if node.get("running") and not node.get("partitions")}
    return set(members) <= seen


def read(descriptor: dict[str, Any]) -> Health:
    """Ask a broker. `in_sync` says whether its cluster is complete.

    Raises OSError or ValueError without a usable answer.
    """
    credentials = json.loads(Path(descriptor["credentials"]["file"]).read_text())
    token = base64.b64encode(f"{credentials['username']}:{credentials['password']}".encode()).decode()
    headers = {"Authorization": f"Basic {token}"}
    management, ca = descriptor["management"], descriptor["tls"]["ca"]
    try:
        status, answer = 200, get_json(management["url"] + SERVES, ca, headers)
    except HTTPError as error:
        if error.code != 503:
            raise
        status, answer = error.code, json.load(error)
    nodes = get_json(management["url"] + NODES, ca, headers)
    detail = f"{answer.get('status', answer)}; " + ", ".join(
        f"{node['name']} {'runs' if node.get('running') else 'is gone'}" for node in nodes
    )
    state = state_of(status, nodes, management["node"])
    return Health(state, whole(nodes, management["members"]), detail)
