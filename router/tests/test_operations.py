"""What an operator does through `ctl`, on live sessions of a real client to a real RabbitMQ."""

from __future__ import annotations

import base64
import collections
import contextlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pika
import pytest
import yaml
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPConnectionError, ConnectionClosedByBroker, StreamLostError
from router_support import PASSWORD, USER, Broker, Router, config_of, router_of, wait_for
from tests.free_ports import free_port

from amqp_session_router.control.client import ask


def connect(router: Router, vhost: str = "/", name: str = "", **more: Any) -> pika.BlockingConnection:
    parameters = pika.ConnectionParameters(
        host="127.0.0.1",
        port=router.port,
        virtual_host=vhost,
        credentials=pika.PlainCredentials(more.pop("user", USER), more.pop("password", PASSWORD)),
        client_properties={"connection_name": name} if name else None,
        blocked_connection_timeout=60,
        **more,
    )
    return pika.BlockingConnection(parameters)


@contextlib.contextmanager
def client(router: Router, vhost: str = "/", name: str = "", **more: Any) -> Iterator[pika.BlockingConnection]:
    """A connection that is closed at the end, if it still can be."""
    connection = connect(router, vhost, name, **more)
    try:
        yield connection
    finally:
        with contextlib.suppress(Exception):
            connection.close()


def echo(channel: BlockingChannel, text: str) -> None:
    """Send a message to a queue of one's own and take it from there."""
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_publish("", queue, text.encode())
    deadline = time.monotonic() + 20
    while (found := channel.basic_get(queue, auto_ack=True))[2] is None and time.monotonic() < deadline:
        channel.connection.process_data_events(0.01)
    assert found[2] == text.encode()


def refused(router: Router, **more: Any) -> tuple[int, str]:
    """Connect, and return code and text of the Close that came instead of Open-Ok."""
    with pytest.raises(AMQPConnectionError) as caught:
        connect(router, **more).close()
    # pika wraps the Close in the text of what it thinks is the cause.
    found = re.search(r"\((\d+)\) ['\"](.*)['\"]", str(caught.value.args[0] if caught.value.args else caught.value))
    assert found, repr(caught.value)
    return int(found[1]), found[2]


def ctl(router: Router, *words: str) -> Any:
    """Return the answer of a verb as data."""
    reply = next(ask(Path(router.config["control"]["socket"]), words))
    assert reply["ok"], reply["error"]
    return next((reply[name] for name in ("rows", "data") if name in reply), reply)


