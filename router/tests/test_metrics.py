"""What is counted, and how it reads as JSON, Prometheus text and statsd packets."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import json
import multiprocessing
import resource
import time
from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from router_fakes import FakeSession, members, open_session, settings

from amqp_session_router.admission.limits import Limiter
from amqp_session_router.base.model import FAILURES, End, Identity, Phase
from amqp_session_router.base.paced import now, paced
from amqp_session_router.config.schema import LimitsPart
from amqp_session_router.net import event_loop
from amqp_session_router.routing.routes import Routes
from amqp_session_router.routing.statistics import _MOST
from amqp_session_router.telemetry import metrics
from amqp_session_router.telemetry.loop_lag import LAGS, LoopLag

LIMITS = Limiter(LimitsPart())
LAG = LoopLag()
A = Identity(vhost="a", user="alice", source_ip="192.0.2.1")


def router() -> Routes:
    return Routes(settings(backends=members("b1"), farms={"f": {"members": ["b1"]}}, default={"farm": "f"}))


def as_data(routes: Routes, limits: Limiter, *only: str) -> dict[str, Any]:
    return now(metrics.as_data(routes, limits, LAG, *only))


def samples(routes: Routes, unsaved: bool = False) -> dict[tuple[str, str], float]:
    text = now(metrics.prometheus(routes, LIMITS, LAG, unsaved)).decode()
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_live_and_finished_sessions_add_up() -> None:
    routes = router()
    done, live = open_session(routes, A), open_session(routes, A)
    done.counters.bytes_from_client, live.counters.bytes_from_client = 100, 23
    routes.closed(done, End.CLIENT_CLOSED)
    data = as_data(routes, LIMITS)
    for part in (data["overall"], data["vhost"]["a"], data["backend"]["b1"], data["source"]["192.0.2.1"]):
        assert (part["bytes_from_client"], part["opened"], part["active"]) == (123, 2, 1)
    found = samples(routes)
    assert found["amqp_router_bytes_from_client_total", ""] == 123
    assert found["amqp_router_vhost_active", "a"] == 1
    assert found["amqp_router_backend_ended_total", "b1,client_closed"] == 1
    assert found["amqp_router_handshake_seconds_count", ""] == 2
    assert found["amqp_router_handshake_seconds_bucket", "0.0025"] == 0
    assert found["amqp_router_handshake_seconds_bucket", "0.005"] == 2
    assert found["amqp_router_handshake_seconds_sum", ""] == pytest.approx(0.008)
    assert found["amqp_router_farm_active", "f"] == 1


@pytest.mark.parametrize("how", End)
def test_a_clean_close_is_no_failure(how: End) -> None:
    # The reference counts clean closes as failures of the broker or the client.
    routes = router()
    routes.closed(open_session(routes, A), how)
    assert as_data(routes, LIMITS)["overall"]["failures"] == (how in FAILURES)
    clean = {
        *(End.CLIENT_CLOSED, End.BROKER_CLOSED, End.ROUTER_CLOSED, End.HANDED_OVER),
        *(End.REJECTED, End.LIMITED, End.DENIED),
    }
    assert (how in FAILURES) is (how not in clean)


def test_phases() -> None:
    routes = router()
    paused, waiting = open_session(routes, A), FakeSession(A)
    paused.pause()
    routes.registered(waiting)
    waiting.phase = Phase.WAITING
    overall = as_data(routes, LIMITS, "overall")["overall"]
    assert (overall["active"], overall["paused"], overall["handshaking"]) == (1, 1, 1)


def test_filters() -> None:
    routes = router()
    open_session(routes, A)
    assert set(as_data(routes, LIMITS)) == {
        *("process", "overall", "vhost", "backend", "source", "backends", "paused_vhosts", "limits", "denied")
    }
    assert as_data(routes, LIMITS, "vhost=a")["vhost"]["a"]["opened"] == 1
    assert as_data(routes, LIMITS, "vhost=no")["vhost"]["no"]["opened"] == 0
    assert as_data(routes, LIMITS, "process")["process"]["resident_bytes"] > 1e6
    data, told = as_data(routes, LIMITS), json.loads(now(metrics.as_json(routes, LIMITS, LAG)))
    for one in (data, told):
        del one["process"]
    assert told == json.loads(json.dumps(data))


def test_names_that_clients_make_up_are_not_counted_apart_and_cannot_forge_a_line() -> None:
    routes = router()
    unknown = FakeSession(Identity(vhost="made up", source_ip="192.0.2.9"))
    routes.registered(unknown)
    routes.closed(unknown, End.REJECTED)
    hostile = 'x"} 1\namqp_router_active 99'
    open_session(routes, Identity(vhost=hostile))
    found = samples(routes)
    assert ("amqp_router_vhost_active", "made up") not in found
    assert found["amqp_router_vhost_active", hostile] == 1
    assert found["amqp_router_active", ""] == 1
    lines = b"\n".join(now(metrics.Statsd("p").packets(routes, LAG))).split(b"\n")
    assert all(line.count(b":") == 1 and line.count(b"|") == 1 for line in lines)


def test_addresses_are_counted_apart_up_to_a_bound_and_not_at_all_if_so_wished() -> None:
    routes = router()
    for number in range(_MOST + 10):
        routes.closed(open_session(routes, Identity(vhost="a", source_ip=f"address-{number}")), End.CLIENT_CLOSED)
    sources = as_data(routes, LIMITS)["source"]
    assert len(sources) == _MOST
    assert f"address-{_MOST + 9}" in sources
    routes.statistics.by_source = False
    routes.statistics.forget_sources()
    open_session(routes, A)
    assert as_data(routes, LIMITS)["source"] == {}


def test_statsd_counters_are_differences_and_packets_fit_a_datagram() -> None:
    routes, statsd = router(), metrics.Statsd("p")
    sessions = [open_session(routes, A) for _ in range(3)]

    def lines() -> list[str]:
        packets = now(statsd.packets(routes, LAG))
        assert all(len(packet) <= 1400 for packet in packets)
        return b"\n".join(packets).decode().split("\n")

    first = lines()
    assert "p.overall.opened:3|c" in first
    assert "p.vhost.a.active:3|g" in first
    routes.closed(sessions[0], End.CLIENT_LOST)
    open_session(routes, A)
    second = lines()
    assert "p.overall.opened:1|c" in second
    assert "p.overall.ended.client_lost:1|c" in second
    assert "p.overall.failures:1|c" in second
    assert not [line for line in lines() if line.startswith("p.overall.opened")]


def test_a_vhost_that_is_no_utf_8_breaks_no_page() -> None:
    routes = router()
    open_session(routes, Identity(vhost=b"a\xff".decode(errors="surrogateescape")))
    assert samples(routes)["amqp_router_vhost_active", "a\\udcff"] == 1
    assert now(metrics.Statsd("p").packets(routes, LAG))


def test_a_live_sessions_bytes_are_counted_once_whoever_looks_and_when() -> None:
    routes = router()
    live, ends, late = (open_session(routes, A) for _ in range(3))
    for session, count in ((live, 100), (ends, 20), (late, 3)):
        session.counters.bytes_from_client = count
    steps = routes.statistics.look(routes.sessions.live)
    next(steps)
    ends.counters.bytes_from_client = 21
    routes.closed(ends, End.CLIENT_CLOSED)
    open_session(routes, A).counters.bytes_from_client = 1000
    assert now(steps).of("vhost", "a").bytes_from_client == 124
    live.counters.bytes_from_client = 101
    for _ in range(2):
        assert as_data(routes, LIMITS)["overall"]["bytes_from_client"] == 1125
    for session in [*routes.sessions.live.values()]:
        routes.closed(session, End.CLIENT_CLOSED)
    assert as_data(routes, LIMITS)["backend"]["b1"]["bytes_from_client"] == 1125


def _descriptors() -> list[float]:
    """Return how many descriptors are told and walked before, while 300 more are open, and after, and the limit."""
    told = []
    for more in (0, 300, 0):
        with contextlib.ExitStack() as stack:
            for _ in range(more):
                stack.enter_context(open("/dev/null"))  # noqa: PTH123
            # Before Linux 6.2 each is looked at.
            told += [samples(router())["process_open_fds", ""], now(metrics._walked())]
    return [*told, samples(router())["process_max_fds", ""]]


def test_open_descriptors_are_those_of_the_process() -> None:
    # In a process of its own: what other tests have left open may be closed at any moment.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        *told, most = pool.submit(_descriptors).result(60)
    before = told[0]
    assert told == [before, before, before + 300, before + 300, before, before]
    assert most == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_a_stuck_event_loop_is_seen() -> None:
    lag = LoopLag()

    async def story() -> None:
        lag.start()
        await asyncio.sleep(0.25)
        time.sleep(0.4)
        deadline = time.monotonic() + 20
        while lag.greatest < 0.2 and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        lag.stop()

    event_loop.run(story())
    assert lag.greatest >= 0.2
    assert sum(lag.counts) >= 2
    assert sum(count for bound, count in zip(LAGS, lag.counts, strict=False) if bound > 0.2) >= 1
    assert lag.seconds >= 0.2


def test_the_greatest_lag_is_one_of_late() -> None:
    lag = LoopLag()
    for at, seconds in ((0.0, 3.0), (9.9, 0.0), (10.0, 0.001), (19.9, 0.002)):
        lag.add(seconds, at)
        assert lag.greatest == 3.0
    lag.add(0.0, 20.0)
    assert lag.greatest == 0.002
    assert lag.counts == [4, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]


def test_the_page_tells_by_which_configuration_the_router_goes() -> None:
    routes = router()
    before = samples(routes)
    assert before["amqp_router_config_unsaved", ""] == 0
    sections = {labels.split(",")[0]: labels.split(",")[1] for name, labels in before if name.endswith("config_info")}
    assert sections["farms"] == routes.settings.digests["farms"]
    # What instances have of their own would never be alike.
    assert not sections.keys() & {"listeners", "datacenter", "status"}
    assert samples(routes, unsaved=True)["amqp_router_config_unsaved", ""] == 1


def large() -> Routes:
    """What a router with 10 000 sessions of 4 096 vhosts and as many addresses has counted."""
    routes = router()
    for number in range(10_000):
        identity = Identity(vhost=f"vhost-{number % _MOST}", source_ip=f"10.0.{number % _MOST // 256}.{number % 256}")
        session = open_session(routes, identity)
        session.counters.bytes_from_client = number
        if number % 2:
            routes.closed(open_session(routes, identity), End.CLIENT_CLOSED)
    return routes


@pytest.mark.parametrize(
    "look",
    [
        pytest.param(lambda routes: metrics.prometheus(routes, LIMITS, LAG, False), id="prometheus"),
        pytest.param(lambda routes: metrics.as_json(routes, LIMITS, LAG), id="json"),
        pytest.param(lambda routes: metrics.Statsd("p").packets(routes, LAG), id="statsd"),
    ],
)
def test_who_looks_at_a_large_router_holds_up_no_session(
    look: Callable[[Routes], Any], request: pytest.FixtureRequest
) -> None:
    # What other tests have left in this process is not the router's to look through for garbage.
    gc.collect()
    gc.freeze()
    request.addfinalizer(gc.unfreeze)
    routes = large()

    async def story() -> list[float]:
        looking = asyncio.ensure_future(paced(look(routes)))
        turns = [time.thread_time()]
        while not looking.done():
            await asyncio.sleep(0)
            # The thread's own time: what else the machine does is no fault of the router's.
            turns.append(time.thread_time())
        assert len(looking.result()) > 100
        return [after - before for before, after in itertools.pairwise(turns)]

    assert max(asyncio.run(story())) < 0.02


def test_long_work_holds_the_collector_off_but_not_for_ever() -> None:
    seen: dict[str, list[bool]] = {"first": [], "second": []}

    def work(name: str, steps: int) -> Generator[None, None, None]:
        for _ in range(steps):
            time.sleep(0.003)
            seen[name].append(gc.isenabled())
            yield

    async def scene() -> None:
        await asyncio.gather(paced(work("first", 3)), paced(work("second", 9)))

    asyncio.run(scene())
    assert gc.isenabled()
    assert not any(seen["first"])
    # It began while the first was at work, and goes on when that is done.
    assert (seen["second"][0], seen["second"][-1]) == (False, True)


def test_long_work_leaves_a_collector_that_is_off_as_it_is() -> None:
    gc.disable()
    try:
        asyncio.run(paced(nothing_long()))
        assert not gc.isenabled()
    finally:
        gc.enable()


def nothing_long() -> Generator[None, None, None]:
    yield
