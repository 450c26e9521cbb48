"""What ends a run early from outside its load: a request to abort, and whatever else its caller watches for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from brokerdrill.base.atomic import write
from brokerdrill.base.errors import BrokerdrillError, InfrastructureError, Unmet, UsageError, in_words
from brokerdrill.base.locks import is_held
from brokerdrill.faults.executor import Executor
from brokerdrill.ledger import contract
from brokerdrill.ledger.events import EventWriter
from brokerdrill.runner.load.control import LoadControl
from brokerdrill.runner.system import System
from brokerdrill.scenario.model import Scenario

# In the folder of runs: no run begins, and each that goes on ends. It stays until somebody removes it.
STOP_FILE = "STOP"
# In a run's directory: that run ends.
ABORT_FILE = "ABORT"
# In a run's directory, held by its runner for as long as it lives.
LOCK_FILE = ".lock"
ASK_PERIOD_S = 0.1
# A task that was cancelled may have to undo what it began; one that has not ended by then is cancelled again.
CANCELLED_AGAIN_S = 30.0

T = TypeVar("T")


@dataclass(frozen=True)
class Watched:
    """A run under way, as a watch may look at it."""

    run_dir: Path
    scenario: Scenario
    system: System
    load: LoadControl
    executor: Executor
    events: EventWriter


# Returns, when a run must end, why.
Watch = Callable[[Watched], Awaitable[str]]


def refuse_stopped(runs: Path) -> None:
    """Raise UsageError while the folder of runs holds a STOP file."""
    if (runs / STOP_FILE).exists():
        raise UsageError(f"{runs / STOP_FILE} says that nothing runs; remove it first")


def under_way(runs: Path) -> list[Path]:
    """Return the directories of the runs below `runs` that go on, oldest first. A killed runner's is none of them."""
    found = []
    for path in sorted(runs.glob(f"*/{contract.RUN_FILE}")):
        with contextlib.suppress(BrokerdrillError):
            if is_held(path.parent / LOCK_FILE) and contract.read_run(path.parent).outcome == "running":
                found.append(path.parent)
    return found


def ask_to_abort(run_dir: Path, why: str) -> Path:
    """Ask the run of `run_dir` to heal and end. Raises InfrastructureError where that cannot be written."""
    return write(run_dir / ABORT_FILE, f"{why}\n".encode())


def asked(run_dir: Path) -> str | None:
    """Return why the run is asked to end; None: it is not."""
    for path, said in ((run_dir / ABORT_FILE, "asked to abort"), (run_dir.parent / STOP_FILE, f"{STOP_FILE} file")):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return f"{said}: {path.read_text(encoding='utf-8').strip() or path.name}"
    return None


async def until_asked(watched: Watched) -> str:
    """Wait until the run is asked to end."""
    while (why := asked(watched.run_dir)) is None:
        await asyncio.sleep(ASK_PERIOD_S)
    return why


async def until_lost(watched: Watched) -> str:
    """Wait until a host is not this run's any more, or has healed what this run broke as it heard nothing of it."""
    executor = watched.executor
    while not executor.lease.lost and not executor.silenced:
        await asyncio.sleep(ASK_PERIOD_S)
    if executor.lease.lost:
        raise InfrastructureError(executor.lease.lost)
    return f"hosts heard nothing of this run for {executor.lease.request.silent_s:g} s, and healed {executor.silenced}"


async def until_blind(watched: Watched) -> str:
    """Wait until a watch of the drilled system has ended before its time: the roles that steps go by may be old."""
    while not (failed := watched.system.failed_watches()):
        await asyncio.sleep(ASK_PERIOD_S)
    raise InfrastructureError("; ".join(failed))


async def unless(work: Coroutine[Any, Any, T], watches: Iterable[Awaitable[str]]) -> T:
    """Return what `work` returns. After `work` was cancelled and has ended, raises Unmet as soon as one of `watches`
    says why it must end, InfrastructureError as soon as a watch fails."""
    working = asyncio.ensure_future(work)
    watching = [asyncio.ensure_future(watch) for watch in watches]
    try:
        await asyncio.wait([working, *watching], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        said = next(watch for watch in watching if watch.done())
        if failure := said.exception():
            raise InfrastructureError(f"abort: {in_words(failure)}")
        raise Unmet(f"abort: {said.result()}")
    finally:
        await ended({working, *watching})


async def ended(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel `tasks`, and again what has not ended by then: a cancellation is lost where it comes at the same moment as
    what the task waits for (asyncio.wait_for of Python 3.11)."""
    left = tasks
    while left := {task for task in left if not task.done()}:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=CANCELLED_AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)
