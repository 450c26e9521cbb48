"""Scenarios: the YAML that says what to run, break, wait for and promise; its JSON Schema is `brokerdrill schema`.

A drill of chaos/scenarios is a scenario with something left open (`drill.py`): a step or a promise may have needs, and
a bound may follow from a setting. Words are Chaos Toolkit's where it has them: title, description, tags, method,
action, probe, pauses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from brokerdrill.base.documents import Strict, as_model, parse_yaml
from brokerdrill.faults import client
from brokerdrill.faults.registry import FAULTS, fault_type
from brokerdrill.inventory.operations import operation
from brokerdrill.inventory.targets import is_drawn, is_link, validate_spec
from brokerdrill.ledger.coverage import Minimum
from brokerdrill.promises.catalogue import AVAILABLE, NO_PHANTOMS
from brokerdrill.scenario.expectations import Defect, Meets, unable_to_fail, usage
from brokerdrill.scenario.load import Load
from brokerdrill.scenario.needs import Needs
from brokerdrill.scenario.promised import UNSERVED_MARGIN_S, ExpectedPromise

# What a probe waits for of the instances that a fault hit: a link has none.
ABOUT_INSTANCES = ("failed_over", "failed_back")
# What a probe waits for of the load alone: the roles need not change for it.
ABOUT_LOAD = ("acknowledged", "unanswered", "held_back", "undelivered")


MOST_ROUNDS = 10_000
_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600}
_LASTING = re.compile(r"(\d+(?:\.\d+)?) ?([smh]?)")


def parse_lasting(value: object) -> float | None:
    """Return in s what is a number of them, or text like 90s, 60m and 2h; None stays None. Raises ValueError for
    anything else."""
    if value is None:
        return None
    match = _LASTING.fullmatch(str(value).strip()) if isinstance(value, (str, int, float)) else None
    if match is None or isinstance(value, bool) or float(match[1]) == 0:
        raise ValueError(f"{value!r} is no time: write 90s, 60m or 2h")
    return float(match[1]) * _UNITS_S[match[2]]


Lasting = Annotated[float | None, BeforeValidator(parse_lasting, json_schema_input_type=float | str | None)]


class Pauses(Strict):
    """Seconds of undisturbed load before and after a step."""

    before: float = Field(0, ge=0)
    after: float = Field(0, ge=0)


class _Step(Strict):
    name: str = Field(min_length=1)
    pauses: Pauses = Pauses()
    needs: Needs


class Action(_Step):
    """Inject a fault. Its time-to-live undoes it on the host if nobody else does."""

    type: Literal["action"]
    fault: str
    target: str = Field("", description="what it hits; in its place `of` may say it")
    of: str | None = Field(None, description="an action before it: it hits the instances that this one did")
    params: dict[str, Any] = Field({})
    meets: Meets = Meets()
    ttl: float = Field(120, gt=0, description="seconds")

    @field_validator("fault")
    @classmethod
    def _known_fault(cls, value: str) -> str:
        return usage(lambda: fault_type(value).name)

    @property
    def aim(self) -> str:
        """What it hits, in words."""
        return self.target or f"what {self.of} hit"

    @model_validator(mode="after")
    def _one_target(self) -> Action:
        if bool(self.target) == (self.of is not None):
            raise ValueError(f"action {self.name!r}: give one of target and of")
        if self.target:
            usage(lambda: validate_spec(self.target))
        return self

    @model_validator(mode="after")
    def _known_params(self) -> Action:
        usage(lambda: fault_type(self.fault).complete(self.params))
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The schema of an action, with each fault's own parameters."""
        schema = handler.resolve_ref_schema(handler(core))
        schema["properties"]["fault"] = {"enum": list(FAULTS)}
        schema["allOf"] = [
            {
                "if": {"properties": {"fault": {"const": name}}},
                "then": {"properties": {"params": fault.schema()}},
            }
            for name, fault in FAULTS.items()
        ]
        return schema


class Heal(_Step):
    """Undo the fault that the step `of` injected."""

    type: Literal["heal"]
    of: str


