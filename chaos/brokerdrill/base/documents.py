"""YAML files that a user writes, as models: what is wrong with one is said with file, line and field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from brokerdrill.base.errors import UsageError

# By libyaml, which takes a tenth of the time; a PyYAML that somebody built without it has Python's own.
_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


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
            mistakes.setdefault(f"{field}: {one['msg'].removeprefix('Value error, ')}", _line_of(tree, location))
        told = [
            mistake if tree is None and number else f"line {line}: {mistake}"
            for number, (mistake, line) in enumerate(mistakes.items())
        ]
        raise UsageError(f"{path}, {'; '.join(told)}") from None


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
    return yaml.load(text, _LOADER)


def _parsed(text: str, kind: type[yaml.SafeLoader]) -> tuple[yaml.Node | None, Any]:
    loader = kind(text)
    try:
        tree = loader.get_single_node()
        return tree, None if tree is None else loader.construct_document(tree)
    finally:
        loader.dispose()


def parse_yaml(text: str, path: Path, what: str) -> tuple[dict[str, Any], yaml.Node | None]:
    """Return the mapping in the YAML `text` and its tree; `what` it is goes into messages.

    Raises UsageError: file, line, and what is wrong with it.
    """
    try:
        try:
            tree, data = _parsed(text, _LOADER)
        except yaml.YAMLError:
            # Python's own says more of what is wrong.
            tree, data = _parsed(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{path}, line {line}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: not YAML: {error}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path}, line 1: {what} is a mapping of fields, not {type(data).__name__}")
    return data, tree
