"""The pitfalls of a session router, each against brokers that behave as told."""

from __future__ import annotations

import contextlib
import gc
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from router_support import config_of, table, wait_for
from router_support import local_router_of as router_of
from test_config import OPENSSL
from tests.free_ports import free_port

from amqp_session_router.amqp import codec, frames
from amqp_session_router.net import proxy_protocol
from amqp_session_router.relay.resync_window import ResyncWindow
from amqp_session_router.relay.splice_flow import SpliceFlow
from amqp_session_router.session.session import LiveSession


def drain(sock: socket.socket) -> None:
    """Read and forget all that comes."""
    with contextlib.suppress(OSError):
        while sock.recv(1 << 20):
            pass


PROPERTIES = codec.encode_table({"product": "RabbitMQ", "capabilities": {"connection.blocked": True}})


def received(sock: socket.socket, most: int) -> bytes:
    """Return the next bytes, `most` at most; raises EOFError at the end: who went on asking would never stop."""
    if not (data := sock.recv(most)):
        raise EOFError
    return data


class Peer:
    """Reads and writes frames on a blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(15)
        self.buffer = bytearray()
        self.tune_ok = (0, 0, 0)

    def frame(self) -> frames.Frame:
        """Return the next frame; raises EOFError at the end."""
        while (found := frames.next_frame(self.buffer, 1 << 24)) is None:
            self.buffer += received(self.sock, 65536)
        return found

    def exactly(self, size: int) -> bytes:
        """Return the next `size` bytes, which may come in pieces; raises EOFError at the end."""
        while len(self.buffer) < size:
            self.buffer += received(self.sock, 65536)
        found = bytes(self.buffer[:size])
        del self.buffer[:size]
        return found

    def expect(self, method: int) -> frames.Reader:
        """Return the arguments of the next method, which must be this; heartbeats are passed over."""
        while (found := self.frame()).type == frames.HEARTBEAT:
            pass
        assert found.method == method, found
        return frames.Reader(found.payload)

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)


class Client(Peer):
    """A client's handshake."""

    def __init__(
        self,
        port: int,
        vhost: str = "/",
        heartbeat: int = 0,
        blocked: bool = True,
        frame_max: int = 0,
        tls: ssl.SSLContext | None = None,
        response: tuple[str, bytes] = ("PLAIN", b"\0user\0word"),
        source: tuple[str, int] | None = None,
    ) -> None:
        sock = socket.create_connection(("127.0.0.1", port), source_address=source)
        super().__init__(sock if tls is None else tls.wrap_socket(sock))
        self.send(codec.PROTOCOL_HEADER)
        self.expect(codec.START)
        properties = codec.encode_table({"connection_name": "me", "capabilities": {"connection.blocked": blocked}})
        self.send(codec.start_ok(properties, *response, "en_US"))
        tune = self.expect(codec.TUNE)
        self.channel_max, self.frame_max, self.heartbeat = tune.number(2), tune.number(4), tune.number(2)
        self.send(codec.tune(codec.TUNE_OK, self.channel_max, frame_max or self.frame_max, heartbeat))
        self.send(codec.open_(vhost))

    def opened(self) -> Client:
        """Wait for Open-Ok."""
        self.expect(codec.OPEN_OK)
        return self

    def closed(self) -> tuple[int, str]:
        """Wait for a Close, answer it, and return code and text."""
        arguments = self.expect(codec.CLOSE)
        found = arguments.number(2), arguments.short()
        self.send(codec.CLOSE_OK_FRAME)
        return found


class FakeBroker:
    """Runs `behave` for each connection, in a thread."""

    def __init__(self, behave: Callable[[FakeBroker, Peer], Any] | None = None) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listening.getsockname()[1])
        self.behave = behave or (lambda broker, peer: broker.open(peer))
        self.accepted = 0
        self.opened: list[Peer] = []
        self.properties: dict[str, Any] = {}
        self.vhosts: list[str] = []
        self.tune = (2047, 131072, 60)
        self.tune_ok = (0, 0, 0)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self.listening.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._one, args=(Peer(sock),), daemon=True).start()

    def _one(self, peer: Peer) -> None:
        try:
            self.behave(self, peer)
        except (OSError, EOFError):
            peer.sock.close()

    def header(self, peer: Peer) -> None:
        """Read the protocol header, and nothing after it; raises EOFError at the end, as of a health check."""
        data = b""
        while len(data) < 8:
            data += received(peer.sock, 8 - len(data))
        assert data == codec.PROTOCOL_HEADER

    def until_open(self, peer: Peer, properties: bytes = PROPERTIES, mechanisms: str = "PLAIN AMQPLAIN") -> None:
        """Shake hands up to Open, with these `properties` and `mechanisms` in Start."""
        self.header(peer)
        peer.send(codec.start(properties, mechanisms))
        self.properties = table(peer.expect(codec.START_OK).long())
        peer.send(codec.tune(codec.TUNE, *self.tune))
        arguments = peer.expect(codec.TUNE_OK)
        self.tune_ok = peer.tune_ok = (arguments.number(2), arguments.number(4), arguments.number(2))
        self.vhosts.append(peer.expect(codec.OPEN).short())

    def open(self, peer: Peer, properties: bytes = PROPERTIES, mechanisms: str = "PLAIN AMQPLAIN") -> None:
        """Shake hands to the end, as `until_open`."""
        self.until_open(peer, properties, mechanisms)
        # Before the answer: who has it may look at once.
        self.opened.append(peer)
        peer.send(codec.OPEN_OK_FRAME)

    def peer(self) -> Peer:
        """Return the connection that is open."""
        wait_for("an open session", lambda: self.opened)
        return self.opened[-1]


