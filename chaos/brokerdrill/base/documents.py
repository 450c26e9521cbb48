"""YAML files that a user writes, as models: what is wrong with one is said with file, line and field."""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from brokerdrill.base.errors import UsageError

# Numbers as people type them: to YAML 1.1 1:30 is ninety, and 010 is eight. Both stay the text that they are.
_NUMBERS = {
    "tag:yaml.org,2002:int": re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0b[01_]+)\Z"),
    "tag:yaml.org,2002:float": re.compile(
        r"(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
    ),
}


# How many lists and mappings may be within one another.
DEEPEST = 100
_TOO_DEEP = "more is within one another than a file has"


class _Telling(yaml.constructor.BaseConstructor):
    """Says where a value stands that is not what its tag says, as 2026-99-99 is no date: PyYAML lets Python's own error
    out."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError):
            said = f"{str(node.value)[:40]!r} is no {node.tag.rpartition(':')[2]}"
            raise yaml.constructor.ConstructorError(None, None, said, node.start_mark) from None


def _typed(kind: type[yaml.SafeLoader]) -> type[yaml.SafeLoader]:
    """Return a loader as `kind`, with those numbers."""
    resolvers = {
        first: [(tag, _NUMBERS.get(tag, pattern)) for tag, pattern in found]
        for first, found in kind.yaml_implicit_resolvers.items()
    }
    return type(kind.__name__, (_Telling, kind), {"yaml_implicit_resolvers": resolvers})


_SLOW = _typed(yaml.SafeLoader)
# By libyaml, which takes a tenth of the time; a PyYAML that somebody built without it has Python's own.
_LOADER = _typed(getattr(yaml, "CSafeLoader", yaml.SafeLoader))


class Strict(BaseModel):
    """A part of such a file: a field that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


M = TypeVar("M", bound=BaseModel)


def as_model(
    model: type[M],
    data: Mapping[str, Any],
    path: Path,
    tree: yaml.Node | None,
    what: str,
    kinds: Sequence[str] = (),
) -> M:
    """Return `data` as `model`; `what` the whole is, and the `kinds` of its unions, are words of the messages.

    Raises UsageError: file, and for each mistake its line in its `tree`, its field, and what is wrong with it.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        mistakes: dict[str, int] = {}
        for one in error.errors():
            location = [part for part in one["loc"] if part not in kinds]
            field = ".".join(str(part) for part in location) or what
            said = one["msg"].removeprefix("Value error, ")
            if one["type"] == "extra_forbidden":
                said = _no_field(model, location)
            mistakes.setdefault(f"{field}: {said}", _line_of(tree, location))
        lines = [
            mistake if tree is None and number else f"line {line}: {mistake}"
            for number, (mistake, line) in enumerate(mistakes.items())
        ]
        raise UsageError(f"{path}, {'; '.join(lines)}") from None


def _no_field(model: type[BaseModel], location: Sequence[str | int]) -> str:
    """Say that there is no field at `location` in `model`, and the nearest one beside it, where there is one."""
    models: set[type[BaseModel]] = {model}
    for part in location[:-1]:
        if isinstance(part, str):
            within = [one.model_fields[part].annotation for one in models if part in one.model_fields]
            # (A part that is no field is an element's name, or a member of a union.)
            models = {found for kind in within for found in _models(kind)} or models
    known = sorted({name for one in models for name in one.model_fields})
    near = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"there is no such field; did you mean {near[0]!r}?" if near else "there is no such field"


def _models(kind: Any) -> set[type[BaseModel]]:
    """The models that a field of this type may hold."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {kind}
    return {found for part in typing.get_args(kind) for found in _models(part)}


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


def plain_yaml(text: str) -> Any:
    """Return what the YAML `text` says. Raises yaml.YAMLError."""
    _check_depth(text, _LOADER)
    return yaml.load(text, _LOADER)


def _check_depth(text: str, kind: type[yaml.SafeLoader]) -> None:
    """Raise yaml.YAMLError for what is nested so deeply that composing it, which calls itself, would end the process:
    libyaml's runs over its stack where Python's says RecursionError."""
    depth = 0
    for event in yaml.parse(text, Loader=kind):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise yaml.MarkedYAMLError(problem=_TOO_DEEP, problem_mark=cast("yaml.Mark | None", event.start_mark))


def _parsed(text: str, kind: type[yaml.SafeLoader]) -> tuple[yaml.Node | None, Any]:
    _check_depth(text, kind)
    loader = kind(text)
    try:
        tree = loader.get_single_node()
        return tree, None if tree is None else loader.construct_document(tree)
    finally:
        loader.dispose()


def _twice(tree: yaml.Node) -> tuple[yaml.ScalarNode, yaml.ScalarNode] | None:
    """Return a key that a mapping in the tree has twice, and where it was before: YAML takes the last one."""
    left, known = [tree], set()
    while left:
        node = left.pop()
        # (An alias is the node itself, which may be within itself.)
        if id(node) in known:
            continue
        known.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            left += node.value
        if isinstance(node, yaml.MappingNode):
            seen: dict[str, yaml.ScalarNode] = {}
            for key, value in node.value:
                left.append(value)
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    if key.value in seen:
                        return key, seen[key.value]
                    seen[key.value] = key
    return None


def _in_yaml(data: Any) -> str:
    return "a list" if isinstance(data, list) else f"only {str(data)[:40]!r}"


def parse_yaml(text: str, path: Path, what: str) -> tuple[dict[str, Any], yaml.Node | None]:
    """Return the mapping in the YAML `text` and its tree; `what` it is goes into messages.

    Raises UsageError: file, line, and what is wrong with it.
    """
    try:
        try:
            tree, data = _parsed(text, _LOADER)
        except yaml.YAMLError:
            # Python's own says more of what is wrong.
            tree, data = _parsed(text, _SLOW)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{path}, line {line}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if tree is not None and (twice := _twice(tree)):
        key, first = twice
        line = key.start_mark.line + 1
        raise UsageError(f"{path}, line {line}: {key.value} is there twice, first on line {first.start_mark.line + 1}")
    if data is None:
        raise UsageError(f"{path}: there is nothing in it, and {what} is a mapping of fields")
    if not isinstance(data, dict):
        raise UsageError(f"{path}, line 1: {what} is a mapping of fields, not {_in_yaml(data)}")
    return data, tree
