"""How an open session ends whose peers close it: decisions from what its flows have seen, without I/O.

`flows` are the one from the client and the one from the broker.
"""

from __future__ import annotations

from collections.abc import Sequence

from amqp_session_router.amqp import codec
from amqp_session_router.base.model import End
from amqp_session_router.relay.interfaces import Flow


def clean(flows: Sequence[Flow]) -> bool:
    """Return whether the last method of either side was Close or Close-Ok."""
    return any(one.last_method in (codec.CLOSE, codec.CLOSE_OK) for one in flows)


def close_exchanged(flows: Sequence[Flow]) -> bool:
    """Return whether the client sent Close and was sent the broker's Close-Ok: nothing may follow (2.2.4)."""
    from_client, from_broker = flows
    said = from_client.last_method, from_broker.last_method
    return said == (codec.CLOSE, codec.CLOSE_OK) and from_client.clear and from_broker.clear


def close_answered(flow: Flow, other: Flow) -> bool:
    """Return whether the Close-Ok of `flow` answers a Close of `other`, with nothing under way and no frame begun."""
    return other.last_method == codec.CLOSE and other.clear and flow.known_boundary()


def verdict(flows: Sequence[Flow], ended: Sequence[int]) -> tuple[End, str]:
    """Return how a session ended that both sides closed; `ended`: indices of the flows, the first to end first."""
    from_client, from_broker = flows
    if from_client.last_method == codec.CLOSE:
        return End.CLIENT_CLOSED, ""
    if from_broker.last_method == codec.CLOSE:
        return End.BROKER_CLOSED, ""
    if ended[:1] == [1]:
        return End.BROKER_LOST, "the broker ended the connection without a Close"
    return End.CLIENT_LOST, "the client ended the connection without a Close"
