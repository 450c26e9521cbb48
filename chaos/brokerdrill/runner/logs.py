"""The instances' own logs, read from journald when a run ends: kept as evidence, and the role times and the ends of
processes."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from brokerdrill.base.clock import now_ns
from brokerdrill.base.progress import Progress
from brokerdrill.hosts.connection import HostConnection
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.ledger.contract import LOG_READ, WITH
from brokerdrill.ledger.events import EventWriter
from brokerdrill.products.base import Leading
from brokerdrill.products.logs import role_changes
from brokerdrill.runner.endings import Entry, endings
from brokerdrill.runner.evidence import keep
from brokerdrill.runner.led import write_led
from brokerdrill.runner.system import Instance

# journald stamps a line when it reads it from the broker's pipe, shortly after it was written.
LOG_UNCERTAINTY_NS = 5_000_000
# What is kept of the time before a run: how the instance was when the run began is often told by its start. And
# journalctl chooses by the wall clock, which may have been set meanwhile. Not more: a broker without its database can
# fill a log with tens of megabytes a drill.
LOG_MARGIN_S = 60
# Of an entry, in the order of `Entry`.
_FIELDS = ("MESSAGE", "MESSAGE_ID", "EXIT_CODE", "EXIT_STATUS", "_PID")


def processes(instances: Iterable[Instance]) -> Iterator[tuple[Instance, tuple[str, ...]]]:
    """Yield the first instance of each process whose journal can be read, with the names of the others in it."""
    members: dict[tuple[str, str], list[Instance]] = {}
    for one in instances:
        if one.descriptor.unit:
            members.setdefault((one.descriptor.host, one.descriptor.unit), []).append(one)
    for first, *others in members.values():
        yield first, tuple(one.descriptor.instance for one in others)


def has_own_log(item: Descriptor) -> bool:
    """Whether what the unit's journal tells is of this instance; else it shares a process and its log with another."""
    return bool(item.unit) and item.log is not None


async def write_log(
    instance: Instance,
    others: Sequence[str],
    span: tuple[int, int],
    events: EventWriter,
    run_dir: Path,
    progress: Progress,
    hosts: Mapping[str, str],
) -> None:
    """Keep the log of a process, that of `instance` and `others`, of the run's `span` (its begin and end, controller's
    clock) and the LOG_MARGIN_S before in `run_dir`, and add to the run what it proves of the span: role changes, the
    ends of the process, and the connects that it led. `hosts`: of each instance.

    Raises InfrastructureError when the log cannot be read or kept.
    """
    since_ns, until_ns = span
    item, clock = instance.descriptor, instance.connection.clock
    age_s = (now_ns() - since_ns) / 1e9
    told = await read_log(instance.connection, item, age_s)
    uncertainty_ns = LOG_UNCERTAINTY_NS + clock.uncertainty_ns
    base_ns = events.base_ns - clock.offset_ns
    if told:
        keep(run_dir, f"{item.instance}.log.gz", log_text(told, base_ns))
    entries = [entry for entry in told if entry.t_ns >= since_ns - clock.offset_ns]
    lines = [(entry.t_ns, entry.text) for entry in entries]
    for change in role_changes(lines, instance.product.log_reader) if has_own_log(item) else ():
        events.write(
            "role",
            at_ns=change.t_ns + clock.offset_ns,
            uncertainty_ns=uncertainty_ns,
            target=item.host,
            instance=item.instance,
            store=item.store if instance.product.client else None,
            name="log",
            value=change.role,
            detail={"log": change.why},
        )
    if isinstance(instance.product, Leading):
        since_base = ((t_ns - base_ns, instance.product.led(text)) for t_ns, text in lines)
        led = [(at_ns, one) for at_ns, one in since_base if one and at_ns >= 0]
        write_led(run_dir, events.run_id, instance, led, hosts, uncertainty_ns)
    for ending in endings(entries):
        at_ns = ending.t_ns + clock.offset_ns
        events.write(
            "ended",
            at_ns=at_ns,
            uncertainty_ns=uncertainty_ns,
            target=item.host,
            instance=item.instance,
            name=item.unit,
            value=ending.how,
            detail={
                "status": ending.status,
                "last": "\n".join(ending.last),
                **({WITH: "\n".join(others)} if others else {}),
            },
        )
        ran_s = (at_ns - events.base_ns) / 1e9
        said = f": {ending.last[-1]}" if ending.last else ""
        progress.step(f"{item.instance}'s process ended at {ran_s:.1f} s ({ending.how}, {ending.status}){said}")
    # Without it, nobody would know that no end means that there was none.
    events.write("note", at_ns=until_ns, target=item.host, instance=item.instance, name=LOG_READ)


def log_text(entries: Iterable[Entry], base_ns: int) -> bytes:
    """Return the entries (ns of the host) with their run time in s, gzipped: a log without its database is long."""
    text = "".join(f"{(entry.t_ns - base_ns) / 1e9:10.3f}  {entry.text}\n" for entry in entries)
    return gzip.compress(text.encode(errors="replace"), mtime=0)


async def read_log(connection: HostConnection, item: Descriptor, age_s: float) -> list[Entry]:
    """Return each entry that the unit's journal got in the last `age_s` s and LOG_MARGIN_S before."""
    since = f"-{math.ceil(age_s) + LOG_MARGIN_S}s"
    script = f"journalctl -u {item.unit} -o json --output-fields={','.join(_FIELDS)} --no-pager --since={since}"
    result = await connection.sh(script, timeout=60, check=True)
    return parse_journal(result.out)


def parse_journal(text: str) -> list[Entry]:
    """Parse journalctl's JSON lines; `__MONOTONIC_TIMESTAMP` is in µs. Binary messages come as lists of bytes."""
    entries = []
    for line in text.splitlines():
        told = json.loads(line)
        message = told.get("MESSAGE") or ""
        if isinstance(message, list):
            message = bytes(message).decode(errors="replace")
        t_ns = int(told["__MONOTONIC_TIMESTAMP"]) * 1000
        entries.append(Entry(t_ns, message, *(str(told.get(name) or "") for name in _FIELDS[1:])))
    return entries
