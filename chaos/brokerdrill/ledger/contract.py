"""The ledger's contract in one place: what a run leaves behind, and the only thing that the analysis reads.

Standard library only and Python >= 3.10: the file is shipped to load hosts as it is. Names, types and words are
those of the ledger's specification, as data: writers fill rows by `OP_COLUMNS` and `EVENT_COLUMNS`, readers build
schemas from them.

    RUN_DIR/
      run.json        `RunInfo`, replaced atomically by `write_run`; every other file is append-only
      journal.jsonl   the intent and the outcome of each fault and heal
      ops/            operations, Parquet (`*.parquet`) or JSON Lines (`*.jsonl`) with the same fields
      events/         events, same forms

Times are nanoseconds since the run's start on the monotonic clock of the recording process; adding that clock's
`offset_ns` gives run time, give or take its `uncertainty_ns`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from brokerdrill.base import atomic
from brokerdrill.base.errors import UsageError
from brokerdrill.ledger.coverage import Minimum, minimum
from brokerdrill.ledger.known import Known, known
from brokerdrill.promises.catalogue import PROMISES
from brokerdrill.promises.definition import BOUND, Value

SCHEMA_VERSION = 1

RUN_FILE = "run.json"
JOURNAL_FILE = "journal.jsonl"
OPS_DIR = "ops"
EVENTS_DIR = "events"

# --- enumerations ---------------------------------------------------------------------------------------------------

OPS = (
    "connect",
    "close",
    "subscribe",
    "unsubscribe",
    "send",
    "receive",
    "ack",
    "prepare",
    "commit",
    "rollback",
    "browse",
)
OUTCOMES = ("ok", "fail", "unknown")
PROTOCOLS = ("core", "openwire", "amqp", "amqp091", "stomp", "mqtt", "openmq")

EVENT_KINDS = (
    "fault",
    "heal",
    "role",
    "health",
    "pool",
    "routed",
    "probe",
    "phase",
    "abort",
    "note",
    "ended",
    "alert",
    # What only hosts can count of what was seen: see "Evidence" in the specification.
    "met",
    "pressure",
    "clock",
    "polls",
    "piece",
)
ROLES = ("active", "passive", "syncing", "starting", "failed", "down")
# Steps of a scenario that are recorded as faults but disturb nothing while they are in effect, only when they end.
PREPARATIONS = ("arm",)
# The note of an instance whose log was read to its end: what the log does not record did not happen.
LOG_READ = "log read"
# The name of a note that a fault was gone before its heal.
FAULT_GONE = "fault gone"
# The notes at the begin and the end of a time in which Prometheus said what alerts fire: what it did not say did not
# happen. Its value is one of PHASE_VALUES.
ALERTS_WATCHED = "alerts watched"
# The note that says, as its value, which earlier run's messages came.
LEFT_BEHIND = "left behind"
# The note that names, as its value, transactions of an instance that were prepared before the run.
PREPARED_BEFORE = "prepared before"
# In the details of `ended`: the other instances in the process that ended, a line each.
WITH = "with"
# In the details of a fault on a link: the instances that its connections go to, joined by ", ".
TOWARD = "toward"
# In the details of the notes at the begin and the end of a playbook that a step runs: `begin` or `end`.
OPERATION = "operation"
# In the details of the notes at the begin and the end of a round, whose number is their name: `begin` or `end`.
ROUND = "round"
PHASES = ("load", "drain")
PHASE_VALUES = ("begin", "end")
POOL_VALUES = ("ready", "not_ready")
ALERT_VALUES = ("firing", "cleared")

RUN_OUTCOMES = ("running", "completed", "aborted", "crashed")
EXPECTATIONS = ("kept", "violated", "known")
VERDICTS = ("pass", "fail", "unknown")

# The classes of a unit (message, subscription): the first that applies is its class.
CLASSES = (
    "corrupted",
    "phantom",
    "unexpected",
    "duplicated",
    "dead_lettered",
    "expired",
    "lost_nonpersistent",
    "lost",
    "unseen",
    "redelivered",
    "recovered",
    "unresolved",
    "rejected",
    "ok",
)
# The same classes in the order in which the verdict's JSON shows them.
CLASSES_SHOWN = ("ok", *CLASSES[:-1])

# --- columns --------------------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """One column: name, type (`string`, `long`, `int`, `boolean`, `map`), whether every row must fill it, its enum, and
    whether a Parquet file may be without it: it came after the others, and no promise needs it."""

    name: str
    type: str
    required: bool = False
    values: tuple[str, ...] = ()
    optional: bool = False


OP_COLUMNS = (
    Column("run_id", "string", required=True),
    Column("clock", "string", required=True),
    Column("client", "string", required=True),
    Column("op_id", "long", required=True),
    Column("session", "int", required=True),
    Column("op", "string", required=True, values=OPS),
    Column("outcome", "string", required=True, values=OUTCOMES),
    Column("start_ns", "long", required=True),
    Column("end_ns", "long"),
    Column("address", "string"),
    Column("subscription", "string"),
    Column("message_id", "string"),
    Column("attempt", "int"),
    Column("producer_seq", "long"),
    Column("key", "string"),
    Column("txn", "string"),
    Column("delivery", "string"),
    Column("redelivered", "boolean"),
    Column("durable", "boolean"),
    Column("expires_ns", "long"),
    Column("payload_sha", "string"),
    Column("broker", "string"),
    Column("instance", "string"),
    Column("protocol", "string", values=PROTOCOLS),
    Column("error", "string"),
    Column("via", "string", optional=True),
    Column("late_ns", "long", optional=True),
)

EVENT_COLUMNS = (
    Column("run_id", "string", required=True),
    Column("clock", "string", required=True),
    Column("t_ns", "long", required=True),
    Column("kind", "string", required=True, values=EVENT_KINDS),
    Column("target", "string"),
    Column("instance", "string"),
    Column("store", "string"),
    Column("name", "string"),
    Column("value", "string"),
    Column("uncertainty_ns", "long"),
    Column("detail", "map"),
)


def json_line(row: Mapping[str, Any], columns: Iterable[Column] = OP_COLUMNS) -> bytes:
    """Return `row` as one JSON line (UTF-8, newline at its end), null keys left out.

    Raises ValueError for a key that is no column and for a required column that is null: a writer's own mistake, not a
    user's.
    """
    known = {column.name: column for column in columns}
    strange = [name for name in row if name not in known]
    if strange:
        raise ValueError(f"no such column: {', '.join(strange)}")
    missing = [name for name, column in known.items() if column.required and row.get(name) is None]
    if missing:
        raise ValueError(f"required column is null: {', '.join(missing)}")
    filled = {name: row[name] for name in known if row.get(name) is not None}
    return json.dumps(filled, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


# --- run.json -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, init=False)
class PromiseSpec:
    """One promise to check, with the values of its fields (`promises.catalogue` says which it has).

    Each field is an attribute: its value, else the field's default, else None; None, too, for a field of other promises
    alone. `bound_ms` limits a measured time.
    """

    name: str
    values: Mapping[str, Value]

    def __init__(self, name: str, bound_ms: float | None = None, **values: Value | None) -> None:
        """`values` by field; None is as good as not given. They are not checked here (`check_promise`)."""
        given = {BOUND: bound_ms, **values}
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "values", {key: value for key, value in given.items() if value is not None})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not any(promise.field(name) for promise in PROMISES.values()):
            raise AttributeError(f"no promise has a field {name!r}")
        field = PROMISES[self.name].field(name) if self.name in PROMISES else None
        return self.values.get(name, field.default if field else None)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of run.json, unset fields left out."""
        return {"name": self.name, **self.values}


