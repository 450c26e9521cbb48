"""What a fault is: plain data about what to do on which host, so that one executor serves them all.

A fault plans `HostChange`s. Each carries the scripts to make it, to see that it took effect, and to undo it. The undo
is always a script on the host itself: the runner, `brokerdrill heal` and the host's own time-to-live timer run the same
one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from brokerdrill.base.errors import UsageError, unknown_name
from brokerdrill.inventory.targets import Target
from brokerdrill.ledger.coverage import ANY, Minimum

# How long a script of a change may take where it does not say so, in s.
SCRIPT_LIMIT_S = 30.0
# Between the names of the links that one change hits.
LINKS_SEPARATOR = ", "
# The claim of a change on something that no other may have a claim on.
ALONE = "alone"
# The claims on an instance's answers: the change is undone, and seen to be, by them; or the instance may not answer.
NEEDED, TAKEN = "needed", "taken"


def answers(instance: str) -> str:
    """What a change claims that needs the answers of an instance, or takes them away."""
    return f"answers of {instance}"


# What `verify` exits with while the host is still at it; its service manager has a limit for that (EX_TEMPFAIL).
UNDER_WAY = 75
# The `lasting` of a fault that is over at once.
MOMENTARY = ":"


@dataclass(frozen=True)
class HostChange:
    """One reversible change on one host.

    prepare makes the effect last (it is not the fault yet); effect is the moment of the fault; verify and verify_heal
    exit 0 when the fault, or its end, can be seen, and not where that cannot be seen; heal may run any number of times.
    Each runs on the host, within its limit (s). verify exits UNDER_WAY while what it waits for is still being done.
    While the fault lasts, `lasting` exits 1 once it is not in effect any more (empty: as verify does; MOMENTARY).
    `count` prints what has met the fault so far, names of ledger.evidence.MET_COUNTS with their numbers, a line each;
    the host asks it before the effect and before the heal.

    `also`: the further instances that it hits, each with its store. `claims` says of each thing that the change needs
    for itself how it needs it: two changes go together where they say the same of a thing, and that is not ALONE.
    `gradual`: what it hits may be gone before the effect ends, so that the fault is when that began.
    """

    host: str
    effect: str
    verify: str
    heal: str
    verify_heal: str
    prepare: str = ":"
    lasting: str = ""
    count: str = ""
    target: str = ""
    instance: str | None = None
    store: str | None = None
    also: tuple[tuple[str, str | None], ...] = ()
    claims: Mapping[str, str] = field(default_factory=dict)
    effect_s: float = SCRIPT_LIMIT_S
    heal_s: float = SCRIPT_LIMIT_S
    gradual: bool = False

    @property
    def hits(self) -> tuple[tuple[str | None, str | None], ...]:
        """Each instance that it hits, with its store; of links: None."""
        return ((self.instance, self.store), *self.also)

    @property
    def targets(self) -> tuple[str, ...]:
        """What it hits, one by one: its instances, or the names of its links."""
        if self.instance is None:
            return tuple(self.target.split(LINKS_SEPARATOR))
        return (self.instance, *(name for name, _ in self.also))


class Parameters(BaseModel):
    """The parameters of a fault, as a scenario's `params` gives them; a field's description says its unit.

    A parameter whose name cannot be a field's (`from`, `copy`) is a field of another name with its own as the alias.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def given(self) -> dict[str, Any]:
        """Return all parameters with their values, by the names that a scenario writes."""
        return self.model_dump(mode="json", by_alias=True)


class ParameterInfo(NamedTuple):
    """What is documented of a parameter: its name, which values it takes, its default, what it means."""

    name: str
    values: str
    default: str
    meaning: str


P = TypeVar("P", bound=Parameters)
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_LIMITS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def _lasts(_: Any) -> bool:
    return False


@dataclass(frozen=True)
class FaultType(Generic[P]):
    """A kind of fault: what it acts on (`instance`, `link` or `armed link`), its parameters, and
    `plan(target, parameters, fault_id)`, which raises InfrastructureError where the target lacks what it needs.
    `commands`: what it calls on the hosts and not every system has. `passes`: whether, with these parameters, it is
    over by itself, so that what it hit comes back without a heal. `meets`: what the load has to meet of it, unless a
    drill says otherwise, so that a verdict says something about it. `whole_host`: it hits all that runs on the host.
    `drawn`: parameters that generated drills choose from, the mildest first (none: they leave it out); `only_on`: a
    product, or a feature, of which whatever it hits, or whose links it hits, has to have one (none: it may be any);
    `only_active`: who is not active refuses it."""

    name: str
    acts_on: str
    description: str
    parameters: type[P]
    plan: Callable[[Target, P, str], list[HostChange]]
    commands: tuple[str, ...] = ()
    passes: Callable[[P], bool] = _lasts
    meets: Minimum = ANY
    whole_host: bool = False
    drawn: tuple[Mapping[str, Any], ...] = ({},)
    only_on: frozenset[str] = frozenset()
    only_active: bool = False

    def complete(self, given: Mapping[str, Any]) -> P:
        """Return `given` with the defaults of what it leaves out. Raises UsageError, one sentence, where a parameter is
        not the fault's or its value is none that it takes."""
        try:
            return self.parameters.model_validate(dict(given))
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0]) if first["loc"] else ""
            infos = {info.name: info for info in self.parameter_infos()}
            if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
                raise unknown_name(f"parameter of fault {self.name!r}", name, infos) from None
            if first["type"] == "missing":
                raise UsageError(f"fault {self.name}: {name} is missing; {infos[name].meaning}") from None
            if first["type"] == "value_error" or name not in infos:
                raise UsageError(f"fault {self.name}: {first['msg'].removeprefix('Value error, ')}") from None
            raise UsageError(f"fault {self.name}: {name} is {infos[name].values}, not {given.get(name)!r}") from None

    def parameter_infos(self) -> list[ParameterInfo]:
        """Return what is documented of each parameter, in order."""
        return [
            ParameterInfo(
                field.alias or name,
                _values(field),
                "" if field.is_required() else _shown(field.get_default(call_default_factory=True)),
                field.description or "",
            )
            for name, field in self.parameters.model_fields.items()
        ]

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the parameters."""
        return self.parameters.model_json_schema(by_alias=True)


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) if value != "" else "''"


def _values(field: FieldInfo) -> str:
    """Which values a parameter takes, in words: what it `is`."""
    kind: Any = field.annotation
    if get_origin(kind) is Literal:
        *most, last = (str(value) for value in get_args(kind))
        return f"{', '.join(most)} or {last}" if most else last
    words = _WORDS.get(kind, "a mapping")
    limits = [
        f"{word} {getattr(limit, name)}"
        for limit in field.metadata
        for name, word in _LIMITS.items()
        if getattr(limit, name, None) is not None
    ]
    patterns = [f"of the form {limit.pattern}" for limit in field.metadata if getattr(limit, "pattern", None)]
    return ", ".join([words, *limits, *patterns])
