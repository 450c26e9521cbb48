"""One timer for many deadlines: each still expires when it is due, or never."""

from __future__ import annotations

import asyncio
import gc
import weakref

from amqp_session_router.net import event_loop
from amqp_session_router.net.deadlines import Deadlines


def test_each_expires_in_its_time_and_what_is_cancelled_never() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        deadlines, expireen = Deadlines(loop), []
        begin = loop.time()
        for step in range(4):
            for length in (0.1, 0.2):
                name = (length, step)
                one = deadlines.after(length, lambda name=name: expireen.append((name, loop.time())))
                if step == 2:
                    one.cancel()
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.4)
        assert sorted(name for name, _ in expireen) == [(length, step) for length in (0.1, 0.2) for step in (0, 1, 3)]
        # Not before, as far as the loop's milliseconds tell.
        assert all(at - begin >= length + step * 0.02 - 0.002 for (length, step), at in expireen)

    event_loop.run(run())


def test_what_is_cancelled_is_let_go_of_and_one_that_fails_hinders_none() -> None:
    class Kept:
        def late(self) -> None: ...

    async def run() -> None:
        loop = asyncio.get_running_loop()
        complaints: list[object] = []
        loop.set_exception_handler(lambda _, context: complaints.append(context["exception"]))
        deadlines, kept, expireen = Deadlines(loop), Kept(), asyncio.Event()
        one, seen = deadlines.after(60, kept.late), weakref.ref(kept)
        gc.disable()
        try:
            one.cancel()
            del kept
            assert seen() is None
        finally:
            gc.enable()
        deadlines.after(0.05, lambda: 1 / 0)
        deadlines.after(0.05, expireen.set)
        await asyncio.wait_for(expireen.wait(), 5)
        assert isinstance(complaints[0], ZeroDivisionError)
        # A length that was used up is as good as new.
        expireen.clear()
        deadlines.after(0.05, expireen.set)
        await asyncio.wait_for(expireen.wait(), 5)

    event_loop.run(run())
