"""A server of GlusterFS: its daemon and its brick listen, and it reaches the other servers."""

from __future__ import annotations

import subprocess
from typing import Any

from .answer import Health, listening_ports

_CONNECTED = "Connected"


def health_of(silent: list[str], pool: str) -> Health:
    """Return the health of a server on which nothing listens for the protocols `silent`, and which answers `pool` to
    `gluster pool list`."""
    if silent:
        return Health("starting", False, f"nothing listens for {', '.join(silent)}")
    rows = [line.split() for line in pool.splitlines()[1:] if line.strip()]
    away = [row[1] for row in rows if row[-1] != _CONNECTED]
    if away or not rows:
        return Health("starting", False, f"it does not reach {', '.join(away) or 'its own pool'}")
    return Health("active", True, f"{len(rows)} servers")


def read(descriptor: dict[str, Any]) -> Health:
    """Look at this host's server. Raises OSError where there is no gluster(8)."""
    ports = listening_ports()
    # A brick has one of several ports.
    by_protocol: dict[str, set[int]] = {}
    for item in descriptor["listeners"]:
        by_protocol.setdefault(item["protocol"], set()).add(item["port"])
    silent = sorted(name for name, of in by_protocol.items() if not of & ports)
    done = subprocess.run(
        ["gluster", "--mode=script", "pool", "list"], capture_output=True, text=True, check=False, timeout=30
    )
    return health_of(silent, done.stdout)
