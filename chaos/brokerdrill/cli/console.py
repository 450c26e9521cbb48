"""What commands print on."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

# In columns: what another program reads is not wrapped.
WIDE = 4096
console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def print_table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print `rows` below `heads`: for a person as wide as the terminal is, else unwrapped."""
    table = Table(*heads, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    out = console if console.is_terminal else Console(file=console.file, highlight=False, width=WIDE)
    out.print(table)
