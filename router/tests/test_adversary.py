"""Hostile peers on both sides of a running router: a backend that speaks nonsense, clients that send anything."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pamqp import commands, frame
from pika.exceptions import ConnectionClosedByBroker
from router_support import PASSWORD, USER, Broker, Router, config_of, router_of, wait_for
from test_config import OPENSSL
from test_operations import client, ctl, echo, refused, sessions
from tests.free_ports import free_port

from amqp_session_router.base.model import Backend, ClientTls, Timeouts
from amqp_session_router.routing import health

HEADER = b"AMQP\0\0\x09\x01"
START_OK = frame.marshal(commands.Connection.StartOk({}, "PLAIN", f"\0{USER}\0{PASSWORD}", "en_US"), 0)
TUNE_OK = frame.marshal(commands.Connection.TuneOk(2047, 131072, 0), 0)
OPEN = frame.marshal(commands.Connection.Open("/"), 0)
CHANNEL = frame.marshal(commands.Channel.Open(), 1)
STORY = (HEADER, START_OK, TUNE_OK, OPEN, CHANNEL)


def _junk(connection: socket.socket) -> None:
    connection.recv(8)
    connection.sendall(bytes(range(256)))


def _http(connection: socket.socket) -> None:
    connection.recv(8)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def _amqp_1_0(connection: socket.socket) -> None:
    connection.recv(8)
    connection.sendall(b"AMQP\0\1\0\0")


def _huge_frame(connection: socket.socket) -> None:
    connection.recv(8)
    connection.sendall(struct.pack(">BHI", 1, 0, 2**31) + b"x" * 1000)
    connection.recv(1)


def _out_of_turn(connection: socket.socket) -> None:
    connection.recv(8)
    connection.sendall(frame.marshal(commands.Connection.OpenOk(), 0))
    connection.recv(1)


def _accepts_and_closes(connection: socket.socket) -> None:
    """The reference does not try another member then: half of its clients fail."""


def _resets(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _shuts_down(connection: socket.socket) -> None:
    connection.recv(8)
    connection.sendall(frame.marshal(commands.Connection.Close(320, "CONNECTION_FORCED - broker goes down", 0, 0), 0))


def _silent(connection: socket.socket) -> None:
    while connection.recv(1024):
        pass


def _heartbeats_only(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection.sendall(struct.pack(">BHI", 8, 0, 0) + b"\xce")
            time.sleep(0.005)


HOSTILE = {
    _junk: "does not speak AMQP 0-9-1",
    _http: "does not speak AMQP 0-9-1",
    _amqp_1_0: "speaks another version of AMQP",
    _huge_frame: "above the limit of 131072",
    _out_of_turn: "sent something else than Start",
    _accepts_and_closes: "",  # an end or a reset, as the timing has it
    _resets: "Connection reset by peer",
    _shuts_down: "320 CONNECTION_FORCED - broker goes down",
    _silent: "no Open-Ok within 3 s",
    _heartbeats_only: "no Open-Ok within 3 s",
}
WITHIN = 3.0
"""Seconds for a backend that never says Open-Ok: the real one behind it must keep within them on a busy machine."""


@contextlib.contextmanager
def backend(behave: Callable[[socket.socket], None]) -> Iterator[int]:
    """A listening port whose connections are left to `behave`, then closed."""
    listening = socket.create_server(("127.0.0.1", 0))

    def one(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            behave(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=one, args=(listening.accept()[0],), daemon=True).start()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


@pytest.mark.parametrize("behave", HOSTILE, ids=lambda behave: behave.__name__.strip("_"))
def test_a_backend_that_is_none(broker: Broker, behave: Callable[[socket.socket], None]) -> None:
    with backend(behave) as port:
        within = WITHIN if behave in (_silent, _heartbeats_only) else 30.0
        config = config_of(port, broker.port, timeouts={"backend_handshake": within, "connect": 10.0})
        config["farms"]["all"]["selector"] = "first"
        config["rules"] = [{"vhost": "other", "backend": "b0"}]
        with router_of(config) as router:
            # The next member takes the session …
            with client(router) as one:
                echo(one.channel(), "through the other")
            # … and where there is none the client gets a Close that says why, not an end of file.
            code, text = refused(router, vhost="other")
            assert code == 320
            assert "no backend of backend b0 takes the session, 1 tried; the last: b0:" in text
            assert HOSTILE[behave] in text


def _mutate(chance: random.Random, data: bytes) -> bytes:
    """Return `data` with a few bytes changed, lost, added, doubled, or a number made extreme."""
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(6):
            case 0:
                data = data[:at] + chance.randbytes(1) + data[at + 1 :]
            case 1:
                data = data[:at] + data[at + chance.randint(1, 8) :]
            case 2:
                data = data[:at] + chance.randbytes(chance.randint(1, 8)) + data[at:]
            case 3:
                data = data[:at]
            case 4:
                extreme = chance.choice([0, 1, 4096, 131072, 131073, 2**31, 2**32 - 1])
                data = data[:at] + struct.pack(">I", extreme) + data[at + 4 :]
            case _:
                data += data
    return data


def _attack(chance: random.Random, port: int) -> None:
    """One hostile client: noise, a broken step of the handshake, or nonsense on an open session; then FIN or RST."""
    with socket.create_connection(("127.0.0.1", port), 10) as attacker, contextlib.suppress(OSError):
        attacker.settimeout(0.02)
        broken = chance.randrange(-2, len(STORY) + 3)
        if broken == -2:
            attacker.sendall(chance.randbytes(chance.randint(0, 300)))
        elif broken == -1:
            attacker.sendall(_mutate(chance, b"".join(STORY)))
        elif broken < len(STORY):
            for index, part in enumerate(STORY):
                attacker.sendall(_mutate(chance, part) if index == broken else part)
                with contextlib.suppress(TimeoutError):
                    attacker.recv(4096)
        else:
            attacker.settimeout(1.0)
            attacker.sendall(b"".join(STORY))
            attacker.recv(10000)
            attacker.sendall(_mutate(chance, b"".join(chance.choice(STORY) for _ in range(5))))
            attacker.settimeout(0.02)
        with contextlib.suppress(TimeoutError):
            attacker.recv(1000)
        if chance.random() < 0.3:
            _resets(attacker)


def _open_files(router: Router) -> int:
    assert router.process is not None
    children = Path(f"/proc/{router.process.pid}/task/{router.process.pid}/children").read_text().split()
    return len([*Path(f"/proc/{children[-1]}/fd").iterdir()])


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 300), pytest.param(2, 5000, marks=pytest.mark.long)], ids=["short", "long"]
)
def test_hostile_clients_leave_nothing_behind(broker: Broker, seed: int, count: int) -> None:
    # A Close of the broker that comes together with its reset was never seen to its end: such sessions stayed for ever.
    config = config_of(
        broker.port, timeouts={"handshake": 2.0, "close": 1.0}, limits={"unauthenticated_per_address": None}
    )
    # The bystander says nothing while the attacks last, on a busy machine longer than heartbeats would allow.
    with router_of(config) as router, client(router, heartbeat=0) as bystander:
        channel = bystander.channel()
        chance = random.Random(seed)
        for _ in range(20):
            _attack(chance, router.port)
        wait_for("end of the first sessions", lambda: len(sessions(router)) == 1)
        before = _open_files(router)
        for _ in range(count):
            _attack(chance, router.port)
        wait_for("end of the hostile sessions", lambda: len(sessions(router)) == 1, 60)
        assert _open_files(router) <= before + 16  # pipes that are kept for the next
        echo(channel, "nothing happened")
        ended = ctl(router, "STAT", "PRINT")["overall"]["ended"]
        assert sum(ended.values()) == count + 20
        assert "internal" not in ended


def test_tls_to_a_plain_port_and_the_reverse(broker: Broker, tmp_path: Path) -> None:
    files = f"-keyout {tmp_path}/router.key -out {tmp_path}/router.pem"
    subprocess.run(f"{OPENSSL} {files}".split(" "), check=True, capture_output=True)
    config = config_of(broker.port, broker.port, timeouts={"handshake": 3.0, "connect": 2.0})
    config["tls"] = {"ingress": {"cert_file": f"{tmp_path}/router.pem", "key_file": f"{tmp_path}/router.key"}}
    config["listeners"]["secure"] = {"host": "127.0.0.1", "port": 0, "tls": True}
    config["backends"]["b1"]["tls"] = {"verify": False}
    config["rules"] = [{"vhost": "other", "backend": "b1"}]
    with router_of(config) as router:
        ports = {row["name"]: row["port"] for row in ctl(router, "LISTEN", "PRINT")}
        context = ssl.create_default_context(cafile=f"{tmp_path}/router.pem")
        context.check_hostname = False
        with socket.create_connection(("127.0.0.1", ports["plain"]), 10) as plain, pytest.raises(ssl.SSLError):
            context.wrap_socket(plain)
        with socket.create_connection(("127.0.0.1", ports["secure"]), 10) as plain:
            plain.sendall(HEADER)
            with contextlib.suppress(ConnectionResetError):
                assert not plain.recv(100).startswith(HEADER)
        with context.wrap_socket(socket.create_connection(("127.0.0.1", ports["secure"]), 10)) as good:
            good.sendall(HEADER)
            assert good.recv(1) == b"\1"
        # TLS to a broker that speaks none is an attempt that failed.
        code, text = refused(router, vhost="other")
        assert (code, "b1: TLS failed" in text) == (320, True)
        wait_for("end", lambda: not sessions(router))


def test_silent_clients_are_counted_by_address_and_ended_in_time(broker: Broker) -> None:
    limits = {"unauthenticated_per_address": 5}
    with router_of(config_of(broker.port, timeouts={"handshake": 1.0}, limits=limits)) as router:
        silent = [socket.create_connection(("127.0.0.1", router.port), 10) for _ in range(8)]
        try:
            wait_for("sessions", lambda: len(sessions(router)) == 5)
            ends = [one.recv(100) for one in silent]
            assert ends == [b""] * 8
            wait_for("end", lambda: not sessions(router))
            with client(router) as one:
                echo(one.channel(), "there is room again")
            ended = wait_for("count", lambda: ctl(router, "STAT", "PRINT")["overall"]["ended"])
            assert ended["handshake_timeout"] == 5
        finally:
            for one_of_them in silent:
                one_of_them.close()


def test_a_backend_that_is_doubted_greets_as_sessions_reach_it(broker: Broker, tmp_path: Path) -> None:
    files = f"-addext subjectAltName=DNS:mq.example.org -keyout {tmp_path}/router.key -out {tmp_path}/router.pem"
    subprocess.run(f"{OPENSSL} {files}".split(" "), check=True, capture_output=True)

    def why_not(port: int, **more: Any) -> str | None:
        backend = Backend("b", "127.0.0.1", port=port, **more)
        return asyncio.run(health.reach(backend, Timeouts(backend_handshake=WITHIN), lambda *_: None))

    assert why_not(broker.port) is None
    listeners = {
        "tls": {"host": "127.0.0.1", "port": free_port(), "tls": True},
        "proxy": {"host": "127.0.0.1", "port": free_port(), "proxy_protocol": True, "trusted": ["127.0.0.0/8"]},
    }
    shared = {"cert_file": f"{tmp_path}/router.pem", "key_file": f"{tmp_path}/router.key"}
    with router_of(config_of(broker.port, listeners=listeners, tls={"ingress": shared})):
        ports = [one["port"] for one in listeners.values()]
        known = ClientTls(ca_file=f"{tmp_path}/router.pem", server_name="mq.example.org")
        assert why_not(ports[0], tls=known) is None
        assert "TLS failed" in (why_not(ports[0], tls=ClientTls()) or "")
        for version in (1, 2):
            assert why_not(ports[1], proxy_protocol=version) is None
        assert why_not(ports[1]) == "it accepts and closes"


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_tls_on_both_sides_and_routing_by_the_host_name(broker: Broker, tmp_path: Path, version: str) -> None:
    files = f"-addext subjectAltName=DNS:mq.example.org -keyout {tmp_path}/router.key -out {tmp_path}/router.pem"
    subprocess.run(f"{OPENSSL} {files}".split(" "), check=True, capture_output=True)
    shared = {"cert_file": f"{tmp_path}/router.pem", "key_file": f"{tmp_path}/router.key", "minimum": version}
    inner = config_of(broker.port, tls={"ingress": shared})
    inner["listeners"]["plain"]["tls"] = True
    with router_of(inner) as far:
        outer = config_of(far.port, broker.port, tls={"ingress": shared})
        outer["backends"]["b0"]["tls"] = {"ca_file": f"{tmp_path}/router.pem", "server_name": "mq.example.org"}
        outer["rules"] = [{"key": {"type": "SNI_HOST"}, "matches": "mq\\.example\\.org", "backend": "b0"}]
        outer["listeners"]["plain"]["tls"] = True
        outer["default"] = {"reject": "come by name"}
        with router_of(outer) as near:
            context = ssl.create_default_context(cafile=f"{tmp_path}/router.pem")
            if version == "1.2":
                context.maximum_version = ssl.TLSVersion.TLSv1_2
            named = pika.SSLOptions(context, "mq.example.org")
            with client(near, ssl_options=named) as one:
                channel = one.channel()
                echo(channel, "x" * 300_000)
                found = sessions(near)[0]
                assert (found["backend"], sessions(far)[0]["phase"]) == ("b0", "open")
                ctl(near, "SESSION", found["id"], "PAUSE")
                ctl(near, "SESSION", found["id"], "UNPAUSE")
                echo(channel, "after a pause")
                ctl(near, "SESSION", found["id"], "DISCONNECT_GRACEFUL")
                with pytest.raises(ConnectionClosedByBroker) as caught:
                    one.process_data_events(20)
                assert caught.value.reply_code == 320
            unnamed = ssl.create_default_context(cafile=f"{tmp_path}/router.pem")
            unnamed.check_hostname = False
            code, text = refused(near, ssl_options=pika.SSLOptions(unnamed, "elsewhere.example.org"))
            assert (code, text) == (530, "come by name")
            # A client that goes without a word must not leave its session behind.
            raw = socket.create_connection(("127.0.0.1", near.port), 10)
            with context.wrap_socket(raw, server_hostname="mq.example.org") as lost:
                lost.sendall(b"".join(STORY))
                wait_for("open session", lambda: sessions(near, phase="open"))
            wait_for("end on both", lambda: not sessions(near) and not sessions(far))


def test_text_that_is_no_utf_8_reaches_the_broker_as_it_is(broker: Broker) -> None:
    start_ok = START_OK.replace(b"en_US", b"\xc3\xff_US")
    assert start_ok != START_OK
    with router_of(config_of(broker.port)) as router:
        for opening in (OPEN, OPEN.replace(b"\x01/", b"\x01\xff")):
            with socket.create_connection(("127.0.0.1", router.port), 10) as odd:
                odd.sendall(HEADER + start_ok + TUNE_OK + opening)
                seen = b""
                while b"\0\x0a\0\x29" not in seen and b"\0\x0a\0\x32" not in seen:
                    more = odd.recv(4096)
                    assert more, seen
                    seen += more
                assert ctl(router, "STAT", "PRINT", "all")
        assert not [e for e in router.entries("closed") if e["how"] == "internal"]
