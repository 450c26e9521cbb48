"""The instances' own logs, read from journald when a run ends: kept as evidence, and the role times and the ends of
processes."""

from __future__ import annotations

import gzip
import json
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brokerdrill.base.clock import ClockOffset, now_ns
from brokerdrill.base.masking import masked
from brokerdrill.base.progress import Progress
from brokerdrill.hosts.connection import HostConnection
from brokerdrill.hosts.packed import packed, unpacked
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.ledger.contract import LOG_READ, WITH
from brokerdrill.ledger.events import EventWriter
from brokerdrill.ledger.evidence import INSTANCES, READ_BOOTS, READ_FROM, READ_LOST, READ_UNTIL
from brokerdrill.products.base import LogsRoutedConnects, Product
from brokerdrill.products.logs import role_changes
from brokerdrill.runner.evidence.files import keep
from brokerdrill.runner.evidence.journal_coverage import known as known_boots
from brokerdrill.runner.evidence.journal_coverage import read_covered_times
from brokerdrill.runner.evidence.process_ends import Entry, ProcessEnd, process_ends
from brokerdrill.runner.evidence.routed_connects import write_routed_connects

# journald stamps a line when it reads it from the broker's pipe, shortly after it was written.
LOG_UNCERTAINTY_NS = 5_000_000
# What is kept of the time before a run: the instance's state when the run began often stands at its start. And
# journalctl chooses by the wall clock, which may have been set meanwhile. Not more: a broker without its database can
# fill a log with tens of megabytes a drill.
LOG_MARGIN_S = 60
# Of an entry, in the order of `Entry`.
_FIELDS = ("MESSAGE", "MESSAGE_ID", "EXIT_CODE", "EXIT_STATUS", "_PID")
# In what journald says when a unit wrote more than its limit: how many lines it left out.
_DROPPED = "N_DROPPED"


@dataclass(frozen=True)
class Logged:
    """An instance whose log is read; without `product`, as a voter, only for the ends of its process."""

    product: Product | None
    descriptor: Descriptor
    connection: HostConnection


def processes(instances: Iterable[Logged]) -> Iterator[tuple[Logged, tuple[str, ...]]]:
    """Yield the first instance of each process whose journal can be read, with the names of the others in it."""
    members: dict[tuple[str, str], list[Logged]] = {}
    for one in instances:
        if one.descriptor.unit:
            members.setdefault((one.descriptor.host, one.descriptor.unit), []).append(one)
    for first, *others in members.values():
        yield first, tuple(one.descriptor.instance for one in others)


def has_own_log(item: Descriptor) -> bool:
    """Whether the unit's journal is of this instance alone; else it shares a process and its log with another."""
    return bool(item.unit) and item.log is not None


async def write_log(
    instance: Logged,
    others: Sequence[str],
    span: tuple[int, int],
    events: EventWriter,
    run_dir: Path,
    progress: Progress,
    hosts: Mapping[str, str],
) -> None:
    """Keep the log of a process, that of `instance` and `others`, of the run's `span` (its begin and end, controller's
    clock) and the LOG_MARGIN_S before in `run_dir`, and add to the run what it proves of the span: role changes, the
    ends of the process, and the connects by way of a router. `hosts`: of each instance.

    Raises InfrastructureError when the log cannot be read or kept.
    """
    since_ns, until_ns = span
    item = instance.descriptor
    log = await read_log(instance.connection, item, (now_ns() - since_ns) / 1e9)
    if log.entries:
        keep(run_dir, f"{item.instance}.log.gz", log_text(log.entries, events.base_ns))
    entries = [entry for entry in log.entries if entry.t_ns >= since_ns]
    lines = [(entry.t_ns, entry.text) for entry in entries]
    product = instance.product
    for change in role_changes(lines, product.log_reader) if product and has_own_log(item) else ():
        events.write(
            "role",
            at_ns=change.t_ns,
            uncertainty_ns=log.uncertainty_ns,
            target=item.host,
            instance=item.instance,
            store=item.store if product and product.client else None,
            name="log",
            value=change.role,
            detail={"log": change.why},
        )
    if isinstance(product, LogsRoutedConnects):
        found = ((t_ns, product.routed_connect(text)) for t_ns, text in lines)
        connects = [(t_ns, one) for t_ns, one in found if one and t_ns >= events.base_ns]
        write_routed_connects(run_dir, events, item, connects, hosts, log.uncertainty_ns)
    for end in process_ends(entries):
        _write_end(end, instance, others, log.uncertainty_ns, events, progress)
    # Record that the log was read: the absence of an end is then evidence.
    for part in await read_covered_times(instance.connection, span):
        detail = {
            READ_FROM: str(max(0, part.from_ns - events.base_ns)),
            READ_UNTIL: str(part.until_ns - events.base_ns),
            READ_BOOTS: str(part.boots),
            READ_LOST: str(log.lost),
            INSTANCES: "\n".join((item.instance, *others)),
        }
        events.write("note", at_ns=until_ns, target=item.host, instance=item.instance, name=LOG_READ, detail=detail)


