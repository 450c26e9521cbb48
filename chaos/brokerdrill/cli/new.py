"""The command `new`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from brokerdrill.base.errors import UsageError
from brokerdrill.cli.console import console

app = typer.Typer()


@app.command()
def new(
    file: Annotated[Path, typer.Argument(help="The drill's file, which is made: a name that ends in .yml.")],
    extends: Annotated[str, typer.Option(help="A drill that ships, of which single places are changed.")] = "",
) -> None:
    """Write a drill of your own to begin with; it runs as it is."""
    from brokerdrill.scenario.drill import SUFFIXES
    from brokerdrill.scenario.starter import starter

    if file.suffix not in SUFFIXES:
        raise UsageError(f"{file}: a drill's file ends in {' or '.join(SUFFIXES)}")
    text = starter(file.stem.replace("_", " ").capitalize(), extends)
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise UsageError(f"{file} is there already") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None
    # (What begins with a dash would be an option.)
    word = shlex.quote(f"./{file}" if str(file).startswith("-") else str(file))
    console.print(f"{file} is written. Next: brokerdrill validate {word} --on TOPOLOGY", markup=False)
