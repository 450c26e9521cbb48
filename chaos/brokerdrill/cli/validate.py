"""The commands `validate` and `plan`: what a drill or an inventory says, without touching a host."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from brokerdrill.base.errors import EXIT_KEPT, EXIT_USAGE
from brokerdrill.base.progress import Progress
from brokerdrill.cli.console import console, print_json, print_table
from brokerdrill.cli.options import ListJsonOption, TopologyArgument

app = typer.Typer()


@app.command()
def validate(
    names: Annotated[
        list[str],
        typer.Argument(help="Drills' files or names, inventories' directories or names.", metavar="NAME..."),
    ],
    on: Annotated[
        str,
        typer.Option(help="Say of each drill whether it applies to this topology or inventory, and if not, why."),
    ] = "",
) -> None:
    """Say all mistakes of drills and inventories at once; 0 there is none, 64 there are. Touches no host."""
    from brokerdrill.inventory.topology import find_topology
    from brokerdrill.scenario.validation import mistakes_of

    with Progress(Console(stderr=True)) as progress:
        place = find_topology(on) if on else None
        found = {name: mistakes_of(name, place, progress) for name in names}
    for name, mistakes in found.items():
        for line in mistakes or ["no mistake"]:
            # What is wrong with a file begins with its name and line.
            console.print(line if line.startswith(name) else f"{name}: {line}", markup=False)
    raise typer.Exit(EXIT_USAGE if any(found.values()) else EXIT_KEPT)


@app.command()
def plan(
    inventory: TopologyArgument,
    as_json: ListJsonOption = False,
) -> None:
    """Say what each host would get from a deployment: instances, stores, ports. Touches no host."""
    from brokerdrill.inventory.planned import COLUMNS, planned, rows
    from brokerdrill.inventory.topology import find_topology

    found = find_topology(inventory)
    with Progress(Console(stderr=True)) as progress:
        listed = rows(found, planned(found, progress))
    if as_json:
        print_json(instances=[dict(zip(COLUMNS, row, strict=True)) for row in listed])
    else:
        print_table(COLUMNS, listed)
