"""A router with 30,000 sessions: no verb holds them up."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from router_fakes import FakeServer, FakeSession, open_session

from amqp_session_router.base.model import Identity, Phase, Route
from amqp_session_router.base.paced import Steps, now
from amqp_session_router.control import replies, vhosts
from amqp_session_router.control.commands import Control, ControlServer
from amqp_session_router.control.service import Service
from amqp_session_router.control.verbs.declaration import Changes
from amqp_session_router.control.verbs.table import VERBS, find

SESSIONS = 30_000
MOST = 0.02
"""Seconds of the loop's own work until others have their turn, on any machine that tests run on."""

SHOW = """\
AUTH PRINT|BACKEND PRINT|CONFIG PRINT|CONN|CONN vhost=other|DATACENTER PRINT|DRIFT|FARM PRINT|HELP|LIMIT PRINT|
LIMIT PRINT v|LIMIT PRINT USER u|LISTEN PRINT|LOG PRINT|MAP PRINT|MAP TEST v|STAT PRINT|STICKY PRINT|
TLS PRINT|TLS INGRESS CIPHERS PRINT|TLS EGRESS CIPHERS PRINT|VHOST PRINT|WORKERS PRINT|SESSION first PRINT"""
DO = """\
SESSION first PAUSE|SESSION first UNPAUSE|SESSION first DISCONNECT_GRACEFUL|SESSION first FORCE_DISCONNECT|
SESSION first BACKEND_DISCONNECT|VHOST PAUSE v|VHOST UNPAUSE v|VHOST DISCONNECT_GRACEFUL v|VHOST FORCE_DISCONNECT v|
VHOST BACKEND_DISCONNECT v|BACKEND FORCE_DISCONNECT b0|BACKEND BACKEND_DISCONNECT b0|
BACKEND DISCONNECT_GRACEFUL b0 100000|FARM REBALANCE f 100000|STICKY CLEAR remembers|STAT DISABLE per-source|
STAT ENABLE per-source|LIMIT DATA_RATE DEFAULT 1000000|BACKEND WEIGHT b1 2|CONFIG SAVE|CONFIG RELOAD"""
LINES = [line.strip() for line in (SHOW + "|" + DO).replace("\n", "").split("|")]


def config(directory: Path) -> Path:
    """Two brokers; `f` has the sessions, `remembers` a cache."""
    path = directory / "router.yaml"
    farm = {"members": ["b0", "b1"], "selector": "least-connections", "check_period": 0}
    path.write_text(
        yaml.safe_dump(
            {
                "control": None,
                "backends": {name: {"host": "127.0.0.1", "port": 1} for name in ("b0", "b1")},
                "farms": {"f": farm, "remembers": farm | {"key": {}, "cache": {}}},
                "default": {"farm": "f"},
            }
        )
    )
    return path


def filled(service: Service) -> list[FakeSession]:
    """Give the router its sessions, five of six at one broker; returns them."""
    backends, sessions = service.routing.settings.backends, []
    for number in range(SESSIONS):
        identity = Identity(vhost="v", user="u", source_ip=f"10.0.{number // 256}.{number % 256}")
        route = service.routing.decide(identity)
        assert isinstance(route, Route)
        session = FakeSession(identity, route, backends["b1" if number % 6 == 0 else "b0"])
        session.started = float(number)
        sessions.append(session)
        service.routing.registered(session)
    sessions[0].id = "first"
    service.routing.sessions.live["first"] = sessions[0]
    return sessions


def asked(path: Path, line: str) -> dict[str, Any]:
    """Send one verb, and return its reply."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(json.dumps({"words": line.split()}).encode() + b"\n")
        with client.makefile("rb") as file:
            reply: dict[str, Any] = json.loads(file.readline())
    return reply


async def longest(doing: asyncio.Future[Any]) -> float:
    """Return the longest time, in seconds of this thread's own, that others waited while `doing` and what it began were
    at work."""
    turns = [time.thread_time()]
    while not doing.done():
        await asyncio.sleep(0)
        turns.append(time.thread_time())
    begun = [task for task in asyncio.all_tasks() if task.get_name().startswith(("empty ", "rebalance "))]
    while not all(task.done() for task in begun):
        await asyncio.sleep(0)
        turns.append(time.thread_time())
    return max(after - before for before, after in itertools.pairwise(turns))


def test_no_verb_holds_up_the_sessions(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(gc.unfreeze)
    took: dict[str, float] = {}

    async def story() -> None:
        service, server = Service(config(tmp_path)), FakeServer()
        control = ControlServer(Control(service), tmp_path / "socket")
        await service.start(server)
        await control.start()
        sessions = filled(service)
        # Neither these stand-ins nor what other tests have left here are the verbs' to look through for garbage.
        gc.collect()
        gc.freeze()
        try:
            for line in LINES:
                doing = asyncio.get_running_loop().run_in_executor(None, asked, control.path, line)
                took[line] = await longest(doing)
                assert doing.result()["ok"], (line, doing.result())
                for session in sessions:
                    session.phase = Phase.OPEN
                    session.told.clear()
        finally:
            await control.stop()
            await service.stop()

    asyncio.run(story())
    assert {line: round(seconds, 3) for line, seconds in took.items() if seconds > MOST} == {}


def test_each_verb_but_edits_of_one_kind_is_among_them() -> None:
    here = {find(line.split())[0].pattern for line in LINES}
    left = {verb.pattern for verb in VERBS if verb.changes is not Changes.CONFIGURATION} - here
    # It has its own pace (test_leaving.py); a stream is the same look again and again.
    assert left == {"EXIT [seconds] [grace] [rate]", "STAT LISTEN <format> [filter]"}


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 100])
@pytest.mark.parametrize("lines", [False, True])
def test_a_reply_comes_back_as_it_was(count: int, lines: bool) -> None:
    reply = {
        "ok": True,
        "text": "two\nlines",
        "rows": [{"id": f"s{n}", "vhost": "é\n]}"} for n in range(count)],
        "n": 1,
    }
    text = b"".join(now(replies.encoded(reply, lines)))
    assert json.loads(text) == reply == now(replies.decoded(text))
    assert text.count(b"\n") == (count > 0 and lines) * (1 + -(-count // 32))


def test_a_reply_without_rows_is_one_part() -> None:
    parts = now(replies.encoded({"text": "done"}))
    assert parts == [b'{"text": "done"}'] and now(replies.decoded(parts[0])) == {"text": "done"}
    with pytest.raises(ValueError, match="Expecting"):
        now(replies.decoded(b"no JSON"))


def test_of_a_pause_and_its_end_the_last_one_counts(tmp_path: Path) -> None:
    routing = Service(config(tmp_path)).routing
    for _ in range(200):
        open_session(routing, Identity(vhost="v"))

    def phases() -> set[Phase]:
        return {session.phase for session in routing.sessions.live.values()}

    pause, unpause = vhosts.pause, vhosts.unpause
    for first, last, left in ((pause, unpause, Phase.OPEN), (unpause, pause, Phase.PAUSED)):
        now(last(routing, "v"))
        begun: Steps[Any] = first(routing, "v")
        for _ in range(9):  # all are found, two strides are done
            next(begun)
        assert len(phases()) == 2
        now(last(routing, "v"))
        now(begun)
        assert phases() == {left}
