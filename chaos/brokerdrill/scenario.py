"""Scenarios: the YAML that says what to run, break, wait for and promise; its JSON Schema is `brokerdrill schema`.

Words are Chaos Toolkit's where it has them: title, description, tags, method, action, probe, pauses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from brokerdrill import ledger, paths
from brokerdrill.deploying import playbook_path
from brokerdrill.errors import UsageError, unknown_name
from brokerdrill.faults.registry import complete_params, fault_type
from brokerdrill.targets import is_link, validate_spec
from brokerdrill.workload.client import CLIENTS, client_type

SCENARIOS = paths.ROOT / "chaos" / "scenarios"
# What a probe waits for of the instances that a fault hit: a link has none.
ABOUT_INSTANCES = ("failed_over", "failed_back")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Pauses(_Strict):
    """Seconds of undisturbed load before and after a step."""

    before: float = Field(0, ge=0)
    after: float = Field(0, ge=0)


class Load(_Strict):
    """Who sends what, and how: all clients together keep `rate` messages a second (open loop), or without it as fast
    as the replies come (closed loop)."""

    producers: int = Field(4, ge=1, le=1000)
    consumers: int = Field(4, ge=0, le=1000)
    workers: int = Field(
        2, ge=1, le=64, description="worker processes that share the clients, on the load hosts in turn"
    )
    addresses: list[str] = Field(min_length=1)
    rate: float | None = Field(None, gt=0)
    transaction: int = Field(10, ge=0, description="messages a transaction; 0: none, each send stands alone")
    payload_bytes: list[int] = Field([256], min_length=1)
    keys: int = Field(0, ge=0, description="message groups a producer uses in turn; 0: none")
    durable: bool = True
    duplicate_detection: bool = True
    client: str | None = Field(None, description="the clients' protocol; without it the product's own")
    call_timeout_ms: int = Field(10_000, ge=100)

    @field_validator("client")
    @classmethod
    def _known_client(cls, value: str | None) -> str | None:
        if value is not None and value not in CLIENTS:
            _usage(lambda: client_type(value))
        return value


class _Step(_Strict):
    name: str = Field(min_length=1)
    pauses: Pauses = Pauses()


class Action(_Step):
    """Inject a fault. Its time-to-live undoes it on the host if nobody else does."""

    type: Literal["action"]
    fault: str
    target: str
    params: dict[str, Any] = {}
    ttl: float = Field(120, gt=0, description="seconds")

    @field_validator("fault")
    @classmethod
    def _known_fault(cls, value: str) -> str:
        return _usage(lambda: fault_type(value).name)

    @field_validator("target")
    @classmethod
    def _known_target(cls, value: str) -> str:
        _usage(lambda: validate_spec(value))
        return value

    @model_validator(mode="after")
    def _known_params(self) -> Action:
        _usage(lambda: complete_params(fault_type(self.fault), self.params))
        return self


class Heal(_Step):
    """Undo the fault that the step `of` injected."""

    type: Literal["heal"]
    of: str


class Probe(_Step):
    """Wait until a condition holds: a deadline passed makes the run abort."""

    type: Literal["probe"]
    until: Literal["failed_over", "failed_back", "kept", "syncing", "in_sync", "acknowledged", "unanswered"]
    of: str | None = Field(None, description="the step whose fault the condition is about")
    count: int = Field(1, ge=1, description="for acknowledged and unanswered: how many messages")
    timeout: float = Field(60, gt=0, description="seconds")

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
        _usage(lambda: playbook_path(value))
        return value


Step = Annotated[Action | Heal | Probe | Operation, Field(discriminator="type")]


class SteadyState(_Strict):
    """What must hold before the method begins: so many messages acknowledged and delivered, all pairs in sync."""

    acknowledged: int = Field(100, ge=1)
    timeout: float = Field(90, gt=0, description="seconds")


class Abort(_Strict):
    """Conditions that end a run early, watched while it lasts."""

    silence: float = Field(90, gt=0, description="seconds without any acknowledged send")
    duration: float = Field(600, gt=0, description="seconds that load and method may take")
    drain: float = Field(60, gt=0, description="seconds that the drain may take")


class Promise(_Strict):
    """A promise and its bound, as the ledger's contract names them."""

    name: Literal[ledger.PROMISES]  # type: ignore[valid-type]
    bound_ms: float | None = Field(None, ge=0)
    scope: Literal["session", "key"] | None = None
    side: Literal["send", "receive"] | None = None
    check_period_ms: float | None = Field(None, ge=0)
    cache_timeout_ms: float | None = Field(None, ge=0)

    @model_validator(mode="after")
    def _has_bound(self) -> Promise:
        _usage(lambda: ledger.check_promise(self.spec(), "promise"))
        return self

    def spec(self) -> ledger.PromiseSpec:
        """The promise as run.json holds it."""
        return ledger.PromiseSpec(**self.model_dump())


