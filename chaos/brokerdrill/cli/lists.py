"""The commands that list what there is: `topologies`, `scenarios`, `faults`, `schema`, `reference`."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from brokerdrill.base import paths
from brokerdrill.base.errors import UsageError
from brokerdrill.base.progress import Progress
from brokerdrill.cli.console import console, print_table

app = typer.Typer()


@app.command("topologies")
def list_topologies() -> None:
    """List the topologies: inventories that can be brought up, deployed and drilled."""
    from brokerdrill.inventory.topology import topologies

    print_table(("topology", "what it is"), topologies())


@app.command("scenarios")
def list_scenarios(
    topology: Annotated[
        str | None,
        typer.Argument(help="Say what applies to this topology or inventory, and why others do not."),
    ] = None,
    page: Annotated[
        bool, typer.Option("--markdown", help="Print the page docs/drills.md: all of them on all topologies.")
    ] = False,
) -> None:
    """List the drills: what each breaks, and where it applies."""
    from brokerdrill.inventory.planned import planned
    from brokerdrill.inventory.topology import find_topology, topologies
    from brokerdrill.scenario.drill import drills
    from brokerdrill.scenario.table import applied, markdown, not_applicable

    if page:
        from brokerdrill.results.proof import PROVEN, current, read, seen

        with Progress(Console(stderr=True)) as progress:
            every = {name: planned(find_topology(name), progress) for name, _ in topologies()}
        print(markdown(drills(), every, seen(current(read(PROVEN)))), end="")
    elif topology is None:
        rows = [(one.name, one.breaks, one.scenario.title, ", ".join(one.scenario.needs)) for one in drills()]
        print_table(("drill", "breaks", "what it does", "needs"), rows)
    else:
        found = find_topology(topology)
        with Progress(console) as progress:
            instances = planned(found, progress)
        places = [applied(one, instances, found.name) for one in drills()]
        print_table(
            ("drill", "breaks", "what it does", "expected"),
            [(one.drill.name, one.drill.breaks, one.scenario.title, one.expected) for one in places if one.scenario],
        )
        print()
        print_table(
            ("these do not apply", "for they need"),
            [(", ".join(names), why) for why, names in not_applicable(places)],
        )


@app.command("faults")
def list_faults() -> None:
    """List the faults that a scenario can inject, with their parameters."""
    from brokerdrill.faults.registry import FAULTS

    rows = [
        (
            item.name,
            item.acts_on,
            item.description,
            "\n".join(f"{info.name}={info.default}: {info.meaning}" for info in item.parameter_infos()),
        )
        for item in FAULTS.values()
    ]
    print_table(("fault", "acts on", "what it does", "parameters with defaults"), rows)


@app.command()
def schema() -> None:
    """Print the JSON Schema of a drill's file."""
    from brokerdrill.scenario.drill import schema as drill_schema

    print(json.dumps(drill_schema(), indent=2))


@app.command()
def reference() -> None:
    """Write docs/reference anew: the pages that the code itself says."""
    if paths.CHECKOUT is None:
        raise UsageError("the reference is written into a checkout's docs/reference, and this is an installed package")
    from brokerdrill.cli.reference import write_pages

    for path in write_pages():
        console.print(str(path))
