"""The command `run`: checks the configuration, then becomes the supervisor, or the group of several."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from amqp_session_router.base.errors import RouterError
from amqp_session_router.config import loader
from amqp_session_router.config.settings import Settings
from amqp_session_router.control.listening import cannot_listen
from amqp_session_router.net.listening_sockets import check_free
from amqp_session_router.process import shared_memory
from amqp_session_router.process.descriptors import close_all
from amqp_session_router.process.service_manager import (
    ServiceManager,
    StoredListener,
    forget_listeners,
    stored_listeners,
    words_of,
)


def add_parser(commands: Any) -> None:
    """Add `run` to the subparsers of the program's command line; `run` is its function."""
    parser = commands.add_parser(
        "run", help="run the router", description="Runs the router until a signal or EXIT ends it."
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="the configuration (YAML)")
    parser.add_argument(
        "--drain", type=float, default=30.0, metavar="SECONDS", help="time that sessions have to end after SIGTERM"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check the configuration, then become the supervisor, or that of several, which load nothing of this."""
    manager, stored = ServiceManager(os.environ), stored_listeners(os.environ, os.getpid())
    try:
        settings = loader.load(arguments.config)
    except RouterError:
        forget_listeners(manager, stored)
        raise
    workers = settings.config.workers
    # One worker shares its addresses with nobody, and of several each must have its own sockets.
    strange = [one for one in stored if one.workers != workers]
    forget_listeners(manager, strange)
    close_all([number for one in strange for number in one.descriptors])
    stored = [one for one in stored if one.workers == workers]
    words = [str(arguments.config.absolute()), str(arguments.drain), words_of(stored)]
    program = "supervisor"
    if workers > 1:
        program = "group"
        _check_free(settings, stored)
        shared = shared_memory.create(workers)
        os.set_inheritable(shared, True)
        words += [str(workers), str(shared)]
    os.execv(sys.executable, [sys.executable, "-m", f"amqp_session_router.process.{program}", *words])


def _check_free(settings: Settings, stored: Sequence[StoredListener]) -> None:
    """Raise Problem if anybody listens at an address that the workers are to share, but for sockets that are ours."""
    ours = {(one.host, one.port) for one in stored}
    for listener in settings.listeners.values():
        if (listener.host, listener.port) in ours:
            continue
        try:
            check_free(listener)
        except OSError as error:
            raise cannot_listen(listener, error) from None
