"""Chaos Toolkit's journals (chaostoolkit.org, the file that `chaos run` writes): their faults and probes as a run's
events, and back.

A journal records activities, not messages: a run that is made of one has no operations, and no promise about messages
can be judged by it.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from brokerdrill.base.atomic import write_json
from brokerdrill.base.errors import UsageError
from brokerdrill.interop import folder
from brokerdrill.interop.effects import placed, read_rows
from brokerdrill.ledger import contract

FORMAT = "chaostoolkit"
CLOCK = "chaostoolkit"
VERSION_KEY = "chaoslib-version"
# What is said of an activity that was gone through and not carried out.
DRY = "dry"
# Arguments of an activity's provider that say whom a fault hits, in our words.
PLACES = ("fault", "target", "instance", "store")
_OUTCOMES = {"completed": "completed", "failed": "aborted", "aborted": "aborted", "interrupted": "aborted"}
_STATUSES = {"completed": "completed", "aborted": "aborted", "crashed": "interrupted", "running": "interrupted"}
_LONGEST_OUTPUT = 200


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Activity(_Part):
    """An action or probe as an experiment declares it."""

    type: Literal["action", "probe"]
    name: str
    provider: dict[str, Any] = {}
    dry: Any = None

    @property
    def arguments(self) -> dict[str, Any]:
        found = self.provider.get("arguments")
        return dict(found) if isinstance(found, dict) else {}


class Done(_Part):
    """An activity as it was carried out."""

    activity: Activity
    status: Literal["succeeded", "failed"] | None = None
    start: datetime.datetime
    end: datetime.datetime | None = None
    output: Any = None
    tolerance_met: bool | None = None

    @field_validator("start", "end")
    @classmethod
    def _in_utc(cls, value: datetime.datetime | None) -> datetime.datetime | None:
        # Before 1.40 or so the times had no zone; they were UTC then too.
        return value.replace(tzinfo=datetime.UTC) if value is not None and value.tzinfo is None else value

    @property
    def good(self) -> bool:
        return self.status == "succeeded" and self.tolerance_met is not False


class State(_Part):
    """What the steady-state hypothesis found at one time."""

    steady_state_met: bool | None = None
    probes: list[Done] = []


class States(_Part):
    before: State | None = None
    after: State | None = None
    during: list[State] = []


class Experiment(_Part):
    title: str = ""
    description: str = ""
    rollbacks: list[dict[str, Any]] = []
    # The argument of `chaos run --dry`; in its older versions true.
    dry: str | bool | None = None


class ChaosToolkitJournal(_Part):
    """The parts of a journal that say what was done to the system and how it answered."""

    experiment: Experiment
    status: str | None = None
    deviated: bool = False
    start: datetime.datetime
    steady_states: States = States()
    run: list[Done]
    rollbacks: list[Done] = []
    version: str = Field("", alias=VERSION_KEY)

    def rehearsed(self, done: Done) -> bool:
        """Whether an activity was only gone through, by `--dry`, and its provider was not called.

        A `dry` of its own comes before the run's. As text of a file it is no word that chaoslib 1.44 knows, and the
        activity is carried out: its result says so.
        """
        own = done.activity.dry
        if own is not None:
            return done.output is None and done.activity.type in _rehearsed(own)
        return done.activity.type in _rehearsed(self.experiment.dry)

    _zone = field_validator("start")(Done._in_utc.__func__)  # type: ignore[attr-defined]

    @field_validator("steady_states", mode="before")
    @classmethod
    def _none_is_empty(cls, value: Any) -> Any:
        return {} if value is None else value


def _rehearsed(dry: Any) -> Sequence[str]:
    """The types of activities that are not carried out where `dry` is said; `pause` leaves out pauses alone."""
    return {
        "actions": ("action",),
        "probes": ("probe",),
        "activities": ("action", "probe"),
        True: ("action", "probe"),
    }.get(dry if isinstance(dry, (str, bool)) else None, ())


def read_journal(path: Path) -> ChaosToolkitJournal:
    """Return the journal in `path`. Raises UsageError: file, and the line (no JSON) or field that is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}, line {error.lineno}: not JSON: {error.msg}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"journal {path} cannot be read: {error}") from None
    if not isinstance(value, dict) or "experiment" not in value or "run" not in value:
        raise UsageError(f"{path}, line 1: no journal of Chaos Toolkit: it has no experiment and no run")
    try:
        return ChaosToolkitJournal.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{path}: {field}: {first['msg']}") from None