@dataclass(frozen=True)
class Clock:
    """A recording process's monotonic clock: the host it ticks on, and how its times become run time (nanoseconds)."""

    host: str
    offset_ns: int = 0
    uncertainty_ns: int = 0


@dataclass(frozen=True)
class ScenarioText:
    """The scenario that was run: its name, its whole text, and the SHA-256 of that text in hexadecimal."""

    name: str
    text: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class RunInfo:
    """All fields of run.json. `settings` maps what a sweep or a matrix set for this run to its value; `approval` says
    who allowed it (`by`, an account; `until`, RFC 3339; `id`; `sha256` of what was allowed); `started_at` is RFC
    3339; `outcome` one of `RUN_OUTCOMES`; `expect` maps a promise to one of `EXPECTATIONS`; `stores` a store to the
    instances that may serve it; `dead_letters` an address to its dead-letter address; `drained` an address to
    whether it was drained; `clocks` a clock's name to its `Clock`. `addresses` are those of the load, `planned` the
    steps that inject a fault, `minimum` of such a step what the load has to meet of it; `known` the defects that
    may break a promise; `only` maps a promise that is to be violated to what may violate it (`target`: what a fault
    hit)."""

    run_id: str
    scenario: ScenarioText = field(default_factory=lambda: ScenarioText(""))
    topology: str = ""
    inventory_sha256: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    approval: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    started_at: str = ""
    outcome: str = "running"
    expect: Mapping[str, str] = field(default_factory=dict)
    promises: tuple[PromiseSpec, ...] = ()
    stores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dead_letters: Mapping[str, str] = field(default_factory=dict)
    drained: Mapping[str, bool] = field(default_factory=dict)
    clocks: Mapping[str, Clock] = field(default_factory=dict)
    addresses: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()
    minimum: Mapping[str, Minimum] = field(default_factory=dict)
    known: tuple[Known, ...] = ()
    only: Mapping[str, str] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of run.json."""
        return {
            "run_id": self.run_id,
            "schema_version": self.schema_version,
            "scenario": {"name": self.scenario.name, "text": self.scenario.text, "sha256": self.scenario.sha256},
            "topology": self.topology,
            "inventory_sha256": self.inventory_sha256,
            "versions": dict(self.versions),
            "settings": dict(self.settings),
            "approval": dict(self.approval),
            "seed": self.seed,
            "started_at": self.started_at,
            "outcome": self.outcome,
            "expect": dict(self.expect),
            "promises": [promise.to_json() for promise in self.promises],
            "stores": {store: list(instances) for store, instances in self.stores.items()},
            "dead_letters": dict(self.dead_letters),
            "drained": dict(self.drained),
            "clocks": {
                name: {"host": clock.host, "offset_ns": clock.offset_ns, "uncertainty_ns": clock.uncertainty_ns}
                for name, clock in self.clocks.items()
            },
            "addresses": list(self.addresses),
            "planned": list(self.planned),
            "minimum": {step: one.to_json() for step, one in self.minimum.items()},
            "known": [one.to_json() for one in self.known],
            "only": dict(self.only),
        }


def new_run(run_id: str, **values: Any) -> RunInfo:
    """Return a `RunInfo` of the current schema with outcome `running`; `values` are `RunInfo`'s other fields.

    Raises UsageError where a value is none that run.json may hold (checked by a round trip through its JSON).
    """
    return run_from_json(RunInfo(run_id=run_id, **values).to_json(), where="run.json")


def write_run(run_dir: Path | str, run: RunInfo) -> Path:
    """Replace RUN_DIR/run.json by `run`. Raises InfrastructureError where the disk does not take it."""
    return atomic.write_json(Path(run_dir) / RUN_FILE, run.to_json())


def read_run(run_dir: Path | str) -> RunInfo:
    """Read and validate RUN_DIR/run.json. Raises UsageError, one sentence that names the file and the field."""
    path = Path(run_dir) / RUN_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist: {run_dir} is no run directory") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    return parse_run(text, where=str(path))


def parse_run(text: str, where: str) -> RunInfo:
    """Return the `RunInfo` that the JSON `text` of a run.json holds; `where` names the file in errors (UsageError)."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"{where}, line {error.lineno}: not JSON: {error.msg}") from None
    return run_from_json(value, where)


