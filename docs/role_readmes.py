"""Writes roles/ROLE/README.md of every role from its meta/argument_specs.yml: `make docs`.

A README says what the role is, what depends on what, its task files and its variables; nothing in it is written by
hand, so it is what the role does. With --check nothing is written, and status 1 says which are not current.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from generated_files import ROOT, write

COLLECTION = "brokerdrill.ha"


def load(path: Path) -> Any:
    """Return the YAML in a file, an empty mapping where there is none."""
    return (yaml.safe_load(path.read_text()) if path.exists() else None) or {}


def cell(text: str) -> str:
    """Return text as a cell of a Markdown table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def code(value: Any) -> str:
    """Return a value as a cell of a Markdown table shows it, in YAML's flow style; its own backticks stay."""
    shown = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return f"`{cell(shown)}`" if "`" not in shown else f"`` {cell(shown)} ``"


def description(option: Mapping[str, Any]) -> str:
    """Return what an option is, with its choices."""
    said = option["description"]
    text = said if isinstance(said, str) else " ".join(said)
    choices = option.get("choices")
    return cell(text) + (f" One of {', '.join(code(choice) for choice in choices)}." if choices else "")


def rows(options: Mapping[str, Any], parent: str = "") -> list[str]:
    """Return a table row for each option, those nested in it after it."""
    found = []
    for name, option in options.items():
        kind = option["type"] + (f" of {option['elements']}" if "elements" in option else "")
        default = code(option["default"]) if "default" in option else "required" if option.get("required") else ""
        found.append(f"| `{parent}{name}` | {kind} | {default} | {description(option)} |")
        found += rows(option.get("options", {}), f"{parent}{name}{'[]' if kind.startswith('list') else ''}.")
    return found


def readme(role: Path) -> str:
    """Return the README of the role in that folder."""
    galaxy, product = load(role / "meta" / "main.yml")["galaxy_info"], load(role / "meta" / "product.yml")
    specs = load(role / "meta" / "argument_specs.yml")["argument_specs"]
    tasks = sorted(path.stem for path in (role / "tasks").glob("*.yml"))
    lines = [
        f"# {COLLECTION}.{role.name}",
        "",
        "<!-- Made by `make docs` from meta/; do not edit. -->",
        "",
        f"{galaxy['description']}.",
        "",
    ]
    if product.get("uses"):
        lines += [f"Depends on {', '.join(f'`{name}`' for name in product['uses'])}, where the inventory has it.", ""]
    if client := product.get("client"):
        lines += [f"Clients connect with the protocol `{client['protocol']}`.", ""]
    lines += [
        f"Runs on Ansible {galaxy['min_ansible_version']} or newer; "
        + "; ".join(f"{item['name']} {', '.join(item['versions'])}" for item in galaxy["platforms"])
        + f". Licence: {galaxy['license']}.",
        "",
        "## Task files",
        "",
        *(f"- `{name}`" + (f": {specs[name]['short_description']}" if name in specs else "") for name in tasks),
        "",
        "## Variables",
        "",
    ]
    shown: dict[str, Any] = {}
    for spec in specs.values():
        shown |= {name: option for name, option in spec["options"].items() if name not in shown}
    lines += ["| Variable | Type | Default | What it is |", "|---|---|---|---|", *rows(shown)]
    return "\n".join(lines) + "\n"


def main() -> int:
    roles = sorted(path.parents[1] for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"))
    return write({role / "README.md": readme(role) for role in roles})


if __name__ == "__main__":
    sys.exit(main())
