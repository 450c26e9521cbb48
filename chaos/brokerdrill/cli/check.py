"""`brokerdrill check`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from brokerdrill.base.errors import EXIT_INFRASTRUCTURE, EXIT_KEPT
from brokerdrill.base.progress import Progress
from brokerdrill.cli.console import console

app = typer.Typer()


@app.command()
def check(
    inventory: Annotated[str, typer.Argument(help="A topology's name, or an inventory: a directory or a file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each host instead.")] = False,
) -> None:
    """Say what a drill would need and meet on each host; 0 nothing is missing, 3 something is. Changes nothing."""
    from brokerdrill.inventory.topology import find_topology
    from brokerdrill.runner.check import check as look
    from brokerdrill.runner.recording import run_async

    found = find_topology(inventory)
    with Progress(Console(stderr=True)) as progress:
        looked = run_async(look(found, progress), console)
    if as_json:
        print(json.dumps([asdict(one) | {"ok": not one.missing} for one in looked], indent=2))
    else:
        for one in looked:
            console.print(one.line, markup=False)
    raise typer.Exit(EXIT_INFRASTRUCTURE if any(one.missing for one in looked) else EXIT_KEPT)
