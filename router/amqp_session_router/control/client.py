"""The client of the control socket: `amqp-session-router ctl VERB …`, as tables or JSON."""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from amqp_session_router.base.errors import EXIT_USAGE, RouterError, UsageError
from amqp_session_router.config.schema import ControlPart
from amqp_session_router.control.verbs.table import VERBS

SOCKET = ControlPart().socket
_TIMEOUT = 60.0
"""Seconds for the answer to one verb."""


def add_parser(commands: Any) -> None:
    """Add `ctl` to the subparsers of the program's command line; `run` is its function."""
    parser = commands.add_parser(
        "ctl",
        help="control a running router",
        description="Sends one verb to a running router. Verbs are not case-sensitive.",
        epilog="verbs:\n" + table([{"verb": verb.pattern, "does": verb.help} for verb in VERBS], heading=False),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--socket",
        type=Path,
        default=Path(os.environ.get("AMQP_SESSION_ROUTER_SOCKET", SOCKET)),
        help=f"control socket (default: $AMQP_SESSION_ROUTER_SOCKET, else {SOCKET})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("verb", nargs=argparse.REMAINDER, help="HELP shows them")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Send the verb and print its answer; returns the exit status. Raises RouterError."""
    words = arguments.verb or ["HELP"]
    as_json = arguments.json or words[-1] == "--json"
    if words[-1] == "--json":
        words = words[:-1] or ["HELP"]
    try:
        for reply in ask(arguments.socket, words):
            if not reply.get("ok"):
                print(f"amqp-session-router: {reply.get('error')}", file=sys.stderr)
                return EXIT_USAGE
            print(as_text(reply, as_json), flush=True)
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a stream went: that is no error
        return 0
    return 0


def ask(path: Path, words: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the answers to a verb: one, or for STAT LISTEN one a second. Raises RouterError if no router answers."""
    stream = [word.upper() for word in words[:2]] == ["STAT", "LISTEN"]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_TIMEOUT)
            connection.connect(str(path))
            connection.sendall(json.dumps({"words": list(words)}).encode() + b"\n")
            with connection.makefile("rb") as answers:
                for line in answers:
                    reply = json.loads(line)
                    yield reply
                    if not stream or not reply.get("ok"):
                        return
        raise RouterError("the router went before it answered")
    except TimeoutError:
        raise RouterError(f"no answer from {path} within {_TIMEOUT:g} s") from None
    except PermissionError:
        raise RouterError(f"{path} may be used by the router's own user and root only") from None
    except (FileNotFoundError, ConnectionRefusedError):
        raise RouterError(f"no router answers at {path}; --socket names another") from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RouterError(f"{path}: {error.strerror or error}") from None
    except ValueError:
        raise UsageError(f"what answers at {path} is no router") from None


def data(path: Path, words: Sequence[str]) -> Any:
    """Return what the router answers to a verb, as data. Raises RouterError, too where it refuses."""
    reply = next(ask(path, words))
    if not reply.get("ok"):
        raise RouterError(str(reply.get("error")))
    return reply["data"]


def as_text(reply: Mapping[str, Any], as_json: bool) -> str:
    """Return an answer as a person reads it, or as one JSON value."""
    if as_json:
        value = next((reply[name] for name in ("rows", "data") if name in reply), None)
        shown = {name: one for name, one in reply.items() if name not in ("ok", "format")} if value is None else value
        return json.dumps(shown, indent=2)
    if "rows" in reply:
        return table(reply["rows"])
    if reply.get("format") == "json":
        return json.dumps(reply["data"])
    if reply.get("text") is not None:
        return str(reply["text"])
    return "\n".join(lines(reply.get("data", {})))


def lines(data: Any, prefix: str = "") -> Iterator[str]:
    """Yield nested data as `a.b: value` lines; empty parts are left out."""
    if isinstance(data, Mapping):
        for name, value in data.items():
            yield from lines(value, f"{prefix}.{name}" if prefix else str(name))
    elif data not in (None, "", [], {}):
        shown = ", ".join(map(_cell, data)) if isinstance(data, list) else _cell(data)
        yield f"{prefix}: {shown}"


def table(rows: Sequence[Mapping[str, Any]], heading: bool = True) -> str:
    """Return rows as a table with aligned columns; columns that are empty in every row are left out."""
    if not rows:
        return "none"
    names = [name for name in rows[0] if any(_cell(row[name]) for row in rows)]
    cells = [[_cell(row[name]) for name in names] for row in rows]
    if heading:
        cells.insert(0, [name.upper() for name in names])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    # What a client called itself must not steer the terminal.
    return "".join(c if c.isprintable() else "�" for c in str(value))
