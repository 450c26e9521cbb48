"""A witness of a broken promise, and its story: typed values that the analysis makes and reports show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from brokerdrill.ledger.rows import JsonRow, all_json, objects

# What a step is about: an operation of a client, an injected fault, its heal, a broker's new role.
OP, FAULT, HEAL, ROLE = "op", "fault", "heal", "role"


@dataclass(frozen=True)
class Step(JsonRow):
    """One step of a story, at `t_ns` (run time). An operation has op, client and outcome, `end_ns` unless the call had
    not returned, and what else its row says; a fault, a heal and a role have `name` or `value` and whom they concern.
    What is not known is None, and left out of the JSON."""

    kind: str = ""
    t_ns: int = 0
    end_ns: int | None = None
    op: str | None = None
    client: str | None = None
    outcome: str | None = None
    session: int | None = None
    address: str | None = None
    subscription: str | None = None
    message_id: str | None = None
    attempt: int | None = None
    txn: str | None = None
    delivery: str | None = None
    redelivered: bool | None = None
    error: str | None = None
    name: str | None = None
    value: str | None = None
    target: str | None = None
    instance: str | None = None
    store: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {name: value for name, value in super().to_json().items() if value is not None}


@dataclass(frozen=True)
class Witness(JsonRow):
    """A case that broke a promise: `fields` are the promise's own (its module in `analysis/checks` says which; none is
    null), `story` what led to it (None: nobody has looked it up)."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    story: tuple[Step, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object: the fields, and the story beside them."""
        story = {} if self.story is None else {"story": all_json(self.story)}
        return {**self.fields, **story}

    @classmethod
    def from_json(cls, row: Any) -> Witness:
        """Return the witness of a JSON object; of any other value one with this value alone."""
        if not isinstance(row, Mapping):
            return cls({"witness": row})
        story = row.get("story")
        steps = None if story is None else tuple(map(Step.from_json, objects(story)))
        return cls({name: value for name, value in row.items() if name != "story"}, steps)
