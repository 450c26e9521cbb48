"""What is offered to a client before its broker is known, and what becomes of it where the broker takes less."""

from __future__ import annotations

import random
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from router_support import config_of, local_router_of, table
from test_boundary import frame
from test_sessions import Client, FakeBroker, Peer
from tests.free_ports import free_port

from amqp_session_router.amqp import codec
from amqp_session_router.amqp.broker_handshake import BrokerHandshake
from amqp_session_router.amqp.negotiation import Credentials, Greeting, LearnedOffers, OfferChanged
from amqp_session_router.base.model import Tune
from amqp_session_router.relay.splitting_flow import FrameSplitter, FrameTooLargeError


def test_one_backend_lowers_nobody_elses_offer() -> None:
    learned = LearnedOffers()
    learned.seen("small", Tune(4096, 10, 60))
    assert learned.offer(Tune(), ("small", "large", "without limits")) == Tune(4096, 10, 60)
    learned.seen("large", Tune(131072, 2047, 60))
    assert learned.offer(Tune(), ("small", "large", "without limits")) == Tune(131072, 2047, 60)
    learned.seen("without limits", Tune(0, 0, 60))
    assert learned.offer(Tune(), ("small", "large", "without limits")) == Tune(131072, 2047, 60)


def test_a_broker_is_heard_however_much_it_says_what_it_said() -> None:
    learned = LearnedOffers()
    tune = codec.tune(codec.TUNE, 2047, 131072, 60)

    def start(version: str, mechanisms: str = "PLAIN") -> bytes:
        return codec.start(codec.encode_table({"product": "RabbitMQ", "version": version}), mechanisms)

    def talk(*said: bytes) -> BrokerHandshake:
        handshake = BrokerHandshake(Credentials(b"", "PLAIN", b"\0a\0b", "en_US"), Tune(), "/", learned, "b1")
        begun = handshake.begin()
        for data in said:
            opened = handshake.receive(data)
            begun += handshake.take()
        assert opened and handshake.open_ok == codec.OPEN_OK_FRAME and not handshake.buffer
        assert begun.count(b"PLAIN") == 1 and handshake.tune == Tune()
        return handshake

    whole = start("4.1") + tune + codec.OPEN_OK_FRAME
    talk(start("4.1"), tune, codec.OPEN_OK_FRAME)
    for at in range(1, len(whole)):
        talk(whole[:at], whole[at:])
    # An upgrade between two sessions; and in between another broker had the last word.
    learned.greeted("b2", Greeting(b"", ()))
    talk(whole)
    assert learned.shown(("b1",)).properties == codec.encode_table({"product": "RabbitMQ", "version": "4.1"})
    for _ in range(2):
        talk(start("4.2") + tune + codec.OPEN_OK_FRAME)
        assert learned.shown(("b1",)).properties == codec.encode_table({"product": "RabbitMQ", "version": "4.2"})
    assert learned.offers["b1"].start == start("4.2")
    with pytest.raises(OfferChanged):
        talk(start("4.2") + codec.tune(codec.TUNE, 10, 4096, 60) + codec.OPEN_OK_FRAME)
    assert learned.offers["b1"].tune == Tune(4096, 10, 60)


def test_a_broker_below_the_least_frame_is_refused_and_not_learned() -> None:
    mad, good = FakeBroker(), FakeBroker()
    mad.tune = (2047, 8, 60)
    config = config_of(mad.port, good.port)
    config["farms"]["all"]["selector"] = "first"
    with local_router_of(config) as router:
        for _ in range(2):
            client = Client(router.port).opened()
            assert client.frame_max == 131072
        assert (
            "8 bytes only"
            in router.entries("attempt failed: it takes frames of 8 bytes only, less than the least, 4096")[0][
                "message"
            ]
        )


def broker_of(version: str, cluster: str, *more: str) -> FakeBroker:
    """A RabbitMQ of this version, with capabilities of its own."""
    capabilities = {"connection.blocked": True} | dict.fromkeys(more, True)
    properties = {"product": "RabbitMQ", "version": version, "cluster_name": cluster, "capabilities": capabilities}
    return FakeBroker(lambda broker, peer: broker.open(peer, codec.encode_table(properties), "AMQPLAIN PLAIN"))


def shown(port: int) -> tuple[dict[str, Any], bytes]:
    """What a client is shown: the properties and the mechanisms of Start."""
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        peer = Peer(sock)
        peer.send(codec.PROTOCOL_HEADER)
        start = peer.expect(codec.START)
        start.number(2)
        return table(start.long()), start.long()


