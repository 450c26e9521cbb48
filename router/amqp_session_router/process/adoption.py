"""How a worker goes on with the sessions of one before it: out of the journal, or out of a packet."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Collection, Sequence
from typing import Any

from amqp_session_router.base.model import Backend
from amqp_session_router.process.recovery import recovered, rescue
from amqp_session_router.relay.journal import Journal
from amqp_session_router.relay.pipes import Pipe, pipe_of
from amqp_session_router.session.session_table import SessionTable

log = logging.getLogger(__name__)

BackendOf = Callable[[str], Backend]
"""Returns the backend of a name; one that the configuration has no more keeps its name and its sessions."""


def adopt_journaled(
    journal: Journal, sessions: SessionTable, backend_of: BackendOf, paused_vhosts: Collection[str]
) -> None:
    """Go on with the sessions of a process that died; killed meanwhile, the next one does so again."""
    over = rescue(journal, sessions.relay.pool)
    for one in [*journal.sessions()]:
        try:
            flows, pipes = recovered(journal, one, over)
        except OSError as error:
            log.error("a session is lost", extra={"session": one.facts["id"], "error": error.strerror})
            journal.closed(one.slot)
            os.close(one.client)
            os.close(one.broker)
            continue
        facts = one.facts | {
            "flows": flows,
            "paused": one.paused or one.facts["identity"]["vhost"] in paused_vhosts,
            "blocked_sent": one.blocked_sent,
        }
        client, broker = socket.socket(fileno=one.client), socket.socket(fileno=one.broker)
        sessions.adopt(facts, client, broker, backend_of(one.facts["backend"]), pipes, one.slot)


def adopt_sent(
    sessions: SessionTable, backend_of: BackendOf, facts: dict[str, Any], descriptors: Sequence[int]
) -> None:
    """Go on with a session that its process sent, with its descriptors: client, broker, pipes in use."""
    client, broker, *ends = descriptors
    pipes: list[Pipe | None] = []
    for one in facts["flows"]:
        pipes.append(pipe_of(ends.pop(0), ends.pop(0)) if one["left"] else None)
    sessions.adopt(
        facts,
        socket.socket(fileno=client),
        socket.socket(fileno=broker),
        backend_of(facts["backend"]),
        (pipes[0], pipes[1]),
    )
