"""Writes plugins/filter/FILTER.yml of every filter, which `ansible-doc -t filter` shows: `make docs`.

What a filter is and returns says its docstring, types its signature, parameters docs/filter_parameters.yml. The example
is what a role has it for, or of a filter for everybody a value of docs/filter_values.yml with what comes of it. With
--check nothing is written, and status 1 says which are not current.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from generated_files import ROOT, write

FILTERS = ROOT / "plugins" / "filter"
PACKAGE = "ansible_collections.brokerdrill.ha.plugins.filter"
AUTHOR = "Brokerdrill developers (@brokerdrill)"
HEAD = "# Made by docs/filters.py of the filter's docstring and signature: `make docs`.\n"
# For whom a filter of a product's rules is.
OF_A_ROLE = "It is a rule of the role C({role}): what it takes and returns changes with the role."
# So long a sentence of a list may be before it is cut.
SHORT = 100
_PLAIN = {str: "str", int: "int", float: "float", bool: "bool", Any: "raw"}
_LISTS = (Sequence, Iterable, Collection, list, tuple)


def load(name: str) -> Any:
    """Return the YAML of a file of docs/."""
    return yaml.safe_load((ROOT / "docs" / name).read_text(encoding="utf-8"))


def filters() -> dict[str, tuple[Path, Callable[..., Any]]]:
    """Return filter → (the file that has it, its function), by name."""
    sys.path.insert(0, str(ROOT / ".collections"))
    found = {}
    for path in sorted(FILTERS.glob("*.py")):
        module = importlib.import_module(f"{PACKAGE}.{path.stem}")
        found |= {name: (path, function) for name, function in module.FilterModule().filters().items()}
    return dict(sorted(found.items()))


def shape(hint: Any) -> dict[str, Any]:
    """Return Ansible's words for a type; `keys`: a sentence on those that a mapping has, or each of many."""
    arguments = typing.get_args(hint)
    origin = typing.get_origin(hint) or hint
    if origin in (types.UnionType, typing.Union):
        (hint,) = (one for one in arguments if one is not type(None))
        return shape(hint)
    if origin is Literal:
        return {"type": "str", "choices": list(arguments)}
    if origin in _LISTS:
        of = shape(arguments[0]) if arguments else {"type": "raw"}
        return {"type": "list", "elements": of["type"], "keys": of.get("keys", "").replace("Its", "Each one's")}
    if typing.is_typeddict(origin):
        listed = ", ".join(f"C({key})" for key in typing.get_type_hints(origin))
        return {"type": "dict", "keys": f" Its keys are {listed}."}
    if origin in (Mapping, dict):
        keys = shape(arguments[1]).get("keys", "") if len(arguments) > 1 else ""
        return {"type": "dict", "keys": keys.replace("Its", "Each one's")}
    return {"type": _PLAIN.get(origin, "raw")}


def marked(text: str, parameters: Sequence[str] = ()) -> str:
    """Return a docstring's text in Ansible's markup: `code` as a value, a parameter as an option; the first one is what
    is filtered."""

    def of(match: re.Match[str]) -> str:
        word = match[1]
        if word in parameters:
            return f"O({'_input' if word == parameters[0] else word})"
        if word in filters_of_all():
            return f"P(brokerdrill.ha.{word}#filter)"
        return "V(" + word.replace("\\", "\\\\").replace(")", "\\)") + ")"

    return re.sub(r"`([^`]+)`", of, " ".join(text.split()))


@functools.cache
def filters_of_all() -> Mapping[str, tuple[Path, Callable[..., Any]]]:
    """As `filters`, once."""
    return filters()


def short(text: str) -> str:
    """Return the first sentence of a docstring in plain words, without its `Return`."""
    first = re.split(r"(?<=[a-z\])`0-9])\.(?:\s|$)", " ".join(text.split()))[0].rstrip(".")
    first = re.sub(r"^`(\w+)`", r"\1", first.removeprefix("Return ").removeprefix("Return, "))
    if len(first) > SHORT:
        first = re.sub(r" \([^()]*\)", "", first)
    if len(first) > SHORT:
        first = re.split(r"[:;] ", first)[0]
    return first[0].upper() + first[1:]


