"""toxiproxy: its API on loopback says its version."""

from __future__ import annotations

from typing import Any

from .answer import Health, get


def read(descriptor: dict[str, Any]) -> Health:
    """Ask the server. Raises OSError without an answer."""
    api = descriptor["api"]
    # toxiproxy answers nothing that calls itself a browser.
    answer = get(f"http://{api['address']}:{api['port']}/version", headers={"User-Agent": "brokerdrill"})
    return Health("active", True, answer[:200].decode(errors="replace").strip())
