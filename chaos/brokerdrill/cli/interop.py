"""The commands `import` and `export`: histories of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from brokerdrill.cli.console import console

import_app = typer.Typer(no_args_is_help=True, help="Read another tool's history into a run directory.")
export_app = typer.Typer(no_args_is_help=True, help="Write a run as another tool's history.")

RunDir = Annotated[Path, typer.Argument(help="A run directory.")]
NewRunDir = Annotated[Path, typer.Option("--out", help="The run directory to make; it must not exist yet.")]
OutFile = Annotated[Path, typer.Option("--out", help="The file to write.")]

app = typer.Typer()
app.add_typer(import_app, name="import")
app.add_typer(export_app, name="export")


@import_app.command("jepsen")
def import_jepsen(
    file: Annotated[Path, typer.Argument(help="A history: EDN (an operation a line, or a vector) or JSON Lines.")],
    out: NewRunDir,
    drained: Annotated[
        bool | None,
        typer.Option(help="Was the queue empty at the end? Without it the history's own final drain says so."),
    ] = None,
    unknown_errors: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX",
            help="Enqueues and dequeues that are :fail with an :error in which this is found are of unknown "
            "outcome, as where a connection broke.",
        ),
    ] = None,
) -> None:
    """Read a Jepsen history of a queue workload; print what Jepsen's total-queue checker says of it."""
    from brokerdrill.interop.folder import read_origin
    from brokerdrill.interop.jepsen import import_jepsen as read

    verdict = read(file, out, drained, unknown_errors)
    word = {True: "valid", False: "not valid", None: "unknown"}[verdict.valid]
    console.print(f"jepsen total-queue: {word}{f' ({verdict.error})' if verdict.error else ''}", markup=False)
    for name, count in verdict.counts.items():
        console.print(f"  {name.removesuffix('-count'):<13}{count:>9,}", markup=False)
    if unknown_errors is not None:
        made = read_origin(out)["made_unknown"]
        console.print(f"{made:,} of its failed operations are taken as of unknown outcome", markup=False)
    console.print(f"run directory: {out}; judge it: brokerdrill analyze {out}", markup=False)


@import_app.command("chaostoolkit")
def import_chaostoolkit(
    file: Annotated[Path, typer.Argument(help="A journal that `chaos run` wrote (JSON).")], out: NewRunDir
) -> None:
    """Read the faults, rollbacks, probes and steady states of a Chaos Toolkit journal."""
    from brokerdrill.interop.chaostoolkit import import_chaostoolkit as read
    from brokerdrill.interop.folder import read_origin

    counts = read(file, out)
    dry = read_origin(out).get("dry")
    if dry not in (None, False, "pause"):
        words = "--dry" if dry is True else f"--dry {dry}"
        console.print(f"{words}: what it names was not done, and is recorded as notes", markup=False)
    console.print(", ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items()))
    console.print(f"run directory: {out}", markup=False)


@export_app.command("jepsen")
def export_jepsen(run_dir: RunDir, out: OutFile) -> None:
    """Write a run's messages and faults as a Jepsen history (EDN) of a queue workload."""
    from brokerdrill.interop.jepsen_export import export_jepsen as write

    console.print(f"{write(run_dir, out):,} operations: {out}", markup=False)


@export_app.command("chaostoolkit")
def export_chaostoolkit(run_dir: RunDir, out: OutFile) -> None:
    """Write a run's faults, heals and probes as a Chaos Toolkit journal (JSON)."""
    from brokerdrill.interop.chaostoolkit import export_chaostoolkit as write

    console.print(f"{write(run_dir, out):,} activities: {out}", markup=False)
