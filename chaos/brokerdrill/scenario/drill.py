"""Drills: scenarios written once, in chaos/scenarios, and what becomes of one on a topology.

A drill names in `needs` what a topology must have. Steps, promises and the entries of `where` may have needs of their
own; a bound may follow from a setting. `resolve` answers all of it from the descriptors: the scenario that comes of it
has nothing left open, and its text is what run.json keeps.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from brokerdrill.base import paths
from brokerdrill.base.documents import parse_yaml, plain_yaml
from brokerdrill.base.errors import UsageError, unknown_name
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.inventory.targets import of_store
from brokerdrill.scenario import facts
from brokerdrill.scenario.model import LoadedScenario, Scenario, drill_schema, validated
from brokerdrill.scenario.places import set_places
from brokerdrill.scenario.promised import Bound, Term

DRILLS = paths.ROOT / "chaos" / "scenarios"
DEFAULTS_FILE = DRILLS / "defaults.yml"
# What distinguishes a file from the name of a drill.
SUFFIXES = (".yml", ".yaml")
# Fields that say how a scenario comes about; a resolved one has none of them.
OPEN = ("needs", "extends", "set", "where", "without")
# What changes no run: words for people, and what a campaign does after it.
_BESIDE = ("title", "description", "tags", "note", "leaves")


def _meant(data: Mapping[str, Any]) -> dict[str, Any]:
    """What a drill does and how it is judged."""
    meant = {field: value for field, value in data.items() if field not in _BESIDE}
    if "known" in data:
        meant["known"] = [
            {field: value for field, value in one.items() if field not in ("finding", "seen")} for one in data["known"]
        ]
    if "where" in data:
        meant["where"] = [_meant(entry) for entry in data["where"]]
    return meant | ({"set": _meant(data["set"])} if "set" in data else {})


@dataclass(frozen=True)
class Drill:
    """A drill: its name (the file's stem), what it breaks (the file's folder), and all that it says. `data` is the YAML
    with the defaults and what it extends filled in, `scenario` the same as a model."""

    name: str
    breaks: str
    path: Path
    data: Mapping[str, Any]
    scenario: Scenario

    @property
    def sha256(self) -> str:
        """The SHA-256 (hex) of all that the drill does and asks; its words for people may change."""
        return hashlib.sha256(json.dumps(_meant(self.data), sort_keys=True).encode()).hexdigest()

    def unmet(self, descriptors: Sequence[Descriptor]) -> list[str]:
        """Return those of its needs that these instances do not answer."""
        return facts.unmet(self.scenario.needs, facts.facts(descriptors))


def drill_paths() -> dict[str, Path]:
    """Return the files of chaos/scenarios by the drills' names."""
    return {path.stem: path for path in sorted(DRILLS.glob("*/*.yml"))}


def drills() -> list[Drill]:
    """Return all drills of chaos/scenarios, by folder and name."""
    return [load_drill(str(path)) for path in drill_paths().values()]


def load_drill(name: str, extending: tuple[Path, ...] = ()) -> Drill:
    """Load a drill by its name in chaos/scenarios or by a path; `extending` are the files that extend it.

    Raises UsageError: the nearest name, or file, line, field and what is wrong with it.
    """
    path = Path(name)
    if path.suffix not in SUFFIXES:
        known = drill_paths()
        if name not in known:
            raise unknown_name("drill", name, known)
        path = known[name]
    return _load(path, path.stat().st_mtime_ns if path.is_file() else 0, extending)


