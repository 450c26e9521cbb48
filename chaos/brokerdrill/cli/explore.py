"""The command `explore`."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Annotated

import typer

from brokerdrill.base import extras
from brokerdrill.base.errors import EXIT_BROKEN, EXIT_KEPT
from brokerdrill.base.progress import Progress
from brokerdrill.cli.console import console
from brokerdrill.cli.options import (
    RUNS,
    AtOnceOption,
    BenchOption,
    DeployOption,
    MasterOption,
    RunsOption,
    WithinOption,
    radius,
)

FINDS = Path("finds")

app = typer.Typer()


@app.command()
def explore(
    where: Annotated[
        str, typer.Argument(metavar="TOPOLOGY", help="A topology's name, or an inventory: a directory or a file.")
    ],
    lasting: Annotated[str | None, typer.Option("--for", help="Begin no run after so long: 40m, 8h.")] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Make so many runs in all, those of earlier starts among them.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="What is drawn follows from it and from what was seen.")] = 1,
    finds: Annotated[
        Path | None,
        typer.Option(help="Folder of minimal drills, which are not found again; without it RUNS/finds."),
    ] = None,
    anew: Annotated[bool, typer.Option("--anew", help="Find again what is in that folder.")] = False,
    uniform: Annotated[bool, typer.Option("--uniform", help="Draw by chance alone, as a control.")] = False,
    shrink: Annotated[bool, typer.Option(help="Make what is found smaller.")] = True,
    runs: RunsOption = RUNS,
    deploy: DeployOption = False,
    bench: BenchOption = False,
    at_once: AtOnceOption = None,
    within_: WithinOption = None,
    master: MasterOption = None,
) -> None:
    """Run drills that nobody wrote, and make what they find small; started again, it goes on where it was."""
    extras.need("pyspark")
    from brokerdrill.base.errors import UsageError
    from brokerdrill.campaigns.execute import CampaignOptions
    from brokerdrill.explore import explore as exploring
    from brokerdrill.explore.explorer import Explorer
    from brokerdrill.inventory.planned import load_hosts, planned
    from brokerdrill.inventory.topology import find_topology
    from brokerdrill.scenario.rounds import lasting_s

    until_s = time.monotonic() + lasting_s(lasting) if lasting is not None else math.inf
    if lasting is None and trials is None:
        raise UsageError("how long is not said: give --for 40m or --trials 100")
    topology = find_topology(where)
    if not topology.drill_allowed:
        raise UsageError(f"inventory {topology.name} does not say `drill_allowed: true` for all its hosts")
    options = CampaignOptions(runs, deploy, bench, master, radius(at_once, within_), until_s)
    with Progress(console) as progress:
        instances = [*planned(topology, progress), *load_hosts(topology)]
    exploring.check_deployment(topology, instances, options)
    drawn = exploring.explored_space(topology, instances, options)
    kept = finds or runs / FINDS
    explorer = Explorer(
        drawn,
        seed,
        () if anew else exploring.known(kept, topology),
        uniform,
        shrink,
        exploring.within(topology, instances, options, drawn),
    )
    plan = exploring.explore_plan(topology, seed, uniform, shrink)
    exploring.check_drawn(explorer, instances, runs)
    page = exploring.explore(topology, explorer, plan, options, trials, kept, console)
    console.print(f"{explorer.trials} trials, {len(explorer.finds)} defects found; page: {page}", markup=False)
    raise typer.Exit(EXIT_BROKEN if explorer.finds else EXIT_KEPT)
