"""Coroutines that begin at once and go on in the call that tells what they waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from amqp_session_router.net.eager_task import EagerTask, Outcome


async def noting(told: list[object], waits: Callable[[], Any]) -> None:
    """Note what is got of `waits`, or how that failed, and the end."""
    told.append("began")
    try:
        told.append(await waits())
    except Exception as error:
        told.append(error)
    finally:
        told.append("ended")


def run(test: Callable[[asyncio.AbstractEventLoop], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await test(asyncio.get_running_loop())

    asyncio.run(main())


def test_what_waits_for_nothing_is_done_at_once() -> None:
    told: list[object] = []
    outcome: Outcome[int] = Outcome()
    outcome.set(7)
    outcome.set(8)
    task = EagerTask(noting(told, lambda: outcome))
    assert told == ["began", 7, "ended"] and task.done
    task.cancel()


def test_it_goes_on_in_the_call_that_sets_the_outcome() -> None:
    told: list[object] = []
    outcome: Outcome[str] = Outcome()
    task = EagerTask(noting(told, lambda: outcome))
    assert told == ["began"] and not task.done
    outcome.set("set")
    assert told == ["began", "set", "ended"] and task.done
    outcome.set("again")
    assert len(told) == 3


def test_it_waits_for_what_asyncio_has() -> None:
    async def test(loop: asyncio.AbstractEventLoop) -> None:
        async def late() -> str:
            async with asyncio.timeout(1):
                await asyncio.sleep(0.01)
            return "late"

        async def wrong() -> str:
            raise ValueError("wrong")

        told: list[object] = []
        task = EagerTask(noting(told, lambda: loop.create_task(late())))
        failed = EagerTask(noting(told, lambda: loop.create_task(wrong())))
        assert told == ["began", "began"]
        while not (task.done and failed.done):
            await asyncio.sleep(0)
        assert [str(one) for one in told] == ["began", "began", "wrong", "ended", "late", "ended"]

    run(test)


def test_cancelled_at_an_outcome_it_ends_at_once() -> None:
    told: list[object] = []
    outcome: Outcome[int] = Outcome()
    task = EagerTask(noting(told, lambda: outcome))
    task.cancel()
    assert told == ["began", "ended"] and task.done
    outcome.set(1)
    task.cancel()
    assert told == ["began", "ended"]


@pytest.mark.parametrize("is_set", [False, True], ids=["pending", "set in the same turn"])
def test_cancelled_at_a_future_it_ends_at_once(is_set: bool) -> None:
    async def test(loop: asyncio.AbstractEventLoop) -> None:
        told: list[object] = []
        future: asyncio.Future[int] = loop.create_future()
        task = EagerTask(noting(told, lambda: future))
        if is_set:
            future.set_result(1)
        task.cancel()
        assert told == ["began", "ended"] and task.done
        assert future.cancelled() is not is_set
        await asyncio.sleep(0)
        assert told == ["began", "ended"]

    run(test)


def test_what_is_cancelled_must_not_wait_again() -> None:
    outcome: Outcome[int] = Outcome()

    async def stubborn() -> None:
        try:
            await outcome
        finally:
            await outcome

    task = EagerTask(stubborn())
    with pytest.raises(RuntimeError, match="waits for something else"):
        task.cancel()
    assert task.done


def test_a_failure_reaches_who_told() -> None:
    outcome: Outcome[int] = Outcome()

    async def failing() -> None:
        raise KeyError(await outcome)

    task = EagerTask(failing())
    with pytest.raises(KeyError):
        outcome.set(3)
    assert task.done
