"""Limits of real clients: behind a balancer, on a paused vhost, after a restart, and while a data rate is used up."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from router_fakes import FakeServer
from router_support import config_of, local_router_of, wait_for
from test_boundary import frame
from test_limits import lease, limiter
from test_sessions import Client, FakeBroker, Peer

from amqp_session_router.amqp import codec, frames
from amqp_session_router.base.errors import UsageError
from amqp_session_router.base.model import Refusal
from amqp_session_router.config import loader
from amqp_session_router.control.service import Service
from amqp_session_router.net import proxy_protocol
from amqp_session_router.net.transport import SocketTransport
from amqp_session_router.session.preface import is_trusted


def behind(port: int, address: str) -> socket.socket:
    """Connect as a balancer does for the client at `address`."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.sendall(proxy_protocol.build(2, (address, 4711), ("192.0.2.200", 5672)))
    return sock


def proxied(port: int, **limits: Any) -> dict[str, Any]:
    config = config_of(port, limits=limits)
    config["listeners"]["plain"] |= {"proxy_protocol": True, "trusted": ["127.0.0.0/8"]}
    return config


def test_who_connects_too_often_is_turned_away_and_others_are_not() -> None:
    broker = FakeBroker()
    # So slow that the machine cannot be slower.
    with local_router_of(proxied(broker.port, connection_rate_per_address=0.01)) as router:
        first = behind(router.port, "192.0.2.1")
        first.sendall(codec.PROTOCOL_HEADER)
        assert Peer(first).expect(codec.START)
        again, other = behind(router.port, "192.0.2.1"), behind(router.port, "192.0.2.2")
        again.settimeout(20)
        assert again.recv(1) == b""
        other.sendall(codec.PROTOCOL_HEADER)
        assert Peer(other).expect(codec.START)
        assert router.ctl("STAT", "PRINT", "all")["limits"]["refused"] == {"connection_rate_per_address": 1}
        for sock in (first, again, other):
            sock.close()


def test_the_address_of_a_limit_is_the_clients_not_the_balancers() -> None:
    broker = FakeBroker()
    with local_router_of(proxied(broker.port, unauthenticated_per_address=2)) as router:
        waiting = [behind(router.port, "192.0.2.1") for _ in range(2)]
        wait_for(
            "both", lambda: len([row for row in router.ctl("CONN") if row["client"].startswith("192.0.2.1:")]) == 2
        )
        # As many of another client's, through the same balancer.
        others = [behind(router.port, f"192.0.2.{number}") for number in range(2, 8)]
        for sock in others:
            sock.sendall(codec.PROTOCOL_HEADER)
            assert Peer(sock).expect(codec.START)
        third = behind(router.port, "192.0.2.1")
        third.settimeout(10)
        assert third.recv(1) == b""
        for sock in (*waiting, *others, third):
            sock.close()
        wait_for("nobody", lambda: not router.ctl("CONN"))


def test_a_lease_is_told_its_address_later() -> None:
    limits, _ = limiter(unauthenticated_per_address=1)
    one, other = limits.accept(None), limits.accept(None)
    assert not isinstance(one, Refusal) and not isinstance(other, Refusal)
    assert one.identify("192.0.2.1") is None and one.identify("192.0.2.1") is None
    assert isinstance(other.identify("192.0.2.1"), Refusal)
    one.release()
    assert other.identify("192.0.2.1") is None
    other.release()
    assert limits.connections == 0 and lease(limits)


def test_who_waits_on_a_paused_vhost_leaves_room_for_the_others() -> None:
    limits, _ = limiter(unauthenticated_per_address=2)
    waiting = [lease(limits) for _ in range(2)]
    for one in waiting:
        assert one.wait("paused") is None
    more = [lease(limits) for _ in range(2)]
    # Those that wait have the same bound, by themselves.
    assert isinstance(more[0].wait("paused"), Refusal)
    for one in (*waiting, *more):
        one.release()
    assert limits.connections == 0 and limits.addresses._unauthenticated == {}


