"""The instances' own logs, read from journald when a run ends: kept as evidence, and the role times they prove."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable
from pathlib import Path

from brokerdrill.clock import now_ns
from brokerdrill.descriptors import Descriptor
from brokerdrill.events import EventWriter
from brokerdrill.hosts import HostConnection
from brokerdrill.runner.evidence import keep
from brokerdrill.runner.system import Instance

# journald stamps a line when it reads it from the broker's pipe, shortly after it was written.
LOG_UNCERTAINTY_NS = 5_000_000
# journalctl chooses by the wall clock, which may have been set meanwhile. Not more: a broker without its database can
# fill a log with tens of megabytes a drill.
LOG_MARGIN_S = 60


async def write_logs(instances: Iterable[Instance], since_ns: int, events: EventWriter, run_dir: Path) -> None:
    """Keep the logs since `since_ns` (controller's clock) in `run_dir`, and add their role changes to the run's events.

    Raises InfrastructureError when a log cannot be read or kept.
    """
    for instance in instances:
        item, clock = instance.descriptor, instance.connection.clock
        age_s = (now_ns() - since_ns) / 1e9
        lines = await read_log(instance.connection, item, since_ns - clock.offset_ns, age_s)
        if lines:
            base_ns = events.base_ns - clock.offset_ns
            keep(run_dir, f"{item.instance}.log.gz", log_text(lines, base_ns))
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


def log_text(lines: Iterable[tuple[int, str]], base_ns: int) -> bytes:
    """Return the lines (ns of the host, text) with their run time in s, gzipped: a log without its database is long."""
    text = "".join(f"{(t_ns - base_ns) / 1e9:10.3f}  {line}\n" for t_ns, line in lines)
    return gzip.compress(text.encode(errors="replace"), mtime=0)


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
