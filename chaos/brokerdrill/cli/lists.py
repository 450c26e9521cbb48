"""The commands that list what there is: `topologies`, `scenarios`, `faults`, `schema`, `reference`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from brokerdrill.base import paths
from brokerdrill.base.errors import UsageError
from brokerdrill.base.progress import Progress
from brokerdrill.cli.console import console, print_json, print_table
from brokerdrill.cli.options import ListJsonOption, topology_names

if TYPE_CHECKING:
    from brokerdrill.scenario.drill import Drill

app = typer.Typer()


@app.command("topologies")
def list_topologies(as_json: ListJsonOption = False) -> None:
    """List the topologies: inventories that can be brought up, deployed and drilled."""
    from brokerdrill.inventory.topology import topologies

    if as_json:
        print_json(topologies=[{"name": name, "description": said} for name, said in topologies()])
    else:
        print_table(("topology", "what it is"), topologies())


@app.command("scenarios")
def list_scenarios(
    topology: Annotated[
        str | None,
        typer.Argument(
            help="Say what applies to this topology or inventory, and why others do not.", autocompletion=topology_names
        ),
    ] = None,
    as_json: ListJsonOption = False,
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
        _every_drill(as_json)
    else:
        found = find_topology(topology)
        with Progress(Console(stderr=True)) as progress:
            instances = planned(found, progress)
        places = [applied(one, instances, found.name) for one in drills()]
        there = [one for one in places if one.scenario]
        if as_json:
            print_json(
                drills=[_entry(one.drill) | {"expected": one.expected} for one in there],
                not_applicable=[{"drills": names, "why": why} for why, names in not_applicable(places)],
            )
            return
        print_table(
            ("drill", "breaks", "what it does", "expected"),
            [(one.drill.name, one.drill.breaks, one.drill.scenario.title, one.expected) for one in there],
        )
        print()
        print_table(
            ("these do not apply", "for they need"),
            [(", ".join(names), why) for why, names in not_applicable(places)],
        )


def _every_drill(as_json: bool) -> None:
    from brokerdrill.scenario.drill import drills

    if as_json:
        print_json(drills=[_entry(one) for one in drills()])
    else:
        rows = [(one.name, one.breaks, one.scenario.title, ", ".join(one.scenario.needs)) for one in drills()]
        print_table(("drill", "breaks", "what it does", "needs"), rows)


def _entry(drill: Drill) -> dict[str, Any]:
    said = drill.scenario
    return {"name": drill.name, "breaks": drill.breaks, "title": said.title, "needs": list(said.needs)}


@app.command("faults")
def list_faults(as_json: ListJsonOption = False) -> None:
    """List the faults that a scenario can inject, with their parameters."""
    from brokerdrill.faults.registry import FAULTS

    if as_json:
        print_json(
            faults=[
                {"name": item.name, "acts_on": item.acts_on, "description": item.description}
                | {"parameters": [info._asdict() for info in item.parameter_infos()]}
                for item in FAULTS.values()
            ]
        )
        return
    rows = [
        (
            item.name,
            item.acts_on,
            item.description,
            ("\n" if console.is_terminal else "; ").join(
                f"{info.name}={info.default}: {info.meaning}" for info in item.parameter_infos()
            ),
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
