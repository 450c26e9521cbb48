"""A host that is lost is reached again: what may be done twice is asked again, what may not is said to be in doubt."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.hosts import connection as module
from brokerdrill.hosts.connection import HostConnection, Unanswered, connect
from tests.unit.ssh_host import SshHost, ssh_host

Work = Callable[[SshHost, HostConnection], Awaitable[Any]]


@pytest.fixture
def drill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Work], list[tuple[str, str]]]:
    """Do some work with a connection to a host; return what was noticed of the host."""

    @contextlib.asynccontextmanager
    async def connected() -> AsyncIterator[tuple[SshHost, HostConnection]]:
        async with ssh_host(tmp_path, monkeypatch) as host:
            connection = await connect(host.host)
            try:
                yield host, connection
            finally:
                await connection.close()

    def call(work: Work) -> list[tuple[str, str]]:
        noticed: list[tuple[str, str]] = []

        async def main() -> None:
            async with asyncio.timeout(60), connected() as (host, connection):
                connection.notice = lambda *said: noticed.append(said)
                await work(host, connection)

        asyncio.run(main())
        return noticed

    return call


async def begun(file: Path) -> None:
    while not file.exists():
        await asyncio.sleep(0.01)


def test_a_host_that_restarts_is_reached_again(drill: Callable[[Work], Any], tmp_path: Path) -> None:
    async def work(host: SshHost, connection: HostConnection) -> None:
        assert (await connection.sh("echo before")).out == "before\n"
        await host.stop()
        asked = asyncio.ensure_future(connection.sh("echo after"))
        # As long as it is away it refuses connections.
        await asyncio.sleep(0.5)
        await host.start()
        assert (await asked).out == "after\n"

    assert [value for value, _ in drill(work)].count("lost") == 1


def test_the_clock_of_a_restarted_host_is_measured_anew(drill: Callable[[Work], Any]) -> None:
    async def work(host: SshHost, connection: HostConnection) -> None:
        first, boot = connection.clock, connection.boot_id
        assert abs(first.offset_ns) <= first.uncertainty_ns
        await host.stop()
        began = now_ns()
        await host.start(began)
        result = await connection.sh(":")
        assert result.t0_ns < began and connection.boot_id != boot
        clock = connection.clock
        assert abs(clock.offset_ns - began) <= clock.uncertainty_ns
        # What happened before is still known by the clock of that time.
        assert connection.boots == {boot: first, connection.boot_id: clock}

    drill(work)


def test_a_cut_network_delays_what_is_asked_and_nothing_more(drill: Callable[[Work], Any]) -> None:
    async def work(host: SshHost, connection: HostConnection) -> None:
        host.cut()
        asked = asyncio.ensure_future(connection.sh("echo healed"))
        while connection._session.lost_ns is None:
            await asyncio.sleep(0.05)
        host.mend()
        assert (await asked).out == "healed\n"

    assert [value for value, _ in drill(work)].count("lost") == 1


def test_what_was_asked_while_the_host_was_lost_is_asked_again(drill: Callable[[Work], Any], tmp_path: Path) -> None:
    async def work(host: SshHost, connection: HostConnection) -> None:
        file = tmp_path / "times"
        asked = asyncio.ensure_future(connection.sh(f"echo once >>{file}; sleep 1; cat {file}"))
        await begun(file)
        await host.stop()
        await host.start()
        assert (await asked).out == "once\nonce\n"

    drill(work)


def test_what_must_not_be_done_twice_is_said_to_be_in_doubt(drill: Callable[[Work], Any], tmp_path: Path) -> None:
    async def work(host: SshHost, connection: HostConnection) -> None:
        file = tmp_path / "times"
        before = now_ns()
        asked = asyncio.ensure_future(connection.sh(f"echo once >>{file}; sleep 1", once=True))
        await begun(file)
        await host.stop()
        await host.start()
        with pytest.raises(Unanswered, match="host h was asked and was lost before it answered") as raised:
            await asked
        assert before <= raised.value.asked_ns <= raised.value.lost_ns <= now_ns()
        assert file.read_text() == "once\n"
        # The next one finds the host, and one that could not be sent is not in doubt.
        assert (await connection.sh(f"cat {file}", once=True)).out == "once\n"

    drill(work)


def test_a_host_that_stays_away_is_given_up(drill: Callable[[Work], Any]) -> None:
    async def work(host: SshHost, connection: HostConnection) -> None:
        connection._away_s = 1.0
        await host.stop()
        with pytest.raises(InfrastructureError, match=r"host h is lost for \d+ s \(.+\): .*cannot be reached"):
            await connection.sh(":")
        # The next one makes one attempt, for all who wait for it.
        begun = time.monotonic()
        failed = await asyncio.gather(*(connection.sh(":") for _ in range(5)), return_exceptions=True)
        assert all(isinstance(error, InfrastructureError) for error in failed)
        assert time.monotonic() - begun < module.ATTEMPT_S
        await host.start()
        assert (await connection.sh("echo back")).out == "back\n"

    # However often somebody asks for it meanwhile, it was lost once.
    assert [value for value, _ in drill(work)].count("lost") == 1


def test_who_gives_up_waiting_ends_no_other_wait(drill: Callable[[Work], Any]) -> None:
    async def work(host: SshHost, connection: HostConnection) -> None:
        await host.stop()
        first, second = (asyncio.ensure_future(connection.sh("echo here")) for _ in range(2))
        await asyncio.sleep(0.3)
        first.cancel()
        await host.start()
        assert (await second).out == "here\n"
        assert first.cancelled()

    drill(work)


def test_a_file_comes_whole_over_a_lost_connection(drill: Callable[[Work], Any], tmp_path: Path) -> None:
    content = b"".join(b"%015d\n" % number for number in range(1 << 20))
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(content)

    async def work(host: SshHost, connection: HostConnection) -> None:
        copying = asyncio.ensure_future(connection.fetch(str(source), target))
        while not target.exists() or not target.stat().st_size:
            await asyncio.sleep(0)
        assert target.stat().st_size < len(content)
        await host.stop()
        await host.start()
        await copying
        assert target.read_bytes() == content
        await host.stop()
        await host.start()
        await connection.put(target, str(tmp_path / "again"))
        assert (tmp_path / "again").read_bytes() == content

    drill(work)


def test_a_forwarded_port_is_set_up_anew(drill: Callable[[Work], Any]) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nhere")
        await writer.drain()
        writer.close()

    async def work(host: SshHost, connection: HostConnection) -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        api = server.sockets[0].getsockname()[1]
        async with httpx.AsyncClient(trust_env=False) as http:

            async def ask() -> str:
                port = await connection.forward("127.0.0.1", api)
                assert port == await connection.forward("127.0.0.1", api)
                return (await http.get(f"http://127.0.0.1:{port}/")).text

            assert await ask() == "here"
            await host.stop()
            await host.start()
            await connection.sh(":")
            assert await ask() == "here"
        server.close()

    drill(work)


def test_a_process_of_a_lost_host_ends_with_that_reason(drill: Callable[[Work], Any]) -> None:
    async def work(host: SshHost, connection: HostConnection) -> None:
        channel = await connection.open(["cat"])
        await channel.write("a line")
        lines = channel.lines()
        assert await anext(lines) == "a line\n"
        await host.stop()
        assert [line async for line in lines] == []
        assert (await channel.ending()).how == "its connection was lost"
        await host.start()
        assert (await connection.sh("echo here")).out == "here\n"

    drill(work)


def test_another_host_at_the_address_is_not_taken_for_the_one_that_was_lost(
    drill: Callable[[Work], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(host: SshHost, connection: HostConnection) -> None:
        await host.stop()
        # From here on its key has to be a known one, and none is.
        connection._session.host = replace(host.host, vars={"drill_reconnect_s": 20})
        monkeypatch.setenv("HOME", str(tmp_path))
        await host.start()
        begun = time.monotonic()
        with pytest.raises(InfrastructureError, match=r"host h .*cannot be reached: Host key is not trusted"):
            await connection.sh(":")
        assert time.monotonic() - begun < 10

    drill(work)
