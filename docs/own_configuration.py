"""Writes the tables of docs/operations.md that lead from a product's own configuration to the roles' variables:
`make docs`. With --check nothing is written, and status 1 says that they are not current.

The tables are what the roles go by: plugins/plugin_utils/own_configuration.py.
"""

from __future__ import annotations

import importlib.util
import sys
from itertools import groupby
from typing import Any

from generated_files import ROOT, write

PAGE = ROOT / "docs" / "operations.md"
BEGIN = "<!-- Made by docs/own_configuration.py; the text stands in plugins/plugin_utils/own_configuration.py. -->\n"
END = "<!-- End of what is made. -->\n"


def tables() -> str:
    """Return the tables of all products."""
    # By its path: the page is made without the collection being installed.
    path = ROOT / "plugins" / "plugin_utils" / "own_configuration.py"
    spec = importlib.util.spec_from_file_location("own_configuration", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return "\n".join(table(elements) for elements in module.ALL)


def table(elements: Any) -> str:
    """Return the table of one place in a file."""
    rows = [f"| {elements.place} | variable of the role `{elements.role}` |", "|---|---|"]
    for said, names in groupby(elements.by.items(), key=lambda pair: pair[1]):
        what = ", ".join(f"`{name}`" for name, _ in names)
        rows.append(f"| {what} | {said if isinstance(said, str) else ', '.join(f'`{name}`' for name in said)} |")
    if elements.others:
        rows.append(f"| every other one | `{elements.others}` |")
    return "\n".join(rows) + "\n"


def main() -> int:
    """Write or check; return the exit status."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return write({PAGE: f"{before}{BEGIN}\n{tables()}\n{END}{after}"})


if __name__ == "__main__":
    sys.exit(main())