def refuse_with(code: int) -> Callable[[FakeBroker, Peer], None]:
    def behave(broker: FakeBroker, peer: Peer) -> None:
        broker.until_open(peer)
        peer.send(codec.close(code, f"because of {code}"))

    return behave


def nonsense(broker: FakeBroker, peer: Peer) -> None:
    peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def other_version(broker: FakeBroker, peer: Peer) -> None:
    peer.send(b"AMQP\x00\x01\x00\x00")


def silent(broker: FakeBroker, peer: Peer) -> None:
    peer.sock.recv(1000)
    threading.Event().wait(30)


def early_end(broker: FakeBroker, peer: Peer) -> None:
    peer.sock.close()


def late_end(broker: FakeBroker, peer: Peer) -> None:
    broker.until_open(peer)
    peer.sock.close()


BAD = {
    "early end": early_end,
    "end after Open": late_end,
    "320": refuse_with(320),
    "541": refuse_with(541),
    "nonsense": nonsense,
    "another version": other_version,
    "silence": silent,
}
QUICK = {"timeouts": {"backend_handshake": 3.0, "connect": 3.0, "close": 1.0}}


@pytest.mark.parametrize("name", sorted(BAD))
def test_pitfall_1_another_backend_is_tried(name: str) -> None:
    bad, good = FakeBroker(BAD[name]), FakeBroker()
    with router_of(config_of(bad.port, good.port, **QUICK)) as router:
        for _ in range(3):
            Client(router.port).opened()
        assert len(good.opened) == 3 and bad.accepted >= 1


def test_pitfall_1_names_refusals_and_tls_failures_are_tried_again() -> None:
    good, plain = FakeBroker(), FakeBroker(nonsense)
    config = config_of(good.port, **QUICK)
    config["backends"] |= {
        "refuses": {"host": "127.0.0.1", "port": free_port()},
        "unknown": {"host": "no-such-host.invalid"},
        "no-tls": {"host": "127.0.0.1", "port": plain.port, "tls": {"verify": False}},
    }
    config["farms"]["all"]["members"] = ["refuses", "unknown", "no-tls", "b0"]
    with router_of(config) as router:
        for _ in range(4):
            Client(router.port).opened()
        assert len(good.opened) == 4


@pytest.mark.parametrize("code", [403, 530])
def test_pitfall_1_what_says_something_of_the_client_is_relayed(code: int) -> None:
    bad, good = FakeBroker(refuse_with(code)), FakeBroker()
    config = config_of(bad.port, good.port, **QUICK)
    config["default"] = {"backend": "b0"}
    with router_of(config) as router:
        assert Client(router.port).closed() == (code, f"because of {code}")
        assert not good.opened


def test_all_refusing_is_a_close_with_a_reason() -> None:
    with router_of(config_of(FakeBroker(early_end).port, FakeBroker(refuse_with(320)).port, **QUICK)) as router:
        code, text = Client(router.port).closed()
        assert code == 320 and "no backend" in text


def test_pitfall_2_capability_and_properties_are_added() -> None:
    broker = FakeBroker()
    with router_of(config_of(broker.port)) as router:
        client = Client(router.port).opened()
        capabilities = broker.properties["capabilities"]
        assert capabilities == {"connection.blocked": True, "authentication_failure_close": True}
        assert broker.properties["connection_name"] == "me"
        own = client.sock.getsockname()
        assert broker.properties["proxy_client"] == f"{own[0]}:{own[1]}"


def test_pitfall_3_limits_are_learned_and_heartbeat_is_the_clients() -> None:
    broker = FakeBroker()
    broker.tune = (100, 8192, 30)
    with router_of(config_of(broker.port, **QUICK)) as router:
        # Nothing is known yet: the first client's larger frames would be split.
        assert Client(router.port, heartbeat=7).opened().frame_max == 131072
        assert broker.tune_ok == (100, 8192, 7)
        second = Client(router.port, heartbeat=7).opened()
        assert (second.channel_max, second.frame_max) == (100, 8192)
        assert broker.tune_ok == (100, 8192, 7)


