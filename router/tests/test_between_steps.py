"""Verbs in steps, while sessions move, pauses overlap and clients of the control socket do not read."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from router_fakes import FakeSession, members, open_session, settings

from amqp_session_router.base.model import Identity, Phase
from amqp_session_router.base.paced import now
from amqp_session_router.control import commands, live_sessions, vhosts
from amqp_session_router.control.commands import Control, ControlServer
from amqp_session_router.control.emptying import Emptying
from amqp_session_router.control.running_configuration import RunningConfiguration
from amqp_session_router.control.verbs.table import find
from amqp_session_router.routing.routes import Routes


def routes_of(**drain: bool) -> Routes:
    """Return routes to `a`, which may drain, and `b`."""
    backends = members("a", **drain) | members("b")
    farm = {"members": ["a", "b"], "selector": "round-robin"}
    return Routes(settings(backends=backends, farms={"f": farm}, default={"farm": "f"}, datacenter="here"))


def at(routes: Routes, name: str, phase: Phase = Phase.OPEN) -> FakeSession:
    """Return a session at a backend."""
    session = open_session(routes, Identity("v"))
    session.backend, session.phase = routes.settings.backends[name], phase
    return session


def test_who_went_on_to_another_broker_is_not_disconnected_when_its_turn_comes() -> None:
    routes = routes_of(drain=True)
    first, second = at(routes, "a"), at(routes, "a")
    connecting = at(routes, "a", Phase.CONNECTING)

    async def scene() -> None:
        emptying = Emptying(routes)
        await emptying.begin("a", 2)
        while second.phase is Phase.OPEN:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.1)
        connecting.backend, connecting.phase = routes.settings.backends["b"], Phase.OPEN
        await asyncio.sleep(1.5)
        emptying.stop()

    asyncio.run(scene())
    assert first.told and second.told and not connecting.told


def test_what_is_cut_is_at_that_backend_now() -> None:
    routes = routes_of()
    sessions = [at(routes, "a", Phase.CONNECTING) for _ in range(40)]
    service: Any = type("Service", (), {"routing": routes})
    verb, arguments = find(["BACKEND", "FORCE_DISCONNECT", "a"])
    assert verb.act is not None
    steps: Any = verb.act(service, arguments)
    while not sessions[0].told:
        next(steps)
    sessions[-1].backend, sessions[-1].phase = routes.settings.backends["b"], Phase.OPEN
    reply = now(steps)
    assert sessions[0].told == [("force",)] and not sessions[-1].told
    assert reply == {"text": "39 sessions", "sessions": 39}


def test_a_pause_that_ends_as_a_session_opens_leaves_it_open() -> None:
    routes = routes_of()

    async def scene() -> FakeSession:
        routes.paused.pause("v")
        session = open_session(routes, Identity("v"))
        now(vhosts.unpause(routes, "v"))
        await asyncio.sleep(0)
        return session

    assert asyncio.run(scene()).phase is Phase.OPEN


def test_a_pause_that_ends_before_the_other_workers_heard_of_it() -> None:
    routes = routes_of()

    class Others:
        async def agree(self) -> list[dict[str, Any]]:
            now(vhosts.unpause(routes, "v"))
            return [{"paused": {}, "going_on": 0, "disconnected": 0}]

    configuration: Any = object.__new__(RunningConfiguration)
    configuration._routing, configuration.others = routes, Others()

    async def kept() -> None:
        pass

    configuration._keep = kept
    at(routes, "a")
    assert asyncio.run(configuration.pause_vhost("v")) == 1


# --- clients of the control socket -------------------------------------------------------------------------------


class Row(dict):  # type: ignore[type-arg]
    """One that can be seen to be gone."""


class Many(Control):
    """Answers any words with many rows, `LISTEN` without end."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.rows: list[weakref.ref[Row]] = []

    async def call(self, words: Any, only_reads: bool = False) -> Any:
        self.asked += words
        if words == ["LISTEN"]:
            return self._listen()
        if words == ["ONE"]:
            return {"text": "one"}
        rows = [Row(id=f"s{number}", what="x" * 200) for number in range(20_000)]
        self.rows += [weakref.ref(row) for row in rows[:1]]
        return {"rows": rows}

    async def _listen(self) -> AsyncIterator[dict[str, Any]]:
        while True:
            yield {"data": {}}
            await asyncio.sleep(0.05)


Connect = Callable[[str], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


def with_server(tmp_path: Path, only_reads: bool, scene: Callable[[Many, Connect], Awaitable[None]]) -> None:
    """Have `scene` ask a server of many rows."""

    async def run() -> None:
        control = Many()
        server = ControlServer(control, tmp_path / "control", only_reads)
        await server.start()

        async def connect(words: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            # Nothing is read ahead.
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "control"), limit=1024)
            writer.write(json.dumps({"words": [words]}).encode() + b"\n")
            return reader, writer

        try:
            await scene(control, connect)
        finally:
            await server.stop()

    asyncio.run(run())


def test_the_rows_of_a_slow_reader_are_not_kept(tmp_path: Path) -> None:
    async def scene(control: Many, connect: Connect) -> None:
        reader, writer = await connect("CONN")
        await reader.readexactly(1)
        for _ in range(100):
            if control.rows[0]() is None:
                break
            await asyncio.sleep(0.02)
        assert control.rows[0]() is None
        writer.close()

    with_server(tmp_path, False, scene)


def test_who_does_not_read_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_TAKES", 0.3, raising=False)

    async def scene(control: Many, connect: Connect) -> None:
        reader, writer = await connect("CONN")
        await asyncio.sleep(2)
        with pytest.raises((OSError, EOFError)):
            async with asyncio.timeout(5):
                while data := await reader.read(65536):
                    assert not data.endswith(b"\n")
                raise EOFError
        writer.close()

    with_server(tmp_path, False, scene)


def test_who_may_only_look_has_few_long_answers_made_at_a_time(tmp_path: Path) -> None:
    async def scene(control: Many, connect: Connect) -> None:
        clients = [await connect("CONN") for _ in range(12)]
        await asyncio.sleep(3)
        assert 0 < len(control.asked) <= 4
        # Each comes to its answer once others have theirs.
        for reader, writer in clients:
            while not (await reader.read(1 << 20)).endswith(b"\n"):
                pass
            writer.close()
        assert len(control.asked) == 12

    with_server(tmp_path, True, scene)


def test_a_verb_behind_one_without_end_is_done(tmp_path: Path) -> None:
    async def scene(_: Many, connect: Connect) -> None:
        reader, writer = await connect("LISTEN")
        await reader.readline()
        writer.write(b'{"words": ["ONE"]}\n')
        async with asyncio.timeout(10):
            while "data" in (reply := json.loads(await reader.readline())):
                pass
        assert reply == {"ok": True, "text": "one"}
        writer.close()

    with_server(tmp_path, False, scene)


def test_turns_that_nobody_took_are_not_saved_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker drains for an hour before a hundred sessions come to it that were on their way: ten a second go."""

    async def go() -> float:
        loop, at = asyncio.get_running_loop(), [1000.0]
        monkeypatch.setattr(loop, "time", lambda: at[0])

        async def sleep(seconds: float) -> None:
            at[0] += seconds

        monkeypatch.setattr(live_sessions.asyncio, "sleep", sleep)
        turns = live_sessions.Turns(10)
        at[0] += 3600
        begun = at[0]
        for _ in range(100):
            await turns.next()
            turns.done += 1
        monkeypatch.undo()
        return at[0] - begun

    assert 8.9 <= asyncio.run(go()) <= 10
