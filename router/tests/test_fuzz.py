"""Any bytes on the listener: no exception but ProtocolError out of the parsers, none at all out of a session."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from router_support import config_of, router_of, wait_for
from test_survival import worker
from tests.free_ports import free_port

from amqp_session_router.amqp import codec, frames, sasl, tables
from amqp_session_router.amqp.broker_handshake import BrokerHandshake
from amqp_session_router.amqp.client_handshake import ClientHandshake, Stage
from amqp_session_router.amqp.negotiation import AttemptFailed, CloseRelayed, Credentials, LearnedOffers
from amqp_session_router.base.model import Tune
from amqp_session_router.net import proxy_protocol

MILLION = 1_000_000
CLIENT = (
    codec.PROTOCOL_HEADER
    + codec.start_ok(
        codec.encode_table({"connection_name": "fuzz", "capabilities": {"connection.blocked": True}, "n": 7}),
        "PLAIN",
        b"\0user\0word",
        "en_US",
    )
    + codec.tune(codec.TUNE_OK, 2047, 131072, 60)
    + codec.open_("/")
    + codec.HEARTBEAT
)
BROKER = (
    codec.start(codec.encode_table({"product": "x", "capabilities": {"a": True}}), "PLAIN AMQPLAIN")
    + codec.tune(codec.TUNE, 2047, 131072, 60)
    + codec.OPEN_OK_FRAME
)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return `data` with some damage."""
    out = bytearray(data)
    for _ in range(rng.randint(0, 4)):
        match rng.randint(0, 5):
            case 0 if out:
                out[rng.randrange(len(out))] = rng.randrange(256)
            case 1 if out:
                del out[rng.randrange(len(out)) :]
            case 2:
                at = rng.randint(0, len(out))
                out[at:at] = rng.randbytes(rng.randint(1, 8))
            case 3 if len(out) > 4:
                at = rng.randrange(len(out) - 4)
                out[at : at + 4] = rng.choice([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\1"])
            case 4:
                out += rng.choice([codec.HEARTBEAT, codec.close(200, ""), codec.CLOSE_OK_FRAME, codec.OPEN_OK_FRAME])
            case 5 if len(out) > 8:
                at, size = rng.randrange(len(out)), rng.randint(1, 40)
                out += out[at : at + size]
    return bytes(out)


def feed_client(data: bytes, rng: random.Random) -> None:
    handshake = ClientHandshake(LearnedOffers(), Tune())
    at = 0
    while at < len(data):
        step = rng.choice((1, 7, 50, 1000))
        try:
            handshake.receive(data[at : at + step])
        except frames.ProtocolError as error:
            assert 100 < error.code < 600 and error.text
            return
        assert len(handshake.buffer) <= codec.FRAME_MIN * 40
        if handshake.gone:
            return
        at += step
    if handshake.stage is Stage.WAITING:
        assert handshake.credentials is not None
        with contextlib.suppress(frames.ProtocolError):
            sasl.user(handshake.credentials.mechanism, handshake.credentials.response)
        tables.add_properties(handshake.credentials.properties, {"authentication_failure_close": True}, {"a": "b"})


def feed_broker(data: bytes, rng: random.Random) -> None:
    talk = BrokerHandshake(Credentials(b"", "PLAIN", b"\0a\0b", "en_US"), Tune(), "/", LearnedOffers(), "b1")
    at = 0
    while at < len(data):
        step = rng.choice((1, 7, 50, 1000))
        try:
            if talk.receive(data[at : at + step]):
                return
        except (AttemptFailed, CloseRelayed):
            return
        at += step


def feed_proxy(data: bytes) -> None:
    try:
        proxy_protocol.parse(data)
    except proxy_protocol.ProxyError as error:
        assert str(error)


PROXY = (
    proxy_protocol.build(1, ("192.0.2.1", 1), ("192.0.2.2", 2)),
    proxy_protocol.build(2, ("192.0.2.1", 1), ("2001:db8::1", 2), "host.example"),
)


def round_of(rng: random.Random) -> None:
    """Three inputs."""
    feed_client(mutate(CLIENT, rng), rng)
    feed_broker(mutate(BROKER, rng), rng)
    feed_proxy(mutate(rng.choice(PROXY), rng))


def test_parsers_take_any_damage() -> None:
    rng = random.Random(11)
    for _ in range(10_000):
        round_of(rng)


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 99))
def test_parsers_take_any_bytes(data: bytes, seed: int) -> None:
    rng = random.Random(seed)
    for prefix in (b"", CLIENT[:8], CLIENT[:200]):
        feed_client(prefix + data, rng)
    feed_broker(data, rng)
    feed_proxy(data)
    feed_proxy(proxy_protocol.SIGNATURE + data)
    for mechanism in ("AMQPLAIN", "PLAIN"):
        with contextlib.suppress(frames.ProtocolError):
            sasl.user(mechanism, data)


@pytest.mark.parametrize(
    "inside", [b"\x05hello", b"\x05helloI\0\0", b"\x01fF\0\0\0\x03\x02no", b"\x01sS\0\0\0\x09short"]
)
def test_a_table_that_is_cut_off_is_no_table(inside: bytes) -> None:
    """To add to one would change what it says."""
    with pytest.raises(frames.ProtocolError):
        tables.fields(inside)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_million_inputs_and_no_memory_growth() -> None:
    rng = random.Random(int(os.environ.get("ROUTER_FUZZ_SEED", "1")))
    for _ in range(20_000):
        round_of(rng)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(MILLION // 3):
        round_of(rng)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


def test_listener_takes_any_damage() -> None:
    """The same through sockets: no session fails, none stays, and memory does not grow."""
    rng = random.Random(3)
    with router_of(config_of(free_port())) as router:

        def attack(count: int) -> None:
            for _ in range(count):
                with socket.create_connection(("127.0.0.1", router.port)) as sock:
                    sock.settimeout(5)
                    try:
                        sock.sendall(mutate(CLIENT, rng))
                        sock.shutdown(socket.SHUT_WR)
                        while sock.recv(65536):
                            pass
                    except OSError:
                        continue

        def resident() -> int:
            return int(Path(f"/proc/{worker(router)}/statm").read_text().split()[1]) * 4

        attack(300)
        before = resident()
        attack(1000)
        wait_for("no session", lambda: not router.ctl("CONN"))
        assert resident() - before < 10_000
        assert not router.entries("a session failed")
