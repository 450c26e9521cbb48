"""The watch of live roles: what it writes, and since when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import InfrastructureError
from brokerdrill.base.progress import Progress
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.ledger.events import EventWriter
from brokerdrill.products.base import ManagementError
from brokerdrill.runner.guards.guarded import guarded
from brokerdrill.runner.guards.sight import until_watch_failed
from brokerdrill.runner.live_run import LiveRun
from brokerdrill.runner.system import Instance, System
from brokerdrill.runner.watching import polling
from brokerdrill.runner.watching import roles as role_watch
from brokerdrill.runner.watching.roles import RoleWatch


class Told:
    """A broker's management that answers what it is told, not at all while it is silent, and breaks where it is odd."""

    def __init__(self, role: str) -> None:
        self.answer = role
        self.silent = self.odd = False
        self.asked = 0

    async def role(self) -> str:
        self.asked += 1
        if self.odd:
            raise ValueError("odd")
        if self.silent:
            raise ManagementError("no answer", refused=False)
        return self.answer


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def roles(run_dir: Path) -> list[tuple[str, str, int]]:
    rows = [json.loads(line) for path in (run_dir / "events").iterdir() for line in path.read_text().splitlines()]
    return [(row["instance"], row["value"], row["t_ns"]) for row in rows if row["kind"] == "role"]


def test_a_role_before_the_steady_state_is_not_the_runs(tmp_path: Path) -> None:
    """A backup that still serves when a run begins, and hands back at once, is not the original active broker."""

    async def main() -> int:
        one, two = Told("syncing"), Told("active")
        base = now_ns()
        events = EventWriter(tmp_path, "run", base)
        descriptors = [
            Descriptor.model_validate(
                {"schema": 1, "product": "artemis", "instance": name, "host": name, "version": "1", "store": "pair"}
            )
            for name in ("one", "two")
        ]
        changes: list[tuple[str, str]] = []
        watch = RoleWatch(
            {"one": (descriptors[0], one), "two": (descriptors[1], two)},  # type: ignore[dict-item]
            events,
            lambda name, role: changes.append((name, role)),
        )
        watch.start()
        await until(lambda: watch.roles == {"one": "syncing", "two": "active"})
        one.answer, two.answer = "active", "passive"
        await until(lambda: watch.roles == {"one": "active", "two": "passive"})
        begin = watch.record() - base
        two.answer = "down"
        await until(lambda: watch.roles["two"] == "down")
        await watch.stop()
        events.close()
        assert ("two", "active") in changes  # those who act on live roles hear of everything
        return begin

    begin = asyncio.run(main())
    written = roles(tmp_path)
    assert [(name, role) for name, role, _ in written] == [("one", "active"), ("two", "passive"), ("two", "down")]
    assert all(at >= begin for _, _, at in written[:2])


def test_health_is_written_from_the_first_silence_on(tmp_path: Path) -> None:
    """A broker that answers when it is asked for the first time has not begun to."""

    async def main() -> None:
        one = Told("active")
        events = EventWriter(tmp_path, "run", now_ns())
        system = System(Progress(Console(quiet=True)))
        _add(system, {"one": one})
        system.watch(events)
        system.record()
        await until(lambda: system.roles == {"one": "active"})
        one.silent = True
        asked = one.asked
        await until(lambda: one.asked > asked + 1)
        await system.stop_watching()
        events.close()

    asyncio.run(main())
    rows = [json.loads(line) for path in (tmp_path / "events").iterdir() for line in path.read_text().splitlines()]
    assert [row["value"] for row in rows if row["kind"] == "health"] == ["silent"]


