"""Who a client is, by what was verified and not by what it says, and the bounds of what it may say."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from router_support import Hook, config_of, local_router_of, table
from test_clients import certificate
from test_sessions import PROPERTIES, Client, FakeBroker, Peer

from amqp_session_router.amqp import codec, frames, sasl, tables
from amqp_session_router.amqp.client_handshake import ClientHandshake
from amqp_session_router.amqp.frames import ProtocolError
from amqp_session_router.amqp.negotiation import LearnedOffers
from amqp_session_router.base.model import Tune
from amqp_session_router.net import proxy_protocol


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Certificates of an authority, of the client `alice` and of the router."""
    directory = tmp_path_factory.mktemp("pki")
    authority = certificate(directory, called="authority", name="ca")
    alice = certificate(directory, called="alice", name="alice", by=authority)
    router = certificate(directory, called="the-router", name="router", by=authority)
    yield {
        "ca": authority[0],
        "alice": alice[0],
        "alice_key": alice[1],
        "router": router[0],
        "router_key": router[1],
    }


def external(pki: dict[str, Path], port: int, response: bytes, mechanism: str = "EXTERNAL") -> tuple[Client, list[str]]:
    """Start a handshake as alice, by her certificate; returns it and the mechanisms that were offered."""
    context = ssl.create_default_context(cafile=str(pki["ca"]))
    context.load_cert_chain(pki["alice"], pki["alice_key"])
    client = Client.__new__(Client)
    Peer.__init__(
        client, context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost")
    )
    client.send(codec.PROTOCOL_HEADER)
    start = client.expect(codec.START)
    start.number(2)
    start.long()
    offered = start.long().decode().split()
    if mechanism in offered:
        client.send(codec.start_ok(b"", mechanism, response, "en_US"))
        client.expect(codec.TUNE)
        client.send(codec.tune(codec.TUNE_OK, 10, 131072, 0) + codec.open_("/"))
    return client, offered


def secure(pki: dict[str, Path], port: int, hook: Hook | None) -> dict[str, Any]:
    config = config_of(port)
    own = {"ca_file": str(pki["ca"]), "cert_file": str(pki["router"]), "key_file": str(pki["router_key"])}
    config["listeners"]["plain"]["tls"] = own | {"client_cert": "required"}
    if hook is not None:
        config["authorization"] = {"url": f"http://127.0.0.1:{hook.server_port}/"}
    return config


class Recorder(FakeBroker):
    """A broker that notes mechanism and response of each Start-Ok."""

    def __init__(self) -> None:
        super().__init__(self._record)
        self.said: list[tuple[str, bytes]] = []

    def _record(self, _: FakeBroker, peer: Peer) -> None:
        self.header(peer)
        peer.send(codec.start(PROPERTIES, "EXTERNAL PLAIN AMQPLAIN"))
        arguments = peer.expect(codec.START_OK)
        arguments.long()
        self.said.append((arguments.short(), arguments.long()))
        peer.send(codec.tune(codec.TUNE, 2047, 131072, 60))
        peer.expect(codec.TUNE_OK)
        peer.expect(codec.OPEN)
        peer.send(codec.OPEN_OK_FRAME)
        while peer.sock.recv(65536):
            pass


def test_external_never_reaches_the_broker(pki: dict[str, Path]) -> None:
    """The broker would take the router's own certificate for the client's."""
    broker = Recorder()
    hook = Hook({"result": "allow"})
    with local_router_of(secure(pki, broker.port, hook)) as router:
        client, _ = external(pki, router.port, b"")
        code, text = client.closed()
    assert code == 403 and "EXTERNAL" in text
    assert not broker.said


def test_the_hook_gets_the_verified_name_and_gives_the_credentials(pki: dict[str, Path]) -> None:
    broker = Recorder()
    hook = Hook({"result": "allow", "mechanism": "PLAIN", "response": "AGFsaWNlAHB3"})
    with local_router_of(secure(pki, broker.port, hook)) as router:
        client, _ = external(pki, router.port, b"alice")
        client.expect(codec.OPEN_OK)
        assert [row["user"] for row in router.ctl("CONN")] == ["alice"]
    assert broker.said == [("PLAIN", b"\0alice\0pw")]
    assert [(one["user"], one["certificate_name"]) for one in hook.asked] == [("alice", "alice")]


def test_external_may_not_name_somebody_else(pki: dict[str, Path]) -> None:
    broker = Recorder()
    hook = Hook({"result": "allow", "mechanism": "PLAIN", "response": "AGFsaWNlAHB3"})
    with local_router_of(secure(pki, broker.port, hook)) as router:
        client, _ = external(pki, router.port, b"admin")
        assert client.closed()[0] == 403
    assert not broker.said and not hook.asked


def test_without_a_hook_external_is_not_offered(pki: dict[str, Path]) -> None:
    with local_router_of(secure(pki, Recorder().port, None)) as router:
        assert external(pki, router.port, b"", "none")[1] == ["PLAIN", "AMQPLAIN"]


def test_the_certificate_counts() -> None:
    assert sasl.user("EXTERNAL", b"", "alice") == sasl.user("EXTERNAL", b"alice", "alice") == "alice"
    with pytest.raises(ProtocolError, match="another user"):
        sasl.user("EXTERNAL", b"admin", "alice")


