"""What a run leaves of connection routers: one that does not take a broker up again by itself is restarted.

A broker that a drill killed may never be ready again to an Artemis that leads clients to it (FINDINGS.md). Without a
restart the system would be worse than the drill found it, and the next one would have fewer targets than it counts on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote

from brokerdrill.base.clock import now_ns
from brokerdrill.base.progress import Progress
from brokerdrill.runner.changes import POLL_S
from brokerdrill.runner.steady_state import lacks
from brokerdrill.runner.system import System

RECOVERY_S = 15
"""How long a router may take to have ready what is active; it looks every check-period, 5 s by default."""


async def still_lacking(system: System) -> dict[str, list[str]]:
    """Return by router which active instances it does not have ready, and did not get ready within RECOVERY_S."""
    end = now_ns() + int(RECOVERY_S * 1e9)
    while (lacking := system.lacking()) and now_ns() < end:
        await system.changes.wait(POLL_S)
    return lacking


async def restart(lacking: Mapping[str, Sequence[str]], system: System, progress: Progress) -> None:
    """Restart the routers of `lacking`. Raises InfrastructureError where one does not start."""
    for name in lacking:
        item = system.instances[name]
        progress.step(f"restart {name}: {lacks({name: lacking[name]})}")
        await item.connection.sh(f"systemctl restart {quote(item.descriptor.unit or '')}", check=True, timeout=120)