def hears_all_before_it_speaks(broker: FakeBroker, peer: Peer) -> None:
    if not broker.opened:
        broker.open(peer)
        return
    broker.header(peer)
    broker.properties = table(peer.expect(codec.START_OK).long())
    arguments = peer.expect(codec.TUNE_OK)
    broker.tune_ok = (arguments.number(2), arguments.number(4), arguments.number(2))
    broker.vhosts.append(peer.expect(codec.OPEN).short())
    broker.opened.append(peer)
    peer.send(codec.start(PROPERTIES, "PLAIN AMQPLAIN") + codec.tune(codec.TUNE, *broker.tune) + codec.OPEN_OK_FRAME)


def test_a_broker_that_is_known_is_told_everything_at_once() -> None:
    broker = FakeBroker(hears_all_before_it_speaks)
    with router_of(config_of(broker.port, **QUICK)) as router:
        Client(router.port).opened()
        before, broker.properties = broker.properties, {}
        Client(router.port, vhost="other", heartbeat=7).opened()
        assert broker.properties.keys() == before.keys() and broker.vhosts == ["/", "other"]
        assert broker.tune_ok == (2047, 131072, 7)


def test_another_product_is_asked_step_by_step_each_time() -> None:
    """Nobody has seen that it would read what comes before it has asked."""

    def behave(broker: FakeBroker, peer: Peer) -> None:
        broker.header(peer)
        peer.sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            peer.frame()
        peer.sock.settimeout(10)
        peer.send(codec.start(codec.encode_table({"product": "Another"}), "PLAIN AMQPLAIN"))
        peer.expect(codec.START_OK)
        peer.send(codec.tune(codec.TUNE, *broker.tune))
        peer.expect(codec.TUNE_OK)
        peer.expect(codec.OPEN)
        broker.opened.append(peer)
        peer.send(codec.OPEN_OK_FRAME)

    broker = FakeBroker(behave)
    with router_of(config_of(broker.port, **QUICK)) as router:
        for _ in range(2):
            Client(router.port).opened()
        assert len(broker.opened) == 2


def test_a_known_broker_with_other_limits_is_asked_again() -> None:
    broker = FakeBroker()
    with router_of(config_of(broker.port, **QUICK)) as router:
        Client(router.port).opened()
        before, broker.tune = broker.accepted, (100, 131072, 60)
        told_before = Client(router.port).opened()
        assert told_before.channel_max == 2047 and broker.accepted == before + 2
        # The connection that was given up has been told the old limits, and may be read last.
        assert 100 in {peer.tune_ok[0] for peer in broker.opened}
        assert Client(router.port).opened().channel_max == 100 and broker.accepted == before + 3
        assert router.ctl("STAT", "PRINT")["overall"]["failed_attempts"] == 0


@pytest.mark.parametrize("mechanisms", ["AMQPLAIN", "PLAIN"])
def test_a_known_broker_that_refuses_is_asked_step_by_step_then(mechanisms: str) -> None:
    """What was said ahead is no reason for another answer than ever: that one is AttemptFailed, the next one served."""

    refused = []

    def behave(broker: FakeBroker, peer: Peer) -> None:
        if refused or not broker.opened:
            broker.open(peer)
            return
        broker.header(peer)
        refused.append(peer)
        peer.send(codec.start(PROPERTIES, mechanisms))
        peer.sock.close()

    broker = FakeBroker(behave)
    with router_of(config_of(broker.port, **QUICK)) as router:
        Client(router.port).opened()
        code, text = Client(router.port).closed()
        assert (code, text) == (
            (403, "it does not offer the mechanism PLAIN")
            if mechanisms == "AMQPLAIN"
            else (403, "the broker ended the connection upon the login")
        )
        Client(router.port).opened()


def test_tune_ok_above_the_offer_is_refused() -> None:
    with router_of(config_of(FakeBroker().port)) as router:
        code, text = Client(router.port, frame_max=1 << 20).closed()
        assert code == 530 and "frame_max" in text


def test_pitfall_4_heartbeats_before_open_ok() -> None:
    with router_of(config_of(FakeBroker(silent).port, timeouts={"backend_handshake": 8})) as router:
        client = Client(router.port, heartbeat=1)
        client.send(codec.HEARTBEAT)
        beats = [client.frame() for _ in range(3)]
        assert {frame.type for frame in beats} == {frames.HEARTBEAT}


