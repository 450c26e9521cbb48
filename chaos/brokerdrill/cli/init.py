"""`brokerdrill init`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from brokerdrill.base import atomic, paths
from brokerdrill.base.errors import UsageError
from brokerdrill.cli.console import console

app = typer.Typer()


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="The inventory's directory, which is made.")],
    host: Annotated[
        list[str],
        typer.Option("--host", help="NAME=ADDRESS of a machine; the brokers first; repeatable."),
    ],
    product: Annotated[
        str, typer.Option(help="What to lay out; of a word that is none it says which there are.")
    ] = "artemis",
    shared_store: Annotated[
        str, typer.Option(help="A directory that is the same on both brokers: they share their store there.")
    ] = "",
    user: Annotated[str, typer.Option(help="The login on the machines; it may use sudo, or is root.")] = "",
    drills: Annotated[bool, typer.Option("--drills", help="Drills may break these machines.")] = False,
) -> None:
    """Write an inventory that fits onto your machines, and say what was chosen and why. Touches no host."""
    from brokerdrill.inventory.layouts import Answers, choose, machines, written

    found = machines(host)
    layout = choose(product, len(found), bool(shared_store))
    files = written(layout, found, Answers(user, drills, shared_store), paths.INVENTORIES / layout.topology)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already, and not empty")
    with atomic.new_folder(folder, "inventory") as made:
        for path, text in files.items():
            (made / path).parent.mkdir(exist_ok=True)
            (made / path).write_text(text, encoding="utf-8")
    for name, place in layout.places.items():
        console.print(f"{found[place].name:<12} {name}", markup=False)
    for line in layout.why:
        console.print(f"- {line}", markup=False)
    if not drills:
        console.print("- No drill is allowed there; `drill_allowed: true` for all hosts allows them.")
    console.print(f"\n{folder} is written. Next:", markup=False)
    # A bare name may be that of a topology that ships.
    where = shlex.quote(str(folder) if "/" in str(folder) else f"./{folder}")
    for command in ("deploy", *(("check", f"run {layout.drill}") if drills else ())):
        console.print(f"  brokerdrill {command} {where}", markup=False)
