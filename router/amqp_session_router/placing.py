"""Which broker a session comes to: the candidates, one after the other, until one says Open-Ok."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from amqp_session_router import wire
from amqp_session_router.handshake import BrokerHandshake, Changed, Credentials, Over, Refused, Relayed
from amqp_session_router.model import CONNECTION_FORCED, Backend, End, Identity, Phase, Reject, Route, Tune
from amqp_session_router.wires import Wire

if TYPE_CHECKING:
    from amqp_session_router.session import LiveSession

Ends = Callable[[], tuple[tuple[str, int], tuple[str, int]]]
"""Gives the client's address and the one that it connected to."""


async def place(
    session: LiveSession, identity: Identity, credentials: Credentials, tune: Tune, ends: Ends
) -> tuple[Wire, BrokerHandshake]:
    """Return the connection to a broker that took the session, and what was said on it; raises Over."""
    server = session.server
    routing = server.routing
    session.phase = Phase.CONNECTING
    decision = routing.decide(identity)
    if isinstance(decision, Reject):
        raise Over(End.REJECTED, decision.text, decision.code)
    session.route = Route(decision.target, decision.key, decision.vhost, iter(()))
    # For who looks at the broker's list of connections.
    properties = {
        "proxy_client": await server.client_name(session.client),
        "proxy_host": server.host_name,
        "proxy_session": session.id,
    }
    last = "there is none"
    for backend in decision.candidates:
        session.backend = backend
        vhost = decision.vhost_for(backend)
        begun = partial(BrokerHandshake, credentials, tune, vhost, server.learned, backend.name, properties)
        try:
            try:
                broker = await _attempt(session, backend, identity, talk := begun(), ends)
            except Changed:
                broker = await _attempt(session, backend, identity, talk := begun(), ends)
        except Refused as refused:
            last = f"{backend.name}: {refused}"
            # It may have changed: with the next session it is asked step by step again.
            server.learned.offers.pop(backend.name, None)
            routing.attempted(session, backend, False, str(refused))
            continue
        except Relayed as relayed:
            routing.attempted(session, backend, True, f"{relayed.code} {relayed.text}")
            raise Over(End.REJECTED, relayed.text, relayed.code) from None
        routing.attempted(session, backend, True)
        return broker, talk
    session.backend = None
    raise Over(
        End.NO_BACKEND,
        f"no backend of {decision.target} takes the session, {session.counters.attempts} tried; the last: {last}",
        CONNECTION_FORCED,
    )


async def _attempt(
    session: LiveSession, backend: Backend, identity: Identity, talk: BrokerHandshake, ends: Ends
) -> Wire:
    """Return a connection to `backend` on which `talk` has come to Open-Ok; raises Refused or Relayed."""
    server = session.server
    broker = await server.dialler.dial(backend, identity, ends)
    limit = server.routing.timeouts.backend_handshake
    outcome: asyncio.Future[Exception | None] = server.loop.create_future()
    deadline = server.deadlines.after(limit, _late, outcome, limit)

    def heard(data: bytes) -> None:
        try:
            if not data:
                raise _lost(broker)
            if talk.receive(data):
                broker.relinquish()
                _settle(outcome, None)
            else:
                broker.send(talk.take())
        except Exception as error:
            broker.unwatch()
            _settle(outcome, error)

    broker.watch(heard)
    broker.send(talk.begin())
    try:
        error = await outcome
        if error is not None:
            raise error
    except Relayed:
        broker.send(wire.CLOSE_OK_FRAME)
        broker.close()
        raise
    except BaseException:
        broker.abort()
        raise
    finally:
        deadline.cancel()
    return broker


def _lost(broker: Wire) -> Refused:
    if broker.error is not None:
        return Refused(f"the connection broke: {broker.error.strerror or broker.error}")
    return Refused("it ended the connection during the handshake")


def _late(outcome: asyncio.Future[Exception | None], limit: float) -> None:
    _settle(outcome, Refused(f"no Open-Ok within {limit:g} s"))


def _settle(outcome: asyncio.Future[Exception | None], error: Exception | None) -> None:
    """Set a result, whatever it is: an exception that nobody comes to see any more would be complained of."""
    if not outcome.done():
        outcome.set_result(error)
