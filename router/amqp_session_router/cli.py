"""The command line `amqp-session-router`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from amqp_session_router.base.errors import EXIT_USAGE, RouterError
from amqp_session_router.config import loader
from amqp_session_router.config.schema import Config
from amqp_session_router.control import client
from amqp_session_router.process import launch


class _Parser(argparse.ArgumentParser):
    """An argument error is one sentence, with the status that all usage errors have."""

    def error(self, message: str) -> None:  # type: ignore[override]
        """Leave with `message`."""
        print(f"{self.prog}: {message}; --help shows how it is used", file=sys.stderr)
        raise SystemExit(EXIT_USAGE)


def example() -> str:
    """Return the documented example of a configuration file."""
    return files("amqp_session_router.config").joinpath("example.yaml").read_text("utf-8")


def _check(arguments: argparse.Namespace) -> int:
    settings = loader.load(arguments.config)
    if arguments.running is not None:
        # An older one, perhaps: no more of its configuration is read than this.
        running = client.data(arguments.running, ["CONFIG", "PRINT"])
        loader.check_can_follow(running.get("workers", Config().workers), settings.config)
    counts = f"{len(settings.listeners)} listeners, {len(settings.backends)} backends, {len(settings.farms)} farms"
    print(f"{arguments.config}: good ({counts}, {len(settings.rules)} rules)")
    return 0


def _print_schema(_: argparse.Namespace) -> int:
    print(loader.json_schema(), end="")
    return 0


def _print_example(_: argparse.Namespace) -> int:
    print(example(), end="")
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser; each command sets `run`."""
    top = _Parser(
        prog="amqp-session-router",
        description="Routes AMQP 0-9-1 sessions to brokers by vhost, user, client id, address, host name or role.",
    )
    commands = top.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    launch.add_parser(commands)
    check = commands.add_parser("check", help="say whether a configuration file is good, and what is wrong with it")
    check.add_argument("config", type=Path, metavar="CONFIG")
    check.add_argument(
        "--running", type=Path, metavar="SOCKET", help="also whether the router with this control socket can go by it"
    )
    check.set_defaults(run=_check)
    client.add_parser(commands)
    schema = commands.add_parser("schema", help="print the JSON Schema of the configuration file")
    schema.set_defaults(run=_print_schema)
    sample = commands.add_parser("example", help="print a configuration file that shows every setting")
    sample.set_defaults(run=_print_example)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    arguments = parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        return status
    except RouterError as error:
        print(f"amqp-session-router: {error}", file=sys.stderr)
        return error.exit_status
    except BrokenPipeError:
        sys.stderr.close()
        return 0