@functools.lru_cache(maxsize=256)
def _load(path: Path, _: int, extending: tuple[Path, ...]) -> Drill:
    if path in extending:
        raise UsageError(f"drill {path} extends itself")
    own, tree = parse_yaml(_text(path), path, "a scenario")
    # With `extends: null` a file is whole.
    extends = own.get("extends", DEFAULTS_FILE.stem)
    if not isinstance(extends, str | None):
        raise UsageError(f"{path}: extends is the name of one drill or null, and not {extends!r}")
    if extends == DEFAULTS_FILE.stem:
        base = _plain(DEFAULTS_FILE)
        if path.parent.parent != DRILLS:
            base["where"] = [_without(one, own) for one in base["where"]]
    elif extends:
        extended = load_drill(str(extends), (*extending, path)).data
        base = {field: value for field, value in extended.items() if field not in ("set", "extends")}
    else:
        base = {}
    # A copy: what this file sets must not show in what it extends.
    data = copy.deepcopy(_merged(base, own))
    _check_without(own, base, path)
    if not isinstance(places := own.get("set") or {}, dict):
        raise UsageError(f"{path}: set is a mapping of places and their values, and not {places!r}")
    set_places(data, {str(place): value for place, value in places.items()}, str(path))
    return Drill(path.stem, path.parent.name, path, data, validated(data, path, tree))


def _text(path: Path) -> str:
    if path.exists() and not path.is_file():
        raise UsageError(f"drill {path} cannot be read: it is no file")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"drill {path} cannot be read: it is no text in UTF-8, from byte {error.start + 1} on"
        ) from None
    except OSError as error:
        raise UsageError(f"drill {path} cannot be read: {error.strerror}") from None


@functools.cache
def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _plain(path: Path) -> dict[str, Any]:
    """Return the mapping in one of our own files."""
    return dict(plain_yaml(_read(path)))


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return `own` over `base`: mappings part by part, of the promises those that `own` neither makes itself nor is
    `without`, entries of `where` after those of `base`; any other field as a whole."""
    found = {**base, **own}
    for own_way, other in (("rounds", "for"), ("for", "rounds")):
        # How often the method is repeated is said in one of two ways, and the nearer word counts.
        if own_way in own and other not in own:
            found.pop(other, None)
    for field in ("load", "steady_state", "abort"):
        if isinstance(base.get(field), dict) and isinstance(own.get(field), dict):
            found[field] = {**base[field], **own[field]}
    if isinstance(promises := own.get("promises") or [], list) and isinstance(left := own.get("without") or [], list):
        # Its own ones first: a message about one names its place in the file.
        gone = [*(_name(one) for one in promises), *left]
        found["promises"] = [*promises, *(one for one in base.get("promises", ()) if _name(one) not in gone)]
    if isinstance(more := own.get("where") or [], list):
        found["where"] = [*base.get("where", ()), *more]
    return found


def _check_without(own: Mapping[str, Any], base: Mapping[str, Any], path: Path) -> None:
    """Raise UsageError for a promise that is left out and was never in: it is a mistyped one."""
    names = {str(_name(one)) for one in base.get("promises", ())}
    left = own.get("without")
    for name in left if isinstance(left, list) else []:
        if str(name) not in names:
            raise UsageError(f"{path}: without: {unknown_name('promise that it would have', str(name), names)}")


def _without(entry: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of `where` without the places that `own`, somebody's own file, sets itself."""

    def said(place: str) -> bool:
        found: Any = own
        for part in place.split("."):
            if not isinstance(found, dict) or part not in found:
                return False
            found = found[part]
        return True

    return {**entry, "set": {place: value for place, value in entry["set"].items() if not said(place)}}


def _name(promise: Any) -> Any:
    return promise.get("name") if isinstance(promise, dict) else promise


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a drill's file."""
    return drill_schema(_plain(DEFAULTS_FILE))


def check_changes(drill: Drill, changes: Mapping[str, Any], where: str) -> None:
    """Raise UsageError, beginning with `where`, for a place that the drill has not and a value that it refuses."""
    if changes:
        data = copy.deepcopy(dict(drill.data))
        for promise in data["promises"]:
            if isinstance(promise, dict) and promise.pop("bound", None):
                promise["bound_ms"] = 0
        _changed(drill, data, changes, where)


def _changed(drill: Drill, data: dict[str, Any], changes: Mapping[str, Any], where: str) -> Scenario:
    set_places(data, changes, where)
    try:
        return validated(data, drill.path, None)
    except UsageError as error:
        # The line is one of the text made here, which nobody has seen.
        raise UsageError(f"{where}: {drill.name} does not take it: {str(error).split(': ', 1)[-1]}") from None


