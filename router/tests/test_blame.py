"""What a broker is to blame for, and what not: the client's login, this host's ports, a node that is full."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest
from router_support import LocalRouter, apart, config_of, local_router_of, wait_for
from test_sessions import PROPERTIES, QUICK, Client, FakeBroker, Peer, refuse_with

from amqp_session_router.amqp import codec

FULL = "NOT_ALLOWED - connection refused: node connection limit (3) is reached"
PORTS = 4


def ends_upon_the_login(broker: FakeBroker, peer: Peer) -> None:
    broker.header(peer)
    peer.send(codec.start(PROPERTIES, "PLAIN AMQPLAIN"))
    peer.expect(codec.START_OK)
    broker.opened.append(peer)
    peer.sock.close()


def offers(mechanisms: str) -> FakeBroker:
    return FakeBroker(lambda broker, peer: broker.open(peer, mechanisms=mechanisms))


def is_full(broker: FakeBroker, peer: Peer) -> None:
    broker.until_open(peer)
    peer.send(codec.close(530, FULL))


def nobody_is_blamed(router: LocalRouter) -> bool:
    brokers = router.ctl("BACKEND", "PRINT")
    return not router.ctl("STAT", "PRINT")["overall"]["failed_attempts"] and all(one["healthy"] for one in brokers)


def test_who_ends_the_connection_upon_a_login_is_asked_with_one_other() -> None:
    brokers = [FakeBroker(ends_upon_the_login) for _ in range(4)]
    with local_router_of(config_of(*(one.port for one in brokers), **QUICK)) as router:
        assert Client(router.port).closed() == (403, "the broker ended the connection upon the login")
        assert sum(len(one.opened) for one in brokers) == 2
        assert nobody_is_blamed(router)
        assert router.entries("closed")[0]["how"] == "rejected"


def test_who_dies_upon_a_login_costs_no_session() -> None:
    with local_router_of(config_of(FakeBroker(ends_upon_the_login).port, FakeBroker().port, **QUICK)) as router:
        for _ in range(4):
            Client(router.port).opened()


def test_a_broker_without_the_mechanism_is_passed_over() -> None:
    brokers = [offers("AMQPLAIN"), offers("PLAIN")]
    with local_router_of(config_of(*(one.port for one in brokers), **QUICK)) as router:
        for _ in range(4):
            Client(router.port).opened()
        assert not brokers[0].opened and len(brokers[1].opened) == 4
        assert nobody_is_blamed(router)


def test_a_full_node_is_passed_over_and_its_close_relayed_where_all_are_full() -> None:
    full, good = FakeBroker(is_full), FakeBroker()
    with local_router_of(config_of(full.port, good.port, **QUICK)) as router:
        for _ in range(4):
            Client(router.port).opened()
        assert nobody_is_blamed(router)
    with local_router_of(config_of(full.port, FakeBroker(is_full).port, **QUICK)) as router:
        assert Client(router.port).closed() == (530, FULL)
        assert nobody_is_blamed(router)
    with local_router_of(config_of(full.port, FakeBroker(refuse_with(320)).port, **QUICK)) as router:
        assert Client(router.port).closed()[0] == 320


@pytest.mark.parametrize("how", ["with a wrong password", "and hang"])
def test_who_is_not_let_in_uses_up_no_limit_of_a_vhost(how: str) -> None:
    strangers = 5

    def behave(broker: FakeBroker, peer: Peer) -> None:
        if len(broker.vhosts) >= strangers:
            broker.open(peer)
            return
        broker.until_open(peer)
        if how == "and hang":
            peer.sock.recv(1)
        peer.send(codec.close(403, "ACCESS_REFUSED"))

    broker = FakeBroker(behave)
    limits = {"default": {"connections": 2, "connection_rate": 2}}
    with local_router_of(config_of(broker.port, limits=limits)) as router:
        waiting = [Client(router.port) for _ in range(strangers)]
        if how == "and hang":
            wait_for("the strangers", lambda: len(broker.vhosts) == strangers)
        else:
            assert {client.closed()[0] for client in waiting} == {403}
        good = [Client(router.port).opened() for _ in range(2)]
        assert Client(router.port).closed()[0] == 530
        del good


def test_of_many_at_a_time_no_more_come_in_than_may() -> None:
    """All are asked at the broker at once: the limit is looked at again when it has let them in."""
    least, most = 8, 3
    together = threading.Barrier(least)

    def behave(broker: FakeBroker, peer: Peer) -> None:
        broker.until_open(peer)
        together.wait(20)
        peer.send(codec.OPEN_OK_FRAME)
        broker.opened.append(peer)
        peer.expect(codec.CLOSE)

    broker = FakeBroker(behave)
    limits = {"default": {"connections": most}}
    with local_router_of(config_of(broker.port, limits=limits)) as router:
        clients = [Client(router.port) for _ in range(least)]
        methods = [client.frame().method for client in clients]
        assert methods.count(codec.OPEN_OK) == most and methods.count(codec.CLOSE) == least - most
        assert router.ctl("LIMIT", "PRINT", "/")[0]["now"] == most


def test_a_vhost_that_is_full_is_so_everywhere() -> None:
    text = "NOT_ALLOWED - access to vhost '/' refused: connection limit (1) is reached"

    def behave(broker: FakeBroker, peer: Peer) -> None:
        broker.until_open(peer)
        peer.send(codec.close(530, text))

    brokers = FakeBroker(behave), FakeBroker(behave)
    with local_router_of(config_of(*(one.port for one in brokers), **QUICK)) as router:
        assert Client(router.port).closed() == (530, text)
        assert sum(len(one.vhosts) for one in brokers) == 1


def without_ports() -> None:
    """In a network namespace of its own, whose hosts have a few ports only: use them up towards one of two brokers."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    brokers = FakeBroker(), FakeBroker()
    with local_router_of(config_of(brokers[0].port, **QUICK)) as router:
        Path("/proc/sys/net/ipv4/ip_local_port_range").write_text(f"61000 {61000 + PORTS - 1}")
        clients = [Client(router.port).opened() for _ in range(PORTS)]
        code, text = Client(router.port, source=("127.0.0.1", 50000)).closed()
        assert (code, "no port left" in text) == (320, True), text
        assert nobody_is_blamed(router)
        del clients


def test_own_ports_used_up_are_no_brokers_failure() -> None:
    apart("test_blame", "without_ports")