def alive(pid: int) -> bool:
    """Does the process run, and is it no zombie?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def sessions(router: Router, **wanted: str) -> list[dict[str, Any]]:
    """Return the sessions that CONN shows."""
    found: list[dict[str, Any]] = ctl(router, "CONN", *(f"{name}={value}" for name, value in wanted.items()))
    return found


def test_a_paused_vhost_blocks_its_clients_keeps_them_alive_and_lets_them_go_on(router: Router) -> None:
    with client(router, "other", heartbeat=2) as one, client(router) as elsewhere:
        told: list[str] = []
        one.add_on_connection_blocked_callback(lambda *_: told.append("blocked"))
        one.add_on_connection_unblocked_callback(lambda *_: told.append("unblocked"))
        channel = one.channel()
        echo(channel, "before")
        assert ctl(router, "VHOST", "PAUSE", "other")["sessions"] == 1
        late: list[pika.BlockingConnection] = []
        waiting = threading.Thread(target=lambda: late.append(connect(router, "other", heartbeat=2)))
        waiting.start()
        try:
            wait_for("waiting session", lambda: sessions(router, vhost="other", phase="waiting"))
            # The heartbeat is 2 s: a router that sent none would have lost both by the end of three.
            end = time.monotonic() + 6.5
            while time.monotonic() < end:
                one.process_data_events(0.1)
                elsewhere.process_data_events(0)
            assert told == ["blocked"]
            assert not late
            echo(elsewhere.channel(), "another vhost goes on")
            assert ctl(router, "VHOST", "PRINT")[0]["paused"] in (True, False)
        finally:
            answer = ctl(router, "VHOST", "UNPAUSE", "other")
            waiting.join(20)
        assert (answer["going_on"], answer["disconnected"]) == (2, 0)
        one.process_data_events(0.2)
        assert told == ["blocked", "unblocked"]
        echo(channel, "after")
        echo(late[0].channel(), "late")
        late[0].close()


def test_the_migration_of_a_vhost_loses_no_client(broker: Broker) -> None:
    config = config_of(broker.port, broker.port)
    config["rules"] = [{"vhost": "other", "backend": "b0"}]
    with router_of(config) as router, client(router, "other") as one, client(router) as elsewhere:
        assert [row["backend"] for row in sessions(router, vhost="other")] == ["b0"]
        ctl(router, "VHOST", "PAUSE", "other")
        ctl(router, "MAP", "BACKEND", "other", "b1")
        assert ctl(router, "VHOST", "UNPAUSE", "other")["disconnected"] == 1
        with pytest.raises(ConnectionClosedByBroker) as caught:
            one.process_data_events(20)
        assert caught.value.reply_code == 320
        assert "has moved to another broker" in caught.value.reply_text
        with client(router, "other") as again:
            echo(again.channel(), "at the new place")
            assert [row["backend"] for row in sessions(router, vhost="other")] == ["b1"]
        echo(elsewhere.channel(), "the other vhost saw nothing of it")
        assert ctl(router, "STAT", "PRINT")["overall"]["failures"] == 0


@pytest.mark.parametrize(
    ("verb", "expected", "how"),
    [
        ("DISCONNECT_GRACEFUL", ConnectionClosedByBroker, "router_closed"),
        ("BACKEND_DISCONNECT", ConnectionClosedByBroker, "router_closed"),
        ("FORCE_DISCONNECT", StreamLostError, "router_closed"),
    ],
)
def test_ends_by_control(router: Router, verb: str, expected: type[Exception], how: str) -> None:
    with client(router, name=f"end-{verb}") as one:
        echo(one.channel(), "before")
        found = next(row for row in sessions(router) if row["client_id"] == f"end-{verb}")
        ctl(router, "SESSION", found["id"], verb)
        with pytest.raises(expected) as caught:
            one.process_data_events(20)
        if isinstance(caught.value, ConnectionClosedByBroker):
            assert caught.value.reply_code == 320
        ended = wait_for("end", lambda: [e for e in router.entries("closed") if e["session"] == found["id"]])
        assert ended[0]["how"] == how


def test_a_broker_is_emptied_and_taken_back(broker: Broker) -> None:
    config = config_of(broker.port, broker.port)
    config["farms"]["all"]["selector"] = "first"
    with router_of(config) as router, contextlib.ExitStack() as stack:
        before = [stack.enter_context(client(router)) for _ in range(5)]
        assert {row["backend"] for row in sessions(router)} == {"b0"}
        ctl(router, "BACKEND", "DRAIN", "b0")
        begun = time.monotonic()
        assert ctl(router, "BACKEND", "DISCONNECT_GRACEFUL", "b0", "10")["sessions"] == 5
        for one in before:
            with pytest.raises(ConnectionClosedByBroker) as caught:
                one.process_data_events(20)
            assert caught.value.reply_code == 320
            assert "empties this broker" in caught.value.reply_text
            echo(stack.enter_context(client(router)).channel(), "at the other broker")
        assert time.monotonic() - begun >= 0.4
        wait_for("word of it", lambda: router.entries("emptied"))
        assert {row["backend"] for row in sessions(router)} == {"b1"}
        ctl(router, "BACKEND", "UNDRAIN", "b0")
        echo(stack.enter_context(client(router)).channel(), "at the first again")
        assert {row["backend"] for row in sessions(router)} == {"b0", "b1"}
        assert ctl(router, "STAT", "PRINT")["overall"]["failures"] == 0


def test_one_session_can_be_paused(router: Router) -> None:
    with client(router, name="paused") as one, client(router) as elsewhere:
        channel = one.channel()
        found = next(row for row in sessions(router) if row["client_id"] == "paused")
        ctl(router, "SESSION", found["id"], "PAUSE")
        assert ctl(router, "SESSION", found["id"], "PRINT")["phase"] == "paused"
        echo(elsewhere.channel(), "goes on")
        ctl(router, "SESSION", found["id"], "UNPAUSE")
        echo(channel, "goes on, too")


def test_a_reload_under_live_sessions(broker: Broker) -> None:
    config = config_of(broker.port)
    with router_of(config) as router, client(router) as one:
        channel = one.channel()
        for port in (free_port(), free_port()):
            # The session's listener goes, another comes, and its vhost is refused from now on.
            changed = config | {
                "listeners": {"next": {"host": "127.0.0.1", "port": port}},
                "rules": [{"vhost": "/", "reject": "closed for new sessions"}],
            }
            router.file.write_text(yaml.safe_dump(changed))
            assert "listeners.next" in ctl(router, "CONFIG", "RELOAD")["text"]
            router.config = changed
            echo(channel, "still here")
            assert refused(router)[0] == 530
        before = ctl(router, "CONFIG", "PRINT")
        for bad in ("farm: {}", "rules: [{farm: x}]", yaml.safe_dump(changed)[:-20] + "[", ""):
            router.file.write_text(bad or "default: {farm: gone}")
            with pytest.raises(AssertionError, match=r"router\.yaml:\d"):
                ctl(router, "CONFIG", "RELOAD")
            assert ctl(router, "CONFIG", "PRINT") == before
        echo(channel, "after bad files, too")


def test_twelve_sessions_over_three_members(broker: Broker) -> None:
    # The reference sends all twelve to one.
    with router_of(config_of(broker.port, broker.port, broker.port)) as router, contextlib.ExitStack() as stack:
        for _ in range(12):
            stack.enter_context(client(router))
        assert collections.Counter(row["backend"] for row in sessions(router)) == {"b0": 4, "b1": 4, "b2": 4}
        ctl(router, "BACKEND", "DRAIN", "b0")
        for _ in range(4):
            stack.enter_context(client(router))
        assert collections.Counter(row["backend"] for row in sessions(router)) == {"b0": 4, "b1": 6, "b2": 6}


def test_a_clean_close_is_no_failure_and_everything_is_counted(broker: Broker) -> None:
    with router_of(config_of(broker.port)) as router:
        for _ in range(3):
            with client(router, "other") as one:
                echo(one.channel(), "x" * 10_000)
        counted = wait_for(
            "end of the sessions",
            lambda: (found := ctl(router, "STAT", "PRINT", "all"))["overall"]["active"] == 0 and found,
        )
        assert counted["overall"]["ended"] == {"client_closed": 3}
        assert counted["overall"]["failures"] == 0
        assert counted["vhost"]["other"]["opened"] == 3
        assert counted["backend"]["b0"]["bytes_from_client"] > 30_000
        assert counted["backend"]["b0"]["bytes_from_broker"] > 30_000
        assert counted["source"]["127.0.0.1"]["opened"] == 3


def test_stickiness_outlives_sigkill(broker: Broker, tmp_path: Path) -> None:
    parts = config_of(broker.port, broker.port, broker.port, state_dir=str(tmp_path / "state"))
    parts["farms"]["all"] |= {"key": {"type": "CLIENT_ID"}, "cache": {"persisted": True}}
    parts["control"] = {"socket": str(tmp_path / "control")}
    where: dict[str, str] = {}
    with router_of(parts) as router:
        for number in range(5):
            with client(router, name=f"app-{number}"):
                where |= {row["client_id"]: row["backend"] for row in sessions(router) if row["phase"] == "open"}
        ctl(router, "VHOST", "PAUSE", "closed")
        assert router.process is not None
        # First the one that would start the other again: as when the machine goes down.
        children = Path(f"/proc/{router.process.pid}/task/{router.process.pid}/children").read_text().split()
        router.process.kill()
        router.process.wait(20)
        for pid in map(int, children):
            os.kill(pid, signal.SIGKILL)
        wait_for("end of the workers", lambda: not any(alive(int(pid)) for pid in children))
    assert len(set(where.values())) == 3
    with router_of(parts) as router:
        for name in reversed(where):
            with client(router, name=name):
                assert {row["backend"] for row in sessions(router) if row["client_id"] == name} == {where[name]}
        assert [row["vhost"] for row in ctl(router, "VHOST", "PRINT") if row["paused"]] == ["closed"]


def test_limits_on_real_sessions(broker: Broker) -> None:
    limits = {"vhosts": {"other": {"connections": 2}, "/": {"connection_rate": 0.001}}}
    with router_of(config_of(broker.port, limits=limits)) as router, client(router, "other"):
        with client(router, "other"):
            code, text = refused(router, vhost="other")
            assert (code, "connection limit (2) is reached" in text) == (530, True)
        wait_for("free place", lambda: len(sessions(router, vhost="other")) == 1)
        with client(router, "other"), client(router):
            code, text = refused(router)
            assert (code, "new connections a second" in text) == (320, True)
        assert ctl(router, "STAT", "PRINT", "all")["limits"]["refused"] == {"connections": 1, "connection_rate": 1}


def test_the_data_rate_holds_without_breaking_a_session(broker: Broker) -> None:
    with router_of(config_of(broker.port)) as router, client(router, "other") as one:
        channel = one.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.confirm_delivery()

        def seconds(count: int, size: int) -> float:
            start = time.monotonic()
            for _ in range(count):
                channel.basic_publish("", queue, b"x" * size)
            return time.monotonic() - start

        free = seconds(20, 20_000)
        ctl(router, "LIMIT", "DATA_RATE", "VHOST", "other", "200000")
        # 400 kB at 200 kB/s, of which a second's worth may come at once.
        limited = seconds(20, 20_000)
        assert limited > 0.9, (free, limited)
        ctl(router, "LIMIT", "DISABLE", "DATA_RATE", "VHOST", "other")
        assert seconds(20, 20_000) < limited


def test_a_connections_data_rate_leaves_the_others_of_its_vhost_alone(broker: Broker) -> None:
    limits = {"vhosts": {"other": {"connection_data_rate": 100_000}}}
    with (
        router_of(config_of(broker.port, limits=limits)) as router,
        client(router, "other", heartbeat=2) as one,
        client(router, "other") as two,
    ):
        # A second's worth may come at once; the rest takes four seconds, two heartbeats.
        queue = one.channel().queue_declare("", exclusive=True).method.queue
        busy = one.channel()
        busy.confirm_delivery()
        begun, took = time.monotonic(), []

        def publish() -> None:
            for _ in range(10):
                busy.basic_publish("", queue, b"x" * 50_000)
            took.append(time.monotonic() - begun)

        publisher = threading.Thread(target=publish)
        publisher.start()
        try:
            wait_for("delay", lambda: ctl(router, "STAT", "PRINT", "all")["limits"]["refused"])
            channel = two.channel()
            for _ in range(20):
                echo(channel, "not delayed")
            assert not took
        finally:
            publisher.join(60)
        assert took[0] > 3.5
        assert ctl(router, "STAT", "PRINT", "all")["limits"]["refused"].keys() == {"connection_data_rate"}
        assert len(sessions(router)) == 2


class Hook:
    """An authorisation service: `verdict` is called with what it was asked, and answers."""

    def __init__(self, verdict: Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = verdict(body)
                raw = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: object) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/auth"

    def stop(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def test_the_authorisation_hook_decides_and_fails_closed(broker: Broker) -> None:
    def verdict(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if body["user"] == "token":
            response = base64.b64encode(f"\0{USER}\0{PASSWORD}".encode()).decode()
            return 200, {"result": "allow", "roles": ["svc"], "mechanism": "PLAIN", "response": response}
        if body["user"] == USER:
            return 200, {"result": "allow"}
        return 200, {"result": "deny", "reason": f"{body['user']} is not welcome on {body['vhost']}"}

    hook = Hook(verdict)
    rules = [{"key": {"type": "ROLE_NAME"}, "matches": "svc", "backend": "b1"}]
    config = config_of(broker.port, broker.port, rules=rules, authorization={"url": hook.url, "timeout": 5.0})
    config["default"] = {"backend": "b0"}
    try:
        with router_of(config) as router:
            with client(router) as one, client(router, user="token", password="anything") as other:
                echo(one.channel(), "allowed")
                echo(other.channel(), "with the credentials of the hook")
                assert {row["user"]: row["backend"] for row in sessions(router)} == {USER: "b0", "token": "b1"}
            assert refused(router, user="mallory") == (403, "mallory is not welcome on /")
            hook.stop()
            assert refused(router)[0] == 403
            assert not [line for line in router.log.read_text().splitlines() if PASSWORD in line]
    finally:
        with contextlib.suppress(Exception):
            hook.server.server_close()


def test_every_member_refusing_is_a_close_with_a_reason_and_the_next_farm_is_tried(broker: Broker) -> None:
    # The reference gives the client a bare end of file.
    config = config_of(free_port(), free_port())
    with router_of(config) as router:
        code, text = refused(router)
        assert (code, "no backend of farm all takes the session, 2 tried" in text) == (320, True)
        ctl(router, "BACKEND", "ADD", "spare", "", "127.0.0.1", str(broker.port))
        ctl(router, "FARM", "JOIN", "all", "spare")
        with client(router) as one:
            echo(one.channel(), "through the third")
        assert ctl(router, "STAT", "PRINT", "all")["backend"]["spare"]["opened"] == 1


def test_exit_by_control_closes_sessions_and_ends_the_process(broker: Broker) -> None:
    with router_of(config_of(broker.port)) as router, client(router) as one:
        assert ctl(router, "EXIT", "5")["text"] == "leaving, with 1 sessions"
        with pytest.raises(ConnectionClosedByBroker) as caught:
            one.process_data_events(20)
        assert caught.value.reply_code == 320
        assert router.process is not None
        assert router.process.wait(20) == 0
        assert not router.control.exists()