def test_the_first_client_is_shown_the_brokers_that_it_may_come_to_and_no_others() -> None:
    old, new, strange = broker_of("3.10.8", "old"), broker_of("4.1.2", "new", "more"), broker_of("1.0", "strange")
    config = config_of(old.port, new.port, strange.port)
    config["listeners"] |= {
        name: {"host": "127.0.0.1", "port": free_port()} for name in ("old", "new", "both", "old-by-address")
    }
    config["farms"] = {
        "old": {"members": ["b0"]},
        "new": {"members": ["b1"]},
        "strange": {"members": ["b2"]},
        "both": {"members": ["b0"], "fallback": "new"},
    }
    config["rules"] = [
        {"listener": "old", "farm": "old"},
        {"listener": "new", "vhost": "x", "farm": "new"},
        {"listener": "new", "key": {"type": "USER_NAME"}, "matches": "y", "farm": "new"},
        {"listener": "new", "reject": "no"},
        {"listener": "both", "farm": "both"},
        {"key": {"type": "SOURCE_IP"}, "matches": "192.*", "farm": "strange"},
        {"key": {"type": "SOURCE_IP"}, "matches": "127.*", "farm": "old"},
    ]
    config["default"] = {"farm": "strange"}
    with local_router_of(config) as router:
        ports = {name: one["port"] for name, one in router.config["listeners"].items()}
        for name, version, cluster, capabilities in (
            ("old", "3.10.8", "old", {"connection.blocked"}),
            ("new", "4.1.2", "new", {"connection.blocked", "more"}),
            ("both", "3.10.8", None, {"connection.blocked"}),
            ("old-by-address", "3.10.8", "old", {"connection.blocked"}),
        ):
            properties, mechanisms = shown(ports[name])
            assert mechanisms == b"AMQPLAIN PLAIN"
            found = properties["product"], properties["version"], properties.get("cluster_name")
            assert (*found, {*properties["capabilities"]}) == ("RabbitMQ", version, cluster, capabilities), name


def test_a_broker_with_smaller_frames_gets_bodies_in_pieces() -> None:
    """The first client is told more than the broker takes: nobody knew."""
    small = FakeBroker()
    small.tune = (2047, 4096, 60)
    with local_router_of(config_of(small.port)) as router:
        client = Client(router.port).opened()
        assert client.frame_max == 131072 and small.tune_ok[1] == 4096
        body = random.Random(1).randbytes(100_000)
        client.send(frame(3, 1, body))
        broker = small.opened[-1]
        got = b""
        while len(got) < len(body):
            found = broker.frame()
            assert found.type == 3 and len(found.payload) + 8 <= 4096
            got += found.payload
        assert got == body
        # What cannot be divided is for the broker to judge.
        client.send(frame(2, 1, bytes(5000)))
        assert broker.frame().payload == bytes(5000)


@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 3, 8]), st.integers(0, 300)), max_size=8),
    st.lists(st.integers(1, 50), min_size=1, max_size=50),
)
def test_splitting_keeps_every_payload(parts: list[tuple[int, int]], cuts: list[int]) -> None:
    sent = [
        (kind, index, bytes([index] * (size if kind == 3 else size % 42))) for index, (kind, size) in enumerate(parts)
    ]
    stream = b"".join(frame(*one) for one in sent)
    splitter, out, at = FrameSplitter(50, 0), b"", 0
    for turn in range(len(stream)):
        out += splitter.split(stream[at : at + cuts[turn % len(cuts)]])
        at += cuts[turn % len(cuts)]
    found, at = [], 0
    while at < len(out):
        size = int.from_bytes(out[at + 3 : at + 7], "big")
        assert size + 8 <= 50 and out[at + 7 + size] == 0xCE
        found.append((out[at], int.from_bytes(out[at + 1 : at + 3], "big"), out[at + 7 : at + 7 + size]))
        at += size + 8
    joined: list[tuple[int, int, bytes]] = []
    for kind, channel, payload in found:
        if kind == 3 and joined and joined[-1][:2] == (3, channel):
            joined[-1] = (3, channel, joined[-1][2] + payload)
        else:
            joined.append((kind, channel, payload))
    assert joined == sent


def test_what_cannot_be_split_is_for_the_broker_to_judge() -> None:
    whole = frame(1, 0, bytes(43)) + frame(2, 1, bytes(100))
    assert FrameSplitter(50, 0).split(whole) == whole
    with pytest.raises(FrameTooLargeError) as error:
        FrameSplitter(50, 1000).split(frame(3, 1, bytes(993)))
    assert error.value.size == 1001
