"""Backend attempts: the candidates of a session, one after the other, until one says Open-Ok."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from amqp_session_router.amqp import codec
from amqp_session_router.amqp.broker_handshake import BrokerHandshake
from amqp_session_router.amqp.negotiation import (
    AttemptFailed,
    Blameless,
    CloseRelayed,
    Credentials,
    HandshakeFailed,
    LoginUnanswered,
    NoResources,
    OfferChanged,
)
from amqp_session_router.base.model import CONNECTION_FORCED, NO_MORE, Backend, End, Identity, Phase, Reject, Tune
from amqp_session_router.net.eager_task import Outcome
from amqp_session_router.net.transport import Transport
from amqp_session_router.session.interfaces import SessionStages

log = logging.getLogger(__name__)

Ends = Callable[[], tuple[tuple[str, int], tuple[str, int]]]
"""Returns the client's address and the one that it connected to."""


async def open_backend(
    session: SessionStages, identity: Identity, credentials: Credentials, tune: Tune, ends: Ends
) -> tuple[Transport, BrokerHandshake]:
    """Return the connection to the broker that opened the session, and its handshake; raises HandshakeFailed."""
    host = session.host
    routing = host.routing
    session.phase = Phase.CONNECTING
    decision = routing.decide(identity, session.lease.occupy)
    if isinstance(decision, Reject):
        raise HandshakeFailed(End.REJECTED, decision.text, decision.code)
    candidates, decision.candidates = decision.candidates, NO_MORE
    session.route = decision
    # Shown in the broker's list of connections.
    properties = {
        "proxy_client": await host.client_name(session.client),
        "proxy_host": host.host_name,
        "proxy_session": session.id,
    }
    last, failures = "there is none", 0
    blameless: Blameless | None = None
    for backend in candidates:
        session.backend = backend
        vhost = decision.vhost_for(backend)
        begun = partial(BrokerHandshake, credentials, tune, vhost, host.learned, backend.name, properties)
        try:
            try:
                broker = await _attempt(session, backend, identity, negotiation := begun(), ends)
            except OfferChanged:
                broker = await _attempt(session, backend, identity, negotiation := begun(), ends)
        except NoResources as error:
            # No other backend could be reached either, and none is to blame.
            raise HandshakeFailed(End.NO_BACKEND, str(error), CONNECTION_FORCED) from None
        except Blameless as refused:
            routing.attempted(session, backend, True)
            log.info("attempt given up: %s", refused, extra={"session": session.id, "backend": backend.name})
            if isinstance(refused, LoginUnanswered) and isinstance(blameless, LoginUnanswered):
                raise _ends_by(refused) from None
            last, blameless = f"{backend.name}: {refused}", refused
            continue
        except AttemptFailed as refused:
            failures += 1
            last = f"{backend.name}: {refused}"
            # Its offer may have changed: the next session asks it step by step again.
            host.learned.forget(backend.name)
            routing.attempted(session, backend, False, str(refused))
            continue
        except CloseRelayed as relayed:
            routing.attempted(session, backend, True, f"{relayed.code} {relayed.text}")
            raise HandshakeFailed(End.REJECTED, relayed.text, relayed.code, relayed.because_of) from None
        routing.attempted(session, backend, True)
        return broker, negotiation
    session.backend = None
    if blameless is not None and not failures:
        raise _ends_by(blameless)
    raise _nobody(decision.target, session.counters.attempts, last)


def _nobody(target: str, attempts: int, last: str) -> HandshakeFailed:
    """Return how a session ends that no backend of `target` has opened; without an attempt they were all full."""
    if attempts:
        how, text = End.NO_BACKEND, f"no backend of {target} takes the session, {attempts} tried; the last: {last}"
    else:
        how, text = End.LIMITED, f"{target} has as many sessions as it may; try again later"
    return HandshakeFailed(how, text, CONNECTION_FORCED)


def _ends_by(refused: Blameless) -> HandshakeFailed:
    return HandshakeFailed(refused.how, str(refused), refused.code, refused.because_of)


async def _attempt(
    session: SessionStages, backend: Backend, identity: Identity, negotiation: BrokerHandshake, ends: Ends
) -> Transport:
    """Return a connection to `backend` on which `negotiation` reached Open-Ok; raises AttemptFailed or CloseRelayed."""
    host = session.host
    broker = await host.dialer.dial(backend, identity, ends)
    limit = host.routing.timeouts.backend_handshake
    outcome: Outcome[Exception | None] = Outcome()
    deadline = host.deadlines.after(limit, _late, outcome, limit)

    def heard(data: bytes) -> None:
        try:
            if not data:
                raise negotiation.lost(broker.error)
            if negotiation.receive(data):
                broker.relinquish()
                outcome.set(None)
            else:
                broker.send(negotiation.take())
        except Exception as error:
            broker.unwatch()
            outcome.set(error)

    broker.watch(heard)
    broker.send(negotiation.begin())
    try:
        error = await outcome
        if error is not None:
            raise error
    except CloseRelayed:
        broker.send(codec.CLOSE_OK_FRAME)
        broker.close()
        raise
    except BaseException:
        broker.abort()
        raise
    finally:
        deadline.cancel()
    return broker


def _late(outcome: Outcome[Exception | None], limit: float) -> None:
    outcome.set(AttemptFailed(f"no Open-Ok within {limit:g} s"))