def uses(name: str) -> Iterator[tuple[Path, str]]:
    """Yield what the roles and playbooks have the filter for: file and expression."""
    mark = re.compile(rf"brokerdrill\.ha\.{name}\b(?!\s*:)")
    for path in sorted([*ROOT.glob("roles/*/**/*"), *ROOT.glob("playbooks/*.yml")]):
        if path.suffix not in (".yml", ".j2") or not mark.search(text := _text(path)):
            continue
        if path.suffix == ".yml":
            yield from ((path, expression(one)) for one in _scalars(yaml.safe_load(text)) if mark.search(one))
        else:
            blocks = re.findall(r"\{[{%][-+]?\s*(.*?)\s*[-+]?[%}]\}", text, re.DOTALL)
            yield from ((path, expression(one)) for one in blocks if mark.search(one))


@functools.cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _scalars(of: Any) -> Iterator[str]:
    if isinstance(of, str):
        yield of
    elif isinstance(of, Mapping):
        for one in of.values():
            yield from _scalars(one)
    elif isinstance(of, list):
        for one in of:
            yield from _scalars(one)


def expression(text: str) -> str:
    """Return what a template or a condition evaluates, in one line."""
    text = " ".join(text.split())
    if match := re.fullmatch(r"\{\{-?(.*?)-?\}\}", text):
        text = match[1].strip()
    return re.sub(r"^(?:for .+? in|set \w+ =|if|elif) ", "", text)


def examples(name: str, values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the tasks that show the filter."""
    if name in values:
        first, *others = values[name]
        words = ", ".join(map(repr, others))
        said = f"{first!r} | brokerdrill.ha.{name}{f'({words})' if words else ''}"
        return [{"name": "Show what comes of it", "ansible.builtin.debug": {"msg": f"{{{{ {said} }}}}"}}]
    if not (found := list(uses(name))):
        raise SystemExit(f"no role has the filter {name}: it need be none")
    path, said = min(found, key=lambda one: (len(one[1]) > 240, "{{" in one[1], str(one[0])))
    shown = said if "{{" in said else f"{{{{ {said} }}}}"
    where = f"As {path.relative_to(ROOT)} has it"
    return [{"name": where, "ansible.builtin.set_fact": {"result": shown}}]


def page(name: str, path: Path, function: Callable[..., Any]) -> str:
    """Return the documentation of a filter. Raises KeyError for a parameter that nobody has described."""
    words, values = load("filter_parameters.yml"), load("filter_values.yml")
    text = inspect.getdoc(function) or ""
    hints = typing.get_type_hints(function)
    # A folder of roles is another one in tests alone.
    signature = [one for one in inspect.signature(function).parameters.values() if hints[one.name] is not Path]
    names = [one.name for one in signature]
    options = {}
    for number, one in enumerate(signature):
        said = words[f"{name}.{one.name}"] if f"{name}.{one.name}" in words else words[one.name]
        of = shape(hints[one.name])
        if one.kind is one.VAR_POSITIONAL:
            of = {"type": "list", "elements": of["type"]}
        option = {"description": said + of.pop("keys", ""), **of}
        if one.default is one.empty and one.kind is not one.VAR_POSITIONAL:
            option["required"] = True
        elif isinstance(one.default, bool | int | str):
            option["default"] = one.default
        options["_input" if number == 0 else one.name] = option
    returned = shape(hints["return"])
    first, *more = text.split("\n\n")
    says = marked(re.sub(r"^Return ", "", first), names)
    says = says[0].upper() + says[1:]
    value = {"description": says + returned.pop("keys", ""), **returned}
    if name in values:
        value["sample"] = function(*values[name])
    documentation = {
        "name": name,
        "short_description": short(text),
        "description": [says, *(marked(part, names) for part in more)],
        "author": [AUTHOR],
    }
    if len(names) > 1:
        documentation["positional"] = ", ".join(names[1:])
    documentation["options"] = options
    if role := _role(path):
        documentation["notes"] = [OF_A_ROLE.format(role=role)]
    whole = {
        "DOCUMENTATION": documentation,
        "EXAMPLES": _Literal(_dump(examples(name, values))),
        "RETURN": {"_value": value},
    }
    return HEAD + _dump(whole)


def _role(path: Path) -> str:
    """The role whose rules a file of filters has; "" where it is for all."""
    roles = [one.name for one in (ROOT / "roles").iterdir() if f"{path.stem}_".startswith(f"{one.name}_")]
    return max(roles, key=len, default="")


class _Literal(str):
    """A text that YAML shows line by line."""


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


_Dumper.add_representer(
    _Literal, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|")
)


def _dump(value: Any) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def main() -> int:
    """Write them, or with --check say which are not current."""
    wanted = {
        FILTERS / f"{name}.yml": page(name, path, function) for name, (path, function) in filters_of_all().items()
    }
    return write(wanted, {*FILTERS.glob("*.yml")} - wanted.keys())


if __name__ == "__main__":
    sys.exit(main())
