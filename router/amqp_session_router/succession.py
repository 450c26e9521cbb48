"""A session from one process to the next: what the successor must know of it, and the session made from that again."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from amqp_session_router.flow import Flow
from amqp_session_router.model import Backend, Identity, Lease, Phase, Route, Tune
from amqp_session_router.pausing import Pause
from amqp_session_router.session import LiveSession
from amqp_session_router.wires import SocketWire

if TYPE_CHECKING:
    from amqp_session_router.server import Listeners


def facts(session: LiveSession) -> dict[str, Any]:
    """Return what does not change any more once a session is open."""
    identity, route, tune = session.identity, session.route, session.tune
    assert identity is not None and route is not None and session.backend is not None
    return {
        "id": session.id,
        "listener": session.listener,
        "client": session.client,
        "started": session.started,
        "identity": identity._asdict(),
        "backend": session.backend.name,
        "route": [route.target, route.key, route.vhost],
        "tune": [tune.frame_max, tune.channel_max, tune.heartbeat],
        "blocked_capable": session.blocked_capable,
        "attempts": session.counters.attempts,
    }


def surrender(session: LiveSession) -> tuple[dict[str, Any], list[int]]:
    """Stop it, and return all that a successor needs: facts, and descriptors (client, broker, pipes in use)."""
    assert session.kernel and session.client_wire.kernel is not None
    assert session.broker_wire is not None and session.broker_wire.kernel is not None
    descriptors = [session.client_wire.kernel.fileno(), session.broker_wire.kernel.fileno()]
    for number in descriptors:
        session.server.plane.failures.leave(number)
    states = []
    for flow in session.flows:
        assert isinstance(flow, Flow)
        state, pipe = flow.surrender()
        states.append(state)
        if pipe is not None:
            descriptors += [pipe.read, pipe.write]
    more = {
        "flows": states,
        "paused": session.phase is Phase.PAUSED,
        "blocked_sent": session.pausing is not None and session.pausing.told,
        "ended": session.ended,
    }
    return facts(session) | more, descriptors


def adopted(
    server: Listeners,
    told: dict[str, Any],
    client: socket.socket,
    broker: socket.socket,
    backend: Backend,
    lease: Lease,
) -> LiveSession:
    """Return the session that another process had, with flows that do not run yet; see `LiveSession.go_on`."""
    session = LiveSession(
        server,
        told["listener"],
        lease,
        SocketWire(server.loop, client, server.plane.failures, past=True),
        told["client"],
    )
    session.id = told["id"]
    session.started = told["started"]
    identity = told["identity"]
    session.identity = Identity(**identity | {"roles": tuple(identity["roles"])})
    target, key, vhost = told["route"]
    session.route = Route(target, key, vhost, iter(()))
    session.backend = backend
    session.tune = Tune(*told["tune"])
    session.blocked_capable = told["blocked_capable"]
    session.counters.attempts = told["attempts"]
    if told.get("blocked_sent"):
        session.pausing = Pause(session, told=True)
    session.ended = [*told.get("ended", ())]
    session.broker_wire = SocketWire(server.loop, broker, server.plane.failures, past=True)
    session.phase = Phase.OPEN
    lease.open(session.identity.vhost, session.identity.user)
    lease.authenticated()
    session.make_flows()
    return session
