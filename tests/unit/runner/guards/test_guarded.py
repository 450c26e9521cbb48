"""What ends a run from outside: it is cancelled, ends by itself, and the reason is told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from brokerdrill.base.errors import InfrastructureError, UsageError
from brokerdrill.base.json_lines import append, entries
from brokerdrill.runner.guards.guarded import guarded
from brokerdrill.runner.guards.stop_files import STOP_FILE, ask_to_abort, asked, refuse_stopped
from brokerdrill.runner.system import System


class Work:
    """Goes on until it is cancelled, and then takes a moment to heal."""

    def __init__(self) -> None:
        self.healed = False

    async def go_on(self) -> str:
        try:
            await asyncio.Future()
        finally:
            await asyncio.sleep(0)
            self.healed = True
        return "never"


async def _says(why: str) -> str:
    return why


async def _fails() -> str:
    raise ValueError("odd")


async def _never() -> str:
    return await asyncio.Future()


@pytest.mark.parametrize(
    ("guard", "why"), [(lambda: _says("too deep"), "abort: too deep"), (_fails, "ValueError: odd")]
)
def test_a_guard_ends_the_work_which_heals_first(guard, why: str) -> None:  # type: ignore[no-untyped-def]
    work = Work()

    async def main() -> None:
        await guarded(work.go_on(), [_never(), guard()])

    with pytest.raises(InfrastructureError, match=why):
        asyncio.run(main())
    assert work.healed


def test_work_that_is_done_ends_its_guards() -> None:
    async def main() -> str:
        return await guarded(_says("done"), [_never()])

    assert asyncio.run(main()) == "done"


def test_what_the_work_raises_is_raised() -> None:
    async def main() -> None:
        await guarded(_fails(), [_never()])

    with pytest.raises(ValueError, match="odd"):
        asyncio.run(main())


def test_a_cancelled_run_heals_before_it_ends() -> None:
    work = Work()

    async def main() -> None:
        task = asyncio.ensure_future(guarded(work.go_on(), [_never()]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert work.healed


def test_a_run_is_asked_to_end_by_its_own_file_or_that_of_all(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert asked(run) is None
    ask_to_abort(run, "the phone rings")
    assert asked(run) == "asked to abort: the phone rings"
    refuse_stopped(tmp_path)
    (tmp_path / STOP_FILE).touch()
    assert asked(tmp_path / "other") == "STOP file: STOP"
    with pytest.raises(UsageError, match="STOP says that nothing runs"):
        refuse_stopped(tmp_path)


def test_a_torn_line_swallows_nothing(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lines.jsonl"
    append(path, {"a": 1})
    with path.open("ab") as file:
        file.write(b'{"torn": ')
    append(path, {"b": 2})
    assert entries(path) == [{"a": 1}, {"b": 2}]
    assert entries(tmp_path / "none") == []


def test_a_watch_that_cannot_write_keeps_no_other_one_going() -> None:
    stopped: list[str] = []

    class Asking:
        def __init__(self, name: str) -> None:
            self.name = name

        async def stop(self) -> None:
            stopped.append(self.name)
            if self.name == "roles":
                raise InfrastructureError("the ledger cannot be written")

    system = System(cast(Any, None))
    system._watch, system._pools = cast(Any, Asking("roles")), cast(Any, Asking("pools"))
    with pytest.raises(InfrastructureError, match="the ledger cannot be written"):
        asyncio.run(system.stop_watching())
    assert stopped == ["roles", "pools"]
