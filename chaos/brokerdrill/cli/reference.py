"""The pages of docs/reference/ that code and inventories say: promises, faults, and more. A test compares them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from brokerdrill.base import paths
from brokerdrill.base.atomic import write
from brokerdrill.faults.registry import FAULTS
from brokerdrill.gameday.model import GameDay
from brokerdrill.inventory.topology import topologies
from brokerdrill.promises.catalogue import PROMISES
from brokerdrill.promises.definition import Doubt, Field

FOLDER = paths.ROOT / "docs" / "reference"
_MADE = "<!-- Made by `brokerdrill reference`; the text stands in chaos/brokerdrill/{where}. -->"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines]


def _field(field: Field) -> str:
    kind = "a name" if field.text else field.unit
    values = f": `{'` or `'.join(field.choices)}`" if field.choices else f" ({kind})"
    default = "" if field.default is None else f", by default `{field.default}`"
    return f"`{field.name}`{values}{default}"


def promises() -> str:
    """Return the page of the promises."""
    always = (Doubt.TORN_OPERATIONS,)
    rows = [
        [
            f"`{one.name}`",
            one.words.breaks,
            "<br>".join(map(_field, one.fields)),
            ", ".join(f"`{kind}`" for kind in one.breaking),
            "; ".join(
                [doubt.value for doubt in Doubt if one.doubted_by(doubt) and doubt not in always]
                + [f"a message that is `{kind}`" for kind in one.doubtful]
            ),
            one.words.excused,
        ]
        for one in PROMISES.values()
    ]
    heads = ("promise", "is broken by", "fields", "by class", "cannot pass with", "excuses")
    sections = [
        line
        for one in PROMISES.values()
        for line in (
            f"## {one.name}",
            "",
            one.words.promise,
            "",
            *[f"- `{field.name}`: {field.meaning}" for field in one.fields],
            *([""] if one.fields else []),
        )
    ]
    return "\n".join(
        [
            _MADE.format(where="promises/catalogue.py"),
            "# Promises",
            "",
            f"None can pass with {always[0].value}. `no_phantoms` is always checked.",
            "",
            *_table(heads, rows),
            "",
            *sections,
        ]
    )


def faults() -> str:
    """Return the page of the faults."""
    rows = [
        [
            f"`{one.name}`",
            one.acts_on,
            one.description,
            "<br>".join(
                f"`{info.name}` ({info.values}; by default `{info.default}`): {info.meaning}"
                for info in one.parameter_infos()
            ),
        ]
        for one in FAULTS.values()
    ]
    return "\n".join(
        [
            _MADE.format(where="faults/"),
            "# Faults",
            "",
            "An armed link is one that the scenario's `links` names.",
            "",
            *_table(("fault", "acts on", "what it does", "parameters"), rows),
            "",
        ]
    )


def topology_table() -> str:
    """Return the page of the topologies."""
    rows = [
        [
            f"`{name}`",
            description,
            f"`brokerdrill deploy {name}`",
            f"`molecule test -s {name}`" if _tested(name) else "",
        ]
        for name, description in topologies()
    ]
    return "\n".join(
        [
            "<!-- Made by `brokerdrill reference`; texts: first comments of inventories/TOPOLOGY/hosts.yml. -->",
            "# Topologies",
            "",
            "`inventories/TOPOLOGY` says which hosts there are and how they are set up. `bench/TOPOLOGY.yml` adds what",
            "the test hosts on one machine need: addresses in a subnet of their own, memory limits",
            "(at most 4 GiB in all), small heaps, and `drill_allowed`.",
            "",
            "Which drills apply to a topology: [drills.md](../drills.md).",
            "",
            *_table(("topology", "what it is", "deploy", "test"), rows),
            "",
        ]
    )


def _parts(kind: Any) -> list[type[BaseModel]]:
    """Return the models in a field's type."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [part for inner in get_args(kind) for part in _parts(inner)]


def _schema_words(schema: Mapping[str, Any], shared: Mapping[str, Any]) -> str:
    """Return in words what a field of a JSON Schema takes."""
    if "$ref" in schema:
        return _schema_words(shared[schema["$ref"].rpartition("/")[2]], shared)
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if "anyOf" in schema:
        known = [one for one in schema["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(_schema_words(one, shared) for one in known))
    if schema.get("type") == "array":
        return f"list of {_schema_words(schema['items'], shared)}"
    return str(schema.get("format") or schema.get("type") or "one of several")


def _rows(model: type[BaseModel], prefix: str = "") -> list[list[str]]:
    """Return a row for each field of `model` and of the parts in it."""
    schema = model.model_json_schema()
    rows = []
    for name, field in model.model_fields.items():
        parts = _parts(field.annotation)
        listed = get_origin(field.annotation) is list
        for part in parts:
            kind = f" ({part.__doc__.splitlines()[0].rstrip('.')})" if part.__doc__ else ""
            rows.append([f"`{prefix}{name}{'[]' if listed else ''}`", f"a part{kind}", "", field.description or ""])
            rows += _rows(part, f"{prefix}{name}{'[]' if listed else ''}.")
        if not parts:
            own = schema["properties"][name]
            default = "required" if field.is_required() else f"`{json.dumps(own.get('default'), ensure_ascii=False)}`"
            words = _schema_words(own, schema.get("$defs", {}))
            rows.append([f"`{prefix}{name}`", words, default, field.description or ""])
    return rows


def game_days() -> str:
    """Return the page of a game day's file."""
    return "\n".join(
        [
            _MADE.format(where="gameday/model.py"),
            "# A game day's file",
            "",
            "What it is for: [gamedays.md](../gamedays.md).",
            "Paths and inventory directories are as seen from the file's folder.",
            "",
            *_table(("field", "takes", "without it", "meaning"), _rows(GameDay)),
            "",
        ]
    )


def _tested(topology: str) -> bool:
    return (paths.ROOT / "molecule" / topology).is_dir()


PAGES: Mapping[str, Callable[[], str]] = {
    "promises.md": promises,
    "faults.md": faults,
    "topologies.md": topology_table,
    "gameday.md": game_days,
}


def write_pages(folder: Path = FOLDER) -> list[Path]:
    """Write every page into `folder`; return their paths. Raises InfrastructureError."""
    return [write(folder / name, page().encode()) for name, page in PAGES.items()]
