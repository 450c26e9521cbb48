"""What holds where parts meet: cache and partitions, a user's selector and the marks, labels, addresses, reloads."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from router_fakes import FakeServer, FakeSession, members, open_session, settings
from router_support import Hook, config_of, local_router_of
from test_sessions import Client, FakeBroker, refuse_with
from tests.free_ports import free_port

from amqp_session_router.base.errors import UsageError
from amqp_session_router.base.model import Allowed, AuthRequest, Backend, End, Identity, Route, Timeouts
from amqp_session_router.base.paced import now
from amqp_session_router.control.service import Service
from amqp_session_router.net.dialer import Connector
from amqp_session_router.relay.journal import Journal, create
from amqp_session_router.routing.routes import Routes
from amqp_session_router.routing.stickiness import Stickiness
from amqp_session_router.selection import selectors
from amqp_session_router.selection.markers import Markers

STICKY = {"selector": "first", "key": {"type": "CLIENT_ID"}, "cache": {}}


def names(routes: Routes, identity: Identity) -> list[str]:
    decision = routes.planner.plan(identity)
    assert isinstance(decision, Route)
    return [backend.name for backend in decision.candidates]


def test_a_cached_backend_does_not_jump_a_partition() -> None:
    """The seed's contract: a partition is exhausted before one behind it begins, whatever a key was at last."""
    backends = members("near1", "near2", "far1", "far2", port=5672)
    for name, part in backends.items():
        part["datacenter"] = "here" if name.startswith("near") else "there"
    farm = STICKY | {"members": [*backends], "policies": ["datacenter-affinity"]}
    routes = Routes(settings(datacenter="here", backends=backends, farms={"f": farm}, default={"farm": "f"}))
    identity = Identity("v", client_id="c")
    routes.sticky.by_name["f"].put("c", "far2")
    assert names(routes, identity) == ["near1", "near2", "far2", "far1"]
    routes.sticky.by_name["f"].put("c", "near2")
    assert names(routes, identity) == ["near2", "near1", "far1", "far2"]


def test_a_users_selector_gets_a_copy_of_the_marks() -> None:
    def vandal(partition: Any, markers: Markers, key: str) -> Any:
        for backend in partition:
            markers.attempt(backend.name)
            markers.opened(backend.name)
        return partition

    markers = Markers()
    markers.attempt("a")
    backends = [Backend("a", "h"), Backend("b", "h")]
    assert [*selectors.ranking([backends], vandal, markers, "k")] == backends
    assert (markers.of("a").attempts, markers.of("a").active, markers.of("b").attempts) == (1, 0, 0)


def test_the_cache_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "sticky"
    cache = Stickiness(path=file, most=3)
    for number in range(5000):
        cache.put(f"k{number}", "b")
        cache.put("kept", "b")
    assert len(cache) == 3 and cache.get("kept") == "b" and cache.get("k0") is None
    assert file.stat().st_size < 200_000
    cache.close()
    assert len(Stickiness(path=file, most=2)) == 2


def test_the_cache_of_a_process_that_retires_is_its_successors(tmp_path: Path) -> None:
    file = tmp_path / "sticky"
    old = Stickiness(path=file)
    old.put("a", "b1")
    new = Stickiness(path=file)  # serves nobody before it has read the file again
    old.put("d", "b1")
    old.close()
    # A session that opens late in the old process writes nothing: what it would write is stale.
    old.put("e", "b1")
    old.clear()
    new.reopen()
    new.put("c", "b2")
    new.put("f", "b3")
    new.close()
    found = Stickiness(path=file)
    assert [found.get(key) for key in "acdef"] == ["b1", "b2", "b1", None, "b3"]
    assert found.get("e") is None


def test_strangers_invent_no_labels() -> None:
    routes = Routes(settings(backends=members("b"), default={"backend": "b"}))
    open_session(routes, Identity("real"))
    for number in range(10):
        stranger = FakeSession(Identity(f"invented{number}"))
        decision = routes.decide(Identity(f"invented{number}"))
        assert isinstance(decision, Route)
        stranger.route, stranger.backend = decision, next(decision.candidates)
        routes.registered(stranger)
        routes.attempted(stranger, stranger.backend, ok=True)
        assert now(routes.statistics.look(routes.sessions.live)).values("vhost") == ["real"]
        routes.closed(stranger, End.REJECTED)
    assert now(routes.statistics.look(routes.sessions.live)).values("vhost") == ["real"]


def test_labels_of_a_broker_that_refuses_all() -> None:
    broker = FakeBroker(refuse_with(403))
    with local_router_of(config_of(broker.port)) as router:
        assert Client(router.port, "invented").closed()[0] == 403
        assert router.ctl("STAT", "PRINT", "vhost=invented")["vhost"]["invented"]["ended"] == {}


def test_a_silent_address_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines: list[float] = []

    async def scene() -> None:
        loop = asyncio.get_running_loop()

        async def found(*_: Any, **__: Any) -> Any:
            return [(socket.AF_INET, 0, 0, "", (f"192.0.2.{number}", 5672)) for number in range(3)]

        async def reach(
            self: Connector, backend: Backend, family: int, target: Any, timeouts: Timeouts, deadline: float
        ) -> socket.socket:
            deadlines.append(deadline - began)
            if len(deadlines) < 3:
                raise TimeoutError
            return socket.socket()

        monkeypatch.setattr(loop, "getaddrinfo", found)
        monkeypatch.setattr(Connector, "_reach", reach)
        began = loop.time()
        (await Connector(loop, lambda: Timeouts(connect=6.0)).connect(Backend("b", "name"))).close()

    asyncio.run(scene())
    assert [round(one) for one in deadlines] == [2, 3, 6]


