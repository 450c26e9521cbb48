"""The exact role times that the brokers' own logs prove, read from journald when a run ends."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

from brokerdrill.clock import now_ns
from brokerdrill.descriptors import Descriptor
from brokerdrill.events import EventWriter
from brokerdrill.hosts import HostConnection
from brokerdrill.runner.system import Instance

# journald stamps a line when it reads it from the broker's pipe, shortly after it was written.
LOG_UNCERTAINTY_NS = 5_000_000
# journalctl chooses by the wall clock, which may have been set meanwhile. Not more: a broker without its database can
# fill a log with tens of megabytes a drill.
LOG_MARGIN_S = 60


async def write_log_roles(instances: Iterable[Instance], since_ns: int, events: EventWriter) -> None:
    """Add the role changes in the logs since `since_ns` (controller's clock) to the run's events.

    Raises InfrastructureError when a log cannot be read.
    """
    for instance in instances:
        item, clock = instance.descriptor, instance.connection.clock
        age_s = (now_ns() - since_ns) / 1e9
        lines = await read_log(instance.connection, item, since_ns - clock.offset_ns, age_s)
        for change in instance.product.log_roles(lines):
            events.write(
                "role",
                at_ns=change.t_ns + clock.offset_ns,
                uncertainty_ns=LOG_UNCERTAINTY_NS + clock.uncertainty_ns,
                target=item.host,
                instance=item.instance,
                store=item.store if instance.product.client else None,
                name="log",
                value=change.role,
                detail={"log": change.why},
            )


async def read_log(connection: HostConnection, item: Descriptor, since_ns: int, age_s: float) -> list[tuple[int, str]]:
    """Return (monotonic ns of the host, text) of each line that the unit's journal got since `since_ns`, `age_s` s ago.

    None of an instance whose descriptor says `log: null`: it shares a process and its log with another one.
    """
    if not item.unit or (item.model_extra or {}).get("log", "journal") is None:
        return []
    since = f"-{math.ceil(age_s) + LOG_MARGIN_S}s"
    script = f"journalctl -u {item.unit} -o json --output-fields=MESSAGE --no-pager --since={since}"
    result = await connection.sh(script, timeout=60, check=True)
    return parse_journal(result.out, since_ns)


def parse_journal(text: str, since_ns: int) -> list[tuple[int, str]]:
    """Parse journalctl's JSON lines; `__MONOTONIC_TIMESTAMP` is in µs. Binary messages come as lists of bytes."""
    lines = []
    for line in text.splitlines():
        entry = json.loads(line)
        t_ns = int(entry["__MONOTONIC_TIMESTAMP"]) * 1000
        message = entry.get("MESSAGE") or ""
        if isinstance(message, list):
            message = bytes(message).decode(errors="replace")
        if t_ns >= since_ns:
            lines.append((t_ns, message))
    return lines
