"""What a run's events say, as plain values: roles, faults, failbacks, ends of processes, alerts.

`at` is run time in nanoseconds, `u` its uncertainty: the event's own plus its clock's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

# Later than every time: the end of a call that never returned. Half of a long's range, so that sums do not overflow.
NEVER = 1 << 62


@dataclass(frozen=True)
class Event:
    """One event in run time; `detail` holds the map's entries, sorted; `clock` is that of who recorded it."""

    kind: str
    at: int
    u: int = 0
    target: str | None = None
    instance: str | None = None
    store: str | None = None
    name: str | None = None
    value: str | None = None
    detail: tuple[tuple[str, str], ...] = ()
    clock: str = field(default="", compare=False)


def in_order(event: Event) -> tuple[int, str, str, int]:
    """The key by which events are ordered: by time, those of one time always alike."""
    return event.at, event.value or "", event.store or "", event.u


class Routed(NamedTuple):
    """A router (None: it is not told which) connected `client` to `instance`, and until `until` (ns) to no other."""

    client: str
    instance: str
    router: str | None
    start: int
    until: int


class Epoch(NamedTuple):
    """One uninterrupted time for which `instance` is active on `store`; `open`: it runs to the end of the run. It began
    at `earliest` at the earliest, and ended at `latest` at the latest: no vaguer than its uncertainties, and, where
    what else is known of the instance's role shows more, less so."""

    store: str
    instance: str
    start: int
    start_u: int
    end: int
    end_u: int
    open: bool
    earliest: int
    latest: int


class Fault(NamedTuple):
    """A fault, numbered by time, and when it was healed (the first later heal of the same name and target; None:
    never). `toward`: the instances at the ends of the link that it hit. `step`: the scenario's that injected it.
    `vague`: its host healed it by itself, at some time before that was seen; `healed_u`: how uncertain its heal is."""

    number: int
    name: str | None
    instance: str | None
    target: str | None
    store: str | None
    at: int
    u: int
    healed_at: int | None
    toward: tuple[str, ...] = ()
    step: str | None = None
    vague: bool = False
    healed_u: int = 0


class Hit(NamedTuple):
    """A fault on an instance that was active: the epoch it hit, and the next epoch on that store (None: there is none).
    `again`: a later fault hit the same epoch before the next began. `detected_at`: when a sign first showed that the
    next epoch's side had noticed (None: no event shows it)."""

    fault: Fault
    epoch: Epoch
    next: Epoch | None
    again: bool
    detected_at: int | None


class Failback(NamedTuple):
    """From the heal of a fault (of type `name`) on a store's original instance to its next epoch there (None: none).

    The heal was at `healed_at` as far as is known, not before `earliest` and not after `latest`; the epoch began at
    `back_at`, give or take `back_u`, or, where nobody had known its role, up to `unseen` sooner. `others`: from when
    (at the earliest) to when other faults on the instance that were in effect after the heal hindered it, by begin."""

    name: str | None
    instance: str
    store: str
    healed_at: int
    earliest: int
    latest: int
    back_at: int | None
    back_u: int = 0
    others: tuple[tuple[int, int], ...] = ()
    unseen: int = 0


class Ending(NamedTuple):
    """The end of an instance's process: `how` and with which `status` or signal it ended, and the `last` lines that it
    wrote. `meant`: a fault or an operation explains it; `doubted`: one may."""

    instance: str
    at: int
    how: str | None
    status: str | None
    last: str | None
    meant: bool
    doubted: bool = False


class MethodRound(NamedTuple):
    """A pass through a method that is repeated: its steps took from `start` to `end`, and what happened before
    `until`, the begin of the next one (NEVER: there is none), is of this one."""

    name: str
    start: int
    end: int
    until: int


class Alert(NamedTuple):
    """A time in which the alert `name` fired, of an instance or a store (None: of no certain one); `at_u` is the
    uncertainty of its begin. `cleared_at` None: to the end of the run. Where several record the begin at one time,
    `at_u` is that of the vaguest, `least_u` that of the surest (None: they are as vague); `cleared_u` is how uncertain
    its end is."""

    name: str
    instance: str | None
    store: str | None
    at: int
    at_u: int
    cleared_at: int | None
    least_u: int | None = None
    cleared_u: int = 0

    def concerns(self, fault: Fault) -> bool:
        """Whether it may be about `fault`: what both say of instance and store is the same."""
        pairs = ((self.instance, fault.instance), (self.store, fault.store))
        return all(mine == its or mine is None or its is None for mine, its in pairs)


class Span(NamedTuple):
    """A store and a time, the end not in it."""

    store: str
    start: int
    end: int


class Unwatched(NamedTuple):
    """A time (ns, the end not in it) in which nobody knew what an instance's role was: it did not answer, or was not
    asked."""

    instance: str
    start: int
    end: int


class LogRead(NamedTuple):
    """An instance's log was read, of the time from `since` to `until` (None: it is not said of which), whole (`lost` is
    0) or not."""

    instance: str
    since: int | None
    until: int | None
    lost: int


class Pressure(NamedTuple):
    """In the time from `start` to `end` something on `host` waited `stalled` ns for what is named: cpu, memory, io,
    steal."""

    host: str
    name: str
    start: int
    end: int
    stalled: int


class Overlap(NamedTuple):
    """A time in which two instances were active on one store: for certain, or as far as is known (`certain`)."""

    one: Epoch
    other: Epoch
    start: int
    end: int
    certain: bool