def finished(run: RunInfo, outcome: str, **values: Any) -> RunInfo:
    """Return `run` with its final `outcome` and other changed fields, validated like a run that is read."""
    return run_from_json(replace(run, outcome=outcome, **values).to_json(), where="run.json")


_MISSING = object()
_TYPE_NAMES = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    dict: "an object",
    list: "a list",
    float: "a number",
}


def _is(value: object, kind: type) -> bool:
    """Return whether `value` is of JSON type `kind`; JSON's true is no integer, an integer is a number."""
    if kind is bool:
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    return isinstance(value, (int, float)) if kind is float else isinstance(value, kind)


def _take(source: Mapping[str, Any], name: str, kind: type, where: str, default: Any = _MISSING) -> Any:
    """Return `source[name]` checked to be of `kind`; `default` where it is absent or null and one is given."""
    value = source.get(name)
    if value is None:
        if default is _MISSING:
            raise UsageError(f"{where}: {name} is missing")
        return default
    if not _is(value, kind):
        raise UsageError(f"{where}: {name} must be {_TYPE_NAMES[kind]}, not {json.dumps(value)[:60]}")
    return value


def _one_of(value: str, allowed: Iterable[str], name: str, where: str) -> str:
    names = tuple(allowed)
    if value not in names:
        raise UsageError(f"{where}: {name} is {value!r}, none of {', '.join(names)}")
    return value


def _map_of(source: Mapping[str, Any], name: str, kind: type, where: str) -> dict[str, Any]:
    values = _take(source, name, dict, where, {})
    return {key: _take(values, key, kind, f"{where}: {name}") for key in values}


