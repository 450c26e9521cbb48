"""Makes the two flows of a session that is open: by whether its connections are plain, and by the sizes of frames."""

from __future__ import annotations

from collections.abc import Callable

from amqp_session_router.relay.buffered_flow import BufferedFlow
from amqp_session_router.relay.interfaces import Flow, FlowOwner
from amqp_session_router.relay.splice_flow import SpliceFlow
from amqp_session_router.relay.splitting_flow import SplittingFlow
from amqp_session_router.session.interfaces import SessionStages


def make_flows(
    session: SessionStages, owner: FlowOwner, client_frame_max: int, first_cell: Callable[[], int]
) -> tuple[Flow, Flow]:
    """Return the flow from the client and the one back. `client_frame_max`: bytes of a frame that the client was
    offered (0: no limit); `first_cell` enters a session in the journal whose bytes outlive the process."""
    client, broker = session.client_transport, session.broker_transport
    assert broker is not None
    limit = _limit(session)
    agreed = session.tune.frame_max
    if agreed and (not client_frame_max or client_frame_max > agreed):
        return SplittingFlow(owner, client, broker, agreed, limit), BufferedFlow(owner, 1, broker, client, 0)
    if client.kernel is None or broker.kernel is None:
        return BufferedFlow(owner, 0, client, broker, limit), BufferedFlow(owner, 1, broker, client, 0)
    relay, cell = session.host.relay, first_cell()
    tune = agreed, session.tune.channel_max
    from_client = SpliceFlow(owner, relay, 0, client.kernel, broker.kernel, tune, cell, limit)
    if limit:
        from_client.heed(True)
    return from_client, SpliceFlow(owner, relay, 1, broker.kernel, client.kernel, tune, cell)


def _limit(session: SessionStages) -> int:
    """Return the most bytes of a frame from the client (0: all). What both sides agreed to the broker holds itself, in
    its own words."""
    limit = session.host.limits.largest_frame(session.identity.vhost if session.identity is not None else None)
    agreed = session.tune.frame_max
    return 0 if limit and agreed and limit >= agreed else limit
