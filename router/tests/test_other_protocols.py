"""Who speaks something else than AMQP 0-9-1 is told what the router speaks, and the log says what that was."""

from __future__ import annotations

import socket

import pytest
from router_support import config_of, router_of, wait_for
from test_sessions import FakeBroker

from amqp_session_router.amqp import codec

# Of AMQP 1.0: SASL's first frame with its mechanism, which clients send without waiting for the header's answer.
SASL_INIT = b"\0\0\0\x1c\2\1\0\0\0S\x41\xc0\x0f\2\xa3\5PLAIN\xa0\5\0u\0pw"
ONE = b"AMQP\0\1\0\0"
OF_ONE = {
    ONE: "the client speaks AMQP 1.0",
    b"AMQP\3\1\0\0": "the client speaks AMQP 1.0 with SASL",
    b"AMQP\2\1\0\0": "the client speaks AMQP 1.0 with TLS of its own",
}
OTHERS = OF_ONE | {
    b"AMQP\1\1\x09\1": "the client's protocol header is b'AMQP\\x01\\x01\\t\\x01'",
    b"GET / HTTP/1.1\r\n\r\n": "the client does not speak AMQP",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03": "the client speaks TLS",
}


def answered(port: int, data: bytes, at_once: bool = True) -> bytes:
    """Return all that the router says until it ends the connection; raises OSError where it resets it."""
    with socket.create_connection(("127.0.0.1", port), 30) as sock:
        for part in (data,) if at_once else (bytes((one,)) for one in data):
            sock.sendall(part)
        found = b""
        while said := sock.recv(1000):
            found += said
        return found


@pytest.mark.parametrize("data", OTHERS)
def test_wrong_protocol_headers_get_the_right_one(data: bytes) -> None:
    with router_of(config_of(FakeBroker().port)) as router:
        assert answered(router.port, data) == codec.PROTOCOL_HEADER
        (entry,) = wait_for("an entry", lambda: router.entries("closed"))
        assert entry["text"] == f"{OTHERS[data]}, and this router speaks AMQP 0-9-1"


@pytest.mark.parametrize("header", OF_ONE)
def test_a_client_of_amqp_1_0_is_told_whatever_it_says_behind_its_header(header: bytes) -> None:
    """It is answered as its own specification asks for (2.2): the header of what is spoken here, then the end, which is
    no reset, or the answer would be lost with all that was not read."""
    with router_of(config_of(FakeBroker().port)) as router:
        assert answered(router.port, header + SASL_INIT + ONE + bytes(200_000)) == codec.PROTOCOL_HEADER
        assert answered(router.port, header, at_once=False) == codec.PROTOCOL_HEADER
        entries = wait_for("entries", lambda: len(found := router.entries("closed")) == 2 and found)
        assert {entry["text"] for entry in entries} == {f"{OF_ONE[header]}, and this router speaks AMQP 0-9-1"}
