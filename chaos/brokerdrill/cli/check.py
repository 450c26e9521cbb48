"""`brokerdrill check`."""

from __future__ import annotations

from dataclasses import asdict

import typer
from rich.console import Console

from brokerdrill.base.errors import EXIT_INFRASTRUCTURE, EXIT_KEPT
from brokerdrill.base.progress import Progress
from brokerdrill.cli.console import console, print_json
from brokerdrill.cli.options import ListJsonOption, TopologyArgument

app = typer.Typer()


@app.command()
def check(
    inventory: TopologyArgument,
    as_json: ListJsonOption = False,
) -> None:
    """Say what a drill would need and meet on each host; 0 nothing is missing, 3 something is. Changes nothing."""
    from brokerdrill.inventory.topology import find_topology
    from brokerdrill.runner.check import check as look
    from brokerdrill.runner.recording import run_async

    found = find_topology(inventory)
    with Progress(Console(stderr=True)) as progress:
        looked = run_async(look(found, progress), console)
    if as_json:
        print_json(hosts=[asdict(one) | {"ok": not one.missing} for one in looked])
    else:
        for one in looked:
            console.print(one.line, markup=False)
    raise typer.Exit(EXIT_INFRASTRUCTURE if any(one.missing for one in looked) else EXIT_KEPT)
