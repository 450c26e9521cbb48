"""Exports an open session to another worker process, and imports it there."""

from __future__ import annotations

import socket
from typing import Any

from amqp_session_router.base.model import NO_MORE, Backend, Identity, Lease, Phase, Route, Tune
from amqp_session_router.net.transport import SocketTransport
from amqp_session_router.relay.flow_transfer import FlowState, export_flow, flow_state
from amqp_session_router.relay.journal import UNKNOWN
from amqp_session_router.relay.pipes import Pipe
from amqp_session_router.relay.splice_flow import SpliceFlow
from amqp_session_router.session.pausing import Pause
from amqp_session_router.session.session import DirectionState, Host, LiveSession


def facts(session: LiveSession) -> dict[str, Any]:
    """Return what is constant once a session is open, as marshallable data."""
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


def export_session(session: LiveSession) -> tuple[dict[str, Any], list[int]]:
    """Stop the session; return its state and its descriptors (client, broker, pipes in use)."""
    assert session.kernel and session.client_transport.kernel is not None
    assert session.broker_transport is not None and session.broker_transport.kernel is not None
    descriptors = [session.client_transport.kernel.fileno(), session.broker_transport.kernel.fileno()]
    for number in descriptors:
        session.host.relay.poller.leave(number)
    states = []
    for flow in session.flows:
        assert isinstance(flow, SpliceFlow)
        state, pipe = export_flow(flow)
        states.append(state.message())
        if pipe is not None:
            descriptors += [pipe.read, pipe.write]
    more = {
        "flows": states,
        "paused": session.phase is Phase.PAUSED,
        "blocked_sent": session.pausing is not None and session.pausing.blocked_sent,
        "ended": session.ended,
    }
    return facts(session) | more, descriptors


def import_session(
    host: Host,
    state: dict[str, Any],
    client: socket.SocketType,
    broker: socket.SocketType,
    backend: Backend,
    lease: Lease,
    pipes: tuple[Pipe | None, Pipe | None],
    slot: int | None,
) -> LiveSession:
    """Return the session that another process had, with its flows stopped; see `LiveSession.resume`.

    `slot`: where it stands in the journal already; None: it is entered.
    """
    session = LiveSession(
        host,
        state["listener"],
        lease,
        SocketTransport(host.loop, client, host.relay.poller, past=True),
        state["client"],
    )
    session.id = state["id"]
    session.started = state["started"]
    identity = state["identity"]
    session.identity = Identity(**identity | {"roles": tuple(identity["roles"])})
    target, key, vhost = state["route"]
    session.route = Route(target, key, vhost, NO_MORE)
    session.backend = backend
    session.tune = Tune(*state["tune"])
    session.blocked_capable = state["blocked_capable"]
    session.counters.attempts = state["attempts"]
    if state.get("blocked_sent"):
        session.pausing = Pause(session, blocked_sent=True)
    session.ended = [*state.get("ended", ())]
    session.broker_transport = SocketTransport(host.loop, broker, host.relay.poller, past=True)
    session.phase = Phase.OPEN
    session.slot = slot
    first, second = (_direction_state(flow_state(flow), pipe) for flow, pipe in zip(state["flows"], pipes, strict=True))
    session.inherited = first, second
    session.make_flows(session.tune.frame_max)
    return session


def _direction_state(flow: FlowState, pipe: Pipe | None) -> DirectionState:
    """Return what the journal must know at once of a direction that another process exported."""
    return DirectionState(
        rest=UNKNOWN if flow.rest is None or flow.part else flow.rest,
        pipe=0 if pipe is None else pipe.ends,
        in_flight=flow.left + len(flow.outbox),
    )