def test_listeners_change_names_and_ports_and_hosts_in_one_reload() -> None:
    broker = FakeBroker()
    config = config_of(broker.port)
    one, two = free_port(), free_port()
    config["listeners"] = {"a": {"host": "127.0.0.1", "port": one}, "b": {"host": "127.0.0.1", "port": two}}
    with local_router_of(config) as router:
        for listeners in (
            {"a": {"host": "127.0.0.1", "port": two}, "b": {"host": "127.0.0.1", "port": one}},
            {"renamed": {"host": "127.0.0.1", "port": one}},
            {"renamed": {"host": "0.0.0.0", "port": one}},
            {"renamed": {"host": "127.0.0.1", "port": one}},
        ):
            config["listeners"] = listeners
            router._file.write_text(yaml.safe_dump(config))
            router.ctl("CONFIG", "RELOAD")
            assert {row["name"]: row["port"] for row in router.ctl("LISTEN", "PRINT")} == {
                name: part["port"] for name, part in listeners.items()
            }
            for part in listeners.values():
                Client(part["port"]).opened().sock.close()


def test_the_hook_answers_handshakes_that_are_under_way_at_a_restart(tmp_path: Path) -> None:
    hook = Hook({"result": "allow"})
    path = tmp_path / "router.yaml"
    config = config_of(1, authorization={"url": f"http://127.0.0.1:{hook.server_port}/"}) | {"control": None}
    path.write_text(yaml.safe_dump(config))

    async def scene() -> None:
        service = Service(path)
        await service.start(FakeServer())
        await service.retire()
        answer = await service.authorizer.authorize(AuthRequest(Identity("v", "u"), "PLAIN", b"\0u\0p"))
        assert answer == Allowed()
        await service.stop()

    asyncio.run(scene())
    assert len(hook.asked) == 1


def test_a_router_that_keeps_sessions_starts_without_an_address_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        path = tmp_path / "router.yaml"
        status = {"host": "127.0.0.1", "port": taken.getsockname()[1]}
        path.write_text(yaml.safe_dump(config_of(1) | {"control": None, "status": status}))

        async def scene() -> None:
            service, server = Service(path), FakeServer()
            await service.start(server, go_on=True)
            assert [*server.open] == ["plain"] and service.endpoints.port == 0
            await service.stop()

        asyncio.run(scene())


def test_the_last_good_text_counts_where_the_file_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "router.yaml"
    good = yaml.safe_dump(config_of(1) | {"control": None})
    path.write_text("listeners: [")
    service = Service(path, last_good=good)
    assert [*service.settings.backends] == ["b0"]
    os.unlink(path)  # noqa: PTH108
    assert [*Service(path, last_good=good).settings.backends] == ["b0"]


@pytest.mark.parametrize("filter_", ["(a|a)*$", "(a+)+$", "(?:a*a*)*$", ".*.*.*.*.*x", "(a?){120}a{120}b"])
def test_a_client_cannot_make_a_filter_take_long(filter_: str) -> None:
    (rule,) = settings(rules=[{"key": {"type": "CLIENT_ID", "filter": filter_}, "matches": "b", "reject": "no"}]).rules
    begin = time.thread_time()
    for _ in range(100):
        assert rule.apply(Identity(vhost="/", client_id="a" * 254 + "c")) is None
    assert time.thread_time() - begin < 1


@pytest.mark.parametrize("filter_", [r"(a)\1", "a(?=b)", "(?<!a)b", "(?>a+)"])
def test_what_cannot_be_had_in_linear_time_is_refused(filter_: str) -> None:
    with pytest.raises(UsageError, match="is not a regular expression"):
        settings(rules=[{"vhost_pattern": filter_, "reject": "no"}])


@pytest.mark.parametrize("filter_", ["^.{3}", "[a-z]+-prod", r"(\d{1,3}\.){3}\d+", "(a|b)*", "t-(?P<t>.+)", "(a+)+"])
def test_other_filters_are_taken(filter_: str) -> None:
    assert settings(rules=[{"vhost_pattern": filter_, "reject": "no"}]).rules


def test_a_host_without_descriptors_blames_no_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    async def reach(*_: Any) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    broker = FakeBroker()
    with local_router_of(config_of(broker.port)) as router:
        monkeypatch.setattr(Connector, "_reach", reach)
        code, text = Client(router.port).closed()
        assert code == 320 and "Too many open files" in text
        (row,) = router.ctl("BACKEND", "PRINT")
        assert (row["failures"], row["healthy"]) == (0, True)


def test_the_journal_knows_of_a_pause() -> None:
    journal = Journal(create())
    slot = journal.opened({"id": "s"}, 3, 4, (0, 0))
    assert slot is not None
    for paused, told in ((True, False), (True, True), (False, True), (False, False)):
        journal.paused(slot, paused, told)
        (found,) = journal.sessions()
        assert (found.paused, found.blocked_sent) == (paused, told)
    journal.close()
