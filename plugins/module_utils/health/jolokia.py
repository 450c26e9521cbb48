"""Jolokia (JMX over HTTPS), as the brokers in Java are asked."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from .answer import get_json


def ask(descriptor: dict[str, Any], requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the replies of an instance's Jolokia to `requests`, in order, as the user in its credentials file.

    Raises OSError or ValueError without a usable answer.
    """
    credentials = json.loads(Path(descriptor["credentials"]["file"]).read_text())
    token = base64.b64encode(f"{credentials['username']}:{credentials['password']}".encode()).decode()
    url = descriptor["management"]["url"]
    headers = {
        "Content-Type": "application/json",
        "Origin": "/".join(url.split("/")[:3]),
        "Authorization": f"Basic {token}",
    }
    return get_json(url, descriptor["tls"]["ca"], headers, json.dumps(requests).encode())


def value(reply: dict[str, Any]) -> Any:
    """Return the value of a reply, None where the request failed (no such bean)."""
    return reply.get("value") if reply.get("status") == 200 else None
