"""Clients that no router redirects: they ask its management whom to connect to, and go there. Real sockets."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from brokerdrill.workload.asking import target_of
from brokerdrill.workload.client import Aim, ClientError, known_as
from brokerdrill.workload.config import BrokerEndpoint, ClientAccount, Router, WorkerConfig
from brokerdrill.workload.stomp import Stomp

HERE = "127.0.0.1"
TARGETS = (
    BrokerEndpoint(HERE, 1, "a1", "h1"),
    BrokerEndpoint(HERE, 2, "b1", "h2"),
    BrokerEndpoint("127.0.0.2", 3, "r1", "h3"),
)
SECRET = "the-password"


class Management:
    """A router's Jolokia that gives `reply` to whatever it is asked, and keeps what that was."""

    def __init__(self) -> None:
        self.reply: dict[str, Any] = {}
        self.asked: list[tuple[dict[str, Any], str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.asked.append((json.loads(body), self.headers["Authorization"]))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(outer.reply).encode())

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer((HERE, 0), Handler)
        self.url = f"http://{HERE}:{self._server.server_address[1]}/console/jolokia/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def names(self, host: str | None, port: int = 0) -> None:
        connector = None if host is None else {"params": {"host": host, "port": str(port)}}
        self.reply = {
            "status": 200,
            "value": json.dumps({"nodeID": "n", "local": host is None, "connector": connector}),
        }

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def management() -> Iterator[Management]:
    made = Management()
    yield made
    made.close()


def aim(url: str, key: str = "anna") -> Aim:
    return Aim(Router("127.0.0.2", 9, "r1", "h3", "remembered", "r1-broker", url), key)


def config(**changes: Any) -> WorkerConfig:
    made = WorkerConfig(
        run_id="r", worker="w", clock="w", client="stomp", endpoints=TARGETS, credentials=ClientAccount("u", SECRET),
        addresses=("q",), key_type="SNI_HOST", transaction=0, call_timeout_ms=5000,
    )  # fmt: skip
    return replace(made, **changes)


@pytest.mark.parametrize(("host", "port", "instance"), [(HERE, 2, "b1"), (HERE, 1, "a1"), (None, 0, "r1")])
def test_who_is_named_is_dialled(management: Management, host: str | None, port: int, instance: str) -> None:
    management.names(host, port)
    assert target_of(config(), aim(management.url), "anna").instance == instance
    (question, authorization) = management.asked[0]
    assert question["arguments"] == ["anna"]
    assert question["mbean"].endswith(':broker="r1-broker",component=connection-routers,name="remembered"')
    assert authorization is not None and authorization.startswith("Basic ")


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ({"status": 200, "value": None}, "the router names nobody"),
        ({"status": 404, "error": "no such bean"}, "no such bean"),
        ({"status": 200, "value": json.dumps({"connector": {"params": {"host": "192.0.2.7", "port": 5}}})}, "none of"),
    ],
)
def test_who_cannot_be_dialled_is_an_error(management: Management, reply: dict[str, Any], said: str) -> None:
    management.reply = reply
    with pytest.raises(ClientError, match=said) as caught:
        target_of(config(), aim(management.url), "anna")
    assert SECRET not in str(caught.value)


def test_a_router_that_is_away_is_an_error(management: Management) -> None:
    management.close()
    with pytest.raises(ClientError, match="URLError"):
        target_of(config(), aim(management.url), "anna")


def test_a_stomp_client_goes_where_its_key_belongs(management: Management) -> None:
    """It asks anew at each connect; without an aim it dials the endpoints in turn."""
    with socket.create_server((HERE, 0)) as first, socket.create_server((HERE, 0)) as second:
        ports = [one.getsockname()[1] for one in (first, second)]
        reached: list[int] = []

        def answer(listener: socket.socket, number: int) -> None:
            while True:
                try:
                    one, _ = listener.accept()
                except OSError:
                    return
                with one:
                    reached.append(number)
                    one.recv(65536)
                    one.sendall(b"CONNECTED\nversion:1.2\n\n\0")
                    one.recv(65536)

        threads = [threading.Thread(target=answer, args=(it, n), daemon=True) for n, it in enumerate((first, second))]
        for thread in threads:
            thread.start()
        own = config(endpoints=tuple(BrokerEndpoint(HERE, port, f"t{n}", "h") for n, port in enumerate(ports)))
        client = Stomp(own, "c")
        for number in (1, 0, 1):
            management.names(HERE, ports[number])
            client.aim(aim(management.url).router, "anna")
            client.open(["q"], [], transacted=False)
            served = client.served_by()
            assert served is not None and served.instance == f"t{number}"
            client.close()
        direct = Stomp(own, "d")
        direct.open(["q"], [], transacted=False)
        direct.close()
        assert reached == [1, 0, 1, 0]
        assert len(management.asked) == 3


@pytest.mark.parametrize(
    ("key_type", "known"), [("SNI_HOST", "anna"), ("ROLE_NAME", "anna"), ("USER_NAME", "u"), ("SOURCE_IP", HERE)]
)
def test_the_key_is_the_one_that_the_router_sees(key_type: str, known: str) -> None:
    assert known_as(config(key_type=key_type), Aim(Router(HERE, 9, "r1", "h3"), "anna")) == known


@pytest.mark.parametrize(
    ("key_filter", "known"), [(None, "anna-17"), ("[0-9]$", "7"), ("^[^-]+", "anna"), ("^VIP-", "NULL")]
)
def test_what_the_filter_leaves_of_a_key_is_the_key(key_filter: str | None, known: str) -> None:
    asked = Aim(Router(HERE, 9, "r1", "h3"), "anna-17")
    assert known_as(config(key_filter=key_filter), asked) == known


def test_a_filter_finds_nothing_in_no_key() -> None:
    assert known_as(config(key_filter="^N"), Aim(Router(HERE, 9, "r1", "h3"), "NULL")) == "NULL"
