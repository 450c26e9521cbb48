"""The sessions of a vhost, in this worker: pausing them, and where they go once the pause ends."""

from __future__ import annotations

from amqp_session_router.base.model import CONNECTION_FORCED, Phase, Session
from amqp_session_router.routing.routes import Routes


def sessions_of(routing: Routes, vhost: str) -> list[Session]:
    """Return the live sessions of `vhost`."""
    return [
        session
        for session in routing.sessions.live.values()
        if session.identity is not None and session.identity.vhost == vhost
    ]


def pause(routing: Routes, vhost: str) -> int:
    """Pause the sessions of `vhost`, and those that come; return how many there are."""
    routing.paused.pause(vhost)
    sessions = sessions_of(routing, vhost)
    for session in sessions:
        session.pause()
    return len(sessions)


def unpause(routing: Routes, vhost: str) -> tuple[int, int]:
    """End the pause; return how many sessions go on, and how many were disconnected, for the rules would put them
    elsewhere now."""
    routing.paused.unpause(vhost)
    going_on = disconnected = 0
    for session in sessions_of(routing, vhost):
        if session.phase in (Phase.OPEN, Phase.PAUSED) and routing.planner.misplaced(session):
            session.disconnect(CONNECTION_FORCED, f"vhost '{vhost}' has moved to another broker; connect again")
            disconnected += 1
        else:
            session.unpause()
            going_on += 1
    return going_on, disconnected
