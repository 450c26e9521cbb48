"""What the definition of a promise holds: plain data, from which schema, command line, checks, reports and docs derive.

Standard library only and Python >= 3.10: the ledger's contract needs the promises, and is shipped to load hosts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

Value = float | str
# All breaks of a promise.
ALL = ("*",)
# The name of the field that limits a measured time, and that `NAME=VALUE` on the command line sets.
BOUND = "bound_ms"
UNITS = {"ms": "milliseconds"}


class Doubt(Enum):
    """What may be wrong with a ledger so that a promise cannot pass on it; the value says it to people."""

    TORN_OPERATIONS = "a torn line among the operations"
    MISSING_OPERATIONS = "operations that are missing"
    TORN_EVENTS = "a torn line among the events"
    UNPLACED_CLOCK = "times on a clock that run.json does not place"


@dataclass(frozen=True)
class Field:
    """A value that a promise takes: a number that is not negative, of `unit`, one of `choices` (value → its words in a
    report), or, where it is a `text`, any name.

    `default` stands where it is not given; a `required` field has none. `meaning` completes "its FIELD is …".
    """

    name: str
    meaning: str
    unit: str | None = None
    choices: Mapping[str, str] = dataclasses.field(default_factory=dict)
    default: Value | None = None
    required: bool = False
    text: bool = False

    @property
    def shown(self) -> bool:
        """Whether a verdict and a report say its value beside the promise's name."""
        return self.text or bool(self.choices)

    def problem(self, value: object) -> str | None:
        """Return what is wrong with `value`, as the end of a sentence that begins with the field; None: nothing."""
        if self.choices:
            return None if value in self.choices else f"is {value!r}, none of {', '.join(self.choices)}"
        if self.text:
            return None if isinstance(value, str) and value.strip() else f"must be a name, not {value!r}"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return f"must be a number of {UNITS[self.unit or 'ms']}, not {value!r}"
        return "is negative" if value < 0 else None

    def schema(self) -> dict[str, Any]:
        """Return the field's JSON Schema."""
        kind: dict[str, Any] = {"enum": list(self.choices)} if self.choices else {"type": "number", "minimum": 0}
        kind = {"type": "string", "minLength": 1} if self.text else kind
        default = {} if self.default is None else {"default": self.default}
        return {"description": f"{self.meaning}{f', in {UNITS[self.unit]}' if self.unit else ''}", **kind, **default}


@dataclass(frozen=True)
class Words:
    """What a promise says to people, in whole sentences.

    `promise` what is promised; `breaks` what breaks it, as the end of "it is broken by …"; `kept`, `broken`, `unknown`
    what each verdict means. These may hold `{messages}`, `{transactions}` or `{times}` (the count with its noun) and
    `{measured}`. `excused` says which cases are allowed, though they look like a violation; `doubtful` what units of a
    doubtful class (`{count}`) may be, as a clause.
    """

    promise: str
    breaks: str
    kept: str
    broken: str
    unknown: str
    excused: str = ""
    doubtful: str = ""


@dataclass(frozen=True)
class Promise:
    """One promise.

    `breaking` and `doubtful` are classes of units (`ledger.contract.CLASSES`): a unit of the first breaks the promise,
    one of the second forbids that it passes. `doubts` says what else does: torn operations always. `by_absence` are the
    breaking classes, or `ALL` breaks, that rest on what is not there, so that missing operations may explain them;
    `of_events`: no operation has to do with it.
    `brokerdrill.analysis.checks.NAME` checks it.
    """

    name: str
    words: Words
    fields: tuple[Field, ...] = ()
    breaking: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    doubts: frozenset[Doubt] = frozenset()
    by_absence: tuple[str, ...] = ()
    of_events: bool = False

    @property
    def bound(self) -> Field | None:
        """Its field that limits a measured time, None where it has none."""
        return self.field(BOUND)

    def field(self, name: str) -> Field | None:
        """Its field of that name, None where it has none."""
        return next((field for field in self.fields if field.name == name), None)

    def doubted_by(self, doubt: Doubt) -> bool:
        """Return whether the promise cannot pass on a ledger with that fault."""
        if doubt is Doubt.MISSING_OPERATIONS:
            return not self.of_events
        return doubt is Doubt.TORN_OPERATIONS or doubt in self.doubts

    def problem(self, values: Mapping[str, object]) -> str | None:
        """Return the first thing that is wrong with `values` (by field), as the rest of a sentence; None: nothing."""
        for name in values:
            if self.field(name) is None:
                known = ", ".join(field.name for field in self.fields) or "none"
                return f"{self.name} has no field {name} (its fields: {known})"
        for field in self.fields:
            value = values.get(field.name)
            if value is None and field.required:
                unit = f" in {UNITS[field.unit]}" if field.unit else ""
                return f"{self.name} needs a {field.name.partition('_')[0]}{unit} ({field.name})"
            if value is not None and (problem := field.problem(value)):
                return f"{self.name}'s {field.name} {problem}"
        return None

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the promise as a scenario lists it."""
        return {
            "type": "object",
            "title": self.name,
            "description": self.words.promise,
            "properties": {"name": {"const": self.name}, **{field.name: field.schema() for field in self.fields}},
            "required": ["name", *(field.name for field in self.fields if field.required)],
            "additionalProperties": False,
        }
