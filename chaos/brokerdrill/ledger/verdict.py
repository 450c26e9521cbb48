"""The verdict on a run: typed values for what `brokerdrill analyze --json` writes; reports and tables are made of them.

Every part but the verdict itself may be missing in what is read: an older version wrote fewer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"
T = TypeVar("T")
Json = Mapping[str, Any]


@dataclass(frozen=True)
class PromiseVerdict:
    """The verdict on one promise: how many breaks, how many cases that it excuses, the bound and the worst measure in
    ms, the worst breaks (each a mapping of its own fields), what the scenario expects (kept, violated, known) and
    whether that is so; `beyond`: why it is not, where the verdict does not say it. `values` are the chosen values of
    the promise's other fields (scope, side), `reason` what the analysis adds in words, `judged_from` how much was
    seen."""

    name: str
    verdict: str = UNKNOWN
    count: int = 0
    excused: int = 0
    bound: float | None = None
    measured: float | None = None
    witnesses: tuple[Json, ...] = ()
    expected: str | None = None
    as_expected: bool | None = None
    reason: str = ""
    values: Json = field(default_factory=dict)
    beyond: str = ""
    judged_from: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Met:
    """What the load met of one fault: whom it hit, from when to when (ns of run time), that one's role just before, the
    clients connected to it, their operations in flight and until the heal, and what counters on hosts `measured`;
    `lacking` says what is less than the drill asks for."""

    fault: str | None = None
    step: str | None = None
    instance: str | None = None
    target: str | None = None
    store: str | None = None
    t_ns: int = 0
    healed_ns: int | None = None
    role: str | None = None
    clients: int = 0
    in_flight: int = 0
    operations: int = 0
    measured: Mapping[str, int] = field(default_factory=dict)
    lacking: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failover:
    """One client's way over one failover: the fault, whom it hit, when (ns of run time), and the parts in ms, each from
    the fault; None: not seen."""

    fault: str = ""
    instance: str | None = None
    store: str | None = None
    t_ns: int = 0
    client: str = ""
    detection_ms: float | None = None
    activation_ms: float | None = None
    first_send_ms: float | None = None
    first_delivery_ms: float | None = None


@dataclass(frozen=True)
class Outage:
    """A span without a success on an address, longer than the bound: the fault in effect, and who was served before
    and after; `end_ns` None: to the end of the run."""

    start_ns: int = 0
    end_ns: int | None = None
    fault: str | None = None
    target: str | None = None
    address: str | None = None
    side: str | None = None
    client: str | None = None
    instance: str | None = None
    next_client: str | None = None
    next_instance: str | None = None


@dataclass(frozen=True)
class Attribution:
    """A way in which messages broke: their class, the fault in effect, the broker, the client, and how many."""

    kind: str = ""
    fault: str | None = None
    fault_ns: int | None = None
    target: str | None = None
    instance: str | None = None
    client: str | None = None
    count: int = 0


@dataclass(frozen=True)
class Redelivery:
    """A way in which messages came again: flagged by the broker or not, after an acknowledgement in doubt or not."""

    flagged: bool = False
    in_doubt: bool = False
    client: str | None = None
    instance: str | None = None
    fault: str | None = None
    fault_ns: int | None = None
    target: str | None = None
    count: int = 0


@dataclass(frozen=True)
class Numbers:
    """Operations of one kind in one phase: how many, how many a second, latencies in ms."""

    count: int | None = None
    per_s: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None


@dataclass(frozen=True)
class PhaseNumbers:
    """One phase of the run: its length in s, and its operations by kind (send, commit, receive)."""

    phase: str
    seconds: float = 0
    kinds: Mapping[str, Numbers] = field(default_factory=dict)


@dataclass(frozen=True)
class Takeover:
    """A store that changed hands: who has it now, who had it before, when (ns of run time)."""

    store: str = ""
    instance: str | None = None
    other_instance: str | None = None
    t_ns: int = 0


@dataclass(frozen=True)
class Round:
    """A pass through a method that is repeated: its number, its steps' time (ns of run time), how many faults it
    injected, the longest wait for a failover and for a failback in ms (None: there was none), how many outages began
    in it, and how often each promise broke there."""

    round: str = ""
    start_ns: int = 0
    end_ns: int = 0
    faults: int = 0
    failover_ms: float | None = None
    failback_ms: float | None = None
    outages: int = 0
    broken: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RunVerdict:
    """All that the analysis says of a run. A run that could not be read has `error` and `run_dir` alone.

    `messages` counts the units of each class; `redelivered` splits that class by the broker's flag and by whether an
    acknowledgement was in doubt; `vacuous` says why the run says nothing about its drill, `coverage` what the load met
    of each fault; `more` holds the entries that this version does not know.
    """

    verdict: str = UNKNOWN
    as_expected: bool = False
    run_id: str | None = None
    run_dir: str | None = None
    error: str | None = None
    messages: Mapping[str, int] = field(default_factory=dict)
    redelivered: Mapping[str, int] = field(default_factory=dict)
    promises: tuple[PromiseVerdict, ...] = ()
    failover: tuple[Failover, ...] = ()
    outages: tuple[Outage, ...] = ()
    rounds: tuple[Round, ...] = ()
    notes: tuple[str, ...] = ()
    phases: tuple[PhaseNumbers, ...] = ()
    takeovers: tuple[Takeover, ...] = ()
    redeliveries: tuple[Redelivery, ...] = ()
    attribution: tuple[Attribution, ...] = ()
    vacuous: tuple[str, ...] = ()
    coverage: tuple[Met, ...] = ()
    more: Json = field(default_factory=dict)

    def count(self, *classes: str) -> int:
        """Return how many units are of these classes; of all where none is named."""
        return sum(count for name, count in self.messages.items() if not classes or name in classes)

    def failovers(self) -> dict[tuple[str, int], float | None]:
        """Return each failover (fault and instance, t_ns) with its slowest client's first acknowledged send in ms;
        None: some client had none."""
        return {key: worst.first_send_ms for key, worst in self.slowest().items()}

    def slowest(self) -> dict[tuple[str, int], Failover]:
        """Return each failover (fault and instance, t_ns) with the row of its slowest client; one that was never served
        again is slower than any."""
        found: dict[tuple[str, int], Failover] = {}
        for row in self.failover:
            key = (f"{row.fault} {row.instance}", row.t_ns)
            before = found.get(key)
            if before is None or _time(row) > _time(before):
                found[key] = row
        return found


@dataclass(frozen=True)
class Verdict:
    """The verdict on the runs of one analysis, merged."""

    runs: tuple[RunVerdict, ...]
    verdict: str
    as_expected: bool


def _time(row: Failover) -> float:
    return float("inf") if row.first_send_ms is None else row.first_send_ms


def _pick(kind: type[T], row: Json, /, **more: Any) -> T:
    """Return a `kind` of those entries of `row` that are its fields and not null."""
    names = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: row[name] for name in names if row.get(name) is not None} | more)


def _rows(value: Any) -> list[Json]:
    return [row for row in value or () if isinstance(row, Mapping)]


def _texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(str(item) for item in value or ())


def _word(value: Any) -> str:
    return value if value in (PASS, FAIL) else UNKNOWN


def _counts(value: Any) -> dict[str, int]:
    return {str(name): int(count or 0) for name, count in value.items()} if isinstance(value, Mapping) else {}


def _names(kind: type[Any]) -> set[str]:
    return {one.name for one in fields(kind)}


def _promise(row: Json) -> PromiseVerdict:
    known = _names(PromiseVerdict) | {"reason", "note"}
    return _pick(
        PromiseVerdict,
        row,
        name=str(row.get("name", "")),
        verdict=_word(row.get("verdict")),
        witnesses=tuple(
            item if isinstance(item, Mapping) else {"witness": item} for item in row.get("witnesses") or ()
        ),
        reason=" ".join(str(row[key]) for key in ("reason", "note") if row.get(key)),
        values={key: value for key, value in row.items() if key not in known and value is not None},
    )


def _phase(row: Json) -> PhaseNumbers:
    kinds = {key: _pick(Numbers, value) for key, value in row.items() if isinstance(value, Mapping) and value}
    return PhaseNumbers(str(row.get("phase")), float(row.get("seconds") or 0), kinds)


def run_verdict(value: Json) -> RunVerdict:
    """Return the verdict on one run from its JSON object."""
    return _pick(
        RunVerdict,
        {key: item for key, item in value.items() if key in ("run_id", "run_dir", "error")},
        verdict=_word(value.get("verdict")),
        as_expected=bool(value.get("as_expected")),
        messages=_counts(value.get("messages")),
        redelivered=_counts(value.get("redelivered")),
        promises=tuple(_promise(row) for row in _rows(value.get("promises"))),
        failover=tuple(_pick(Failover, row) for row in _rows(value.get("failover"))),
        outages=tuple(_pick(Outage, row) for row in _rows(value.get("outages"))),
        rounds=tuple(_pick(Round, row, broken=_counts(row.get("broken"))) for row in _rows(value.get("rounds"))),
        notes=(*_texts(value.get("notes")), *_texts(value.get("warnings"))),
        phases=tuple(_phase(row) for row in _rows(value.get("phases"))),
        takeovers=tuple(_pick(Takeover, row) for row in _rows(value.get("takeovers"))),
        redeliveries=tuple(_pick(Redelivery, row) for row in _rows(value.get("redeliveries"))),
        vacuous=_texts(value.get("vacuous")),
        coverage=tuple(
            _pick(Met, row, lacking=_texts(row.get("lacking")), measured=_counts(row.get("measured")))
            for row in _rows(value.get("coverage"))
        ),
        attribution=tuple(
            _pick(Attribution, row, kind=str(row.get("class") or "")) for row in _rows(value.get("attribution"))
        ),
        more={key: item for key, item in value.items() if key not in _names(RunVerdict) | {"warnings", "runs"}},
    )


def verdict(value: Json) -> Verdict:
    """Return the verdict from the JSON object of one run, or of several."""
    runs = tuple(run_verdict(row) for row in value.get("runs", [value]))
    return Verdict(runs, _word(value.get("verdict")), bool(value.get("as_expected")))