def test_pitfalls_4_and_5_pause() -> None:
    """Blocked, heartbeats to the broker, nothing of the client passes; then Unblocked, and all of it."""
    broker = FakeBroker()
    with router_of(config_of(broker.port)) as router:
        client = Client(router.port, heartbeat=1).opened()
        peer = broker.peer()
        router.ctl("VHOST", "PAUSE", "/")
        client.expect(codec.BLOCKED)
        client.send(frames.frame(b"\x00\x14\x00\x0a\x00", 1))
        beats = [peer.frame() for _ in range(3)]
        assert {frame.type for frame in beats} == {frames.HEARTBEAT}
        peer.send(codec.HEARTBEAT)
        assert client.frame().type == frames.HEARTBEAT
        waiting = Client(router.port, heartbeat=1)
        assert waiting.frame().type == frames.HEARTBEAT
        router.ctl("VHOST", "UNPAUSE", "/")
        client.expect(codec.UNBLOCKED)
        waiting.opened()
        while (frame := peer.frame()).type == frames.HEARTBEAT:
            pass
        assert frame.payload == b"\x00\x14\x00\x0a\x00" and frame.channel == 1


def test_pitfall_5_a_pause_holds_though_no_boundary_can_be_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResyncWindow, "find_boundary", lambda _: None)
    broker = FakeBroker()
    with router_of(config_of(broker.port, timeouts={"close": 0.5})) as router:
        client = Client(router.port).opened()
        peer = broker.peer()
        threading.Thread(target=drain, args=(peer.sock,), daemon=True).start()
        sending = threading.Event()

        def rush() -> None:
            crowd = frames.frame(b"x" * 100, 1, kind=3) * 1000
            with contextlib.suppress(OSError):
                while True:
                    client.sock.sendall(crowd)
                    sending.set()

        threading.Thread(target=rush, daemon=True).start()
        assert sending.wait(10)
        wait_for("a crowd", lambda: router.ctl("CONN")[0]["from_client"] > 20_000_000)
        router.ctl("VHOST", "PAUSE", "/")
        wait_for("the pause", lambda: router.entries("paused inside of a frame"), 10)
        before = router.ctl("CONN")[0]["from_client"]

        def stuck() -> bool:
            sending.clear()
            return not sending.wait(0.3)

        wait_for("full buffers of the client", stuck, 20)
        assert router.ctl("CONN")[0]["from_client"] == before
        router.ctl("VHOST", "UNPAUSE", "/")
        wait_for("the rest", lambda: router.ctl("CONN")[0]["from_client"] > before)