def resolve(
    drill: Drill,
    descriptors: Sequence[Descriptor],
    topology: str,
    changes: Mapping[str, Any] | None = None,
    where: str = "settings",
) -> LoadedScenario:
    """Return the scenario that `drill` is on the instances of `topology`, with nothing left open.

    `changes` are places with values that override all else; `where` begins a message about them. Raises UsageError: the
    drill needs what is not there, a bound follows from a setting that nobody exports, two bounds fit one promise.
    """
    has, known = facts.facts(descriptors), facts.settings(descriptors)
    if missing := drill.unmet(descriptors):
        raise UsageError(f"{drill.name} does not apply to {topology}: it needs {facts.why_not(missing)}")
    data = copy.deepcopy(dict(drill.data))
    # First what is there at all: a promise may stand several times, with needs that exclude each other.
    for field in ("method", "promises"):
        data[field] = [_closed(item) for item in data[field] if not facts.unmet(_needs(item), has)]
    for entry in drill.scenario.where:
        if not facts.unmet(entry.needs, has):
            set_places(data, entry.set, f"{drill.name} on {topology}")
            data["description"] = f"{data['description'].strip()} {entry.note.strip()}".strip() + "\n"
    several = facts.stores(descriptors)
    if len(several) > 1:
        _aim(data, next(iter(several)))
    data["promises"] = _bounded(data["promises"], known, f"{drill.name} on {topology}")
    data = {"title": data["title"], "description": data["description"], "topology": topology} | {
        field: value for field, value in data.items() if field not in OPEN and field != "topology"
    }
    scenario = _changed(drill, data, changes or {}, where)
    # Whole as it is: whoever runs it again gets no more by the defaults of then.
    data = {"extends": None} | {field: value for field, value in data.items() if value is not None}
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)
    return LoadedScenario(drill.name, text, hashlib.sha256(text.encode()).hexdigest(), scenario)


def _needs(item: Any) -> Sequence[str]:
    return item.get("needs", ()) if isinstance(item, dict) else ()


def _closed(item: Any) -> Any:
    """Return a step or promise without its needs; a promise that is nothing but a name as that."""
    if not isinstance(item, dict):
        return item
    left = {field: value for field, value in item.items() if field != "needs"}
    return left["name"] if list(left) == ["name"] else left


def _aim(data: dict[str, Any], store: str) -> None:
    """With several stores, `active` and `passive` are those of `store`."""
    data["links"] = [of_store(link, store) for link in data.get("links", ())]
    for step in data["method"]:
        if "target" in step:
            step["target"] = of_store(step["target"], store)


def _bounded(promises: Sequence[Any], known: Mapping[str, float], where: str) -> list[Any]:
    """Return the promises with each bound as a number of ms."""
    names = [_name(promise) for promise in promises]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{where}: two promises {twice} fit: their needs must exclude each other")
    bounds = {one["name"]: float(one["bound_ms"]) for one in promises if isinstance(one, dict) and "bound_ms" in one}
    found = []
    for promise in promises:
        if isinstance(promise, dict) and "bound" in promise:
            name = promise["name"]
            bounds[name] = bound_ms(Bound.model_validate(promise["bound"]), {**known, **bounds}, f"{where}: {name}")
            value = int(bounds[name]) if bounds[name].is_integer() else bounds[name]
            promise = {field: value if field == "bound" else item for field, item in promise.items()}
            promise = {"bound_ms" if field == "bound" else field: item for field, item in promise.items()}
        found.append(promise)
    return found


def bound_ms(bound: Bound, known: Mapping[str, float], what: str) -> float:
    """Return a bound in ms, from the settings `known`. Raises UsageError, beginning with `what`, for an unknown one."""

    def value(term: float | Term) -> float:
        if not isinstance(term, Term):
            return term
        times = facts.setting(term.times, known, what) if isinstance(term.times, str) else term.times
        return times * facts.setting(term.of, known, what)

    return value(bound) + sum(map(value, bound.plus))