class Scenario(_Strict):
    """A whole scenario."""

    title: str
    description: str
    tags: list[str] = []
    topology: str
    load: Load
    links: list[str] = Field([], description="links to arm before the load: `link load→active`")
    steady_state: SteadyState = SteadyState()
    method: list[Step] = Field(min_length=1)
    abort: Abort = Abort()
    promises: list[Promise] = Field(min_length=1)
    expect_violation: list[str] = Field([], description="promises that this configuration must break")
    investigates: list[str] = Field([], description="promises whose verdict is the question")
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
            _usage(lambda item=item: validate_spec(item))
        return value

    @model_validator(mode="after")
    def _hangs_together(self) -> Scenario:
        injected: dict[str, str] = {}
        seen: set[str] = set()
        for step in self.method:
            if step.name in seen:
                raise ValueError(f"two steps are called {step.name!r}")
            seen.add(step.name)
            if isinstance(step, Action):
                injected[step.name] = step.target
            elif isinstance(step, (Heal, Probe)) and step.of is not None and step.of not in injected:
                raise ValueError(f"step {step.name!r}: no action before it is called {step.of!r}")
            if isinstance(step, Probe) and step.until in ABOUT_INSTANCES and is_link(injected.get(step.of or "", "")):
                raise ValueError(
                    f"step {step.name!r}: {step.of!r} hits a link, and only an instance can be {step.until}"
                )
        names = {promise.name for promise in self.promises}
        for name in [*self.expect_violation, *self.investigates]:
            if name not in names | {ledger.NO_PHANTOMS}:
                raise ValueError(f"{name!r} is expected or investigated, but is not among the promises")
        return self

    def expect(self) -> dict[str, str]:
        """The map promise → kept, violated or investigated of run.json."""
        expected = {promise.name: "kept" for promise in self.promises}
        expected[ledger.NO_PHANTOMS] = "kept"
        expected.update(dict.fromkeys(self.expect_violation, "violated"))
        expected.update(dict.fromkeys(self.investigates, "investigated"))
        return expected


def _usage(check: Any) -> Any:
    """Run `check`; turn a UsageError into the ValueError that pydantic reports with the field."""
    try:
        return check()
    except UsageError as error:
        raise ValueError(str(error)) from None


@dataclass(frozen=True)
class LoadedScenario:
    """A scenario with its name (the file's stem), path, text and the text's sha256 in hex."""

    name: str
    path: Path
    text: str
    sha256: str
    scenario: Scenario


def _line_of(node: yaml.Node | None, location: Sequence[str | int]) -> int:
    """The line, from 1, of the deepest node along `location` in the YAML tree."""
    line = 1
    for part in location:
        if node is None:
            break
        if isinstance(node, yaml.MappingNode):
            pair = next(((key, value) for key, value in node.value if key.value == part), None)
            if pair is None:
                continue  # pydantic names the union's member too: it is no key of the file
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
    return line


def parse(text: str, path: Path) -> Scenario:
    """Parse and validate the YAML `text`. Raises UsageError: file, line, field, and what is wrong with it."""
    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{path}, line {line}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: not YAML: {error}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path}, line 1: a scenario is a mapping of fields, not {type(data).__name__}")
    try:
        return Scenario.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        location = [part for part in first["loc"] if part not in ("action", "heal", "probe", "operation")]
        field = ".".join(str(part) for part in location) or "the scenario"
        message = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"{path}, line {_line_of(tree, location)}: {field}: {message}") from None


def load_scenario(name: str) -> LoadedScenario:
    """Load a scenario by its name in chaos/scenarios or by a path. Raises UsageError, with the nearest name."""
    path = Path(name)
    if path.suffix not in (".yml", ".yaml"):
        path = SCENARIOS / f"{name}.yml"
        if not path.is_file():
            raise unknown_name("scenario", name, (item.stem for item in SCENARIOS.glob("*.yml")))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"scenario {path} cannot be read: {error}") from None
    return LoadedScenario(path.stem, path, text, hashlib.sha256(text.encode()).hexdigest(), parse(text, path))


def scenarios() -> list[LoadedScenario]:
    """All scenarios of chaos/scenarios, by name."""
    return [load_scenario(str(path)) for path in sorted(SCENARIOS.glob("*.yml"))]
