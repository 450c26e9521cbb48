"""The command `serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from brokerdrill.base.errors import UsageError
from brokerdrill.base.progress import Progress
from brokerdrill.cli.campaigns import applying
from brokerdrill.cli.console import console
from brokerdrill.cli.options import RUNS, RunsOption

app = typer.Typer()


@app.command()
def serve(
    runs: RunsOption = RUNS,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8099,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the token that may abort, or $BROKERDRILL_TOKEN; without it nobody may."),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None,
    prefix: Annotated[str, typer.Option(help="Path that a reverse proxy takes away.")] = "",
    name: Annotated[
        list[str] | None, typer.Option(help="A host name under which the page is asked for; repeatable.")
    ] = None,
) -> None:
    """Serve a page for the room: the run that goes on, live, an abort button, and what was held before."""
    from brokerdrill.results.table import topologies_of
    from brokerdrill.web.serve import TOKEN_VARIABLE, ServeSettings, check, listening
    from brokerdrill.web.serve import serve as serve_runs

    token = os.environ.get(TOKEN_VARIABLE) or None
    if token_file:
        try:
            token = token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{token_file} cannot be read: {error}") from None
    settings = ServeSettings(host, port, tls_cert, tls_key, prefix, tuple(name or ()))
    check(settings, token)
    on = listening(settings)
    with Progress(console) as progress:
        known = applying(topologies_of(runs), progress)
    console.print(f"http{'s' if tls_cert else ''}://{host}:{port}{prefix}/ shows {runs}", markup=False)
    serve_runs(runs, settings, token, lambda: known, on)