def test_times_without_an_answer_are_written_and_a_refused_connection_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a broker that nobody could ask, it is not known whether it was active."""
    monkeypatch.setattr(role_watch, "GAP_NS", 1_000_000_000)

    async def main() -> None:
        one, two = Told("active"), Told("down")
        events = EventWriter(tmp_path, "run", now_ns())
        system = System(Progress(Console(quiet=True)))
        _add(system, {"one": one, "two": two})
        system.watch(events)
        await until(lambda: system.roles == {"one": "active", "two": "down"})
        system.record()
        one.silent = True
        begun = now_ns()
        await until(lambda: now_ns() - begun > 1.5e9)
        one.silent = False
        asked = one.asked
        await until(lambda: one.asked > asked + 1)
        await system.stop_watching()
        events.close()

    asyncio.run(main())
    rows = [json.loads(line) for path in (tmp_path / "events").iterdir() for line in path.read_text().splitlines()]
    polls = {row["instance"]: row["detail"] for row in rows if row["kind"] == "polls"}
    begin, end = map(int, polls["one"]["gaps"].split("-"))
    assert end - begin == int(polls["one"]["longest_ns"]) > 1.4e9
    assert polls["two"]["gaps"] == ""
    assert int(polls["two"]["count"]) > int(polls["one"]["count"]) > 0


class Sent:
    """A product that clients send to."""

    client = "some"


def _add(system: System, instances: dict[str, Told]) -> None:
    """Let `system` have a pair of these."""
    for name, management in instances.items():
        descriptor = Descriptor.model_validate(
            {"schema": 1, "product": "artemis", "instance": name, "host": name, "version": "1", "store": "pair"}
        )
        system.instances[name] = Instance(Sent(), descriptor, None, management)  # type: ignore[arg-type]


def test_a_watch_that_dies_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    """What it said last is taken for what is: a broker that became active would stand there as what it was before."""

    async def main() -> None:
        one, two = Told("active"), Told("passive")
        system = System(Progress(Console(quiet=True)))
        _add(system, {"one": one, "two": two})
        events = EventWriter(tmp_path, "run", now_ns())
        watched = LiveRun(tmp_path, None, system, None, None, events)  # type: ignore[arg-type]

        async def work() -> None:
            system.watch(events)
            await until(system.in_sync)
            two.odd = True
            await asyncio.Future()

        try:
            await guarded(work(), [until_watch_failed(watched)])
        finally:
            await system.stop_watching()
            assert system.failed_watches() == ["the watch of the live roles failed: ValueError: odd"]
            events.close()

    with pytest.raises(InfrastructureError, match=r"^abort: the watch of the live roles failed: ValueError: odd$"):
        asyncio.run(main())


def test_what_was_seen_before_an_act_says_nothing_of_after_it(tmp_path: Path) -> None:
    """A fault that has just been healed: until all have answered anew, nothing is known to be in sync."""

    async def main() -> None:
        one, two = Told("active"), Told("passive")
        system = System(Progress(Console(quiet=True)))
        _add(system, {"one": one, "two": two})
        events = EventWriter(tmp_path, "run", now_ns())
        system.watch(events)
        await until(system.in_sync)
        one.silent = True
        system.acted()
        assert not system.in_sync()
        assert (system.roles, system.roles_since_act) == ({"one": "active", "two": "passive"}, {})
        await until(lambda: system.roles_since_act == {"two": "passive"})
        assert system.served()
        assert not system.in_sync()  # the silent one may be anything by now
        one.silent = False
        await until(system.in_sync)
        await system.stop_watching()
        events.close()

    asyncio.run(main())


def test_an_answer_to_what_was_asked_at_that_very_moment_is_of_after_it(tmp_path: Path) -> None:
    async def main() -> None:
        system = System(Progress(Console(quiet=True)))
        _add(system, {"one": Told("active")})
        events = EventWriter(tmp_path, "run", now_ns())
        system.watch(events)
        await until(system.in_sync)
        await system.stop_watching()
        watch = system._watch
        assert watch is not None
        asked_ns = watch._seen["one"].answered_ns
        assert watch.roles_since(asked_ns) == {"one": "active"}
        assert watch.roles_since(asked_ns + 1) == {}
        events.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("before", "now", "uncertain"),
    [
        (900, 1_030, 100),  # since the question before
        (990, 1_030, 30),  # until the answer
        (0, 1_030, 30),  # there was none before
    ],
)
def test_a_change_lies_between_the_question_before_and_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, now: int, uncertain: int
) -> None:
    events = EventWriter(tmp_path, "run", 0)
    watch = RoleWatch({}, events, lambda *_: None)
    monkeypatch.setattr(watch, "_since_ns", 500)
    monkeypatch.setattr(polling, "now_ns", lambda: now)
    assert watch._placed(1_000, before) == (1_000, uncertain)
    events.close()