def test_a_data_rate_holds_though_no_boundary_can_be_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker is to get heartbeats meanwhile, which need a boundary: who hides it does not read on for that."""
    monkeypatch.setattr(ResyncWindow, "find_boundary", lambda _: None)
    broker = FakeBroker()
    limits = {"default": {"data_rate": 1_000_000}}
    with router_of(config_of(broker.port, limits=limits)) as router:
        # Its heartbeat is too short for what it owes soon.
        client = Client(router.port, heartbeat=1).opened()
        threading.Thread(target=drain, args=(broker.peer().sock,), daemon=True).start()
        crowd, begin = frames.frame(b"x" * 100, 1, kind=3) * 1000, time.monotonic()
        client.sock.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            while time.monotonic() < begin + 4:
                client.sock.sendall(crowd)
        passed = router.ctl("CONN")[0]["from_client"]
        # A second's worth at once, and what comes in until it is seen that no boundary is proven.
        assert passed < 1_000_000 * (1 + time.monotonic() - begin) + 30_000_000


def test_pitfall_5_no_blocked_for_who_cannot_read_it() -> None:
    broker = FakeBroker()
    with router_of(config_of(broker.port)) as router:
        client = Client(router.port, blocked=False).opened()
        router.ctl("VHOST", "PAUSE", "/")
        broker.peer().send(codec.HEARTBEAT)
        assert client.frame().type == frames.HEARTBEAT


def test_pitfall_6_a_broker_that_stops_reading_only_holds_the_client_back() -> None:
    broker = FakeBroker()
    with router_of(config_of(broker.port)) as router:
        client = Client(router.port).opened()
        body = frames.frame(bytes(100_000), 1, frames.BODY)
        client.sock.settimeout(1)
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 1 << 30:
                sent += client.sock.send(body[sent % len(body) :])
        assert sent < 1 << 27
        peer, got = broker.peer(), 0
        while got < sent:
            got += len(received(peer.sock, 1 << 20))
        assert got == sent


def test_pitfall_7_close_comes_between_frames_and_waits_for_close_ok() -> None:
    broker = FakeBroker()
    with router_of(config_of(broker.port)) as router:
        client = Client(router.port).opened()
        peer = broker.peer()
        body = frames.frame(bytes(50_000), 1, frames.BODY)
        peer.send(body[:20_000])
        assert client.exactly(20_000) == body[:20_000]
        session = router.ctl("CONN")[0]["id"]
        router.ctl("SESSION", session, "DISCONNECT_GRACEFUL")
        peer.send(body[20_000:])
        assert client.exactly(30_008) == body[20_000:]
        assert client.closed()[0] == 320
        peer.expect(codec.CLOSE)
        peer.send(codec.CLOSE_OK_FRAME)
        assert client.sock.recv(10) == b"" and peer.sock.recv(10) == b""
        wait_for("the end", lambda: not router.ctl("CONN"))


def test_pitfall_7_who_stands_in_a_frame_gets_its_close_and_may_answer(tmp_path: Path) -> None:
    words = f"{OPENSSL} -keyout {tmp_path}/key -out {tmp_path}/certificate"
    subprocess.run(words.split(" "), check=True, capture_output=True)
    tls = {"ingress": {"cert_file": f"{tmp_path}/certificate", "key_file": f"{tmp_path}/key"}}
    broker = FakeBroker()
    config = config_of(broker.port, timeouts={"close": 2.0}, tls=tls)
    config["listeners"]["plain"]["tls"] = True
    with router_of(config) as router:
        context = ssl.create_default_context(cafile=f"{tmp_path}/certificate")
        context.check_hostname = False
        client = Client(router.port, tls=context).opened()
        client.send(frames.frame(bytes(50_000), 1, frames.BODY)[:20_000])
        assert len(broker.peer().exactly(20_000)) == 20_000
        router.ctl("SESSION", router.ctl("CONN")[0]["id"], "DISCONNECT_GRACEFUL")
        assert client.closed()[0] == 320
        answered = time.monotonic()
        wait_for("the end", lambda: not router.ctl("CONN"))
        assert time.monotonic() - answered < 1.5
        with contextlib.suppress(ssl.SSLError):
            assert client.sock.recv(10) == b""


@pytest.mark.parametrize("verb", ["PAUSE", "DISCONNECT_GRACEFUL"])
def test_pitfall_7_who_has_used_up_its_data_rate_comes_to_the_end_of_its_frame(verb: str) -> None:
    broker = FakeBroker()
    limits = {"default": {"data_rate": 20_000}}
    with router_of(config_of(broker.port, limits=limits, timeouts={"close": 14.0})) as router:
        client = Client(router.port).opened()
        body = frames.frame(bytes(60_000), 1, frames.BODY)
        client.send(body[:30_000])
        peer = broker.peer()
        assert peer.exactly(16_384)
        router.ctl("SESSION", router.ctl("CONN")[0]["id"], verb)
        client.send(body[30_000:])
        assert len(peer.exactly(60_008 - 16_384)) == 60_008 - 16_384
        client.expect(codec.BLOCKED if verb == "PAUSE" else codec.CLOSE)
        if verb == "DISCONNECT_GRACEFUL":
            peer.expect(codec.CLOSE)


@pytest.mark.parametrize("rejected", [False, True], ids=["in its handshake", "told to go"])
def test_pitfall_7_force_waits_for_nobody(rejected: bool) -> None:
    rules = [{"vhost": "no", "reject": "not here"}]
    with router_of(config_of(free_port(), timeouts={"close": 20.0, "handshake": 20.0}, rules=rules)) as router:
        if rejected:
            peer: Peer = Client(router.port, "no")
            peer.expect(codec.CLOSE)
        else:
            peer = Peer(socket.create_connection(("127.0.0.1", router.port)))
            peer.send(codec.PROTOCOL_HEADER)
            peer.expect(codec.START)
        router.ctl("SESSION", router.ctl("CONN")[0]["id"], "FORCE_DISCONNECT")
        assert not router.ctl("CONN")
        with pytest.raises(ConnectionResetError):
            peer.sock.recv(10)


def test_pitfall_7_dead_broker_is_a_close_between_frames() -> None:
    broker = FakeBroker()
    with router_of(config_of(broker.port)) as router:
        client = Client(router.port).opened()
        broker.peer().sock.close()
        code, text = client.closed()
        assert code == 320 and "broker" in text
        wait_for("how it ended", lambda: router.entries("closed"))
        assert router.entries("closed")[0]["how"] == "broker_lost"


def test_pitfall_7_dead_broker_is_a_reset_inside_of_a_frame() -> None:
    broker = FakeBroker()
    with router_of(config_of(broker.port)) as router:
        client = Client(router.port).opened()
        broker.peer().send(frames.frame(bytes(1000), 1, frames.BODY)[:500])
        assert len(client.exactly(500)) == 500
        broker.peer().sock.close()
        with pytest.raises(ConnectionResetError):
            client.sock.recv(1)


def test_a_message_that_ends_like_a_close_is_no_close() -> None:
    """The broker's connection ends behind it: the client is told, as behind any other message."""
    broker = FakeBroker()
    with router_of(config_of(broker.port)) as router:
        client = Client(router.port).opened()
        peer = broker.peer()
        like_one = codec.close(200, "Goodbye")[:-1]
        messages = frames.frame(b"x" * 100, 1, kind=3) * 80_000 + frames.frame(like_one, 1, kind=3)

        def serve() -> None:
            peer.send(messages)
            peer.sock.close()

        threading.Thread(target=serve, daemon=True).start()
        assert client.exactly(len(messages)) == messages
        assert client.closed()[0] == 320
        assert wait_for("the end", lambda: router.entries("closed"))[0]["how"] == "broker_lost"


