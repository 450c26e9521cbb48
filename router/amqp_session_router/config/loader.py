"""Reading a configuration: YAML to `Settings`, or one sentence that says what is wrong and where."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from amqp_session_router.base.errors import UsageError
from amqp_session_router.config.schema import Config
from amqp_session_router.config.settings import Place, Problem, Settings, build, show_place

_LARGEST = 8 * 1024 * 1024


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as PyYAML reads it, but a key twice is refused, and `on`, `no` and the like are text."""


def _mapping(loader: _Loader, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
    seen: dict[Hashable, int] = {}
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, Hashable):
            raise yaml.MarkedYAMLError(problem="a list or map cannot be a key", problem_mark=key_node.start_mark)
        if key in seen:
            raise yaml.MarkedYAMLError(
                problem=f"{key!r} is here a second time (first in line {seen[key]})", problem_mark=key_node.start_mark
            )
        seen[key] = key_node.start_mark.line + 1
    loader.flatten_mapping(node)
    return {
        loader.construct_object(key, deep=True): loader.construct_object(value, deep=True) for key, value in node.value
    }


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false|True|False)$"), list("tfTF"))


def load(path: Path) -> Settings:
    """Return the settings that the file at `path` describes; raises UsageError with the file, line and place."""
    return parse(read(path), str(path))


def read(path: Path) -> str:
    """Return the file's text; raises UsageError."""
    try:
        if path.stat().st_size > _LARGEST:
            raise UsageError(f"{path}: more than {_LARGEST >> 20} MiB is no configuration")
        return path.read_text("utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start} is not UTF-8") from None


def parse(text: str, name: str = "configuration") -> Settings:
    """Return the settings that the YAML `text` describes; raises UsageError that begins with `name` and the line."""
    try:
        node, data = _compose(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        recursive = "recursive" in (error.problem or "")
        problem = "a cycle: a part of it contains itself" if recursive else error.problem or error.context
        raise UsageError(f"{name}{line}: {problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{name}: not readable as YAML: {first}") from None
    try:
        return from_data(data)
    except Problem as problem:
        raise UsageError(f"{name}:{_line(node, problem.place)}: {problem}") from None


def _compose(text: str) -> tuple[yaml.Node | None, Any]:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        return node, loader.construct_document(node) if node is not None else {}
    finally:
        loader.dispose()


def from_data(data: Any) -> Settings:
    """Return the settings that plain `data` describes (what YAML or JSON gives); raises Problem."""
    if not isinstance(data, dict):
        raise Problem((), f"a configuration is a map of keys, not {_kind(data)}")
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        raise _problem(error, data) from None
    except RecursionError:
        raise Problem((), "a cycle: a part of it contains itself") from None
    return build(config)


def check_can_follow(workers: int, config: Config) -> None:
    """Raise Problem where no process that goes by `config` can follow those of a router with so many `workers`."""
    if workers != config.workers:
        raise Problem(("workers",), "it cannot change while the router runs; a stop and a start take it on")


def to_data(config: Config) -> dict[str, Any]:
    """Return what `from_data` takes for the same configuration, without what was left to the defaults."""
    return config.model_dump(exclude_unset=True, mode="json")


def to_yaml(config: Config) -> str:
    """Return the configuration as YAML text."""
    return yaml.safe_dump(to_data(config), sort_keys=False, allow_unicode=True, width=120)


def json_schema() -> str:
    """Return the JSON Schema of the file, as text."""
    schema = Config.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _kind(value: Any) -> str:
    names = {dict: "a map", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return "nothing" if value is None else names.get(type(value), type(value).__name__)


def _problem(error: ValidationError, data: Any) -> Problem:
    """Return the first of pydantic's errors in our words; an unknown key first, it is often why another is missing."""
    errors = sorted(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
    one = errors[0]
    place: Place = one["loc"]
    if place and place[-1] == "[key]" and one["type"] != "extra_forbidden":
        # pydantic's own step for a name that is wrong; an unknown key may be called so, too.
        place = place[:-1]
    found = one["input"]
    match one["type"]:
        case "extra_forbidden":
            known = _keys_at(place[:-1])
            near = difflib.get_close_matches(str(place[-1]), known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
            text = f"no such key; {hint}"
        case "missing":
            text = "is missing"
        case "literal_error":
            text = f"{found!r} is none of {one['ctx']['expected'].replace(' or ', ', ')}"
        case "value_error":
            text = str(one["ctx"]["error"])
        case "string_pattern_mismatch" if one["loc"][-1] == "[key]":
            text = f"{found!r} is no name: letters, digits, '_', '-' and '.', not first '-' or '.'"
        case "too_short" if isinstance(found, list):
            text = "is empty; leave it out, or name at least one"
        case "recursion_loop":
            text = "a cycle: it contains itself"
        case _:
            shown = repr(found) if isinstance(found, str | int | float) else _kind(found)
            text = f"{one['msg'][0].lower()}{one['msg'][1:]}, not {shown}"
    return Problem(place, text)


def _keys_at(place: Place) -> list[str]:
    """Return the keys that are known at `place`."""
    model: Any = Config
    for step in place:
        if isinstance(model, type) and issubclass(model, BaseModel):
            info = model.model_fields.get(str(step))
            model = info.annotation if info is not None else None
            arguments = [one for one in getattr(model, "__args__", ()) if one is not type(None)]
            if arguments and getattr(model, "__origin__", None) not in (dict, list):
                model = arguments[0]  # X | None
        else:
            model = getattr(model, "__args__", (None,))[-1]  # dict[name, X], list[X]
        if hasattr(model, "__metadata__"):
            model = model.__origin__
    return sorted(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


def _line(node: yaml.Node | None, place: Place) -> int:
    """Return the line (from 1) of the deepest part of `place` that the document has."""
    line = node.start_mark.line + 1 if node is not None else 1
    for step in place:
        found = None
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value == str(step):
                    found, line = value, key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            found = node.value[step]
            line = found.start_mark.line + 1
        if found is None:
            break
        node = found
    return line


__all__ = ["from_data", "json_schema", "load", "parse", "read", "show_place", "to_data", "to_yaml"]
