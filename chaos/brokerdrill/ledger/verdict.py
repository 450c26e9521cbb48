"""The verdict on a run: the typed values that the analysis makes, `verdict.json` holds and reports show.

Each class knows its JSON (`to_json`, `from_json`), and no other module spells an entry of it. Every part but the
verdict itself may be missing in what is read: an older version wrote fewer, and null is as good as nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from brokerdrill.ledger.rows import Json, JsonRow, all_json, counts, names, objects, texts
from brokerdrill.ledger.witness import Witness

PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"


def _word(value: Any) -> str:
    return value if value in (PASS, FAIL) else UNKNOWN


@dataclass(frozen=True)
class PromiseVerdict(JsonRow):
    """The verdict on one promise: how many breaks, how many cases that it excuses, the bound and the worst measure in
    ms, the worst breaks, what the scenario expects (kept, violated, known) and whether that is so; `beyond`: why it is
    not, where the verdict does not say it. `values` are the chosen values of the promise's other fields (scope, side),
    `reason` why it is unknown, `judged_from` how much was seen."""

    name: str
    verdict: str = UNKNOWN
    count: int = 0
    excused: int = 0
    bound: float | None = None
    measured: float | None = None
    witnesses: tuple[Witness, ...] = ()
    expected: str | None = None
    as_expected: bool | None = None
    reason: str = ""
    values: Json = field(default_factory=dict)
    beyond: str = ""
    judged_from: Json = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object: the chosen values are entries of their own."""
        row = {name: value for name, value in super().to_json().items() if name not in ("values", *_IF_THERE)}
        row |= {"witnesses": all_json(self.witnesses)} | dict(self.values)
        return row | {name: value for name in _IF_THERE if (value := getattr(self, name)) not in (None, "")}

    @classmethod
    def from_json(cls, row: Json) -> PromiseVerdict:
        """Return the verdict of a JSON object."""
        known = {*names(cls), "reason", "note"}
        return cls.picked(
            row,
            name=str(row.get("name", "")),
            verdict=_word(row.get("verdict")),
            witnesses=tuple(Witness.from_json(item) for item in row.get("witnesses") or ()),
            reason=" ".join(str(row[key]) for key in ("reason", "note") if row.get(key)),
            values={key: value for key, value in row.items() if key not in known},
        )


# Entries of a promise's JSON that are left out where there is nothing to say.
_IF_THERE = ("reason", "as_expected", "beyond")


@dataclass(frozen=True)
class Met(JsonRow):
    """What the load met of one fault: whom it hit, from when to when (ns of run time), that one's role just before, the
    clients connected to it, their operations in flight and until the heal, and what counters on hosts `measured`;
    `minimum` is what the drill asks for, `lacking` says what is less than that."""

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
    minimum: Mapping[str, int] = field(default_factory=dict)
    lacking: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, row: Json) -> Met:
        """Return the value of a JSON object."""
        measured = {name: counts(row.get(name)) for name in ("measured", "minimum")}
        return cls.picked(row, lacking=texts(row.get("lacking")), **measured)


@dataclass(frozen=True)
class Failover(JsonRow):
    """One client's way over one failover: the fault, whom it hit, when (ns of run time), and the parts in ms, each from
    the fault; None: not seen."""

    fault: str | None = None
    instance: str | None = None
    store: str | None = None
    t_ns: int = 0
    client: str = ""
    detection_ms: float | None = None
    activation_ms: float | None = None
    first_send_ms: float | None = None
    first_delivery_ms: float | None = None


@dataclass(frozen=True)
class Outage(JsonRow):
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
class Attribution(JsonRow):
    """A way in which messages broke: their class, the fault in effect, the broker, the client, and how many."""

    kind: str = ""
    fault: str | None = None
    fault_ns: int | None = None
    target: str | None = None
    instance: str | None = None
    client: str | None = None
    count: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object, which calls the kind `class`."""
        row = super().to_json()
        return {"class": row.pop("kind"), **row}

    @classmethod
    def from_json(cls, row: Json) -> Attribution:
        """Return the value of a JSON object."""
        return cls.picked(row, kind=str(row.get("class") or ""))


@dataclass(frozen=True)
class Redelivery(JsonRow):
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
class Numbers(JsonRow):
    """Operations of one kind in one phase: how many, how many a second, latencies in ms."""

    count: int | None = None
    per_s: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None


@dataclass(frozen=True)
class PhaseNumbers(JsonRow):
    """One phase of the run: its length in s, and its operations by kind (send, commit, receive)."""

    phase: str
    seconds: float = 0
    kinds: Mapping[str, Numbers] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object: each kind is an entry of its own."""
        kinds = {kind: numbers.to_json() for kind, numbers in self.kinds.items()}
        return {"phase": self.phase, "seconds": self.seconds, **kinds}

    @classmethod
    def from_json(cls, row: Json) -> PhaseNumbers:
        """Return the value of a JSON object."""
        kinds = {key: Numbers.from_json(value) for key, value in row.items() if isinstance(value, Mapping) and value}
        return cls(str(row.get("phase")), float(row.get("seconds") or 0), kinds)