def test_a_doubled_login_is_refused() -> None:
    """RabbitMQ takes the first of the two, a decoder to a map the last."""
    one, other = (codec.encode_table({"LOGIN": name, "PASSWORD": "p"}) for name in ("first", "last"))
    assert sasl.user("AMQPLAIN", one) == "first"
    with pytest.raises(ProtocolError, match="more than once") as refused:
        sasl.user("AMQPLAIN", one + other)
    assert refused.value.code == 403


LOGIN, PASSWORD = b"\x05LOGINS\0\0\0\x05admin", b"\x08PASSWORDS\0\0\0\x01p"
ODD_FIELDS = {
    "a text that is no UTF-8": b"\x01oS\0\0\0\x02\xc3\xff",
    "a name that is no UTF-8": b"\x02\xc3\xffV",
    "a time after the year 9999": b"\x01oT" + b"\xff" * 8,
    "a decimal": b"\x01oD\xff\xff\xff\xff\xff",
    "bytes": b"\x01ox\0\0\0\x01x",
    "an array": b"\x01oA\0\0\0\x0fT" + b"\xff" * 8 + b"Vt\2s\xff\xff",
}


@pytest.mark.parametrize("odd", sorted(ODD_FIELDS))
@pytest.mark.parametrize("first", [True, False])
def test_whom_a_broker_reads_in_amqplain_the_router_reads(odd: str, first: bool) -> None:
    response = ODD_FIELDS[odd] + LOGIN + PASSWORD if first else LOGIN + PASSWORD + ODD_FIELDS[odd]
    assert sasl.user("AMQPLAIN", response) == "admin"
    broker = FakeBroker()
    config = config_of(broker.port)
    config["rules"] = [{"key": {"type": "USER_NAME"}, "matches": "admin", "reject": "not here"}]
    with local_router_of(config) as router:
        client = Client(router.port, response=("AMQPLAIN", response))
        assert client.closed() == (530, "not here")


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", b""),
        ("PLAIN", b"admin"),
        ("PLAIN", b"\0admin"),
        ("PLAIN", b"\0admin\0p\0"),
        ("PLAIN", b"admin\0admin\0p"),
        ("AMQPLAIN", b""),
        ("AMQPLAIN", LOGIN),
        ("AMQPLAIN", PASSWORD),
        ("AMQPLAIN", LOGIN + PASSWORD[:-1]),
        ("AMQPLAIN", LOGIN + PASSWORD + b"\x01oz\0\0\0\0"),
        ("AMQPLAIN", b"\x05LOGINI\0\0\0\x05" + PASSWORD),
        ("AMQPLAIN", b"\x01oF\xff\xff\xff\xff" + LOGIN + PASSWORD),
    ],
)
def test_a_login_without_its_form_is_refused_here(mechanism: str, response: bytes) -> None:
    """A RabbitMQ ends it after three seconds without a word, and would be taken for a broker that fails."""
    broker = FakeBroker()
    with local_router_of(config_of(broker.port)) as router:
        assert Client(router.port, response=(mechanism, response)).closed()[0] == 403
        assert not broker.properties and not router.ctl("STAT", "PRINT")["overall"]["failed_attempts"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN", "EXTERNAL"])
def test_a_users_name_has_a_bound(mechanism: str) -> None:
    name = "u" * 256
    response = (
        codec.encode_table({"LOGIN": name, "PASSWORD": "p"})
        if mechanism == "AMQPLAIN"
        else b"\0" + name.encode() + b"\0p"
    )
    with pytest.raises(ProtocolError, match="longer than 255 bytes"):
        sasl.user(mechanism, b"" if mechanism == "EXTERNAL" else response, name)


def test_a_client_id_has_a_bound() -> None:
    handshake = ClientHandshake(LearnedOffers(), Tune())
    properties = codec.encode_table({"connection_name": "ä" * 3_000})
    handshake.receive(codec.PROTOCOL_HEADER + codec.start_ok(properties, "PLAIN", b"\0u\0p", "en_US"))
    assert handshake.credentials is not None
    assert handshake.credentials.client_id == "ä" * 127


def test_a_proxys_host_name_has_a_bound() -> None:
    header = proxy_protocol.build(2, ("192.0.2.1", 1), ("192.0.2.2", 2), "h" * 255)
    assert proxy_protocol.parse(header) is not None
    size = len(header) - 16 + 1
    longer = header[:14] + size.to_bytes(2, "big") + header[16:29] + (256).to_bytes(2, "big") + header[31:] + b"h"
    with pytest.raises(proxy_protocol.ProxyError, match="longer than 255"):
        proxy_protocol.parse(longer)


def test_what_the_router_says_of_a_session_cannot_be_forged() -> None:
    client = codec.encode_table({"proxy_client": "forged", "product": "x", "proxy_session": 7})
    told = table(tables.add_properties(client, {"c": True}, {"proxy_client": "192.0.2.1:7", "proxy_session": "s"}))
    assert told == {"product": "x", "capabilities": {"c": True}, "proxy_client": "192.0.2.1:7", "proxy_session": "s"}


def test_a_rewritten_vhost_has_a_bound() -> None:
    broker = FakeBroker()
    config = config_of(broker.port)
    config["rules"] = [{"vhost_pattern": "(.*)", "rewrite": "\\1\\1\\1", "farm": "all"}]
    with local_router_of(config) as router:
        assert Client(router.port, "v" * 85).opened()
        assert Client(router.port, "v" * 86).closed() == (530, "the rewritten vhost is longer than 255 bytes")
    with pytest.raises(ValueError, match="255"):
        frames.short(b"v" * 256)
