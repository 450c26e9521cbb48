"""Listeners as a change of the configuration wants them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from amqp_session_router.base.model import Listener, Server
from amqp_session_router.config.settings import Problem


async def swap(
    server: Server,
    old: Mapping[str, Listener],
    new: Mapping[str, Listener],
    undo: contextlib.AsyncExitStack,
    several: bool,
) -> None:
    """Listen as `new` wants it where `old` did not, and have `undo` take it back; what `new` has no more still listens.

    `several`: other workers are to listen there too, so that a new port has to be free. Raises Problem.
    """
    for name, listener in new.items():
        # A TLS listener is always renewed: its certificate's files may have changed.
        if old.get(name) == listener and listener.tls is None:
            continue
        if several and all(one.port != listener.port for one in old.values()):
            try:
                server.check_free(listener)
            except OSError as error:
                raise cannot_listen(listener, error) from None
        await listen(server, listener)
        undo.push_async_callback(_back, server, name, old.get(name))


async def _back(server: Server, name: str, before: Listener | None) -> None:
    if before is None:
        await server.stop(name)
    else:
        await server.start(before)


async def listen(server: Server, listener: Listener) -> None:
    """Start a listener, or start it anew. Raises Problem."""
    try:
        await server.start(listener)
    except OSError as error:
        raise cannot_listen(listener, error) from None


def cannot_listen(listener: Listener, error: OSError) -> Problem:
    """Return what is wrong where a listener's address cannot be had."""
    why = error.strerror or str(error)
    return Problem(("listeners", listener.name), f"cannot listen on {listener.host}:{listener.port}: {why}")
