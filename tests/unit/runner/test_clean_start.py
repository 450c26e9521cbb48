"""What waits in a drill's addresses when a run begins: removed, or refused."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.base.progress import Progress
from brokerdrill.products.base import ManagementError, NotAllowed, QueueCounts
from brokerdrill.runner import clean_start
from brokerdrill.workload.looking import Look, QueueContents
from tests.unit.descriptors import broker

ADDRESSES = [
    {"name": "q", "drill": True, "dead_letter": "dead"},
    {"name": "dead", "drill": True},
    {"name": "orders", "dead_letter": "DLQ"},
    {"name": "DLQ"},
]
RUNS = {"aaaaaaaa": "kill-1"}


class FullBroker:
    """An active broker with so many messages in its addresses, and what a look at each sees; `stuck` ones stay.
    `consumers`: how many take from each, at one time after the other. `fails`: how its first counts end."""

    def __init__(
        self,
        name: str,
        messages: Mapping[str, int],
        prepared: Sequence[str] = (),
        stuck: int = 0,
        silent: bool = False,
        consumers: Sequence[int] = (),
        fails: Sequence[ManagementError] = (),
    ) -> None:
        self.descriptor = broker("artemis", name, addresses=ADDRESSES)
        self.management = self
        self.messages = dict(messages)
        self.purged: list[str] = []
        self._prepared, self._stuck, self._silent, self._consumers = prepared, stuck, silent, [*consumers]
        self._fails = [*fails]

    async def counts(self, addresses: Sequence[str]) -> Mapping[str, QueueCounts]:
        if self._silent:
            raise ManagementError("gone")
        if self._fails:
            raise self._fails.pop(0)
        takes = self._consumers.pop(0) if self._consumers else 0
        return {name: QueueCounts(self.messages[name], 0, 0, 9, takes) for name in addresses if name in self.messages}

    async def prepared(self) -> Sequence[str]:
        return self._prepared

    async def purge(self, addresses: Sequence[str]) -> int:
        self.purged += addresses
        removed = sum(self.messages[name] for name in addresses if name in self.messages)
        self.messages.update({name: self._stuck for name in addresses if name in self.messages})
        return removed


def begin(
    brokers: Sequence[FullBroker],
    sees: Sequence[QueueContents] = (),
    purge: bool = False,
    then: Sequence[QueueContents] | None = None,
) -> tuple[dict[str, int], list[Look], str]:
    """Return what was added, where was looked, and what was said. A look sees `sees`, a second one `then`."""
    said = io.StringIO()
    looks: list[Look] = []

    async def look(wanted: Sequence[Look]) -> list[QueueContents]:
        looks.extend(wanted)
        return [*(sees if then is None or len(looks) == len(wanted) else then)]

    system: Any = SimpleNamespace(
        active_brokers=lambda: brokers, brokers=lambda: brokers, descriptors=lambda: [one.descriptor for one in brokers]
    )
    load: Any = SimpleNamespace(look=look)
    events: Any = SimpleNamespace(write=lambda *_, **__: None)
    progress = Progress(Console(file=said, width=500))
    added = asyncio.run(clean_start.clean_start(["q"], purge, RUNS, system, load, events, progress))
    return added, looks, said.getvalue()


def test_nothing_is_looked_at_or_removed_where_nothing_is() -> None:
    one = FullBroker("b1", {"q": 0, "dead": 4, "orders": 7, "DLQ": 7})
    added, looks, _ = begin([one])
    assert (added, looks, one.purged) == ({"q": 9}, [], [])


def test_what_earlier_drills_left_is_removed_and_said() -> None:
    one = FullBroker("b1", {"q": 3, "dead": 4, "orders": 7, "DLQ": 7})
    _, looks, said = begin([one], [QueueContents("q", "b1", {"aaaaaaaa": 2, "bbbbbbbb": 1})])
    assert looks == [Look("q", "b1", 3, drills=True)]
    assert "2 messages of kill-1, 1 messages of a run with tag bbbbbbbb" in said
    assert one.purged == ["q"] and one.messages == {"q": 0, "dead": 4, "orders": 7, "DLQ": 7}


def test_a_look_that_was_not_whole_is_tried_again() -> None:
    one = FullBroker("b1", {"q": 3, "dead": 0})
    short = QueueContents("q", "b1", {"aaaaaaaa": 2}, error="the broker shows 2 of 3")
    _, looks, _ = begin([one], [short], then=[QueueContents("q", "b1", {"aaaaaaaa": 3})])
    assert len(looks) == 2 and one.purged == ["q"]


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (
            QueueContents("q", "b1", {"aaaaaaaa": 1}, 2, ["ID:1"]),
            "q at b1 has 1 messages of kill-1, 2 messages that no drill has sent (such as ID:1)",
        ),
        (
            QueueContents("q", "b1", {"aaaaaaaa": 1}, error="the broker shows 1 of 3"),
            "not known: the broker shows 1 of 3",
        ),
        (QueueContents("q", "b1", error="refused"), "refused"),
    ],
)
def test_anybody_elses_messages_are_refused_and_stay(
    monkeypatch: pytest.MonkeyPatch, seen: QueueContents, words: str
) -> None:
    monkeypatch.setattr(clean_start, "LOOK_AGAIN_S", 0)
    one = FullBroker("b1", {"q": 3, "dead": 0})
    with pytest.raises(InfrastructureError) as refused:
        begin([one], [seen])
    assert words in str(refused.value) and "--purge" in str(refused.value)
    assert one.purged == [] and one.messages["q"] == 3


def test_a_purge_that_was_asked_for_empties_the_drills_own_and_nothing_else() -> None:
    one = FullBroker("b1", {"q": 3, "dead": 4, "orders": 7, "DLQ": 7})
    _, looks, _ = begin([one], purge=True)
    assert looks == [] and one.purged == ["q", "dead"]
    assert one.messages == {"q": 0, "dead": 0, "orders": 7, "DLQ": 7}


def test_what_was_prepared_before_is_named_when_the_run_begins() -> None:
    assert (
        "b1 has 2 prepared transactions from before this run: t1, t2"
        in begin([FullBroker("b1", {"q": 0}, ["t2", "t1"])])[2]
    )


def test_what_a_broker_does_not_give_up_ends_the_run_before_its_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean_start, "EMPTIED_S", 0.01)
    with pytest.raises(
        InfrastructureError, match=r"b1 does not give up 2 messages in q, .* prepared transactions \(t1\)$"
    ):
        begin([FullBroker("b1", {"q": 3}, ["t1"], stuck=2)], [QueueContents("q", "b1", {"aaaaaaaa": 3})])


def test_where_dead_letters_are_looked_for() -> None:
    def looks(*brokers: FullBroker) -> list[Look]:
        system: Any = SimpleNamespace(
            active_brokers=lambda: brokers, descriptors=lambda: [one.descriptor for one in brokers]
        )
        return asyncio.run(clean_start.dead_letter_looks(system, ["q"]))

    empty, full = FullBroker("b1", {"dead": 0}), FullBroker("b2", {"dead": 5})
    assert looks(empty, full) == [Look("dead", "b2", 5, True, True)]
    assert looks(empty, empty) == [Look("dead", "b1", 0, True, True)]
    silent = FullBroker("b3", {}, silent=True)
    assert looks(empty, full, silent) == [Look("dead", "b2", 5, True, True), Look("dead", "b3", 0, True, True)]


def test_an_address_that_no_broker_counts_may_hold_anything() -> None:
    one = FullBroker("b1", {"dead": 0})
    with pytest.raises(InfrastructureError, match="no broker has q, which is declared"):
        begin([one], purge=True)
    assert one.purged == []


@pytest.mark.parametrize(
    ("answers", "within_s", "ends"),
    [
        ([ManagementError("no answer"), ManagementError("disconnected")], 15, False),
        ([ManagementError("no answer")] * 2, 0, True),
        ([NotAllowed("HTTP 403")], 15, True),
    ],
    ids=["asked again", "for so long", "not where it is refused"],
)
def test_a_count_without_an_answer_is_asked_for_again(
    answers: list[ManagementError], within_s: float, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clean_start, "LOOK_AGAIN_S", within_s)
    one = FullBroker("b1", {"q": 0, "dead": 0}, fails=answers)
    if ends:
        with pytest.raises(ManagementError, match=str(answers[0])):
            begin([one])
    else:
        assert begin([one])[0] == {"q": 9}


def test_whoever_consumes_from_a_drills_address_would_take_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = FullBroker("b1", {"q": 0, "dead": 0}, consumers=[0, 2, 2])
    assert begin([gone])[0] == {"q": 9}, "those of a killed run are missed in the end"
    monkeypatch.setattr(clean_start, "LOOK_AGAIN_S", 0.01)
    one = FullBroker("b1", {"q": 3, "dead": 0}, consumers=[2] * 99)
    with pytest.raises(
        InfrastructureError, match="somebody else takes what a drill would send: 2 consumers from q at b1"
    ):
        begin([one], purge=True)
    assert one.purged == []
