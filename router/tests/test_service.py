"""Reload is atomic, changes by control outlive a crash, the endpoints answer, the checks find what is down."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from router_fakes import FakeServer, members, open_session, settings
from tests.free_ports import free_port

from amqp_session_router.amqp import codec
from amqp_session_router.base.errors import UsageError
from amqp_session_router.base.model import Backend, Identity, Route, Timeouts
from amqp_session_router.control import saved_state
from amqp_session_router.control.service import Service
from amqp_session_router.net import event_loop
from amqp_session_router.routing import health

A = Identity(vhost="a")
DEADLINE = 10.0
GREETING = codec.start(b"", "PLAIN")


def write(path: Path, **parts: Any) -> Path:
    path.write_text(yaml.safe_dump({"control": None, **parts}))
    return path


def farm(*ports: int, **each: Any) -> dict[str, Any]:
    """Backends b0, b1, … on these ports of this machine, in the farm f, for every vhost."""
    return {
        "backends": {f"b{i}": {"host": "127.0.0.1", "port": port} for i, port in enumerate(ports)},
        "farms": {"f": {"members": [f"b{i}" for i in range(len(ports))], "check_period": 0, **each}},
        "default": {"farm": "f"},
    }


@contextlib.asynccontextmanager
async def running(path: Path, server: FakeServer | None = None) -> AsyncIterator[tuple[Service, FakeServer]]:
    service, fake = Service(path), server or FakeServer()
    await service.start(fake)
    try:
        yield service, fake
    finally:
        await service.stop()


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE):
        while True:
            found = condition()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def broker(port: int = 0, says: bytes | None = b"") -> AsyncIterator[int]:
    """A port that accepts connections, `says` something to who does, and closes; with None it hangs."""
    hanging: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if says is None:
            hanging.append(writer)
            return
        if says and await reader.read(100):
            writer.write(says)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in hanging:
            writer.close()
        await server.wait_closed()


def target(service: Service, identity: Identity = A) -> str:
    decision = service.routing.decide(identity)
    return decision.target if isinstance(decision, Route) else f"{decision.code} {decision.text}"


def test_a_reload_takes_the_file_on_and_leaves_sessions_alone(tmp_path: Path) -> None:
    async def story() -> None:
        path = write(tmp_path / "c.yaml", **farm(1, 2), listeners={"p": {"port": 1001}})
        async with running(path) as (service, server):
            session = open_session(service.routing, A)
            write(path, **farm(1), listeners={"q": {"port": 1002}}, rules=[{"vhost": "a", "reject": "moved"}])
            changed = await service.configuration.reload()
            assert changed == ["listeners.p", "listeners.q", "backends.b1", "farms.f", "rules"]
            assert [*server.open] == ["q"]
            assert target(service) == "530 moved"
            assert (session.told, [*service.routing.sessions.live]) == ([], [session.id])
            assert await service.configuration.reload() == []

    asyncio.run(story())


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"farms": {"f": {"members": ["gone"]}}}, r"c\.yaml:\d+: farms\.f\.members\[0\]: no backend is called 'gone'"),
        (
            {"listeners": {"p": {"port": 1001}, "q": {"port": 1002}, "r": {"port": 6}}},
            "listeners.r: cannot listen on .*:6",
        ),
        ({"status": {"port": 6}, "listeners": {}}, "status.port: cannot listen on 127.0.0.1:6"),
        ({"log": {"file": "/no/such/directory/log"}}, "log.file: cannot write /no/such/directory/log"),
        ({"authorization": {"url": "http://x", "header_file": "/no"}}, "authorization.header_file: cannot read /no"),
        ({"state_dir": "/elsewhere"}, "state_dir: it cannot change while the router runs"),
        ({"control": {"socket": "/elsewhere"}}, "control: it cannot change while the router runs"),
    ],
)
def test_a_bad_file_changes_nothing_and_says_why(
    tmp_path: Path, bad: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*args: object) -> None:
        raise OSError(98, "Address already in use")

    async def story() -> None:
        good = {**farm(1), "listeners": {"p": {"port": 1001}}}
        path = write(tmp_path / "c.yaml", **good)
        async with running(path, FakeServer(6)) as (service, server):
            monkeypatch.setattr("amqp_session_router.telemetry.http_status.StatusServer.start", refuse)
            before = (service.settings, dict(server.open), service.authorizer.hook, service._log.file)
            # A good change comes with the bad one: neither counts.
            write(path, **(good | {"rules": [{"vhost": "a", "reject": "moved"}]} | bad))
            with pytest.raises(UsageError, match=sentence):
                await service.configuration.reload()
            assert (service.settings, dict(server.open), service.authorizer.hook, service._log.file) == before
            assert target(service) == "farm f"

    asyncio.run(story())


def test_start_stops_what_it_started_when_an_address_is_taken(tmp_path: Path) -> None:
    async def story() -> None:
        server = FakeServer(6)
        service = Service(write(tmp_path / "c.yaml", listeners={"p": {"port": 5}, "q": {"port": 6}}))
        with pytest.raises(UsageError, match=r"listeners\.q: cannot listen on 0\.0\.0\.0:6: Address already in use"):
            await service.start(server)
        assert server.open == {}

    asyncio.run(story())


def test_changes_by_control_outlive_a_crash_until_the_file_changes(tmp_path: Path) -> None:
    def reject(data: dict[str, Any]) -> None:
        data["rules"] = [{"vhost": "a", "reject": "moved"}]

    async def story() -> None:
        parts = {**farm(1), "state_dir": str(tmp_path / "state")}
        path = write(tmp_path / "c.yaml", **parts)
        async with running(path) as (service, _):
            assert not service.configuration.unsaved
            assert await service.configuration.change(reject) == ["rules"]
            await service.configuration.pause_vhost("paused")
            assert service.configuration.unsaved
        # Nothing was saved on the way out: a SIGKILL would have left the same.
        async with running(path) as (service, _):
            assert target(service) == "530 moved"
            assert service.routing.paused.names == ["paused"]
            await service.configuration.unpause_vhost("paused")
        write(path, **parts, datacenter="fra")
        async with running(path) as (service, _):
            assert target(service) == "farm f"
            assert service.routing.paused.names == []
            await service.configuration.change(reject)
            await service.configuration.save()
            assert not service.configuration.unsaved
            assert yaml.safe_load(path.read_text())["rules"] == [{"vhost": "a", "reject": "moved"}]
            assert "rules" not in yaml.safe_load(path.with_name("c.yaml.bak").read_text())
        async with running(path) as (service, _):
            assert (target(service), service.configuration.unsaved) == ("530 moved", False)

    asyncio.run(story())


def test_changes_that_cannot_be_read_are_said_and_the_file_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "c.yaml", **farm(1), state_dir=str(tmp_path))
    logging.getLogger("amqp_session_router").addHandler(caplog.handler)
    for kept in ('{"base": "', "[]", json.dumps({"base": 1, "config": [], "paused": []})):
        (tmp_path / saved_state.FILE).write_text(kept)
        assert target(Service(path)) == "farm f"
        assert "cannot be read" in caplog.records[-1].getMessage()
    changes = saved_state.Running(saved_state.digest(path.read_text()), {"farms": {"f": {"members": ["gone"]}}}, ("v",))
    saved_state.save(tmp_path / saved_state.FILE, changes)
    service = Service(path)
    assert (target(service), service.routing.paused.names) == ("farm f", ["v"])
    assert "does not fit any more" in caplog.records[-1].getMessage()
    logging.getLogger("amqp_session_router").removeHandler(caplog.handler)


def test_a_slow_disk_holds_up_no_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed, slow = os.fsync, threading.Event()

    def fsync(number: int) -> None:
        slow.wait(DEADLINE)
        flushed(number)

    monkeypatch.setattr(os, "fsync", fsync)

    async def story() -> None:
        path = write(tmp_path / "c.yaml", **farm(1), state_dir=str(tmp_path / "state"))
        async with running(path) as (service, _):
            pausing = [asyncio.ensure_future(service.configuration.pause_vhost(f"v{number}")) for number in range(3)]
            saving = asyncio.ensure_future(service.configuration.save())
            for _ in range(100):
                await asyncio.sleep(0)
            assert service.routing.paused.names == ["v0", "v1", "v2"], "it counts at once"
            assert not any(task.done() for task in [*pausing, saving]), "and is told once it is on the disk"
            slow.set()
            await asyncio.gather(*pausing, saving)
            assert saved_state.load(tmp_path / "state" / saved_state.FILE) == service.configuration.running

    asyncio.run(story())


def test_a_process_that_takes_over_inherits_unsaved_changes(tmp_path: Path) -> None:
    async def story() -> None:
        path = write(tmp_path / "c.yaml", **farm(1))
        async with running(path) as (old, _):
            await old.configuration.change(lambda data: data.update(default={"reject": "no"}))
            await old.configuration.pause_vhost("v")
            new = Service(path, inherited=old.configuration.running)
            assert (target(new), new.routing.paused.names) == ("530 no", ["v"])

    asyncio.run(story())


def test_unpause_sends_sessions_that_are_mapped_elsewhere_now_away(tmp_path: Path) -> None:
    async def story() -> None:
        path = write(tmp_path / "c.yaml", **farm(1, 2))
        async with running(path) as (service, _):
            staying, moved = open_session(service.routing, A), open_session(service.routing, A)
            other = open_session(service.routing, Identity(vhost="other"))
            assert await service.configuration.pause_vhost("a") == 2
            name = staying.backend.name if staying.backend else ""
            await service.configuration.change(lambda data: data.update(rules=[{"vhost": "a", "backend": name}]))
            assert await service.configuration.unpause_vhost("a") == (1, 1)
            assert staying.told == [("pause",), ("unpause",)]
            assert [call[:2] for call in moved.told] == [("pause",), ("disconnect", 320)]
            assert other.told == []

    asyncio.run(story())


def test_endpoints(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker() as port:
            path = write(
                tmp_path / "c.yaml", **farm(port, check_period=5), status={"port": 0}, listeners={"p": {"port": 1}}
            )
            async with running(path) as (service, server):
                open_session(service.routing, A)
                base = f"http://127.0.0.1:{service.endpoints.port}"
                async with httpx.AsyncClient(trust_env=False) as client:
                    assert (await client.get(f"{base}/health")).json() == {"status": "ok"}
                    assert (await client.get(f"{base}/ready")).json() == {"status": "ready"}
                    assert "amqp_router_active 1.0" in (await client.get(f"{base}/metrics?x=y")).text
                    assert (await client.get(f"{base}/metrics.json")).json()["overall"]["active"] == 1
                    assert (await client.get(f"{base}/digests")).json() == service.endpoints.digests()
                    assert (await client.get(f"{base}/")).status_code == 404
                    assert (await client.post(f"{base}/health")).status_code == 405
                    head = await client.head(f"{base}/health")
                    assert (head.status_code, head.content) == (200, b"")
                    service.exit(3.0)
                    leaving = await client.get(f"{base}/ready")
                    assert (leaving.status_code, leaving.json()["reason"]) == (503, "the router is leaving")
                    assert server.left == [3.0]
                for junk in (b"\x16\x03\x01\x00\xa5\r\n\r\n", b"GET\r\n\r\n", b"x" * 70_000, b""):
                    reader, writer = await asyncio.open_connection("127.0.0.1", service.endpoints.port)
                    writer.write(junk)
                    writer.write_eof()
                    with contextlib.suppress(ConnectionError):
                        await asyncio.wait_for(reader.read(), DEADLINE)
                    writer.close()
                status_reload = write(path, **farm(port))
                assert status_reload == path
                await service.configuration.reload()
                assert service.endpoints.port == 0

    asyncio.run(story())


def test_ready_says_what_is_missing(tmp_path: Path) -> None:
    async def story() -> None:
        path = write(tmp_path / "c.yaml", **farm(1, quorum=1))
        async with running(path) as (service, server):
            assert service.endpoints.why_not_ready() == "there is no listener"
            write(path, **farm(1, quorum=1), listeners={"p": {"port": 9}})
            await service.configuration.reload()
            assert service.endpoints.why_not_ready() is None
            service.routing.markers.checked("b0", False, "refused")
            assert service.endpoints.why_not_ready() == "farm f has 0 ready members of the 1 it needs"
            write(path, **farm(1), listeners={"p": {"port": 9}})
            await service.configuration.reload()
            assert service.endpoints.why_not_ready() == "no backend is ready"
            assert [*server.open] == ["p"]

    asyncio.run(story())


def test_checks_find_what_goes_down_and_what_comes_back(tmp_path: Path) -> None:
    async def story() -> None:
        dead = free_port()
        async with broker() as port:
            path = write(tmp_path / "c.yaml", **farm(port, dead, check_period=0.5))
            async with running(path) as (service, _):
                markers = service.routing.markers
                # The first round was over before a session could come.
                assert markers.of("b0").healthy
                assert not markers.of("b1").healthy
                assert str(dead) in markers.of("b1").reason
                async with broker(dead):
                    await until(lambda: markers.of("b1").healthy)
                await until(lambda: not markers.of("b1").healthy)

    asyncio.run(story())


def test_a_failed_attempt_brings_the_check_forward(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(says=GREETING) as port:
            path = write(tmp_path / "c.yaml", **farm(port, check_period=3600))
            async with running(path) as (service, _):
                session = open_session(service.routing, A)
                markers = service.routing.markers
                markers.checked("b0", False, "as if")
                assert session.backend is not None
                service.routing.attempted(session, session.backend, ok=False, reason="reset")
                await until(lambda: markers.of("b0").healthy)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (None, "accepts and does not greet within 0.2 s"),
        (b"", "accepts and closes"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak AMQP 0-9-1"),
    ],
)
def test_who_accepts_and_failed_has_to_greet(tmp_path: Path, says: bytes | None, reason: str) -> None:
    async def story() -> None:
        async with broker(says=GREETING) as good, broker(says=says) as bad:
            path = write(
                tmp_path / "c.yaml",
                **farm(bad, good, check_period=0.5, policies=["health"], selector="first"),
                timeouts={"backend_handshake": 0.2},
            )
            async with running(path) as (service, _):
                markers = service.routing.markers
                # It accepts: nothing speaks against it until a session was there.
                assert markers.of("b0").healthy
                session = open_session(service.routing, A)
                assert session.backend is not None and session.backend.name == "b0"
                service.routing.attempted(session, session.backend, ok=False, reason="silent")
                await until(lambda: not markers.of("b0").healthy)
                assert reason in markers.of("b0").reason
                after = open_session(service.routing, A).backend
                assert after is not None and after.name == "b1"
                await service.configuration.change(lambda data: data["backends"]["b0"].update(port=good))
                await until(lambda: markers.of("b0").healthy)

    asyncio.run(story())


@pytest.mark.parametrize(("check", "healthy"), [("connect", True), ("greeting", False)])
def test_a_farm_may_have_its_members_greet_at_each_check(tmp_path: Path, check: str, healthy: bool) -> None:
    async def story() -> None:
        async with broker(says=GREETING) as good, broker(says=None) as bad:
            more = {"check_period": 0.5, "check": check, "policies": ["health"], "selector": "first"}
            path = write(tmp_path / "c.yaml", **farm(bad, good, **more), timeouts={"backend_handshake": 0.2})
            async with running(path) as (service, _):
                # By the first check, before any session.
                assert service.routing.markers.of("b0").healthy is healthy
                assert service.routing.markers.of("b1").healthy
                first = open_session(service.routing, A).backend
                assert first is not None and first.name == ("b0" if healthy else "b1")

    asyncio.run(story())


def test_a_backend_greets_if_one_of_its_farms_asks_for_it() -> None:
    farms = {
        "asks": {"members": ["b1", "b2"], "check": "greeting"},
        "asks not": {"members": ["b2", "b3"]},
        "looks not": {"members": ["b4"], "check": "greeting", "check_period": 0},
    }
    parts = {name.replace(" ", "-"): part for name, part in farms.items()}
    assert health.greeting(settings(backends=members("b1", "b2", "b3", "b4"), farms=parts)) == {"b1", "b2"}


def test_what_is_checked_no_more_counts_as_ready(tmp_path: Path) -> None:
    async def story() -> None:
        path = write(tmp_path / "c.yaml", **farm(free_port(), check_period=1))
        async with running(path) as (service, _):
            assert not service.routing.markers.of("b0").healthy
            await service.configuration.change(lambda data: data["farms"]["f"].update(check_period=0))
            assert service.routing.markers.of("b0").healthy

    asyncio.run(story())


@pytest.mark.parametrize("away", ["hangs", "fails"])
def test_a_resolver_that_is_away_makes_no_backend_unready(tmp_path: Path, away: str) -> None:
    async def no_answer(*_: Any, **__: Any) -> list[Any]:
        if away == "fails":
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return await asyncio.Event().wait()  # type: ignore[return-value]

    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            data = farm(listening.getsockname()[1], check_period=1)
            data["backends"]["b0"]["host"] = "localhost"
            data["timeouts"] = {"connect": 0.4}
            async with running(write(tmp_path / "c.yaml", **data)) as (service, _):
                assert service.routing.markers.of("b0").healthy
                asyncio.get_running_loop().getaddrinfo = no_answer  # type: ignore[method-assign]
                backend = service.settings.backends["b0"]
                for _ in range(2):
                    await service.checker._check(backend)
                    assert service.routing.markers.of("b0").healthy
                # New sessions know what the checks know.
                assert await service.names.addresses(
                    asyncio.get_running_loop(), "localhost", backend.port, asyncio.get_running_loop().time() + 0.4
                )

    asyncio.run(story())


def test_the_reason_of_a_check() -> None:
    assert "no address" in str(asyncio.run(health.reach(Backend("b", "no-such-host.invalid"), Timeouts())))
    # TEST-NET-1 is routed dev_null: either the network says so or nothing does.
    assert asyncio.run(health.reach(Backend("b", "192.0.2.1"), Timeouts(connect=0.05))) is not None


def test_a_check_that_is_given_up_leaves_nothing_behind() -> None:
    """Cancelled while the name was looked up, the answer came later, and to nobody: the loop complained of it."""

    async def story() -> list[str]:
        told: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(str(context)))
        for _ in range(20):
            check = asyncio.create_task(health.reach(Backend("b", "no-such-host.invalid"), Timeouts()))
            await asyncio.sleep(0)
            check.cancel()
            await asyncio.gather(check, return_exceptions=True)
        # The lookups are done in order, by threads of the loop's.
        with contextlib.suppress(OSError):
            await loop.getaddrinfo("no-such-host.invalid", 1)
        gc.collect()
        await asyncio.sleep(0)
        return told

    assert event_loop.run(story()) == []


def test_statsd_packets_are_sent(tmp_path: Path) -> None:
    async def story() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
            receiver.bind(("127.0.0.1", 0))
            receiver.setblocking(False)
            port = receiver.getsockname()[1]
            path = write(tmp_path / "c.yaml", **farm(1), statsd=[{"host": "127.0.0.1", "port": port, "period": 0.05}])
            async with running(path) as (service, _):
                open_session(service.routing, A)
                loop, seen = asyncio.get_running_loop(), b""
                async with asyncio.timeout(DEADLINE):
                    while b"amqp_session_router.overall.opened:1|c" not in seen:
                        seen += await loop.sock_recv(receiver, 65536)

    asyncio.run(story())


def test_the_state_file_is_private_and_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    saved_state.write_atomically(path, "new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o600)
    assert [*tmp_path.iterdir()] == [path]
    with pytest.raises(OSError, match="No such file"):
        saved_state.write_atomically(tmp_path / "missing" / "f", "x")