def _names_of(source: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    values = _take(source, name, list, where, [])
    if not all(isinstance(value, str) for value in values):
        raise UsageError(f"{where}: {name} must list names")
    return tuple(values)


def promise_from_json(value: object, where: str) -> PromiseSpec:
    """Return one promise of run.json's list, validated; what is no field of it is ignored. Raises UsageError that names
    `where` and the field."""
    if not isinstance(value, dict):
        raise UsageError(f"{where}: a promise must be an object, not {json.dumps(value)[:60]}")
    name = _one_of(_take(value, "name", str, where), PROMISES, "name", where)
    values = {field.name: value.get(field.name) for field in PROMISES[name].fields}
    return check_promise(PromiseSpec(name, **values), where)


def check_promise(spec: PromiseSpec, where: str) -> PromiseSpec:
    """Return `spec` if it has what its promise needs and nothing else, else raise UsageError."""
    _one_of(spec.name, PROMISES, "name", where)
    if problem := PROMISES[spec.name].problem(spec.values):
        raise UsageError(f"{where}: {problem}")
    return spec


def _clock_from_json(name: str, value: Mapping[str, Any], where: str) -> Clock:
    place = f"{where}: clocks: {name}"
    uncertainty = _take(value, "uncertainty_ns", int, place, 0)
    if uncertainty < 0:
        raise UsageError(f"{place}: uncertainty_ns is negative")
    return Clock(
        host=_take(value, "host", str, place, ""),
        offset_ns=_take(value, "offset_ns", int, place, 0),
        uncertainty_ns=uncertainty,
    )


def run_from_json(value: object, where: str) -> RunInfo:
    """Return the `RunInfo` of run.json's parsed `value`.

    Only `run_id` and `schema_version` must be there; what else is absent takes `RunInfo`'s default (an absent `drained`
    is not drained), unknown keys are ignored. Raises UsageError that names `where` (the file) and the field.
    """
    if not isinstance(value, dict):
        raise UsageError(f"{where}: must be an object, not {json.dumps(value)[:60]}")
    version = _take(value, "schema_version", int, where)
    if version > SCHEMA_VERSION:
        raise UsageError(f"{where}: schema_version {version} is newer than {SCHEMA_VERSION}, the newest known here")
    if version < 1:
        raise UsageError(f"{where}: schema_version {version} never existed")
    scenario = _take(value, "scenario", dict, where, {})
    expect = _map_of(value, "expect", str, where)
    for promise, word in expect.items():
        _one_of(promise, PROMISES, "expect's promise", where)
        _one_of(word, EXPECTATIONS, f"expect's {promise}", where)
    stores: dict[str, tuple[str, ...]] = {}
    for store, instances in _map_of(value, "stores", list, where).items():
        if not all(isinstance(instance, str) for instance in instances):
            raise UsageError(f"{where}: stores: {store} must list names of instances")
        stores[store] = tuple(instances)
    return RunInfo(
        run_id=_take(value, "run_id", str, where),
        schema_version=version,
        scenario=ScenarioText(
            name=_take(scenario, "name", str, f"{where}: scenario", ""),
            text=_take(scenario, "text", str, f"{where}: scenario", ""),
            sha256=_take(scenario, "sha256", str, f"{where}: scenario", ""),
        ),
        topology=_take(value, "topology", str, where, ""),
        inventory_sha256=_take(value, "inventory_sha256", str, where, ""),
        versions=_map_of(value, "versions", str, where),
        settings=_map_of(value, "settings", str, where),
        approval=_map_of(value, "approval", str, where),
        seed=_take(value, "seed", int, where, None),
        started_at=_take(value, "started_at", str, where, ""),
        outcome=_one_of(_take(value, "outcome", str, where, "running"), RUN_OUTCOMES, "outcome", where),
        expect=expect,
        promises=tuple(
            promise_from_json(promise, f"{where}: promises") for promise in _take(value, "promises", list, where, [])
        ),
        stores=stores,
        dead_letters=_map_of(value, "dead_letters", str, where),
        drained=_map_of(value, "drained", bool, where),
        clocks={
            name: _clock_from_json(name, clock, where) for name, clock in _map_of(value, "clocks", dict, where).items()
        },
        addresses=_names_of(value, "addresses", where),
        planned=_names_of(value, "planned", where),
        minimum={
            step: minimum(one, f"{where}: minimum: {step}")
            for step, one in _map_of(value, "minimum", dict, where).items()
        },
        known=tuple(known(one, f"{where}: known") for one in _take(value, "known", list, where, [])),
        only=_map_of(value, "only", str, where),
    )