class Probe(_Step):
    """Wait until a condition holds: a deadline passed makes the run abort."""

    type: Literal["probe"]
    until: Literal[
        "failed_over",
        "failed_back",
        "kept",
        "syncing",
        "in_sync",
        "acknowledged",
        "unanswered",
        "held_back",
        "undelivered",
        "even",
    ]
    of: str | None = Field(None, description="the step whose fault the condition is about")
    count: int = Field(
        1,
        ge=1,
        description="for acknowledged and unanswered: how many messages; for held_back: for how many seconds no send "
        "has been acknowledged; for undelivered: how many messages were acknowledged and have not been received for "
        "ten seconds on end; for even: how many connections one active store may have more than another",
    )
    timeout: float = Field(60, gt=0, description="seconds")
    required: bool = Field(
        True, description="whether the drill ends where it does not come in time; else the method goes on"
    )

    @model_validator(mode="after")
    def _needs_fault(self) -> Probe:
        if self.until in ("failed_over", "failed_back", "kept") and not self.of:
            raise ValueError(f"a probe until {self.until} names in `of` the action it is about")
        return self


class Operation(_Step):
    """Run a playbook of the collection on the scenario's topology while the load goes on."""

    type: Literal["operation"]
    playbook: str
    variables: dict[str, Any] = Field({}, description="extra variables of the playbook")
    timeout: float = Field(600, gt=0, description="seconds")

    @field_validator("playbook")
    @classmethod
    def _known_playbook(cls, value: str) -> str:
        usage(lambda: operation(value))
        return value

    @field_validator("variables")
    @classmethod
    def _of_the_same_hosts(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if name.startswith("ansible_"):
                raise ValueError(f"{name} would lead the playbook to other hosts than the drill's")
        return value


class Order(_Step):
    """Give one instance an order by its own `control` command: it is done, or refused in the words of `refused`."""

    type: Literal["order"]
    target: str = Field(description="the instance that is given it")
    words: str = Field(min_length=1, description="the order")
    refused: str | None = Field(
        None, description="a regular expression that is found in what it answers; without it the order is to be done"
    )
    again: str | None = Field(
        None, description="a regular expression: what is refused in such words is ordered again, until the timeout"
    )
    timeout: float = Field(60, gt=0, description="seconds")

    @field_validator("target")
    @classmethod
    def _an_instance(cls, value: str) -> str:
        usage(lambda: validate_spec(value))
        if is_link(value):
            raise ValueError(f"{value!r}: a link takes no order")
        return value

    @field_validator("refused", "again")
    @classmethod
    def _an_expression(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"{value!r} is no regular expression: {error}") from None
        return value


class Consume(_Step):
    """Let the consumers of a load with a `backlog` begin, while its producers go on."""

    type: Literal["consume"]


class Tamper(_Step):
    """A client outside of the load takes or makes messages of the drill on purpose, so that a promise breaks: a control
    that shows that the break is seen. The ledger does not know of it."""

    type: Literal["tamper"]
    how: Literal["forge", "keep", "requeue", "reject"] = Field(
        description="forge: messages that nobody of the load sent; keep: take messages without a record; requeue: take "
        "messages and send them again later, with another content; reject: roll back until they are dead letters"
    )
    count: int = Field(10, ge=1, description="messages")
    address: str | None = Field(None, description="one of the load's addresses; without it the first")
    timeout: float = Field(60, gt=0, description="seconds")


Step = Annotated[Action | Heal | Probe | Operation | Order | Consume | Tamper, Field(discriminator="type")]


class SteadyState(Strict):
    """What must hold before the method begins: so many messages acknowledged and delivered, all pairs in sync."""

    acknowledged: int = Field(100, ge=1)
    timeout: float = Field(90, gt=0, description="seconds")


class Abort(Strict):
    """Conditions that end a run early, watched while it lasts."""

    silence: float = Field(90, gt=0, description="seconds without any acknowledged send")
    duration: float = Field(
        600, gt=0, description="seconds that load and method may take; where the method is repeated, each round"
    )
    drain: float = Field(60, gt=0, description="seconds that the drain may take")


class Where(Strict):
    """What else holds for the topologies that have what it needs."""

    needs: Needs
    note: str = Field("", description="is added to the description")
    set: dict[str, Any] = Field({}, description="places of the scenario with their values")


class Scenario(Strict):
    """A whole scenario."""

    title: str
    description: str
    tags: list[str] = Field([])
    topology: str | None = Field(None, description="where it is run if the command does not say")
    needs: Needs
    extends: str | None = Field(None, description="a drill, or `defaults`, that says whatever this file does not")
    set: dict[str, Any] = Field({}, description="places of what it extends, with their values")
    where: list[Where] = Field([])
    without: list[str] = Field([], description="promises of every drill that this one does not make")
    load: Load
    links: list[str] = Field([], description="links to arm before the load: `link load→active`")
    steady_state: SteadyState = SteadyState()
    method: list[Step] = Field(min_length=1)
    rounds: int | None = Field(None, ge=1, le=MOST_ROUNDS, description="how often the method's steps are taken")
    lasting: Lasting = Field(
        None,
        alias="for",
        description="repeat the method's steps: no round begins after so long; seconds, or 90s, 60m, 2h",
    )
    abort: Abort = Abort()
    promises: list[ExpectedPromise] = Field(min_length=1)
    expect_violation: list[str] = Field([], description="promises that this configuration must break")
    only: dict[str, Literal["target"]] = Field(
        {}, description="of a promise that must break what may break it: `target`, what a fault hit"
    )
    leaves: str = Field(
        "",
        description="what a run leaves on its hosts by which a later one there would be judged: a campaign whose hosts "
        "are its own makes them anew after it",
    )
    known: list[Defect] = Field([], description="defects of the product that may break a promise, each with a ceiling")
    repeat: int = Field(1, ge=1)

    @field_validator("promises", mode="before")
    @classmethod
    def _names_alone(cls, value: Any) -> Any:
        return (
            [{"name": item} if isinstance(item, str) else item for item in value] if isinstance(value, list) else value
        )

    @field_validator("links")
    @classmethod
    def _are_links(cls, value: list[str]) -> list[str]:
        for item in value:
            if not item.startswith("link "):
                raise ValueError(f"{item!r}: a link is written `link FROM→TO`")
            usage(lambda item=item: validate_spec(item))
            if is_drawn(item):
                raise ValueError(f"{item!r}: a step may draw another one than is armed: arm `all of` them")
        return value

    @model_validator(mode="after")
    def _one_way_to_repeat(self) -> Scenario:
        if self.rounds is not None and self.lasting is not None:
            raise ValueError("rounds and for both say how often the method is repeated: give one of them")
        return self

    @model_validator(mode="after")
    def _hangs_together(self) -> Scenario:
        if problems := [*self._step_problems(), *self._promise_problems()]:
            raise ValueError("; ".join(problems))
        return self

    def _step_problems(self) -> Iterator[str]:
        injected: dict[str, str] = {}
        seen: set[str] = set()
        for step in self.method:
            # Steps of one name with needs of their own stand for each other.
            if step.name in seen and not step.needs:
                yield f"two steps are called {step.name!r}"
            seen.add(step.name)
            if isinstance(step, (Action, Heal, Probe)) and step.of is not None and step.of not in injected:
                yield f"step {step.name!r}: no action before it is called {step.of!r}"
            if isinstance(step, Action):
                injected[step.name] = step.target
            if isinstance(step, Action) and step.fault == client.NAME and self.load.subscriptions:
                yield f"step {step.name!r}: nobody takes over the subscriptions of clients that are killed"
            if isinstance(step, Probe) and step.until in ABOUT_INSTANCES and is_link(injected.get(step.of or "", "")):
                yield f"step {step.name!r}: {step.of!r} hits a link, and only an instance can be {step.until}"
            if isinstance(step, Tamper) and step.address not in (None, *self.load.addresses):
                yield f"step {step.name}: {step.address} is none of the load's addresses"
            if isinstance(step, Consume) and not self.load.backlog:
                yield f"step {step.name!r}: consumers begin with the load unless that has a backlog"

    def _promise_problems(self) -> Iterator[str]:
        names = {promise.name for promise in self.promises}
        for name in [*self.expect_violation, *(one.promise for one in self.known)]:
            if name not in names | {NO_PHANTOMS}:
                yield f"{name!r} is expected to break, but is not among the promises"
        for name in self.only:
            if name not in self.expect_violation or name != "sticky":
                yield f"only: {name!r} is not sticky, or not expected to break"
        bounds = {one.name: one.spec().bound_ms for one in self.promises if one.bound is None}
        faults = [step.fault for step in self.method if isinstance(step, Action)]
        unable = unable_to_fail(bounds, self._longest_method_s(), faults)
        if unable and not {one.name for one in self.promises} - {*unable, NO_PHANTOMS}:
            name, why = next(iter(unable.items()))
            yield f"nothing in it can fail: {name}: {why}"

    def minimum(self) -> dict[str, Minimum]:
        """What the load has to meet of each step that injects a fault: as its kind says, or the step itself."""
        return {
            step.name: step.meets.over(fault_type(step.fault).meets) for step in self.method if isinstance(step, Action)
        }

    @property
    def repeated(self) -> bool:
        """Whether the method's steps may be taken more than once."""
        return self.lasting is not None or (self.rounds or 1) > 1

    def longest_s(self) -> float:
        """For how long load and method may last, in s: after the method the load waits to be served again."""
        after = max((seconds + UNSERVED_MARGIN_S for seconds in self.unserved_s().values()), default=0.0)
        return self._longest_method_s() + after

    def _longest_method_s(self) -> float:
        """For how long the method may last, in s; its last round may begin just before `for` is over."""
        if self.lasting is not None:
            return self.lasting + self.abort.duration
        return (self.rounds or 1) * self.abort.duration

    def unserved_s(self) -> dict[str, float]:
        """For how long at the most an address may go without a success, in s by side (send, receive), as `available`
        promises; no entry where it promises nothing."""
        found: dict[str, float] = {}
        for spec in (one.spec() for one in self.promises if one.name == AVAILABLE):
            found[spec.side] = max(found.get(spec.side, 0.0), (spec.bound_ms or 0.0) / 1e3)
        return found

    def expect(self) -> dict[str, str]:
        """The map promise → kept, violated or known of run.json."""
        expected = {promise.name: "kept" for promise in self.promises}
        expected[NO_PHANTOMS] = "kept"
        expected.update(dict.fromkeys(self.expect_violation, "violated"))
        expected.update(dict.fromkeys((one.promise for one in self.known), "known"))
        return expected


@dataclass(frozen=True)
class LoadedScenario:
    """A scenario with nothing left open: its drill's name, its text and the text's SHA-256 in hex."""

    name: str
    text: str
    sha256: str
    scenario: Scenario


def validated(data: Mapping[str, Any], path: Path, tree: yaml.Node | None) -> Scenario:
    """Return the model of `data`. Raises UsageError: file, line in its `tree`, field, and what is wrong with it."""
    return as_model(
        Scenario,
        data,
        path,
        tree,
        "the scenario",
        ("action", "heal", "probe", "operation", "order", "consume", "tamper"),
    )


def parse(text: str, path: Path) -> Scenario:
    """Parse and validate the YAML `text`. Raises UsageError: file, line, field, and what is wrong with it."""
    data, tree = parse_yaml(text, path, "a scenario")
    return validated(data, path, tree)


def drill_schema(given: Iterable[str]) -> dict[str, Any]:
    """Return the JSON Schema of a drill's file; fields `given` by the defaults of all drills need not stand in it."""
    schema = Scenario.model_json_schema()
    schema["required"] = [name for name in schema["required"] if name not in {*given, "method"}]
    schema["$defs"]["Load"].pop("required", None)
    return schema