def _write_end(
    end: ProcessEnd,
    instance: Logged,
    others: Sequence[str],
    uncertainty_ns: int,
    events: EventWriter,
    progress: Progress,
) -> None:
    item = instance.descriptor
    events.write(
        "ended",
        at_ns=end.t_ns,
        uncertainty_ns=uncertainty_ns,
        target=item.host,
        instance=item.instance,
        name=item.unit,
        value=end.how,
        detail={
            "status": end.status,
            "last": masked("\n".join(end.last)),
            **({WITH: "\n".join(others)} if others else {}),
        },
    )
    ran_s = (end.t_ns - events.base_ns) / 1e9
    said = f": {masked(end.last[-1])}" if end.last else ""
    progress.step(f"{item.instance}'s process ended at {ran_s:.1f} s ({end.how}, {end.status}){said}")


def log_text(entries: Iterable[Entry], base_ns: int) -> bytes:
    """Return the entries with their time since `base_ns` in s, without secrets, gzipped: a log without its database is
    long."""
    text = "".join(f"{(entry.t_ns - base_ns) / 1e9:10.3f}  {entry.text}\n" for entry in entries)
    return gzip.compress(masked(text).encode(errors="replace"), mtime=0)


@dataclass(frozen=True)
class Log:
    """A unit's log: its entries, how uncertain their times are (ns), and how many lines journald suppressed."""

    entries: Sequence[Entry]
    uncertainty_ns: int
    lost: int


async def read_log(connection: HostConnection, item: Descriptor, age_s: float) -> Log:
    """Return what the unit's journal got in the last `age_s` s and LOG_MARGIN_S before."""
    since = f"-{math.ceil(age_s) + LOG_MARGIN_S}s"
    names = ",".join((*_FIELDS, _DROPPED))
    unit = shlex.quote(item.unit or "")
    # All of a field: of one of more than 4096 bytes it would say null.
    script = f"journalctl -u {unit} -o json --all --output-fields={names} --no-pager --since={since}"
    result = await connection.sh(packed(script), timeout=60, check=True)
    return parse_journal(unpacked(result.out), known_boots(connection))


def parse_journal(text: str, clocks: Mapping[str, ClockOffset]) -> Log:
    """Parse journalctl's JSON lines; `__MONOTONIC_TIMESTAMP` is in µs.

    `clocks`: of each start of the host that is known, by its boot id. What another one wrote has no place in the run.
    """
    entries = []
    lost = uncertainty_ns = 0
    # Not by `splitlines`: a message may have other ends of lines in it, as U+2028.
    for line in text.removesuffix("\n").split("\n") if text else ():
        entry = json.loads(line)
        clock = clocks.get(str(entry["_BOOT_ID"]))
        if clock is None:
            continue
        uncertainty_ns = max(uncertainty_ns, clock.uncertainty_ns)
        lost += sum(map(int, _text(entry.get(_DROPPED)).split()))
        t_ns = int(entry["__MONOTONIC_TIMESTAMP"]) * 1000 + clock.offset_ns
        entries.append(Entry(t_ns, *(_text(entry.get(name)) for name in _FIELDS)))
    return Log(entries, LOG_UNCERTAINTY_NS + uncertainty_ns, lost)


def _text(value: str | list[Any] | None) -> str:
    """Return a field's text: binary comes as a list of bytes, and one that was given more than once as a list."""
    if isinstance(value, list):
        if all(isinstance(one, int) for one in value):
            return bytes(value).decode(errors="replace")
        return "\n".join(map(_text, value))
    return value or ""
