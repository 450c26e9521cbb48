"""Every verb, through the real socket and the real command line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import stat
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from router_fakes import FakeServer, FakeSession, open_session
from router_support import wait_for

from amqp_session_router import cli
from amqp_session_router.base.errors import RouterError, UsageError
from amqp_session_router.base.model import Identity, Phase
from amqp_session_router.control import client
from amqp_session_router.control.commands import Control, ControlServer
from amqp_session_router.control.service import Service
from amqp_session_router.control.verbs.limit import LIMITS
from amqp_session_router.control.verbs.table import VERBS

PARTS: dict[str, Any] = {
    "listeners": {"plain": {"port": 1001}},
    "backends": {"r1": {"host": "h1", "datacenter": "fra"}, "r2": {"host": "h2"}},
    "farms": {"east": {"members": ["r1", "r2"], "check_period": 0, "key": {"type": "USER_NAME"}, "cache": {}}},
    "rules": [{"vhost_pattern": "team-.*", "farm": "east"}],
    "default": {"farm": "east"},
}


class Router:
    """A Service with its control socket in a thread of its own, and `ctl` on it."""

    def __init__(self, directory: Path, parts: dict[str, Any]) -> None:
        self.file = directory / "router.yaml"
        self.socket = directory / "control" / "sock"
        self.file.write_text(yaml.safe_dump({**parts, "control": {"socket": str(self.socket)}}))
        self.server = FakeServer(6)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.service = self.do(self._start())

    async def _start(self) -> Service:
        service = Service(self.file)
        await service.start(self.server)
        self.control = ControlServer(Control(service), self.socket)
        await self.control.start()
        return service

    def do(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(20)

    def stop(self) -> None:
        self.do(self.control.stop())
        self.do(self.service.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def session(self, vhost: str, user: str = "alice") -> FakeSession:
        async def make() -> FakeSession:
            return open_session(self.service.routing, Identity(vhost=vhost, user=user, source_ip="192.0.2.1"))

        session: FakeSession = self.do(make())
        return session

    def ask(self, line: str) -> dict[str, Any]:
        """Send a verb; returns the answer."""
        return next(client.ask(self.socket, line.split(" ")))

    def rows(self, line: str) -> list[dict[str, Any]]:
        reply = self.ask(line)
        assert reply["ok"], reply
        found: list[dict[str, Any]] = reply["rows"]
        return found

    def data(self, line: str) -> dict[str, Any]:
        reply = self.ask(line)
        assert reply["ok"], reply
        found: dict[str, Any] = reply["data"]
        return found

    def done(self, line: str) -> str:
        reply = self.ask(line)
        assert reply["ok"], reply
        return str(reply["text"])

    def refused(self, line: str) -> str:
        """Send a verb that is refused; returns the sentence. Nothing changed."""
        before = self.data("CONFIG PRINT")
        reply = self.ask(line)
        assert not reply["ok"], reply
        assert self.data("CONFIG PRINT") == before
        return str(reply["error"])


@pytest.fixture
def router(tmp_path: Path) -> Iterator[Router]:
    running = Router(tmp_path, PARTS)
    try:
        yield running
    finally:
        running.stop()


def by(rows: list[dict[str, Any]], key: str) -> dict[Any, dict[str, Any]]:
    return {row[key]: row for row in rows}


def test_backend_verbs(router: Router) -> None:
    router.done("backend add r3 ams h3 5673 SEND-PROXY-V2 TLS WEIGHT=4 ADDRESS=192.0.2.3 VHOST=x")
    router.done("BACKEND ADD_DNS r4 ams h4.example.org 5672 LOCAL SEND-PROXY DRAIN")
    shown = by(router.rows("BACKEND PRINT"), "name")
    assert (shown["r3"]["proxy_protocol"], shown["r3"]["tls"], shown["r3"]["weight"]) == (2, True, 4)
    assert (shown["r3"]["address"], shown["r4"]["local"], shown["r4"]["drain"]) == ("192.0.2.3", True, True)
    router.done("BACKEND UNDRAIN r4")
    router.done("BACKEND DRAIN r3")
    router.done("BACKEND WEIGHT r3 7")
    shown = by(router.rows("BACKEND PRINT"), "name")
    assert (shown["r3"]["drain"], shown["r3"]["weight"], shown["r4"]["drain"]) == (True, 7, False)
    router.done("BACKEND DELETE r3")
    assert [*by(router.rows("BACKEND PRINT"), "name")] == ["r1", "r2", "r4"]
    assert router.refused("BACKEND ADD r1 fra h 1") == "there is a backend called 'r1' already"
    assert "no option" in router.refused("BACKEND ADD r5 fra h 1 SEND_PROXY")
    assert "whole number" in router.refused("BACKEND ADD r5 fra h amqp")
    assert "65535" in router.refused("BACKEND ADD r5 fra h 70000")
    assert "FARM LEAVE first" in router.refused("BACKEND DELETE r1")
    assert "did you mean" in router.refused("BACKEND DELETE r7")


def test_farm_verbs(router: Router) -> None:
    router.done("FARM ADD west least-connections r2")
    router.done("FARM JOIN west r1")
    router.done("FARM PARTITION west datacenter-affinity")
    router.done("DATACENTER SET fra")
    assert router.done("DATACENTER PRINT") == "fra"
    west = by(router.rows("FARM PRINT"), "name")["west"]
    assert (west["partitions"], west["policies"], west["state"]) == ("r1 > r2", "datacenter-affinity", "active")
    router.done("FARM UNPARTITION west")
    assert by(router.rows("FARM PRINT"), "name")["west"]["partitions"] == "r2, r1"
    router.done("FARM LEAVE west r1")
    assert "no member of west is called 'r1'" in router.refused("FARM LEAVE west r1")
    assert "already" in router.refused("FARM JOIN west r2")
    assert "no backend selector" in router.refused("FARM ADD north fastest r1")
    router.done("MAP DEFAULT west")
    assert "default.farm: no farm is called 'west'" in router.refused("FARM DELETE west")
    router.done("MAP DEFAULT east")
    router.done("FARM DELETE west")
    assert [*by(router.rows("FARM PRINT"), "name")] == ["east"]


def test_map_verbs(router: Router) -> None:
    router.done("MAP BACKEND orders r1")
    router.done("MAP FARM stock east")
    router.done("MAP REJECT old gone")
    assert [(row["rule"], row["vhost"], row["to"]) for row in router.rows("MAP PRINT")] == [
        (0, "orders", "backend r1"),
        (1, "stock", "farm east"),
        (2, "old", "reject"),
        (3, "~ team-.*", "farm east"),
        ("default", None, "farm east"),
    ]
    router.done("MAP BACKEND orders r2")
    assert router.data("MAP TEST orders")["candidates"] == ["r2"]
    assert router.data("MAP TEST old") == {"vhost": "old", "reject": "gone", "code": 530}
    found = router.data("MAP TEST team-x user=bob client_id=c source=192.0.2.1 sni=s role=r listener=plain")
    assert (found["target"], found["key"], found["candidates"]) == ("farm east", "bob", ["r1", "r2"])
    assert router.service.routing.markers.of("r1").attempts == 0
    router.done("MAP UNMAP orders")
    router.done("MAP REMOVE_DEFAULT")
    assert router.data("MAP TEST orders")["reject"] == "vhost 'orders' not found"
    assert "no mapped vhost is called 'orders'" in router.refused("MAP UNMAP orders")
    assert "no backend is marked as local" in router.refused("MAP LOCAL orders")
    router.done("BACKEND ADD here fra localhost 5679 LOCAL")
    router.done("MAP LOCAL orders")
    assert router.data("MAP TEST orders")["candidates"] == ["here"]
    router.done("MAPHOSTNAME DNS")
    assert router.service.settings.config.resolve_client_names
    router.done("MAPHOSTNAME OFF")
    assert not router.service.settings.config.resolve_client_names


def test_a_map_keeps_the_rewrite_and_leaves_rules_with_more_conditions_alone(tmp_path: Path) -> None:
    rules = [{"vhost": "a", "listener": "plain", "reject": "no"}, {"vhost": "a", "farm": "east", "rewrite": "b"}]
    router = Router(tmp_path, PARTS | {"rules": rules})
    try:
        router.done("MAP BACKEND a r1")
        router.done("MAP BACKEND c r1")
        shown = [(row["vhost"], row["listener"], row["rewrite"], row["to"]) for row in router.rows("MAP PRINT")]
        assert shown[:3] == [
            ("a", "plain", None, "reject"),
            ("a", None, "b", "backend r1"),
            ("c", None, None, "backend r1"),
        ]
    finally:
        router.stop()


def test_limit_verbs(router: Router) -> None:
    for name in LIMITS:
        router.done(f"LIMIT {name} DEFAULT 8000")
        router.done(f"LIMIT {name.lower()} VHOST orders 9000")
    assert {row["limit"]: row["value"] for row in router.rows("LIMIT PRINT orders")} == dict.fromkeys(
        LIMITS.values(), 9000
    )
    router.done("LIMIT DISABLE CONN_RATE VHOST orders")
    router.done("LIMIT DISABLE TOTAL_CONN DEFAULT")
    orders = {row["limit"]: row["value"] for row in router.rows("LIMIT PRINT orders")}
    default = {row["limit"] for row in router.rows("LIMIT PRINT") if row["of"] == "default"}
    assert orders["connection_rate"] == 8000
    assert "connections" not in default
    router.done("LIMIT ALARM_ONLY ON")
    assert router.service.settings.config.limits.alarm_only
    router.done("LIMIT ALARM_ONLY OFF")
    assert not router.service.settings.config.limits.alarm_only
    assert "did you mean 'CONN_RATE'" in router.refused("LIMIT CON_RATE DEFAULT 1")
    assert "a limit is a number, not 'many'" in router.refused("LIMIT CONN_RATE DEFAULT many")
    assert "greater than 0" in router.refused("LIMIT DATA_RATE DEFAULT -1")


def test_listen_verbs(router: Router) -> None:
    router.done("LISTEN START 2001")
    assert {row["port"] for row in router.rows("LISTEN PRINT")} == {1001, 2001}
    assert router.refused("LISTEN START 2001") == "port 2001 is listened on already"
    assert "cannot listen on 0.0.0.0:6: Address already in use" in router.refused("LISTEN START 6")
    assert "cert_file is missing, here and in tls.ingress" in router.refused("LISTEN START_SECURE 2002")
    router.done("LISTEN STOP 2001")
    assert "no listener has the port or name '2001'" in router.refused("LISTEN STOP 2001")
    router.done("LISTEN STOP")
    assert router.rows("LISTEN PRINT") == []


def test_session_verbs(router: Router) -> None:
    one, two = router.session("orders"), router.session("orders", user="bob")
    assert {row["id"] for row in router.rows("CONN")} == {one.id, two.id}
    assert [row["id"] for row in router.rows("CONN vhost=orders user=bob source=192.0.2.1 phase=open")] == [two.id]
    router.done(f"SESSION {one.id} PAUSE")
    assert router.data(f"SESSION {one.id} PRINT")["phase"] == "paused"
    router.done(f"SESSION {one.id} UNPAUSE")
    router.done(f"SESSION {one.id} DISCONNECT_GRACEFUL")
    router.done(f"SESSION {two.id} BACKEND_DISCONNECT")
    router.done(f"SESSION {two.id} FORCE_DISCONNECT")
    assert [call[0] for call in one.told] == ["pause", "unpause", "disconnect"]
    assert one.told[2][1] == 320
    assert [call[0] for call in two.told] == ["disconnect_backend", "force"]
    assert "no session has the id 'nobody'" in router.refused("SESSION nobody PAUSE")
    assert "vhost=" in router.refused("CONN vhst=a")


def test_backend_disconnect_verbs(router: Router) -> None:
    router.done("MAP BACKEND orders r1")
    router.done("MAP BACKEND stock r2")
    one, two, other = router.session("orders"), router.session("orders"), router.session("stock")
    assert router.done("BACKEND BACKEND_DISCONNECT r1") == "2 sessions"
    assert router.done("BACKEND FORCE_DISCONNECT r1") == "2 sessions"
    assert router.done("BACKEND DISCONNECT_GRACEFUL r1") == "2 sessions, 100 a second"
    wait_for("both disconnected", lambda: len(one.told) == len(two.told) == 3, 10)
    assert [call[0] for call in one.told] == ["disconnect_backend", "force", "disconnect"]
    assert one.told[2][1:] == (320, "the router's operator empties this broker; connect again")
    assert other.told == []
    assert "no backend is called 'r7'" in router.refused("BACKEND DISCONNECT_GRACEFUL r7")
    assert "a rate is a number, not 'fast'" in router.refused("BACKEND DISCONNECT_GRACEFUL r1 fast")
    for rate in ("0", "-1", "nan", "inf"):
        assert "a rate is above 0" in router.refused(f"BACKEND DISCONNECT_GRACEFUL r1 {rate}")
    # A backend that is deleted keeps its sessions, and they can be taken from it.
    router.done("MAP UNMAP stock")
    router.done("FARM LEAVE east r2")
    router.done("BACKEND DELETE r2")
    assert router.done("BACKEND FORCE_DISCONNECT r2") == "1 sessions"


def test_a_backend_is_emptied_no_faster_than_told(router: Router) -> None:
    router.done("MAP BACKEND orders r1")
    sessions = [router.session("orders") for _ in range(6)]
    begun = time.monotonic()
    router.done("BACKEND DISCONNECT_GRACEFUL r1 10")
    wait_for("all disconnected", lambda: all(one.told for one in sessions), 20)
    # The first goes at once, each other a tenth of a second after the one before.
    assert time.monotonic() - begun >= 0.5
    assert all(len(one.told) == 1 for one in sessions)


def test_a_draining_backend_is_emptied_of_those_that_open_late_until_it_drains_no_more(router: Router) -> None:
    router.done("MAP BACKEND orders r1")
    late, kept = router.session("orders"), router.session("orders")
    late.phase = kept.phase = Phase.CONNECTING
    router.done("BACKEND DRAIN r1")
    assert router.done("BACKEND DISCONNECT_GRACEFUL r1") == "0 sessions, 100 a second"
    late.phase = Phase.OPEN
    wait_for("the late one disconnected", lambda: late.told, 10)
    router.done("BACKEND UNDRAIN r1")
    wait_for("the end", lambda: not [t for t in asyncio.all_tasks(router.loop) if t.get_name() == "empty r1"], 10)
    kept.phase = Phase.OPEN
    assert kept.told == []


def test_what_is_begun_anew_for_a_backend_replaces_what_was(router: Router) -> None:
    router.done("MAP BACKEND orders r1")
    sessions = [router.session("orders") for _ in range(3)]
    router.done("BACKEND DISCONNECT_GRACEFUL r1 0.001")
    router.done("BACKEND DISCONNECT_GRACEFUL r1 1000")
    wait_for("all disconnected", lambda: all(one.told for one in sessions), 10)
    assert sum(len(one.told) for one in sessions) == 3


def test_vhost_verbs(router: Router) -> None:
    one, other = router.session("orders"), router.session("other")
    assert router.done("VHOST PAUSE orders") == "paused, with 1 sessions"
    assert by(router.rows("VHOST PRINT"), "vhost") == {
        "orders": {"vhost": "orders", "sessions": 1, "paused": True},
        "other": {"vhost": "other", "sessions": 1, "paused": False},
    }
    assert one.phase is Phase.PAUSED
    assert router.data("MAP TEST orders")["paused"]
    assert "1 sessions go on, 0 are mapped elsewhere" in router.done("VHOST UNPAUSE orders")
    assert "no paused vhost" in router.refused("VHOST UNPAUSE orders")
    for verb in ("DISCONNECT_GRACEFUL", "BACKEND_DISCONNECT", "FORCE_DISCONNECT"):
        assert router.done(f"VHOST {verb} orders") == "1 sessions"
    assert [call[0] for call in one.told] == ["pause", "unpause", "disconnect", "disconnect_backend", "force"]
    assert other.told == []


def test_the_migration_of_a_vhost(router: Router) -> None:
    one = router.session("orders")
    assert one.backend is not None
    router.done("VHOST PAUSE orders")
    router.done(f"MAP BACKEND orders {'r2' if one.backend.name == 'r1' else 'r1'}")
    assert "0 sessions go on, 1 are mapped elsewhere" in router.done("VHOST UNPAUSE orders")
    assert one.told[-1][:2] == ("disconnect", 320)


def test_auth_verbs(router: Router) -> None:
    assert router.done("AUTH PRINT") == "every client is allowed"
    router.done("AUTH SERVICE localhost 8080 auth?tier=dev")
    assert router.data("AUTH PRINT")["url"] == "http://localhost:8080/auth?tier=dev"
    router.done("AUTH SERVICE https://hook.example.org/x")
    assert router.data("AUTH PRINT")["url"] == "https://hook.example.org/x"
    assert "is no URL" in router.refused("AUTH SERVICE localhost")
    router.done("AUTH ALWAYS_ALLOW")
    assert router.service.settings.config.authorization is None


def test_tls_verbs(router: Router, tmp_path: Path) -> None:
    router.done("TLS EGRESS VERIFY_MODE NONE MINIMUM 1.3")
    router.done("TLS EGRESS CIPHERS SET ECDHE+AESGCM")
    egress = router.data("TLS PRINT")["egress"]
    assert (egress["verify"], egress["minimum"], egress["ciphers"]) == (False, "1.3", "ECDHE+AESGCM")
    assert "TLS_AES_256_GCM_SHA384" in router.done("TLS EGRESS CIPHERS PRINT")
    assert "TLS_AES_256_GCM_SHA384" in router.done("TLS INGRESS CIPHERS PRINT")
    router.done("TLS INGRESS CERT_CHAIN_FILE /c KEY_FILE /k CA_CERT_FILE /ca VERIFY_MODE PEER FAIL_IF_NO_PEER_CERT")
    ingress = router.data("TLS PRINT")["ingress"]
    assert (ingress["cert_file"], ingress["key_file"], ingress["client_cert"]) == ("/c", "/k", "required")
    router.done("TLS INGRESS RSA_KEY_FILE /r TMP_DH_FILE /d VERIFY_MODE CLIENT_ONCE")
    assert router.data("TLS PRINT")["ingress"]["client_cert"] == "optional"
    assert "cannot read /c" in router.refused("LISTEN START_SECURE 2002")
    assert "the server's" in router.refused("TLS EGRESS TMP_DH_FILE /d")
    assert "did you mean 'KEY_FILE'" in router.refused("TLS INGRESS KEYFILE /k")
    assert "needs a value" in router.refused("TLS INGRESS KEY_FILE")
    assert "excludes" in router.refused("TLS INGRESS VERIFY_MODE NONE PEER")
    assert "needs a setting" in router.refused("TLS INGRESS")


def test_log_verbs(router: Router, tmp_path: Path) -> None:
    router.done("LOG CONSOLE 4")
    assert "name one" in router.refused("LOG FILE 5")
    router.done(f"LOG FILE debug {tmp_path}/log")
    assert router.data("LOG PRINT") == {"level": "debug", "file": f"{tmp_path}/log", "file_level": "debug"}
    router.session("orders")
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    opened = next(line for line in lines if line["message"] == "opened")
    assert (opened["vhost"], opened["user"], opened["level"]) == ("orders", "alice", "info")
    assert opened["session"]
    assert opened["key"] == "alice"
    assert "is none of 'critical'" in router.refused("LOG CONSOLE loud")


def test_stat_verbs(router: Router) -> None:
    router.session("orders")
    assert router.data("STAT PRINT")["overall"]["active"] == 1
    assert router.data("STAT PRINT vhost=orders")["vhost"]["orders"]["active"] == 1
    assert router.data("STAT PRINT all")["source"]["192.0.2.1"]["opened"] == 1
    assert "is none of overall" in router.refused("STAT PRINT everything")
    router.done("STAT DISABLE per-source")
    assert router.data("STAT PRINT all")["source"] == {}
    router.done("STAT ENABLE per-source")
    assert "only per-source" in router.refused("STAT DISABLE per-vhost")
    router.done("STAT SEND 127.0.0.1 9")
    assert "already" in router.refused("STAT SEND 127.0.0.1 9")
    assert [part.port for part in router.service.settings.config.statsd] == [9]
    router.done("STAT STOP SEND")
    assert router.service.settings.config.statsd == []
    stream = client.ask(router.socket, ["STAT", "LISTEN", "json", "overall"])
    assert [next(stream)["data"]["overall"]["active"] for _ in range(2)] == [1, 1]
    stream.close()
    assert not next(client.ask(router.socket, ["STAT", "LISTEN", "xml"]))["ok"]


def test_sticky_verbs(router: Router) -> None:
    router.session("orders")
    assert router.rows("STICKY PRINT") == [{"farm": "east", "keys": 1, "timeout": 0.0, "file": ""}]
    assert router.done("STICKY CLEAR east") == "1 keys forgotten"
    assert "no farm with a cache" in router.refused("STICKY CLEAR west")


def test_config_verbs(router: Router) -> None:
    router.done("MAP BACKEND orders r1")
    assert router.ask("CONFIG PRINT")["unsaved"]
    assert router.done("CONFIG RELOAD") == "changed: rules"
    assert not router.ask("CONFIG PRINT")["unsaved"]
    router.done("MAP BACKEND orders r1")
    router.done("CONFIG SAVE")
    assert yaml.safe_load(router.file.read_text())["rules"][0] == {"vhost": "orders", "backend": "r1"}
    assert router.done("CONFIG RELOAD") == "nothing changed"
    router.file.write_text("farm: {}")
    assert router.refused("CONFIG RELOAD") == f"{router.file}:1: farm: no such key; did you mean 'farms'?"


def differing(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {row["section"]: row["differs"] for row in rows if row["differs"]}


def test_a_drift_from_the_file_names_the_sections(router: Router) -> None:
    assert differing(router.rows("DRIFT")) == {}
    router.done("LIMIT CONN_RATE DEFAULT 5")
    router.done("BACKEND WEIGHT r1 2")
    # By what it says, not by how: a default that is written and the order of keys are no drift.
    text = yaml.safe_load(router.file.read_text())
    text = dict(reversed([*text.items()])) | {"timeouts": {"connect": 5}}
    router.file.write_text("# another text\n" + yaml.safe_dump(text, sort_keys=False))
    assert differing(router.rows("DRIFT")) == {"backends": "file", "limits": "file"}
    router.done("CONFIG SAVE")
    assert differing(router.rows("DRIFT")) == {}
    router.file.write_text("farm: {}")
    rows = router.rows("DRIFT")
    assert {row["file"] for row in rows} == {"unreadable", ""}
    assert len(differing(rows)) == len(rows) - 1


def test_a_drift_between_routers_names_the_sections_and_the_routers(tmp_path: Path) -> None:
    routers = []
    for name, parts in (("one", {"datacenter": "west"}), ("two", {"datacenter": "east"})):
        (tmp_path / name).mkdir()
        routers.append(Router(tmp_path / name, {**PARTS, "status": {"port": 0}, **parts}))
    one, two = routers
    try:
        peer = f"127.0.0.1:{two.service.endpoints.port}"
        # What each has of its own is shown and is no drift.
        rows = by(one.rows(f"DRIFT {peer}"), "section")
        assert rows["datacenter"]["running"] != rows["datacenter"][peer]
        assert rows["farms"]["running"] == rows["farms"][peer] == rows["farms"]["file"]
        assert differing([*rows.values()]) == {}
        two.done("MAP BACKEND orders r2")
        two.done("VHOST PAUSE orders")
        assert differing(one.rows(f"DRIFT {peer}")) == {"rules": peer, "paused_vhosts": peer}
        one.done("MAP BACKEND orders r2")
        one.done("VHOST PAUSE orders")
        assert differing(one.rows(f"DRIFT {peer}")) == {"rules": "file"}
    finally:
        two.stop()
        gone = by(one.rows(f"DRIFT {peer} [::1]:1"), "section")
        one.stop()
    assert gone["farms"]["differs"] == f"{peer}, [::1]:1"
    assert gone["farms"][peer] == "no answer"


def test_a_peer_is_a_host_and_a_port(router: Router) -> None:
    for wrong in ("http://h:1", "h:port", "h:99999", "user@h:1", "h/x", ":1"):
        assert "is no HOST or HOST:PORT" in router.refused(f"DRIFT {wrong}"), wrong


@pytest.mark.parametrize("answer", [b"[]", b"{", b"x" * 100_000, b'{"farms": 1}'])
def test_a_peer_that_is_no_router_differs_in_all(router: Router, answer: bytes) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        peer = f"127.0.0.1:{server.server_port}"
        assert by(router.rows(f"DRIFT {peer}"), "section")["farms"]["differs"] == peer
    finally:
        server.shutdown()
        server.server_close()


def test_exit(router: Router) -> None:
    router.session("orders")
    assert "seconds" in router.refused("EXIT now")
    assert "grace is 0 to 3600 seconds" in router.refused("EXIT 5 4000")
    assert router.service.endpoints.why_not_ready() is None
    assert router.done("EXIT 5 0.3") == "leaving in 0.3 s, with 1 sessions"
    # Who asks /ready knows it while new sessions are still taken.
    assert router.service.endpoints.why_not_ready() == "the router is leaving"
    assert router.server.left == []
    wait_for("the end of the grace", lambda: router.server.left, 10)
    assert router.server.left == [5.0]


def test_an_exit_without_a_grace_ends_the_grace_of_the_one_before(router: Router) -> None:
    router.done("EXIT 5 3600")
    assert router.done("EXIT 7") == "leaving, with 0 sessions"
    assert router.server.left == [7.0]


def test_every_verb_of_the_reference_is_there() -> None:
    families = {verb.pattern.split()[0] for verb in VERBS}
    reference = "AUTH BACKEND CONN DATACENTER EXIT FARM HELP LIMIT LISTEN LOG MAP MAPHOSTNAME SESSION STAT TLS VHOST"
    assert families >= set(reference.split())


def test_help_and_unknown_verbs(router: Router) -> None:
    assert {row["verb"] for row in router.rows("HELP")} == {verb.pattern for verb in VERBS}
    assert router.refused("BACKND PRINT") == "no verb is called 'BACKND'; did you mean 'BACKEND'?"
    assert "BACKEND WEIGHT <name> <weight>" in router.refused("BACKEND WEIGHT r1")
    assert "there are" in router.refused("SESSION x DANCE")


def test_every_verb_does_something(router: Router) -> None:
    """Each pattern is either an edit or has a handler: none answers that the router failed."""
    for verb in VERBS:
        if verb.pattern.startswith(("STAT LISTEN", "EXIT")):
            continue
        words = [part.strip("<>[].") if part[0] in "<[" else part for part in verb.pattern.split()]
        reply = next(client.ask(router.socket, words))
        assert reply["ok"] or "failed to do it" not in reply["error"], (verb.pattern, reply)


def test_the_socket_is_private_and_takes_junk(router: Router) -> None:
    assert stat.S_IMODE(router.socket.stat().st_mode) == 0o600
    for junk in (b"junk\n", b"[]\n", b'{"words": 1}\n', b'{"words": [1]}\n', b"\xff\xfe\n", b"[" * 100_000 + b"\n"):
        with socket.socket(socket.AF_UNIX) as one:
            one.settimeout(10)
            one.connect(str(router.socket))
            one.sendall(junk)
            reply = json.loads(one.makefile().readline())
            assert not reply["ok"]
            assert "a request is one line of JSON" in reply["error"]
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(10)
        one.connect(str(router.socket))
        with contextlib.suppress(OSError):
            one.sendall(b"x" * 3_000_000)
            assert one.recv(1) == b""
    assert router.rows("CONN") == []


def test_a_second_router_does_not_take_a_living_ones_socket(router: Router) -> None:
    async def second(take_over: bool) -> None:
        control = ControlServer(Control(router.service), router.socket)
        await control.start(take_over)
        await control.stop()

    with pytest.raises(UsageError, match="another router answers at"):
        router.do(second(False))
    assert router.rows("CONN") == []
    router.do(second(True))  # it takes the name, and removes only its own
    assert not router.socket.exists()


def test_a_stale_socket_is_replaced_and_a_file_is_not(tmp_path: Path) -> None:
    async def start(path: Path) -> None:
        (tmp_path / "c.yaml").write_text("")
        control = ControlServer(Control(Service(tmp_path / "c.yaml")), path)
        await control.start()
        assert stat.S_ISSOCK(path.stat().st_mode)
        await control.stop()
        assert not path.exists()

    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(tmp_path / "stale"))
    stale.close()
    asyncio.run(start(tmp_path / "stale"))
    (tmp_path / "file").write_text("precious")
    with pytest.raises(UsageError, match="is no socket: it stays as it is"):
        asyncio.run(start(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "precious"


def test_the_command_line(router: Router, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        status = cli.main(["ctl", "--socket", str(router.socket), *words])
        told = capsys.readouterr()
        return status, told.out, told.err

    status, out, _ = run("backend", "print")
    assert status == 0
    heading = "NAME DATACENTER HOST PORT TLS WEIGHT DRAIN LOCAL HEALTHY ACTIVE ATTEMPTS FAILURES"
    assert out.splitlines()[0].split() == heading.split()
    assert out.splitlines()[1].split() == ["r1", "fra", "h1", "5672", "no", "1", "no", "no", "yes", "0", "0", "0"]
    for words in (("--json", "BACKEND", "PRINT"), ("BACKEND", "PRINT", "--json")):
        assert [row["name"] for row in json.loads(run(*words)[1])] == ["r1", "r2"]
    assert json.loads(run("--json", "MAP", "BACKEND", "a", "r1")[1]) == {"text": "changed: rules"}
    assert run("CONN")[:2] == (0, "none\n")
    assert "overall.opened: 0" in run("STAT", "PRINT")[1]
    status, out, err = run("MAP", "FARM", "a", "eats")
    assert (status, out) == (64, "")
    assert err == "amqp-session-router: rules[0].farm: no farm is called 'eats'; did you mean 'east'?\n"
    assert cli.main(["ctl", "--socket", str(tmp_path / "none"), "CONN"]) == 3
    assert f"no router answers at {tmp_path}/none" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["ctl", "--help"])
    shown = capsys.readouterr().out
    assert all(verb.pattern in shown for verb in VERBS)


def test_what_a_client_calls_itself_does_not_steer_the_terminal() -> None:
    assert client.table([{"user": "\x1b[2Jx\ny"}]) == "USER\n�[2Jx�y"


def test_a_router_that_goes_is_one_sentence(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()

    def serve(answer: bytes) -> None:
        one, _ = listener.accept()
        with one:
            one.makefile("rb").readline()
            one.sendall(answer)

    for answer, sentence in ((b"", "went before it answered"), (b"HTTP/1.1 400\n", "is no router")):
        thread = threading.Thread(target=serve, args=(answer,))
        thread.start()
        with pytest.raises(RouterError, match=sentence):
            [*client.ask(tmp_path / "s", ["CONN"])]
        thread.join()
    listener.close()