@pytest.mark.parametrize("crowd", [0, 40_000], ids=["alone", "in a crowd"])
def test_a_pause_and_an_alarm_of_the_broker_know_of_each_other(crowd: int) -> None:
    broker = FakeBroker()
    messages = frames.frame(b"x" * 100, 1, kind=3) * crowd
    with router_of(config_of(broker.port)) as router:
        client = Client(router.port).opened()
        peer = broker.peer()

        def alarmed(frame: bytes) -> None:
            """The broker says so, with messages after it."""
            threading.Thread(target=peer.send, args=(frame + messages,), daemon=True).start()
            assert client.frame().method == frames.next_frame(bytearray(frame), 1000).method  # type: ignore[union-attr]
            assert client.exactly(len(messages)) == messages

        alarmed(codec.blocked("low on memory"))
        router.ctl("VHOST", "PAUSE", "/")
        assert "paused" in client.expect(codec.BLOCKED).short()
        router.ctl("VHOST", "UNPAUSE", "/")
        alarmed(codec.UNBLOCKED_FRAME)
        # An alarm that begins and ends while it is paused.
        router.ctl("VHOST", "PAUSE", "/")
        assert "paused" in client.expect(codec.BLOCKED).short()
        alarmed(codec.blocked("low on disk"))
        peer.send(codec.UNBLOCKED_FRAME)
        assert client.expect(codec.UNBLOCKED)
        assert "paused" in client.expect(codec.BLOCKED).short()
        router.ctl("VHOST", "UNPAUSE", "/")
        assert client.expect(codec.UNBLOCKED)


def test_pitfall_7_half_close_travels_on() -> None:
    broker = FakeBroker()
    with router_of(config_of(broker.port)) as router:
        client = Client(router.port).opened()
        client.send(codec.HEARTBEAT)
        client.sock.shutdown(socket.SHUT_WR)
        peer = broker.peer()
        assert peer.frame().type == frames.HEARTBEAT
        with pytest.raises(EOFError):
            peer.frame()
        peer.send(codec.HEARTBEAT)
        assert client.frame().type == frames.HEARTBEAT


@pytest.mark.parametrize("closer", ["client", "broker"])
def test_clean_closes_are_no_failures(closer: str) -> None:
    broker = FakeBroker()
    with router_of(config_of(broker.port)) as router:
        client = Client(router.port).opened()
        one, other = (client, broker.peer()) if closer == "client" else (broker.peer(), client)
        one.send(codec.close(200, "bye"))
        other.expect(codec.CLOSE)
        other.send(codec.CLOSE_OK_FRAME)
        one.expect(codec.CLOSE_OK)
        client.sock.close()
        broker.peer().sock.close()
        wait_for("how it ended", lambda: router.entries("closed"))
        assert router.entries("closed")[0]["how"] == f"{closer}_closed"


@pytest.mark.parametrize("closer", ["client", "broker"])
def test_after_close_and_close_ok_the_session_is_over_whoever_keeps_its_socket_open(closer: str) -> None:
    broker = FakeBroker()
    with router_of(config_of(broker.port, timeouts={"close": 60})) as router:
        client = Client(router.port).opened()
        one, other = (client, broker.peer()) if closer == "client" else (broker.peer(), client)
        one.send(codec.close(200, "bye"))
        other.expect(codec.CLOSE)
        other.send(codec.CLOSE_OK_FRAME)
        one.expect(codec.CLOSE_OK)
        for peer in (one, other):
            with pytest.raises(EOFError):
                peer.frame()
        wait_for("how it ended", lambda: router.entries("closed"))
        assert router.entries("closed")[0]["how"] == f"{closer}_closed"


def test_a_client_that_was_sent_close_ok_ends_the_connection_itself() -> None:
    """Another of its threads may wait for an answer yet: an end of stream before its own would be an error there."""
    broker = FakeBroker()
    with router_of(config_of(broker.port)) as router:
        client = Client(router.port).opened()
        client.send(codec.close(200, "bye") + codec.close(200, "bye"))
        broker.peer().expect(codec.CLOSE)
        broker.peer().send(codec.CLOSE_OK_FRAME)
        client.expect(codec.CLOSE_OK)
        client.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.frame()
        client.sock.close()
        wait_for("how it ended", lambda: router.entries("closed"))
        assert router.entries("closed")[0]["how"] == "client_closed"


def test_a_close_ok_that_nobody_asked_for_ends_nothing() -> None:
    broker = FakeBroker()
    with router_of(config_of(broker.port)) as router:
        client, peer = Client(router.port).opened(), broker.peer()
        peer.send(codec.CLOSE_OK_FRAME)
        client.expect(codec.CLOSE_OK)
        client.sock.settimeout(1.5)  # longer than a client is waited for that did ask
        with pytest.raises(TimeoutError):
            client.frame()
        assert not router.entries("closed")
        client.sock.close()


