"""The command line: each command is a few lines in a module of its family. Words in, one function called, exit status
out."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from importlib import metadata
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from brokerdrill.base import extras, java
from brokerdrill.base.errors import (
    EXIT_INFRASTRUCTURE,
    EXIT_KEPT,
    EXIT_USAGE,
    BrokerdrillError,
    InfrastructureError,
    refusal,
)
from brokerdrill.cli import (
    audit,
    campaigns,
    check,
    describe,
    explore,
    gameday,
    hosts,
    init,
    interop,
    judging,
    lists,
    new,
    run,
    serve,
    validate,
)

EPILOG = (
    "Exit status: 0 every promise kept (or every expected violation caught), 1 a promise broken, 2 unknown, "
    "3 the drill itself could not work, 64 usage."
)
# What Typer makes of a KeyboardInterrupt.
BY_TYPER = 130
app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Deploy message brokers, break them under load, prove what they keep.",
    epilog=EPILOG,
)
for family in (
    lists,
    hosts,
    run,
    judging,
    campaigns,
    explore,
    check,
    audit,
    describe,
    new,
    validate,
    serve,
    init,
    interop,
):
    app.add_typer(family.app)
app.add_typer(gameday.app, name="gameday")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"brokerdrill {metadata.version('brokerdrill')}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """What all commands share."""


def main() -> None:
    """Entry point: runs the app and turns every failure into one sentence and its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that is not UTF-8 has no arrows
            stream.reconfigure(errors="backslashreplace")
    with contextlib.suppress(InfrastructureError):  # only the analysis and the clients need one, and say so
        java.use()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    error_console = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        status = app(standalone_mode=False)
        if status == BY_TYPER:
            _interrupted(error_console)
        sys.exit(status if isinstance(status, int) else EXIT_KEPT)
    except BrokerdrillError as error:
        error_console.print(f"brokerdrill: {error}", markup=False)
        sys.exit(error.exit_status)
    except typer.TyperException as error:
        # No command at all prints the help as its message; anything else is one sentence.
        words = error.format_message() if hasattr(error, "format_message") else str(error)
        error_console.print(words if "\n" in words else f"brokerdrill: {words}", markup=False)
        sys.exit(EXIT_USAGE)
    except (KeyboardInterrupt, typer.Abort):
        _interrupted(error_console)
    except ModuleNotFoundError as error:
        if (sentence := extras.missing(error)) is None:
            _defect(error_console)
        error_console.print(f"brokerdrill: {sentence}", markup=False)
        sys.exit(EXIT_INFRASTRUCTURE)
    except BrokenPipeError:
        with contextlib.suppress(OSError):
            sys.stdout.close()
        sys.exit(EXIT_INFRASTRUCTURE)
    except Exception as error:
        if began_with_interrupt(error):
            _interrupted(error_console)
        if (sentence := refusal(error)) is None:
            _defect(error_console)
        error_console.print(f"brokerdrill: {sentence}", markup=False)
        sys.exit(EXIT_INFRASTRUCTURE)


def began_with_interrupt(error: BaseException | None) -> bool:
    """Whether a KeyboardInterrupt led to `error`: what waits for a Java virtual machine then fails in its own way."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _interrupted(error_console: Console) -> NoReturn:
    error_console.print("brokerdrill: interrupted")
    sys.exit(EXIT_INFRASTRUCTURE)


def _defect(error_console: Console) -> NoReturn:
    """A mistake of our own: never the status of a broken promise."""
    traceback.print_exc()
    error_console.print("brokerdrill: this is a defect of brokerdrill; please report it with the lines above")
    sys.exit(EXIT_INFRASTRUCTURE)
