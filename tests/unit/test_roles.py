"""The watch of live roles: what it writes, and since when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from brokerdrill.clock import now_ns
from brokerdrill.descriptors import Descriptor
from brokerdrill.events import EventWriter
from brokerdrill.roles import RoleWatch


class Told:
    """A broker's management that answers what it is told."""

    def __init__(self, role: str) -> None:
        self.answer = role

    async def role(self) -> str:
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
