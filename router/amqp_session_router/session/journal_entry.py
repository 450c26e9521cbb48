"""A session's entry in the journal, from which the next process goes on if this one is killed."""

from __future__ import annotations

import logging

from amqp_session_router.base.model import Phase
from amqp_session_router.net.transport import SocketTransport
from amqp_session_router.relay.journal import NO_CELLS, Journal
from amqp_session_router.session import transfer
from amqp_session_router.session.interfaces import SessionStages
from amqp_session_router.session.session import LiveSession

log = logging.getLogger(__name__)


def enter(journal: Journal, session: LiveSession) -> int:
    """Enter a session, unless it is there; return the first cell that its flows write to, NO_CELLS without an entry."""
    client, broker = session.client_transport, session.broker_transport
    if not isinstance(client, SocketTransport) or not isinstance(broker, SocketTransport):
        return NO_CELLS
    if session.slot is not None:
        return journal.first_cell(session.slot)
    try:
        from_client, from_broker = client.counts(), broker.counts()
    except OSError:
        # A kernel that does not count bytes: after a kill, what was in flight would be unknown.
        return NO_CELLS
    up, down = session.inherited
    session.slot = journal.opened(
        transfer.facts(session),
        client.fd,
        broker.fd,
        (
            from_client.read - from_broker.written - up.in_flight,
            from_broker.read - from_client.written - down.in_flight,
        ),
        (up.rest, down.rest),
        (up.pipe, down.pipe),
    )
    if session.slot is None:
        log.warning("a session will not survive a kill of the router: no room", extra={"session": session.id})
        return NO_CELLS
    return journal.first_cell(session.slot)


def note_pause(journal: Journal, session: SessionStages, blocked_sent: bool) -> None:
    """Note where a session's pause stands; see `Journal.paused`."""
    if session.slot is not None:
        blocked = bool(session.flows) and session.flows[1].blocked
        journal.paused(session.slot, session.phase is Phase.PAUSED, blocked_sent, blocked)


def remove(journal: Journal, session: LiveSession) -> None:
    """Take a session's entry out: its descriptors are about to be closed."""
    if session.slot is not None:
        journal.closed(session.slot)
        session.slot = None
