"""Who a client is that has sent Open, and whether it may come in: by the authorisation hook and the limits."""

from __future__ import annotations

from dataclasses import replace

from amqp_session_router.amqp import sasl
from amqp_session_router.amqp.client_handshake import ClientHandshake
from amqp_session_router.amqp.frames import ProtocolError
from amqp_session_router.amqp.negotiation import Credentials, HandshakeFailed
from amqp_session_router.base.model import ACCESS_REFUSED, AuthRequest, Denied, End, Identity
from amqp_session_router.session.interfaces import SessionStages
from amqp_session_router.session.preface import Origin


async def identify(session: SessionStages, handshake: ClientHandshake, origin: Origin) -> Identity:
    """Return the client's identity, which is the session's from now on. The hook may give the handshake other
    credentials. Raises HandshakeFailed."""
    credentials = handshake.credentials
    assert credentials is not None
    session.identity = identity = Identity(
        vhost=handshake.vhost,
        user=_user(credentials, origin),
        client_id=credentials.client_id,
        source_ip=origin.address[0],
        sni_host=origin.sni,
        listener=session.listener,
    )
    answer = await session.host.authorizer.authorize(
        AuthRequest(identity, credentials.mechanism, credentials.response, origin.certificate_name)
    )
    if isinstance(answer, Denied):
        raise HandshakeFailed(End.REJECTED, answer.text, answer.code)
    if answer.roles:
        session.identity = identity = identity._replace(roles=answer.roles)
    if answer.mechanism is not None:
        handshake.credentials = replace(credentials, mechanism=answer.mechanism, response=answer.response or b"")
    if (answer.mechanism or credentials.mechanism).upper() == sasl.EXTERNAL:
        # To the broker EXTERNAL would say who the router is, not the client.
        text = "EXTERNAL needs an authorisation hook that gives credentials for the broker"
        raise HandshakeFailed(End.REJECTED, text, ACCESS_REFUSED)
    refusal = session.lease.may_open(identity.vhost, identity.user)
    if refusal is not None:
        raise HandshakeFailed(End.LIMITED, refusal.text, refusal.code)
    return identity


def _user(credentials: Credentials, origin: Origin) -> str:
    try:
        return sasl.user(credentials.mechanism, credentials.response, origin.certificate_name)
    except ProtocolError as error:
        raise HandshakeFailed(End.REJECTED, error.text, error.code) from None
