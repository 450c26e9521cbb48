"""Orders: what an instance is told, and what comes of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.base.errors import InfrastructureError, Unmet, UsageError
from brokerdrill.hosts.connection import Result
from brokerdrill.inventory.targets import Target
from brokerdrill.runner import method
from brokerdrill.runner.method import give_order, order_problem, order_result
from brokerdrill.scenario.model import Order, parse
from brokerdrill.scenario.radius import reached
from brokerdrill.web.live import step_words, taken
from tests.unit.inventory.test_targets import descriptor
from tests.unit.scenario.test_scenario import GOOD

REFUSED = Result(1, "", "Error while performing this operation on the broker.\n[B4094]: Could not contact\n", 0, 1)
DONE = Result(0, "Destination successfully created.\n", "", 0, 1)


def order(**values: Any) -> Order:
    return Order(type="order", name="create", target="b1", words="create dst -n a;b", **values)


@pytest.mark.parametrize(
    ("refused", "result", "wrong"),
    [
        (None, DONE, None),
        (None, REFUSED, "refused: Error while performing this operation on the broker. [B4094]: Could not contact"),
        ("B4094", REFUSED, None),
        ("B4094", DONE, "done, not refused"),
        ("B4095", REFUSED, "refused in other words than 'B4095': Error while"),
    ],
)
def test_what_comes_of_an_order(refused: str | None, result: Result, wrong: str | None) -> None:
    found = order_problem(order(refused=refused), result)
    assert found == wrong or (wrong and found and found.startswith(wrong))
    assert order_result(order(refused=refused)) == ("done" if refused is None else "refused")


class Host:
    """A host that notes what it is told and answers the same each time."""

    def __init__(self, answer: Result) -> None:
        self.answer = answer
        self.told: list[tuple[str, float]] = []

    async def sh(self, script: str, *, timeout: float, once: bool) -> Result:
        # What an instance was told must not be told it again.
        assert once
        self.told.append((script, timeout))
        return self.answer


def test_an_order_goes_to_the_instances_host_word_by_word() -> None:
    host: Any = Host(DONE)
    broker = descriptor("b1", "openmq", control="/opt/imqcmd -f")
    asyncio.run(give_order(order(timeout=7), Target("b1", (broker,)), {broker.host: host}))
    assert host.told == [("/opt/imqcmd -f create dst -n 'a;b'", 7)]
    host.answer = REFUSED
    with pytest.raises(Unmet, match=r"order create: b1 was given 'create dst -n a;b', and it was refused: Error"):
        asyncio.run(give_order(order(), Target("b1", (broker,)), {broker.host: host}))
    with pytest.raises(InfrastructureError, match="b2: its descriptor says no `control` command"):
        asyncio.run(give_order(order(), Target("b2", (descriptor("b2", "artemis"),)), {}))


def test_what_is_put_off_is_ordered_again_until_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method, "PUT_OFF_S", 0.01)
    broker = descriptor("b1", "openmq", control="/opt/imqcmd -f")
    busy = Result(1, "Creating a destination: " + 500 * "-", "Cannot proceed - a takeover is in progress.", 0, 1)
    given = order(again="takeover is in progress", timeout=30)

    class Busy(Host):
        async def sh(self, script: str, *, timeout: float, once: bool) -> Result:
            await super().sh(script, timeout=timeout, once=once)
            return busy if len(self.told) < 3 else self.answer

    host: Any = Busy(DONE)
    asyncio.run(give_order(given, Target("b1", (broker,)), {broker.host: host}))
    assert len(host.told) == 3
    other: Any = Busy(REFUSED)
    with pytest.raises(Unmet, match="B4094"):
        asyncio.run(give_order(given, Target("b1", (broker,)), {broker.host: other}))
    always: Any = Host(busy)
    # The reason comes last.
    with pytest.raises(Unmet, match=r"was refused: -+ Cannot proceed - a takeover is in progress\.$"):
        asyncio.run(give_order(order(again="takeover", timeout=0.05), Target("b1", (broker,)), {broker.host: always}))
    assert len(always.told) > 1


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ("target: link a→b, words: x", "a link takes no order"),
        ("target: b1, words: ''", "at least 1 character"),
        ("target: b1, words: x, refused: '('", "'\\(' is no regular expression"),
    ],
)
def test_a_wrong_order_is_refused(values: str, sentence: str) -> None:
    step = f"  - {{type: order, name: o, {values}}}\npromises:"
    with pytest.raises(UsageError, match=sentence):
        parse(GOOD.replace("promises:", step), Path("s.yml"))


def test_an_order_reaches_its_host_and_may_put_its_instance_out_of_service() -> None:
    brokers = [descriptor(name, "openmq", features=["cluster"]) for name in ("b1", "b2")]
    step = "  - {type: order, name: o, target: b1, words: shutdown}\npromises:"
    found = reached(parse(GOOD.replace("promises:", step), Path("s.yml")), brokers)
    assert sorted(found.steps[-1].hosts) == [brokers[0].host] and found.at_once == 1


def test_whoever_looks_on_sees_the_order_and_that_it_was_given() -> None:
    assert step_words(order()) == "order create dst -n a;b"
    assert not taken(order(), [])
    assert taken(order(), [{"kind": "probe", "name": "create", "value": "done"}])
