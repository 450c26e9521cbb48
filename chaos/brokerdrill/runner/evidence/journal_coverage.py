"""Which part of a run a host's journal covers: what it has of each start of the host, and where it lacks some."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brokerdrill.base.clock import ClockOffset
from brokerdrill.hosts.connection import HostConnection

# systemd's catalog (sd-messages.h): journald has written all that it was given, and ends.
JOURNAL_STOP = "d93fb3c9c24d451a97cea615ce59c00b"
# Of each boot that the journal knows, oldest first: its id, its first and last entry, its last entry of that message.
_SCRIPT = f"""
for boot in $(journalctl --list-boots --no-pager -q | awk '{{ if ($1 ~ /^-?[0-9]+$/) print $2 }}'); do
  case " $0 " in *" $boot "*) ;; *) echo "{{\\"boot\\": \\"$boot\\"}}"; continue;; esac
  ask="journalctl -q --no-pager -o json --output-fields=_BOOT_ID _BOOT_ID=$boot"
  first=$($ask | head -n 1) last=$($ask -n 1) stop=$($ask -n 1 MESSAGE_ID={JOURNAL_STOP})
  printf '{{"boot": "%s", "first": %s, "last": %s, "stop": %s}}\\n' \\
    "$boot" "${{first:-null}}" "${{last:-null}}" "${{stop:-null}}"
done
"""


@dataclass(frozen=True)
class Boot:
    """What a journal has of one start of its host: its first and last entry (controller's clock, ns); whether it was
    written to its end (`whole`), or goes on (`current`)."""

    first_ns: int
    last_ns: int
    whole: bool = True
    current: bool = False


@dataclass(frozen=True)
class CoveredTime:
    """A time (controller's clock, ns) of which the journal has everything, and how many starts of the host it spans."""

    from_ns: int
    until_ns: int
    boots: int


def covered_times(boots: Sequence[Boot | None], span: tuple[int, int]) -> list[CoveredTime]:
    """Return the times within `span` (begin and end, controller's clock, ns) that a journal covers. `boots`: all that
    it knows, oldest first; None: one whose clock is not known, so that its entries have no place.

    Between the orderly end of one start and the next one nothing ran, and nothing is missing.
    """
    since_ns, until_ns = span
    found: list[CoveredTime] = []
    joined = False
    for boot in boots:
        if boot is None:
            joined = False
            continue
        end_ns = until_ns if boot.current else min(boot.last_ns, until_ns)
        begin_ns = max(boot.first_ns, since_ns)
        if joined and found and begin_ns >= found[-1].until_ns:
            found[-1] = CoveredTime(found[-1].from_ns, max(end_ns, found[-1].until_ns), found[-1].boots + 1)
        elif end_ns > begin_ns:
            found.append(CoveredTime(begin_ns, end_ns, 1))
        joined = boot.whole
    return found


def parse_boots(text: str, clocks: Mapping[str, ClockOffset], current: str) -> list[Boot | None]:
    """Return the boots in the host's answer. `clocks`: of each that is known by its id, `current` the id of
    the one that goes on, both without dashes."""
    found: list[Boot | None] = []
    for line in text.splitlines():
        boot: Mapping[str, Any] = json.loads(line)
        clock = clocks.get(boot["boot"])
        if clock is None or not boot.get("first") or not boot.get("last"):
            found.append(None)
            continue
        first, last, stop = (
            int(entry["__MONOTONIC_TIMESTAMP"]) * 1000 + clock.offset_ns if (entry := boot[name]) else None
            for name in ("first", "last", "stop")
        )
        assert first is not None and last is not None
        # What journald wrote after it had ended and begun again within one start is of that start.
        found.append(Boot(first, last, whole=stop == last, current=boot["boot"] == current))
    return found


def known(connection: HostConnection) -> dict[str, ClockOffset]:
    """Return the clock of each start of the host that the connection has met, by its id as journald writes it."""
    return {boot.replace("-", ""): clock for boot, clock in connection.boots.items()}


async def read_covered_times(connection: HostConnection, span: tuple[int, int]) -> list[CoveredTime]:
    """Return the times within `span` that the host's journal covers. Raises InfrastructureError when it cannot be
    read."""
    clocks = known(connection)
    script = f'set -- {" ".join(clocks)}; boots="$*"\n{_SCRIPT.replace("$0", "$boots")}'
    answer = await connection.sh(script, timeout=60, check=True)
    return covered_times(parse_boots(answer.out, clocks, connection.boot_id.replace("-", "")), span)
