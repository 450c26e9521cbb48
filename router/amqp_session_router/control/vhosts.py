"""The sessions of a vhost, in this worker: pausing them, and where they go once the pause ends.

Both are work in steps, between which the other may begin: what was said last counts, and the one before leaves the
rest.
"""

from __future__ import annotations

from amqp_session_router.base.model import CONNECTION_FORCED
from amqp_session_router.base.paced import Steps, strides
from amqp_session_router.control.live_sessions import is_open, of_vhost
from amqp_session_router.routing.routes import Routes


def pause(routing: Routes, vhost: str) -> Steps[int]:
    """Pause the sessions of `vhost`, and those that come; return how many there are."""
    routing.paused.pause(vhost)
    sessions = yield from of_vhost(routing, vhost)
    for stride in strides(sessions):
        if vhost not in routing.paused:
            break
        for session in stride:
            session.pause()
        yield
    return len(sessions)


def unpause(routing: Routes, vhost: str) -> Steps[tuple[int, int]]:
    """End the pause; return how many sessions go on, and how many were disconnected, for the rules would put them
    elsewhere now."""
    routing.paused.unpause(vhost)
    going_on = disconnected = 0
    sessions = yield from of_vhost(routing, vhost)
    for stride in strides(sessions):
        if vhost in routing.paused:
            break
        for session in stride:
            if is_open(session) and routing.planner.misplaced(session):
                session.disconnect(CONNECTION_FORCED, f"vhost '{vhost}' has moved to another broker; connect again")
                disconnected += 1
            else:
                session.unpause()
                going_on += 1
        yield
    return going_on, disconnected
