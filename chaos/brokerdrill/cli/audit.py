"""`brokerdrill audit`: what deployed hosts show to others."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from brokerdrill.base.errors import EXIT_BROKEN, EXIT_INFRASTRUCTURE, EXIT_KEPT
from brokerdrill.base.progress import Progress
from brokerdrill.cli.console import console, print_json
from brokerdrill.cli.options import ListJsonOption, TopologyArgument

app = typer.Typer()


@app.command()
def audit(
    inventory: TopologyArgument,
    days: Annotated[int, typer.Option(min=0, help="How long certificates are to last from now.")] = 30,
    metrics: Annotated[
        Path | None, typer.Option(help="A file for a node exporter's textfile collector, written anew.")
    ] = None,
    as_json: ListJsonOption = False,
) -> None:
    """Say what each host shows to others: plain text, open ports, certificates that end, secrets that all may read; 0
    nothing, 1 something, 3 some host cannot be asked. Changes nothing."""
    from brokerdrill.base.exposition import write
    from brokerdrill.inventory.topology import find_topology
    from brokerdrill.runner.audit import audit as look
    from brokerdrill.runner.audit_metrics import exposition
    from brokerdrill.runner.recording import run_async

    found, now_s = find_topology(inventory), time.time()
    with Progress(Console(stderr=True)) as progress:
        looked = run_async(look(found, days, now_s, progress), console, "nothing was changed")
    if as_json:
        print_json(hosts=[asdict(one) for one in looked])
    else:
        for line in (line for one in looked for line in one.lines):
            console.print(line, markup=False)
    if metrics:
        write(metrics, exposition(found.name, looked, now_s))
    if any(one.away for one in looked):
        raise typer.Exit(EXIT_INFRASTRUCTURE)
    raise typer.Exit(EXIT_BROKEN if any(one.findings for one in looked) else EXIT_KEPT)
