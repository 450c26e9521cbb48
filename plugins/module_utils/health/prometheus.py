"""Prometheus: it says itself whether it is ready."""

from __future__ import annotations

from typing import Any

from .answer import Health, get


def read(descriptor: dict[str, Any]) -> Health:
    """Ask the server. Raises OSError without an answer, as while it still reads its data."""
    (listener,) = [item for item in descriptor["listeners"] if item["name"] == "http"]
    answer = get(f"http://{listener['address']}:{listener['port']}/-/ready")
    return Health("active", True, answer[:200].decode(errors="replace").strip())
