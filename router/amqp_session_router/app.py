"""One router process: the control plane and the data path together, until it is told to leave."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import resource
import signal
from pathlib import Path
from typing import Any

import uvloop

from amqp_session_router.control import Control, ControlSocket
from amqp_session_router.errors import UsageError
from amqp_session_router.server import Listeners
from amqp_session_router.service import Service

log = logging.getLogger(__name__)


def add_parser(commands: Any) -> None:
    """Add `run` to the subparsers of the program's command line; `run` is its function."""
    parser = commands.add_parser("run", help="run the router", description="Runs the router until it is told to leave.")
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="the configuration (YAML)")
    parser.add_argument(
        "--drain", type=float, default=30.0, metavar="SECONDS", help="time that sessions have to end after SIGTERM"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the router; returns the exit status. Raises RouterError."""
    raise_file_limit()
    service = Service(arguments.config)
    uvloop.run(serve(service, arguments.drain))
    return 0


def raise_file_limit() -> None:
    """Allow as many descriptors as this process may: a session takes two, and more while bytes are stuck in pipes."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def serve(service: Service, drain: float) -> None:
    """Run until SIGTERM, SIGINT or `ctl EXIT`; SIGHUP reads the configuration anew."""
    loop = asyncio.get_running_loop()
    server = Listeners(loop, service.routing, service.limits, service, service.routing.client_name)
    part = service.settings.config.control
    control = None if part is None else ControlSocket(Control(service), Path(part.socket))
    if control is not None:
        await control.start()
    try:
        await service.start(server)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, service.exit, drain)
        loop.add_signal_handler(signal.SIGHUP, lambda: loop.create_task(_reload(service)))
        # What was made until now lives as long as the process: the collector need not look at it again.
        gc.freeze()
        log.info("ready", extra={"listeners": {name: one.port for name, one in server.listening().items()}})
        await server.leaving.wait()
    finally:
        server.close()
        await service.stop()
        if control is not None:
            await control.stop()


async def _reload(service: Service) -> None:
    try:
        await service.reload()
    except UsageError as error:
        log.error("the configuration stays as it was: %s", error)