def test_what_another_process_admitted_is_counted_and_refused_by_nothing() -> None:
    limits, _ = limiter(default={"connection_rate": 5, "connections": 60, "data_rate": 100}, connections=40)
    adopted = [limits.adopt("v", "u", "b") for _ in range(50)]
    assert limits.vhosts.count("v") == limits.connections == 50
    assert all(one.metered for one in adopted)
    for one in adopted[:20]:
        one.release()
    # The rate is for those that come anew: none of it is used up.
    assert [lease(limits, f"192.0.2.{number}").open("v", "u") for number in range(5)] == [None] * 5
    for one in adopted:
        one.release()
    assert limits.vhosts.count("v") == limits.connections == 5


def test_a_paced_client_keeps_its_heartbeats() -> None:
    """Nothing is read from it until its vhost's debt is paid, and the broker hears of it all the same."""
    broker = FakeBroker()
    config = config_of(broker.port, limits={"default": {"data_rate": 1000}})
    with local_router_of(config) as router:
        client = Client(router.port, heartbeat=1).opened()
        client.send(frame(3, 1, bytes(10_000)) * 2)
        peer = broker.peer()
        began = time.monotonic()
        kinds = []
        while kinds.count(frames.HEARTBEAT) < 3:
            kinds.append(peer.frame().type)
        assert kinds[0] == frames.BODY and set(kinds) == {frames.BODY, frames.HEARTBEAT}
        assert time.monotonic() - began >= 1
        client.sock.close()


@pytest.mark.parametrize(
    ("trusted", "address", "believed"),
    [
        ((), "192.0.2.1", False),
        (("192.0.2.0/24",), "192.0.2.1", True),
        (("192.0.2.0/24",), "192.0.3.1", False),
        (("0.0.0.0/0",), "2001:db8::1", False),
        (("::/0",), "fe80::1%eth0", True),
        (("0.0.0.0/0",), "no address", False),
    ],
)
def test_who_is_trusted(trusted: tuple[str, ...], address: str, believed: bool) -> None:
    assert is_trusted(trusted, address) is believed


def test_trusting_everybody_is_no_default() -> None:
    with pytest.raises(UsageError, match=r"listeners\.l\.trusted: proxy_protocol needs the networks"):
        loader.from_data({"listeners": {"l": {"proxy_protocol": True}}})


def test_a_stranger_is_refused_before_its_header_is_read() -> None:
    config = proxied(FakeBroker().port)
    config["listeners"]["plain"]["trusted"] = ["192.0.2.0/24"]
    with local_router_of(config) as router, socket.create_connection(("127.0.0.1", router.port)) as sock:
        sock.settimeout(10)
        assert sock.recv(1) == b""
        (entry,) = wait_for("the end", lambda: router.entries("closed"))
        assert "not trusted" in entry["text"]


def test_half_a_proxy_header_is_waited_for_without_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    take: Callable[..., bytes] = SocketTransport.take

    def counted(self: SocketTransport, size: int, flags: int = 0) -> bytes:
        nonlocal looks
        looks += 1
        return take(self, size, flags)

    monkeypatch.setattr(SocketTransport, "take", counted)
    with local_router_of(proxied(FakeBroker().port)) as router:
        with socket.create_connection(("127.0.0.1", router.port)) as sock:
            header = proxy_protocol.build(2, ("192.0.2.9", 1), ("192.0.2.1", 2))
            sock.sendall(header[:20])
            wait_for("a look", lambda: looks)
            time.sleep(0.3)
            assert looks <= 2
            sock.sendall(header[20:] + codec.PROTOCOL_HEADER)
            assert Peer(sock).expect(codec.START)
        with socket.create_connection(("127.0.0.1", router.port)) as sock:
            sock.sendall(b"PROXY TCP4 192")
            sock.shutdown(socket.SHUT_WR)
            sock.settimeout(10)
            # Bytes that nobody read make the end a reset.
            with contextlib.suppress(ConnectionResetError):
                assert sock.recv(1) == b""


def test_a_reload_reads_certificates_towards_brokers_anew(tmp_path: Path) -> None:
    """The listeners may be as they were: it is not by them that the files are read again."""
    path, server = tmp_path / "router.yaml", FakeServer()
    config = config_of(1) | {"control": None}
    path.write_text(yaml.safe_dump(config))

    async def scene() -> None:
        service = Service(path)
        await service.start(server)
        await service.configuration.reload()
        await service.stop()

    asyncio.run(scene())
    assert server.renewed == 1
