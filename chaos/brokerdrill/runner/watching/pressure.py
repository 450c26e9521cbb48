"""How busy the hosts and the controller are during a run: what their kernels say of tasks that had to wait.

A missed bound says nothing about a broker whose host had no processor left for it. The kernel's pressure stall
information (Linux' Documentation/accounting/psi.rst) counts the time in which some task waited for a processor, memory
or a disk; `steal` is the time that a hypervisor gave to others. Calm spans that follow one another become one event.

Counted is what the instances' services and the drill's own processes waited for, by their control groups: that some
other program waited explains nothing. Where a kernel does not tell that apart, its whole host counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.hosts.connection import HostConnection
from brokerdrill.hosts.control_groups import COUNTED, ServiceGroups, is_within, main_processes, nothing, read_here
from brokerdrill.ledger.events import CONTROLLER_CLOCK, EventWriter
from brokerdrill.ledger.evidence import CLOCK_STEP, PRESSURES, SCOPE, SERVICES, SINCE, STALLED, STEAL, WHOLE_HOST
from brokerdrill.runner.watching.polling import PollingWatch

STAT_FILE = "/proc/stat"
# A kernel without pressure stall information lacks these; steal is from STAT_FILE.
WAITED_FOR = tuple(resource for resource in PRESSURES if resource != STEAL)
_TICKS_PER_S = 100  # USER_HZ, the unit of /proc/stat on every Linux
LONGEST_SPAN_NS = 30_000_000_000
# Samples in which no resource was waited for longer than that share of the time belong to one span; others stand alone,
# so that it is known when hosts were busy.
CALM = 0.1


def pressure_files(folders: frozenset[str]) -> dict[str, tuple[str, str]]:
    """Return path → folder and resource of the files that count for these control groups; none: for the whole host,
    whose folder is ""."""
    if not folders:
        return {f"/proc/pressure/{resource}": ("", resource) for resource in WAITED_FOR}
    return {f"{one}/{resource}.pressure": (one, resource) for one in sorted(folders) for resource in WAITED_FOR}


@dataclass(frozen=True)
class Counters:
    """What a kernel has counted: ns that some task waited, by control group ("": the whole host, since it started) and
    resource, those that it knows; which groups were looked at; and the kernel's start by its own wall clock (s since
    1970), which moves only when that clock is set."""

    waited_ns: Mapping[tuple[str, str], int]
    folders: frozenset[str]
    started_s: int


@dataclass(frozen=True)
class PressureSpan:
    """A time on the controller's clock (ns), and for how long of it some task waited for each of PRESSURES (ns): one of
    the services, or (`scope`) of the whole host."""

    since_ns: int
    until_ns: int
    stalled_ns: Mapping[str, int]
    scope: str = WHOLE_HOST

    @property
    def shares(self) -> dict[str, float]:
        """The share of the time (0 to 1) for each resource."""
        passed = max(1, self.until_ns - self.since_ns)
        return {name: stalled / passed for name, stalled in self.stalled_ns.items()}

    @property
    def is_calm(self) -> bool:
        return max(self.shares.values(), default=0.0) < CALM


def parse(files: Mapping[str, str], folders: frozenset[str] = frozenset()) -> Counters:
    """Return the Counters that are in the kernel's files for `folders` and in STAT_FILE, of which some may be
    missing."""
    waited: dict[tuple[str, str], int] = {}
    for file, counted in pressure_files(folders).items():
        for words in map(str.split, files.get(file, "").splitlines()):
            if words[0] == "some":
                waited[counted] = 1000 * int(words[-1].removeprefix("total="))
    started = processors = stolen = 0
    for words in map(str.split, files.get(STAT_FILE, "").splitlines()):
        if words[0] == "btime":
            started = int(words[1])
        elif words[0] == "cpu":
            stolen = int(words[8])
        elif words[0].startswith("cpu"):
            processors += 1
    if processors:
        waited["", STEAL] = stolen * 1_000_000_000 // _TICKS_PER_S // processors
    return Counters(waited, folders, started)


def between(earlier: Counters, later: Counters, since_ns: int, until_ns: int) -> PressureSpan | None:
    """Return the PressureSpan between two samples (controller's clock, ns); None where the kernel was started anew, or
    other control groups were looked at. That several groups waited counts as if they had done it one after another,
    which is the most that it may explain."""
    if earlier.folders != later.folders:
        return None
    waited: dict[str, int] = {}
    for (folder, resource), value in later.waited_ns.items():
        # A service's group goes with its last process, and its next one counts from 0.
        before = earlier.waited_ns.get((folder, resource), 0 if folder else value)
        if value < before and not folder:
            return None
        waited[resource] = waited.get(resource, 0) + (value - before if value >= before else value)
    # The kernel's count and the time between the samples are read a moment apart.
    stalled = {name: min(until_ns - since_ns, value) for name, value in waited.items()}
    return PressureSpan(since_ns, until_ns, stalled, SERVICES if later.folders else WHOLE_HOST)


def joined(before: PressureSpan, after: PressureSpan) -> PressureSpan | None:
    """Return both spans as one where both are calm and follow one another, else None."""
    alike = before.stalled_ns.keys() == after.stalled_ns.keys() and before.scope == after.scope
    if not (alike and before.is_calm and after.is_calm):
        return None
    if before.until_ns != after.since_ns or after.until_ns - before.since_ns > LONGEST_SPAN_NS:
        return None
    stalled = {name: before.stalled_ns[name] + value for name, value in after.stalled_ns.items()}
    return PressureSpan(before.since_ns, after.until_ns, stalled, before.scope)


class PressureSource:
    """A machine whose counters are read, by its services where it tells them apart."""

    def __init__(self, connection: HostConnection | None = None, units: Sequence[str] = ()) -> None:
        self._read = connection.read if connection else read_here
        self._groups = ServiceGroups(self._read, main_processes(connection, units) if connection else nothing)
        self._folders: frozenset[str] = frozenset()
        self._tells_services_apart = True

    async def counters(self) -> Counters:
        """Return what its kernel has counted. Raises InfrastructureError."""
        found_now = self._tells_services_apart and not self._folders
        if found_now:
            self._folders = await self._groups.find()
        files = await self._read([*pressure_files(self._folders), STAT_FILE])
        own = self._groups.own
        if own is None or (self._folders and not _counts_for(own, self._folders, files)):
            # Another login is another group, which is looked for the next time; not so one that was just found.
            self._tells_services_apart = not found_now
            self._folders = frozenset()
            files = await self._read([*pressure_files(self._folders), STAT_FILE])
        return parse(files, self._folders)


def _counts_for(own: str, folders: frozenset[str], files: Mapping[str, str]) -> bool:
    """Whether the files that were read are also of the process that asks: of its group, or of one around it."""
    return any(is_within(own, one) and f"{one}/{COUNTED}" in files for one in folders)


class PressureWatch(PollingWatch):
    """Asks the controller and every host; one that does not answer leaves a gap."""

    what = "the hosts' pressure"
    period_s = 2.0

    def __init__(
        self, connections: Mapping[str, HostConnection], units: Mapping[str, Sequence[str]], events: EventWriter
    ) -> None:
        """`units`: of each host those that its instances run as."""
        self._sources = {CONTROLLER_CLOCK: PressureSource()} | {
            name: PressureSource(connection, units.get(name, ())) for name, connection in connections.items()
        }
        super().__init__(self._sources)
        self._events = events
        self._last: dict[str, tuple[int, Counters]] = {}
        self._open: dict[str, PressureSpan] = {}

    @property
    def spans(self) -> dict[str, PressureSpan]:
        """The newest span of each host that answers, still growing."""
        return dict(self._open)

    async def stop(self) -> None:
        try:
            await super().stop()
        finally:
            for name in [*self._open]:
                self._write(name)

    async def _ask(self, name: str, asked_ns: int) -> None:
        try:
            counters = await self._sources[name].counters()
        except (InfrastructureError, OSError):
            self._last.pop(name, None)
            return
        at_ns = (asked_ns + now_ns()) // 2
        last, self._last[name] = self._last.get(name), (at_ns, counters)
        if last is None or self._since_ns is None:
            return
        before_ns, before = last
        # One second may be the rounding of a clock that is slewed.
        if abs(counters.started_s - before.started_s) > 1:
            self._step(name, at_ns, counters.started_s - before.started_s)
        if span := between(before, counters, max(before_ns, self._since_ns), at_ns):
            self._take(name, span)

    def _take(self, name: str, span: PressureSpan) -> None:
        if (known := self._open.get(name)) and (both := joined(known, span)):
            self._open[name] = both
            return
        self._write(name)
        self._open[name] = span

    def _write_known(self, at_ns: int) -> None:
        """Nothing: a span begins with the first sample after this."""

    def _step(self, name: str, at_ns: int, seconds: int) -> None:
        self._events.write("note", at_ns=at_ns, target=name, name=CLOCK_STEP, value=f"{seconds:+d}")

    def _write(self, name: str) -> None:
        if not (span := self._open.pop(name, None)):
            return
        since = str(max(0, span.since_ns - self._events.base_ns))
        for resource, stalled in span.stalled_ns.items():
            detail = {SINCE: since, STALLED: str(stalled), SCOPE: WHOLE_HOST if resource == STEAL else span.scope}
            self._events.write("pressure", at_ns=span.until_ns, target=name, name=resource, detail=detail)