@dataclass(frozen=True)
class Takeover(JsonRow):
    """A store that changed hands: who has it now, who had it before, when (ns of run time)."""

    store: str = ""
    instance: str | None = None
    other_instance: str | None = None
    t_ns: int = 0


@dataclass(frozen=True)
class Round(JsonRow):
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

    @classmethod
    def from_json(cls, row: Json) -> Round:
        """Return the value of a JSON object."""
        return cls.picked(row, broken=counts(row.get("broken")))


@dataclass(frozen=True)
class RunVerdict(JsonRow):
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

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object; of a run that could not be read where it is and why."""
        if self.error is not None:
            return {name: getattr(self, name) for name in ("run_id", "run_dir", "verdict", "as_expected", "error")}
        return {
            "run_id": self.run_id,
            "verdict": self.verdict,
            "as_expected": self.as_expected,
            "vacuous": list(self.vacuous),
            "coverage": all_json(self.coverage),
            "messages": dict(self.messages),
            "redelivered": dict(self.redelivered),
            "promises": all_json(self.promises),
            "failover": all_json(self.failover),
            "outages": all_json(self.outages),
            "rounds": all_json(self.rounds),
            "notes": list(self.notes),
            "phases": all_json(self.phases),
            "takeovers": all_json(self.takeovers),
            "attribution": all_json(self.attribution),
            "redeliveries": all_json(self.redeliveries),
            **self.more,
        }

    @classmethod
    def from_json(cls, value: Json) -> RunVerdict:
        """Return the verdict on one run of a JSON object."""
        return cls.picked(
            {key: item for key, item in value.items() if key in ("run_id", "run_dir", "error")},
            verdict=_word(value.get("verdict")),
            as_expected=bool(value.get("as_expected")),
            messages=counts(value.get("messages")),
            redelivered=counts(value.get("redelivered")),
            promises=tuple(map(PromiseVerdict.from_json, objects(value.get("promises")))),
            failover=tuple(map(Failover.from_json, objects(value.get("failover")))),
            outages=tuple(map(Outage.from_json, objects(value.get("outages")))),
            rounds=tuple(map(Round.from_json, objects(value.get("rounds")))),
            notes=(*texts(value.get("notes")), *texts(value.get("warnings"))),
            phases=tuple(map(PhaseNumbers.from_json, objects(value.get("phases")))),
            takeovers=tuple(map(Takeover.from_json, objects(value.get("takeovers")))),
            redeliveries=tuple(map(Redelivery.from_json, objects(value.get("redeliveries")))),
            vacuous=texts(value.get("vacuous")),
            coverage=tuple(map(Met.from_json, objects(value.get("coverage")))),
            attribution=tuple(map(Attribution.from_json, objects(value.get("attribution")))),
            more={key: item for key, item in value.items() if key not in {*names(cls), "warnings", "runs"}},
        )


@dataclass(frozen=True)
class Verdict(JsonRow):
    """The verdict on the runs of one analysis, merged."""

    runs: tuple[RunVerdict, ...]
    verdict: str
    as_expected: bool

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object: a single run's own, or one that holds those of several."""
        if len(self.runs) == 1:
            return self.runs[0].to_json()
        return {"verdict": self.verdict, "as_expected": self.as_expected, "runs": all_json(self.runs)}

    @classmethod
    def from_json(cls, value: Json) -> Verdict:
        """Return the verdict of the JSON object of one run, or of several."""
        runs = tuple(map(RunVerdict.from_json, value.get("runs", [value])))
        return cls(runs, _word(value.get("verdict")), bool(value.get("as_expected")))


def _time(row: Failover) -> float:
    return float("inf") if row.first_send_ms is None else row.first_send_ms