def test_a_close_ok_that_is_not_whole_ends_nothing_yet() -> None:
    broker = FakeBroker()
    with router_of(config_of(broker.port, timeouts={"close": 60})) as router:
        client = Client(router.port).opened()
        client.send(codec.close(200, "bye"))
        broker.peer().expect(codec.CLOSE)
        broker.peer().send(codec.CLOSE_OK_FRAME[:-1])
        assert client.exactly(11) == codec.CLOSE_OK_FRAME[:-1]
        broker.peer().send(codec.CLOSE_OK_FRAME[-1:])
        assert client.exactly(1) == codec.CLOSE_OK_FRAME[-1:]
        client.sock.close()
        wait_for("how it ended", lambda: router.entries("closed"))
        assert router.entries("closed")[0]["how"] == "client_closed"


def test_bytes_behind_the_clients_close_do_not_turn_its_close_ok_into_a_reset() -> None:
    """The client's data rate is used up, so the router has not read all that the client says: no reset for that."""
    broker = FakeBroker()
    limits = {"default": {"data_rate": 20_000}}
    with router_of(config_of(broker.port, timeouts={"close": 60}, limits=limits)) as router:
        client, peer = Client(router.port).opened(), broker.peer()
        beats = codec.HEARTBEAT * 5000
        # What is read with the Close at its end is more than a second's worth: the rest waits in the socket.
        client.send(codec.HEARTBEAT * 3000 + codec.close(200, "bye"))
        peer.expect(codec.CLOSE)
        client.send(beats)
        peer.send(codec.CLOSE_OK_FRAME)
        client.expect(codec.CLOSE_OK)
        time.sleep(0.3)
        # A reset would make one of these fail.
        client.send(codec.HEARTBEAT)
        client.sock.shutdown(socket.SHUT_WR)
        with pytest.raises(EOFError):
            while client.frame():
                pass
        wait_for("how it ended", lambda: router.entries("closed"))
        assert router.entries("closed")[0]["how"] == "client_closed"


def test_a_session_that_is_over_is_gone_without_the_collector() -> None:
    broker = FakeBroker()

    def alive() -> int:
        return sum(isinstance(one, LiveSession | SpliceFlow) for one in gc.get_objects())

    with router_of(config_of(broker.port)) as router:
        gc.collect()
        gc.disable()
        try:
            before = alive()
            client = Client(router.port).opened()
            assert alive() == before + 3
            client.send(codec.close(200, "bye"))
            broker.peer().expect(codec.CLOSE)
            broker.peer().send(codec.CLOSE_OK_FRAME)
            client.expect(codec.CLOSE_OK)
            client.sock.close()
            broker.peer().sock.close()
            wait_for("the end", lambda: alive() == before)
        finally:
            gc.enable()


def test_pitfall_8_silent_clients_are_ended() -> None:
    with router_of(config_of(FakeBroker().port, timeouts={"handshake": 0.5})) as router:
        sock = socket.create_connection(("127.0.0.1", router.port))
        sock.settimeout(10)
        assert sock.recv(10) == b""


def test_pitfall_8_the_kernel_watches_both_peers() -> None:
    broker = FakeBroker()
    with router_of(config_of(broker.port)) as router:
        client = Client(router.port).opened()
        ends = [client.sock.getsockname()[1], broker.peer().sock.getpeername()[1]]

        def watched() -> bool:
            with Path("/proc/net/tcp").open() as table:
                rows = [line.split() for line in table]
            # The timer column: 02 is a keepalive that is armed, once all is acknowledged.
            return all(
                any(f":{port:04X}" in row[1] + row[2] and row[5].startswith("02:") for row in rows) for port in ends
            )

        wait_for("a keepalive on both sides", watched)


def test_pitfall_9_source_addresses_are_used_in_turn() -> None:
    brokers = [FakeBroker(), FakeBroker()]
    config = config_of(*(broker.port for broker in brokers))
    for backend in config["backends"].values():
        backend["source_addresses"] = ["127.0.0.2", "127.0.0.3"]
    with router_of(config) as router:
        clients = [Client(router.port).opened() for _ in range(8)]
        assert len(clients) == 8
        for broker in brokers:
            assert {peer.sock.getpeername()[0] for peer in broker.opened} == {"127.0.0.2", "127.0.0.3"}


