"""The interfaces between a session, its stages (opening, pausing, closing) and what it shares with the others."""

from __future__ import annotations

import asyncio
from typing import Protocol

from amqp_session_router.amqp.negotiation import LearnedOffers
from amqp_session_router.base.model import (
    Authorizer,
    End,
    Lease,
    Limits,
    Routing,
    Session,
    Tune,
)
from amqp_session_router.net.deadlines import Deadlines
from amqp_session_router.net.dialer import Dialer
from amqp_session_router.net.transport import Transport
from amqp_session_router.relay.context import RelayContext
from amqp_session_router.relay.interfaces import Flow


class SessionStages(Session, Protocol):
    """A session, as its stages see it; `session.LiveSession` is it."""

    tune: Tune
    blocked_capable: bool
    lease: Lease
    client_transport: Transport
    broker_transport: Transport | None
    flows: tuple[Flow, ...]
    ended: list[int]
    """Indices of the flows whose source sent its last byte, in order."""
    closed: bool
    slot: int | None

    @property
    def host(self) -> SessionHost:
        """What it shares with the other sessions."""

    def opened(
        self,
        broker: Transport,
        tune: Tune,
        client_frame_max: int,
        blocked_capable: bool,
        from_client: bytes,
        from_broker: bytes,
    ) -> None:
        """Open-Ok: start the flows, with the bytes of each side that were already read.

        `tune` is what the broker agreed to, `client_frame_max` in bytes what the client was offered (0: no limit).
        """

    def finish(self, how: End, text: str = "", reset: bool = False) -> None:
        """End the session; with `reset` by RST. Idempotent."""


class SessionHost(Protocol):
    """What sessions share; `session_table.SessionTable` is it."""

    loop: asyncio.AbstractEventLoop
    routing: Routing
    limits: Limits
    authorizer: Authorizer
    learned: LearnedOffers
    deadlines: Deadlines
    relay: RelayContext
    dialer: Dialer
    host_name: str

    def paused(self, session: SessionStages, blocked_sent: bool) -> None:
        """A session's pause began or ended, or its client got a Blocked or Unblocked: note it in the journal."""

    async def client_name(self, address: str) -> str:
        """Return the name and port of the client at `address` (IP and port) for the broker."""
