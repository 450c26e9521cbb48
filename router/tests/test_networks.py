"""Networks that a listener lets in and keeps out, before a client is heard."""

from __future__ import annotations

import ipaddress
import random
import socket
from typing import Any

from router_support import config_of, local_router_of, wait_for
from test_admission import behind
from test_sessions import Client, FakeBroker, Peer

from amqp_session_router.admission import denials
from amqp_session_router.admission.denials import Denials
from amqp_session_router.amqp import codec
from amqp_session_router.base.networks import Gate, Networks


def test_an_address_is_in_a_network_as_ipaddress_says() -> None:
    rng = random.Random(59)
    for version in (4, 6):
        bits = 32 if version == 4 else 128
        make: Any = ipaddress.IPv4Network if version == 4 else ipaddress.IPv6Network
        texts = [
            str(make((rng.getrandbits(bits), rng.choice((0, 1, 7, 8, bits - 1, bits))), strict=False))
            for _ in range(20)
        ]
        address: Any = ipaddress.IPv4Address if version == 4 else ipaddress.IPv6Address
        for at in range(len(texts)):
            networks = Networks(tuple(texts[at:]))
            for _ in range(50):
                near = make(rng.choice(texts)).network_address + rng.getrandbits(3)
                for found in (near, address(rng.getrandbits(bits))):
                    expected = any(found in make(text) for text in texts[at:])
                    assert (str(found) in networks) == expected, (str(found), texts[at:])


def test_what_is_no_address_is_in_no_network_and_zones_and_mapped_ones_are_those_they_stand_for() -> None:
    every = Networks(("0.0.0.0/0", "::/0"))
    assert "" not in every and "name" not in every
    assert "fe80::1%eth0" in Networks(("fe80::/10",))
    assert "::ffff:192.0.2.1" in Networks(("192.0.2.0/24",))
    assert "192.0.2.1" in Networks(("::ffff:192.0.2.0/120",))
    assert "192.0.2.1" not in Networks(("::/0",))


def test_who_is_in_both_stays_out_and_without_allow_all_others_come() -> None:
    gate = Gate(allow=("10.0.0.0/8", "2001:db8::/32"), deny=("10.1.0.0/16",))
    assert not gate.keeps_out("10.2.0.1") and not gate.keeps_out("2001:db8::1")
    assert gate.keeps_out("10.1.0.1") and gate.keeps_out("192.0.2.1") and gate.keeps_out("::1")
    assert not Gate(deny=("10.1.0.0/16",)).keeps_out("192.0.2.1")
    assert Gate(deny=("10.1.0.0/16",)).keeps_out("10.1.2.3")
    assert not Gate().keeps_out("192.0.2.1")
    assert Gate(allow=("10.0.0.0/8",)) == Gate(allow=("10.0.0.0/8",)) != Gate(deny=("10.0.0.0/8",))


def ended(sock: socket.socket) -> bool:
    """Return whether the connection ends without a byte."""
    sock.settimeout(20)
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def denied(router: Any) -> dict[str, int]:
    """Return how many connections each listener kept out."""
    found: dict[str, int] = router.ctl("STAT", "PRINT", "all")["denied"]
    return found


def test_a_client_of_a_denied_network_is_turned_away_and_others_are_served() -> None:
    broker = FakeBroker()
    config = config_of(broker.port)
    config["listeners"]["plain"] |= {"host": "127.0.0.1", "deny": ["127.0.0.2/32"]}
    with local_router_of(config) as router:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", router.port), source_address=("127.0.0.2", 0)) as sock:
                assert ended(sock)
        client = Client(router.port).opened()
        assert denied(router) == {"plain": 3}
        told = router.entries("connections are denied")
        assert [(one["listener"], one["address"], one["since"]) for one in told] == [("plain", "127.0.0.2", 1)]
        # None of them was a session, nor counted as one.
        assert router.ctl("STAT", "PRINT", "overall")["overall"]["accepted"] == 1
        client.sock.close()


def test_behind_a_balancer_the_clients_address_counts() -> None:
    broker = FakeBroker()
    config = config_of(broker.port)
    config["listeners"]["plain"] |= {
        "proxy_protocol": True,
        "trusted": ["127.0.0.0/8"],
        "allow": ["198.51.100.0/24", "127.0.0.1/32"],
    }
    with local_router_of(config) as router:
        with behind(router.port, "192.0.2.1") as sock:
            assert ended(sock)
        with behind(router.port, "198.51.100.7") as sock:
            sock.sendall(codec.PROTOCOL_HEADER)
            assert Peer(sock).expect(codec.START)
        # A header that speaks for nobody leaves the balancer's own address.
        with socket.create_connection(("127.0.0.1", router.port)) as sock:
            sock.sendall(b"PROXY UNKNOWN\r\n" + codec.PROTOCOL_HEADER)
            assert Peer(sock).expect(codec.START)
        assert denied(router) == {"plain": 1}
        assert [one["address"] for one in router.entries("connections are denied")] == ["192.0.2.1"]
        wait_for("its end", lambda: router.ctl("STAT", "PRINT", "overall")["overall"]["ended"].get("denied") == 1)
        # As it is without a balancer: a line of its own for each would fill the log.
        assert not [one for one in router.entries("closed") if one["how"] == "denied"]


def test_a_flood_of_them_is_a_line_now_and_then(caplog: Any) -> None:
    now = [0.0]
    found = Denials(lambda: now[0])
    for number in range(1000):
        found.denied("plain", f"192.0.2.{number % 256}")
    found.denied("other", "192.0.2.9")
    now[0] += denials.WARN_EVERY
    found.denied("plain", "192.0.2.7")
    assert found.counts == {"plain": 1001, "other": 1}
    lines = [(one.listener, one.address, one.since) for one in caplog.records]
    assert lines == [("plain", "192.0.2.0", 1), ("other", "192.0.2.9", 1), ("plain", "192.0.2.7", 1000)]


def test_a_reload_counts_for_those_who_come_then() -> None:
    broker = FakeBroker()
    config = config_of(broker.port)
    with local_router_of(config) as router:
        client = Client(router.port).opened()
        config["listeners"]["plain"]["allow"] = ["198.51.100.0/24"]
        router.reload(config)
        with socket.create_connection(("127.0.0.1", router.port)) as sock:
            assert ended(sock)
        assert len(router.ctl("CONN")) == 1
        (row,) = router.ctl("LISTEN", "PRINT")
        assert row["allow"] == ["198.51.100.0/24"] and row["deny"] == []
        client.sock.close()
