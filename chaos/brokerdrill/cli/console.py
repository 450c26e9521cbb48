"""What commands print on."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

# In columns: what another program reads is not wrapped.
WIDE = 4096
# Of what `--json` of a listing prints: another one where a name goes, or means something else.
JSON_SCHEMA = 1
console = Console(highlight=False, soft_wrap=not (sys.stdout and sys.stdout.isatty()))


def print_table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print `rows` below `heads`: for a person as wide as the terminal is, else unwrapped."""
    table = Table(*heads, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    if console.is_terminal:
        console.print(table)
        return
    text = io.StringIO()
    Console(file=text, highlight=False, width=WIDE).print(table)
    for line in text.getvalue().splitlines():
        print(line.rstrip())


def print_json(**listed: Sequence[Mapping[str, Any]]) -> None:
    """Print one JSON object: the number of its schema, and lists by what they list."""
    print(json.dumps({"schema": JSON_SCHEMA, **listed}, indent=2, ensure_ascii=False))