def import_chaostoolkit(path: Path, out: Path) -> dict[str, int]:
    """Read the journal in `path` into the new run directory `out`; return how many events of each kind it holds.

    Raises UsageError: a journal that cannot be read (file, line or field), `out` exists.
    """
    folder.check_new(out)
    journal = read_journal(path)
    found = sorted(events(journal), key=lambda event: event["t_ns"])
    run = contract.new_run(
        out.name,
        scenario=contract.ScenarioText(journal.experiment.title or f"chaostoolkit {path.name}"),
        versions={"chaostoolkit-lib": journal.version} if journal.version else {},
        started_at=journal.start.isoformat(),
        outcome=_OUTCOMES.get(journal.status or "", "crashed"),
        clocks={CLOCK: contract.Clock("chaostoolkit")},
    )
    # Nobody asked where probes were only gone through: the journal says that they met what was expected.
    asked = "probe" not in _rehearsed(journal.experiment.dry)
    before, after = journal.steady_states.before, journal.steady_states.after
    origin = {
        "format": FORMAT,
        "file": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "description": journal.experiment.description,
        "status": journal.status,
        "deviated": journal.deviated,
        "dry": journal.experiment.dry,
        "steady_state": {
            "before": before.steady_state_met if before and asked else None,
            "after": after.steady_state_met if after and asked else None,
        },
    }
    folder.write_run_dir(out, run, (), found, origin)
    kinds = [event["kind"] for event in found]
    return {kind: kinds.count(kind) for kind in ("fault", "heal", "probe", "note")}


def events(journal: ChaosToolkitJournal) -> Iterator[dict[str, Any]]:
    """Yield the journal's events; times are nanoseconds since its start, a change lies between its action's start and
    end.

    An action of the method that succeeded is a fault. Rollbacks, and actions of the method that are called like a
    declared rollback, are heals: of the faults with the same arguments; the last one of whatever is in effect then,
    since a journal does not say what a rollback undoes. What failed, undoes nothing or was gone through by `--dry`
    alone is a note.
    """
    undoing = {str(one.get("name") or one.get("ref")) for one in journal.experiment.rollbacks}
    steps = [(done, done.activity.name in undoing) for done in journal.run] + [
        (done, True) for done in journal.rollbacks
    ]
    steps.sort(key=lambda step: step[0].start)
    heals = [
        done
        for done, heal in steps
        if heal and done.activity.type == "action" and done.good and not journal.rehearsed(done)
    ]
    effective: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for done, heal in steps:
        if done.activity.type == "probe":
            yield _probe(journal, done, "method")
            continue
        event, arguments = _change(journal, done), done.activity.arguments
        if journal.rehearsed(done):
            yield event | {"kind": "note", "value": DRY}
        elif not done.good:
            yield event | {"kind": "note", "value": "failed"}
        elif not heal:
            effective.append((event, arguments))
            yield event | {"kind": "fault"}
        else:
            last = done is heals[-1]
            undone = [one for one, whom in effective if last or whom == arguments]
            effective = [pair for pair in effective if pair[0] not in undone]
            time = {name: event[name] for name in ("t_ns", "uncertainty_ns", "detail")}
            yield from (one | time | {"kind": "heal"} for one in undone)
            if not undone:
                yield event | {"kind": "note", "value": "rollback"}
    states = journal.steady_states
    for where, state in [
        ("before", states.before),
        ("after", states.after),
        *(("during", one) for one in states.during),
    ]:
        yield from (_probe(journal, done, where) for done in (state.probes if state else ()))


