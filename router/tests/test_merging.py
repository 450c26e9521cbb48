"""How the workers of one router act as one: what each replies as one reply, and who tells whom what to go by."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from amqp_session_router.base.errors import RouterError, UsageError
from amqp_session_router.base.paced import now
from amqp_session_router.config import loader
from amqp_session_router.control import merging
from amqp_session_router.control.service import Service
from amqp_session_router.control.verbs.table import find
from amqp_session_router.control.workers import STATE, WORDS, Follower, Leader
from amqp_session_router.telemetry import metrics
from amqp_session_router.telemetry.log import Log


def merge_of(words: str) -> merging.Merge:
    """Return what makes one reply of all workers' to a verb."""
    merge = find(words.split())[0].merge
    assert merge is not None
    return merge


def test_replies_of_all_workers_are_one() -> None:
    rows = [
        {"rows": [{"vhost": "b", "sessions": 1, "paused": True}]},
        {"rows": [{"vhost": "a", "sessions": 2, "paused": False}, {"vhost": "b", "sessions": 3, "paused": True}]},
    ]
    assert merge_of("VHOST PRINT")(rows) == {
        "rows": [{"vhost": "a", "sessions": 2, "paused": False}, {"vhost": "b", "sessions": 4, "paused": True}]
    }
    exit_ = [{"text": "leaving in 2 s, with 2 sessions", "sessions": 2}, {"text": "…", "sessions": 5}]
    assert merge_of("EXIT")(exit_) == {"text": "leaving in 2 s, with 7 sessions", "sessions": 7}
    assert merging.added({"a": [1, 2], "b": "x", "c": True}, {"a": [3, 4], "b": "y", "c": True, "d": 1}) == {
        "a": [4, 6],
        "b": "x",
        "c": True,
        "d": 1,
    }


@given(st.floats(0.01, 1e5), st.lists(st.integers(0, 1000), min_size=1, max_size=8))
def test_shares_of_a_rate(rate: float, counts: list[int]) -> None:
    found = merging.shares(rate, counts)
    assert sum(found) == pytest.approx(rate) and all(share > 0 for share in found)
    assert [*sorted(zip(counts, found, strict=True))] == sorted(zip(sorted(counts), sorted(found), strict=True))


def test_pages_of_all_workers_are_one() -> None:
    pages = []
    for worker in (0, 2):
        page = metrics._Page({"worker": str(worker)})
        page.family("active", "gauge", "Open sessions.")
        page.sample("active", {"vhost": "v"}, worker)
        page.family("other", "gauge", "Of no use.")
        page.sample("other", {}, 1)
        pages.append(page.text())
    found = {
        one.name: one for one in text_string_to_metric_families(now(metrics.joined([pages[0], b"", pages[1]])).decode())
    }
    assert [(one.labels, one.value) for one in found["amqp_router_active"].samples] == [
        ({"vhost": "v", "worker": "0"}, 0),
        ({"vhost": "v", "worker": "2"}, 2),
    ]
    assert len(found["amqp_router_other"].samples) == 2
    assert [one.value for one in found["amqp_router_worker_up"].samples] == [1, 0, 1]


def test_workers_that_come_go_and_refuse() -> None:
    asyncio.run(_come_go_and_refuse())


async def _come_go_and_refuse() -> None:
    state = {"number": 1}
    told: list[int] = []

    async def answer(what: str, body: bytes) -> bytes:
        if what == WORDS:
            return json.dumps({"said": json.loads(body)}).encode()
        assert what == STATE
        number = json.loads(body)["number"]
        told.append(number)
        if number == 13:
            raise UsageError("13 is none")
        return json.dumps({"at": number}).encode()

    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as line:
        path = str(Path(directory) / "leader")
        line.bind(path)
        line.listen()
        follower = Follower(path, 1, answer)
        await follower.start()
        # It waits for a leader, and for the next one: the socket stays.
        for number in (1, 2):
            state["number"] = number
            leader = Leader(2, lambda: state)
            await leader.start(line.dup())
            assert await leader.agree() == [{"at": number}]
            assert follower.begun.is_set()
            if number == 1:
                await leader.stop()
        state["number"] = 13
        with pytest.raises(UsageError, match="13 is none"):
            await leader.agree()
        state["number"] = 3
        assert await leader.call(["CONN"]) == [{"said": ["CONN"]}]
        # One that is gone answers as soon as its successor is there, or not in time.
        await follower.stop()
        with pytest.raises(RouterError, match="worker 1 has not answered within"):
            await leader.ask(1, WORDS, b"[]", 0.1)
        waiting = asyncio.create_task(leader.agree())
        follower = Follower(path, 1, answer)
        await follower.start()
        assert await waiting == [{"at": 3}]
        await follower.stop()
        await leader.stop()


@pytest.mark.parametrize(
    ("error", "kept"),
    [(UsageError("worker 1: cannot listen"), False), (RouterError("worker 1 has not answered"), True)],
)
def test_a_change_that_a_worker_refuses_is_undone_and_one_that_is_late_is_not(
    directory: Path, error: RouterError, kept: bool
) -> None:
    file = directory / "router.yaml"
    file.write_text("control: null\n")
    told: list[str] = []

    async def scene() -> str:
        service = Service(file, log_to=Log(io.StringIO()))

        async def agree() -> list[dict[str, Any]]:
            told.append(loader.from_data(service.configuration.state["config"] or {}).config.datacenter)
            if len(told) == 1:
                raise error
            return []

        service.lead(cast(Leader, SimpleNamespace(agree=agree)))
        with pytest.raises(type(error), match=str(error)):
            await service.configuration.change(lambda data: data.update(datacenter="there"))
        await service.stop()
        return service.settings.config.datacenter

    assert asyncio.run(scene()) == ("there" if kept else "")
    assert told == (["there"] if kept else ["there", ""])


@pytest.mark.parametrize(
    "odd", ["\u2028", "\u2029", "\x85", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\n", '"', "\\"]
)
def test_a_vhosts_name_ends_no_line_of_the_page_of_several_workers(odd: str) -> None:
    name = f"a{odd}amqp_router_forged 1"
    pages = []
    for worker in ("0", "1"):
        page = metrics._Page({"worker": worker})
        page.family("sessions", "gauge", "Sessions.")
        page.sample("sessions", {"vhost": name}, 1)
        pages.append(page.text())
    whole = now(metrics.joined(pages)).decode()
    families = {one.name: one for one in text_string_to_metric_families(whole)}
    assert {sample.labels["vhost"] for sample in families["amqp_router_sessions"].samples} == {name}
    assert len(families) == 2 and whole.count("\n") == 8
