"""Options that several commands share, and the radius that two of them ask for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from brokerdrill.scenario.radius import Radius

RunsOption = Annotated[Path, typer.Option("--runs", help="Directory that holds the run directories.")]


def topology_names(incomplete: str) -> list[str]:
    """Return the names of topologies that begin so, for a shell's completion."""
    from brokerdrill.inventory.topology import topologies

    return [name for name, _ in topologies() if name.startswith(incomplete)]


def drill_names(incomplete: str) -> list[str]:
    """Return the names of shipped drills that begin so, for a shell's completion."""
    from brokerdrill.scenario.drill import drill_paths

    return [name for name in drill_paths() if name.startswith(incomplete)]


A_TOPOLOGY: Any = typer.Argument(
    help="A topology's name, or an inventory: a directory or a file.", autocompletion=topology_names
)
A_DRILL: Any = typer.Argument(help="A drill's name, or the path of its YAML file.", autocompletion=drill_names)
TopologyArgument = Annotated[str, A_TOPOLOGY]
RepeatOption = Annotated[
    int | None, typer.Option(min=1, help="Runs of each setting; without it what the drill or matrix says.")
]
SeedOption = Annotated[int, typer.Option(help="Seed of the first run; repeats count on from it.")]
DeployOption = Annotated[bool, typer.Option("--deploy", help="Deploy each topology before its first run.")]
BenchOption = Annotated[
    bool, typer.Option("--bench", help="Make each topology's hosts as containers before, and remove them after.")
]
AtOnceOption = Annotated[
    int | None,
    typer.Option(min=1, help="How many brokers, servers or databases may be out of service at once, at the most."),
]
WithinOption = Annotated[
    list[str] | None,
    typer.Option("--within", help="A group of the inventory that may be hit, and no other; repeatable."),
]
MasterOption = Annotated[str | None, typer.Option(help="Spark master; local without it.")]
RUNS = Path("runs")
ListJsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead: see docs/installing.md.")]
JsonOption = Annotated[Path | None, typer.Option("--json", help="Write the verdict as JSON.")]


def radius(at_once: int | None, within: list[str] | None) -> Radius | None:
    """Return the radius that a command's words ask for, besides the inventory's; None: they ask for none."""
    from brokerdrill.scenario.radius import UNLIMITED, Radius

    if at_once is None and not within:
        return None
    return Radius(groups=within or [], at_once=at_once or UNLIMITED)
