"""Ends of processes, as systemd logs them: when, with which status or signal, and the last lines that they wrote."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

# systemd's catalog (sd-messages.h) names its messages; their texts may change, these do not.
PROCESS_EXIT = "98e322203f7a4ed290d09fe03c09fe15"
UNIT_SUCCESS = "7ad2d189f7e94e70a38c781354912448"
UNIT_OUT_OF_MEMORY = "fe6faa94e7774663a0da52717891d8ef"
# Processes of the unit that are not its main one (ExecStop=, ExecStartPost=) end with the same message.
_MAIN = "Main process"
_SYSTEMD = "1"
LAST_LINES = 3
# The words of which the last lines of a process that ended are made up are looked for in this many.
_LOOKED_AT = 200
_OUT_OF_MEMORY = re.compile(r"OutOfMemoryError|Out of memory|Cannot allocate memory", re.IGNORECASE)
_STACK = re.compile(r"^\s+(at |\.\.\. )")


@dataclass(frozen=True)
class Entry:
    """One entry of a unit's journal: when (controller's clock, ns), its text, systemd's name of the message ("": it has
    none), how a process ended: EXIT_CODE (exited, killed, dumped) and EXIT_STATUS, a number; and who wrote it: _PID."""

    t_ns: int
    text: str
    message_id: str = ""
    exit_code: str = ""
    exit_status: str = ""
    pid: str = ""


@dataclass(frozen=True)
class ProcessEnd:
    """The end of a unit's main process at `t_ns` (controller's clock): `how` (exited, killed, dumped, `out of
    memory` or `killed for memory`), its `status` or signal, and the `last` lines that it wrote."""

    t_ns: int
    how: str
    status: str
    last: tuple[str, ...]


def process_ends(entries: Sequence[Entry]) -> list[ProcessEnd]:
    """Return the ends of the main process that `entries`, oldest first, record."""
    found: list[ProcessEnd] = []
    lines: list[str] = []
    for_memory = False
    for entry in entries:
        if not entry.message_id:
            if entry.pid != _SYSTEMD:
                lines.append(entry.text)
        elif entry.message_id == UNIT_OUT_OF_MEMORY:
            for_memory = True
        elif entry.message_id == UNIT_SUCCESS or (
            entry.message_id == PROCESS_EXIT and _MAIN in entry.text and entry.exit_code
        ):
            how = entry.exit_code or "exited"
            status = _signal(entry.exit_status) if how in ("killed", "dumped") else entry.exit_status or "0"
            written = lines[-_LOOKED_AT:]
            if for_memory:
                how = "killed for memory"
            elif any(_OUT_OF_MEMORY.search(line) for line in written):
                how = "out of memory"
            found.append(ProcessEnd(entry.t_ns, how, status, _last(written)))
            lines, for_memory = [], False
    return found


def _signal(number: str) -> str:
    """The name of a signal, without SIG; what is no number stays as it is."""
    try:
        return signal.Signals(int(number)).name.removeprefix("SIG")
    except ValueError:
        return number


def _last(lines: Sequence[str]) -> tuple[str, ...]:
    """The last lines that say something: those of a stack trace's inside do not."""
    return tuple(line.strip() for line in lines if line.strip() and not _STACK.match(line))[-LAST_LINES:]
