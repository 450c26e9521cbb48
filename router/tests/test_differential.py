"""What a client sees through the router is what it sees at the broker, but for what is named."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from differential.allowances import Verdict, judge
from differential.page import PAGE, page
from differential.run import Report, compare, shown
from differential.talk import Seen
from router_support import Broker, config_of, router_of

from amqp_session_router.amqp import codec

SEED = 1
SHORT, LONG = 240, 10_000
MORE = {
    "parameters": [
        {"component": "vhost-limits", "name": "limits", "vhost": "full", "value": {"max-connections": 0}},
    ],
}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """The ports of a RabbitMQ and of a router before it."""
    broker = Broker(tmp_path_factory.mktemp("compared"), vhosts=("/", "other", "closed", "full"), more=MORE)
    try:
        broker.start()
        limits = {"unauthenticated_per_address": None}
        with router_of(config_of(broker.port, limits=limits)) as router:
            yield broker.port, router.port
    finally:
        broker.stop()


def test_the_page_of_what_differs_is_made_from_what_is_allowed() -> None:
    assert PAGE.read_text() == page()


def test_a_difference_that_is_not_named_is_a_fault() -> None:
    seen = Seen(((1, 0, codec.OPEN_OK.to_bytes(4, "big") + b"\0"), (3, 1, b"body")), b"", "end")
    for other in (
        seen._replace(frames=seen.frames[:1]),
        seen._replace(frames=(*seen.frames[:1], (3, 1, b"bodY"))),
        seen._replace(frames=seen.frames[::-1] + seen.frames[:1]),
        seen._replace(rest=b"x"),
        seen._replace(end="open"),
    ):
        for kind in ("traffic", "ends", "tune", "too early"):
            assert judge(kind, seen, other).fault and judge(kind, other, seen).fault
    assert judge("traffic", seen, seen) == Verdict((), False)


def told(report: Report) -> str:
    return "\n".join([*report.lines(), "", *map(shown, report.faults[:40])])


def test_a_few_hundred_clients_see_the_same(compared: tuple[int, int]) -> None:
    report = asyncio.run(compare(*compared, SEED, range(SHORT)))
    assert report.cases.total() == SHORT
    assert not report.faults, told(report)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_ten_thousand_clients_see_the_same(compared: tuple[int, int], tmp_path: Path) -> None:
    report = asyncio.run(compare(*compared, SEED + 1, range(LONG)))
    (tmp_path / "report.txt").write_text(told(report))
    assert report.cases.total() == LONG
    assert not report.faults, told(report)
