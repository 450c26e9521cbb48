"""The control socket for those who may only look."""

from __future__ import annotations

import grp
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from router_support import Router, config_of, router_of, wait_for
from tests.free_ports import free_port

from amqp_session_router.base.errors import RouterError, UsageError
from amqp_session_router.config import loader
from amqp_session_router.control import client, commands
from amqp_session_router.control.verbs.declaration import Changes
from amqp_session_router.control.verbs.table import VERBS


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    """A router with such a socket, for the group of the tests' own process."""
    directory = tmp_path_factory.mktemp("sockets")
    control = {"socket": str(directory / "control"), "read_socket": str(directory / "read")}
    config = config_of(free_port(), control=control | {"read_group": grp.getgrgid(os.getgid()).gr_name})
    with router_of(config) as found:
        found.control = directory / "read"
        yield found


def ask(router: Router, *words: str) -> tuple[bool, str]:
    """Return whether the verb was done, and else the sentence."""
    reply = next(client.ask(router.control, words))
    return reply["ok"], str(reply.get("error", ""))


def words_of(pattern: str) -> list[str]:
    """Return words that a pattern fits."""
    return [part if part[0] not in "<[" else "x" for part in pattern.split() if not part.startswith("[")]


@pytest.mark.parametrize("pattern", [verb.pattern for verb in VERBS])
def test_each_verb_is_one_that_shows_or_is_refused(router: Router, pattern: str) -> None:
    (verb,) = [one for one in VERBS if one.pattern == pattern]
    if pattern == "STAT LISTEN <format> [filter]":
        assert ask(router, "STAT", "LISTEN", "json")[0]
        return
    done, sentence = ask(router, *words_of(pattern))
    refused = sentence == f"this socket only reads: {pattern} needs the control socket"
    assert refused == (verb.changes is not Changes.NOTHING), (done, sentence)


def test_nothing_that_was_refused_has_an_effect(router: Router) -> None:
    before = next(client.ask(router.control, ["CONFIG", "PRINT"]))
    assert not ask(router, "BACKEND", "DRAIN", "b0")[0]
    assert not ask(router, "EXIT")[0]
    # It would make the router connect to whatever host its reader likes.
    assert not ask(router, "DRIFT", "192.0.2.1")[0] and ask(router, "DRIFT")[0]
    assert next(client.ask(router.control, ["CONFIG", "PRINT"])) == before
    assert not [one for one in router.log.read_text().splitlines() if "control: " in one]


def test_modes_and_groups(router: Router) -> None:
    control, read = (Path(router.config["control"][name]) for name in ("socket", "read_socket"))
    assert stat.S_IMODE(control.stat().st_mode) == 0o600
    assert stat.S_IMODE(read.stat().st_mode) == 0o660
    assert read.stat().st_gid == os.getgid()
    assert next(client.ask(control, ["BACKEND", "WEIGHT", "b0", "2"]))["ok"]


def test_its_connections_are_bounded_and_the_control_sockets_are_not(router: Router) -> None:
    socks = []
    for _ in range(commands._MOST_READERS + 6):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(20)
        sock.connect(str(router.control))
        socks.append(sock)
    assert [sock.recv(1) for sock in socks[commands._MOST_READERS :]] == [b""] * 6
    assert next(client.ask(Path(router.config["control"]["socket"]), ["CONN"]))["ok"]
    for sock in socks:
        sock.close()
    wait_for("room", lambda: _answers(router))


def _answers(router: Router) -> bool:
    try:
        return ask(router, "CONN")[0]
    except (RouterError, OSError):
        return False


def test_a_planned_restart_keeps_both(router: Router) -> None:
    assert router.process is not None
    before = len(router.entries("ready"))
    router.process.send_signal(12)
    wait_for("the next worker", lambda: len(router.entries("ready")) > before)
    wait_for("the socket", lambda: _answers(router))
    assert not ask(router, "EXIT")[0]
    assert next(client.ask(Path(router.config["control"]["socket"]), ["CONN"]))["ok"]


def test_what_does_not_hold_together_is_said() -> None:
    def problem(**control: str) -> str:
        with pytest.raises(UsageError) as caught:
            loader.from_data({"control": control})
        return str(caught.value)

    assert problem(socket="/a", read_socket="/a") == "control.read_socket: it is the control socket already"
    assert problem(read_group="root") == "control.read_group: there is no read_socket that it could use"
    assert problem(read_socket="/b", read_group="no-such-group") == (
        "control.read_group: this host has no group 'no-such-group'"
    )