def _ns(journal: ChaosToolkitJournal, at: datetime.datetime) -> int:
    return max(0, (at - journal.start) // datetime.timedelta(microseconds=1)) * 1000


def _change(journal: ChaosToolkitJournal, done: Done) -> dict[str, Any]:
    begin, end = _ns(journal, done.start), _ns(journal, done.end or done.start)
    arguments = done.activity.arguments
    words = {name: str(arguments[name]) for name in PLACES if arguments.get(name) is not None}
    others = {name: value for name, value in arguments.items() if name not in PLACES}
    target = words.get("target") or (json.dumps(others, ensure_ascii=False, sort_keys=True) if others else None)
    return {
        "t_ns": (begin + end) // 2,
        "uncertainty_ns": (end - begin + 1) // 2,
        "name": words.get("fault") or done.activity.name,
        "value": done.activity.name,
        "target": target,
        "instance": words.get("instance"),
        "store": words.get("store"),
        "detail": _detail(done),
    }


def _detail(done: Done) -> dict[str, str]:
    output = "" if done.output is None else json.dumps(done.output, ensure_ascii=False)[:_LONGEST_OUTPUT]
    return {"activity": done.activity.name, **({"output": output} if output else {})}


def _probe(journal: ChaosToolkitJournal, done: Done, where: str) -> dict[str, Any]:
    dry = journal.rehearsed(done)
    return {
        "t_ns": _ns(journal, done.end or done.start),
        "kind": "note" if dry else "probe",
        "name": done.activity.name,
        "value": DRY if dry else "met" if done.good else "not met",
        "detail": _detail(done) | {"where": where},
    }


# --- and back -------------------------------------------------------------------------------------------------------


def export_chaostoolkit(run_dir: Path, out: Path) -> int:
    """Write the faults, heals and probes of `run_dir` to `out` as a journal; return how many activities it holds.

    Heals are actions called `heal STEP`, and are declared as the experiment's rollbacks, which distinguishes them from
    faults when the journal is read again; those after the last fault and probe stand among the journal's rollbacks. The
    journal records what was done: its providers name our faults and cannot be run by Chaos Toolkit. Raises UsageError
    where the run cannot be read.
    """
    run = contract.read_run(run_dir)
    origin = folder.read_origin(run_dir)
    # Equal events count once: a compaction that was killed leaves both its source and its result.
    unique = {
        json.dumps(row, sort_keys=True, default=str): row
        for row in ({name: value for name, value in one.items() if value is not None} for one in _changes(run_dir))
    }
    rows = sorted(((placed(run, row, "t_ns") or 0, row) for row in unique.values()), key=lambda pair: pair[0])
    started = _started(run)
    last = max((place for place, (_, row) in enumerate(rows) if row["kind"] != "heal"), default=-1)
    done = [_done(row, at, started) for at, row in rows]
    before, after = (
        [one for one, (_, row) in zip(done, rows, strict=True) if (row.get("detail") or {}).get("where") == where]
        for where in ("before", "after")
    )
    method = [one for place, one in enumerate(done) if place <= last and one not in before and one not in after]
    rollbacks = done[last + 1 :]
    heals = [one["activity"] for one, (_, row) in zip(done, rows, strict=True) if row["kind"] == "heal"]
    text = run.scenario.name or run.run_id
    end = max((at for at, _ in rows), default=0)
    journal = {
        VERSION_KEY: run.versions.get("chaostoolkit-lib", ""),
        "platform": "",
        "node": "",
        "experiment": {
            "version": "1.0.0",
            "title": text,
            "description": origin.get("description") or f"What brokerdrill did in run {run.run_id}.",
            "tags": [],
            "method": [one["activity"] for one in method if one["activity"] not in heals],
            "rollbacks": [activity for place, activity in enumerate(heals) if activity not in heals[:place]],
        },
        "start": started.isoformat(),
        "status": _STATUSES[run.outcome],
        "deviated": bool(origin.get("deviated", False)),
        "steady_states": {"before": _state(before), "after": _state(after), "during": []},
        "run": method,
        "rollbacks": rollbacks,
        "end": _at(started, end),
        "duration": end / 1e9,
    }
    write_json(out, journal)
    return len(done)


def _changes(run_dir: Path) -> Iterator[dict[str, Any]]:
    return (row for row in read_rows(run_dir, contract.EVENTS_DIR) if row.get("kind") in ("fault", "heal", "probe"))


def _started(run: contract.RunInfo) -> datetime.datetime:
    try:
        found = datetime.datetime.fromisoformat(run.started_at)
    except ValueError:
        found = datetime.datetime.fromtimestamp(0, datetime.UTC)
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)


def _at(started: datetime.datetime, ns: int) -> str:
    return (started + datetime.timedelta(microseconds=ns // 1000)).isoformat()


def _state(probes: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    met = all(one["tolerance_met"] for one in probes)
    return {"steady_state_met": met, "probes": list(probes)} if probes else None


def _done(row: Mapping[str, Any], at: int, started: datetime.datetime) -> dict[str, Any]:
    """One activity that was carried out, from an event's row at `at` ns."""
    detail = row.get("detail") or {}
    doubt = 0 if row["kind"] == "probe" else int(row.get("uncertainty_ns") or 0)
    begin, end = max(0, at - doubt), at + doubt
    times = {"start": _at(started, begin), "end": _at(started, end), "duration": (end - begin) / 1e9}
    common = {"output": _output(detail.get("output")), "status": "succeeded", **times}
    if row["kind"] == "probe":
        activity = {"type": "probe", "name": row.get("name") or "probe", "provider": _provider({})}
        # Only a probe that was not met is written with that word; ours that failed ended their run.
        return {"activity": activity, **common, "tolerance_met": row.get("value") != "not met"}
    step = str(row.get("value") or row.get("name") or "")
    words = {"fault": row.get("name"), **{name: row.get(name) for name in PLACES[1:]}}
    arguments = {name: word for name, word in words.items() if word is not None}
    name = step if row["kind"] == "fault" else f"heal {step}"
    return {"activity": {"type": "action", "name": name, "provider": _provider(arguments)}, **common}


def _provider(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "process", "path": "brokerdrill", "arguments": dict(arguments)}


def _output(text: str | None) -> Any:
    """An activity's output; one that was cut for its length stays text."""
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text