@pytest.mark.parametrize("version", [1, 2])
def test_proxy_headers_in_and_out(version: int) -> None:
    seen: list[Any] = []

    def behave(broker: FakeBroker, peer: Peer) -> None:
        data = b""
        while (found := proxy_protocol.parse(data)) is None:
            data += received(peer.sock, 1)
        seen.append(found[0].source)
        broker.open(peer)

    broker = FakeBroker(behave)
    config = config_of(broker.port)
    config["listeners"]["plain"] |= {"proxy_protocol": True, "trusted": ["127.0.0.0/8"]}
    config["backends"]["b0"]["proxy_protocol"] = version
    with router_of(config) as router:
        header = proxy_protocol.build(version, ("192.0.2.77", 4711), ("192.0.2.1", 5672))
        sock = socket.create_connection(("127.0.0.1", router.port))
        for byte in header + codec.PROTOCOL_HEADER:
            sock.sendall(bytes((byte,)))
        client = Peer(sock)
        client.expect(codec.START)
        client.send(codec.start_ok(codec.encode_table({}), "PLAIN", b"\0u\0w", "en_US"))
        client.expect(codec.TUNE)
        client.send(codec.tune(codec.TUNE_OK, 0, 0, 0) + codec.open_("/"))
        client.expect(codec.OPEN_OK)
        # Before it the router's own, by which the broker was asked for its Start.
        assert seen[1:] == [("192.0.2.77", 4711)]
        assert router.ctl("CONN")[0]["client"] == "192.0.2.77:4711"


@pytest.mark.parametrize("whole", [20_000, 140_000])
@pytest.mark.parametrize("split", [False, True], ids=["as agreed", "split"])
def test_a_content_header_above_frame_max_reaches_its_consumer(whole: int, split: bool) -> None:
    """RabbitMQ does not divide it, whatever the consumer agreed to."""
    broker = FakeBroker()
    if split:
        broker.tune = (2047, 4096, 60)
    with router_of(config_of(broker.port)) as router:
        client = Client(router.port, frame_max=8192).opened()
        header = frames.frame(b"\x00\x3c" + bytes(whole - 10), 1, kind=2)
        broker.peer().send(header + codec.HEARTBEAT)
        assert client.exactly(len(header) + 8) == header + codec.HEARTBEAT
        assert not router.entries("closed")


@pytest.mark.parametrize("payload", [131_065, 131_072, 131_073, 1 << 18])
@pytest.mark.parametrize("kind", [2, 3])
def test_what_a_broker_says_of_a_frames_size_is_its_own(payload: int, kind: int) -> None:
    """RabbitMQ takes payloads of frame_max bytes, and answers larger ones in its own words."""
    broker = FakeBroker()
    with router_of(config_of(broker.port)) as router:
        client = Client(router.port).opened()
        whole = frames.frame(b"\x00\x3c" + bytes(payload - 2), 1, kind=kind)
        threading.Thread(target=client.send, args=(whole,), daemon=True).start()
        assert broker.peer().exactly(len(whole)) == whole
        broker.peer().send(codec.close(501, "FRAME_ERROR - theirs"))
        assert client.closed() == (501, "FRAME_ERROR - theirs")


def test_frames_above_the_limit_are_501() -> None:
    broker = FakeBroker()
    with router_of(config_of(broker.port, limits={"default": {"frame_max": 65_536}})) as router:
        client = Client(router.port).opened()
        client.send(struct.pack(">BHI", 3, 1, 1 << 20) + b"x" * 5000)
        code, _ = client.closed()
        assert code == 501


def test_a_limit_of_frames_below_what_was_agreed_holds_in_a_crowd() -> None:
    broker = FakeBroker()
    limits = {"default": {"frame_max": 65536}, "vhosts": {"/": {"frame_max": 4096}}}
    with router_of(config_of(broker.port, limits=limits)) as router:
        client = Client(router.port).opened()
        threading.Thread(target=drain, args=(broker.peer().sock,), daemon=True).start()
        crowd = frames.frame(b"x" * 100, 1, kind=3) * 1000
        for _ in range(200):
            client.send(crowd)
        client.send(frames.frame(b"x" * 5000, 1, kind=3))
        assert client.closed()[0] == 501


def test_reconnecting_client_after_exit_gets_320() -> None:
    broker = FakeBroker()
    with router_of(config_of(broker.port)) as router:
        client = Client(router.port).opened()
        router.exit(30.0)
        assert client.closed()[0] == 320
        broker.peer().expect(codec.CLOSE)
        broker.peer().send(codec.CLOSE_OK_FRAME)
        began = time.monotonic()
        router.thread.join(20)
        assert not router.thread.is_alive() and time.monotonic() - began < 15


def test_what_a_session_waits_for_is_cancelled() -> None:
    """As the event loop does at its end, and a library may: the session ends, and does not wait for its deadline."""
    with socket.create_server(("127.0.0.1", 0)) as hook:
        authorization = {"url": f"http://127.0.0.1:{hook.getsockname()[1]}/"}
        with router_of(config_of(1, authorization=authorization)) as router:
            client = Client(router.port)
            wait_for("question to the hook", lambda: router.cancel("HttpAuthorizer._answered"))
            with pytest.raises((EOFError, ConnectionResetError)):
                client.frame()
            (closed,) = wait_for("word of its end", lambda: router.entries("closed"))
            assert closed["how"] == "router_closed"
