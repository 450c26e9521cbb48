"""Checks whether backends can be reached, each at the shortest period of its farms, at once after a failed attempt."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from amqp_session_router.connect import Connector
from amqp_session_router.handshake import Refused
from amqp_session_router.model import Backend, Timeouts
from amqp_session_router.routing import Routes
from amqp_session_router.settings import Settings

log = logging.getLogger(__name__)

_SOONEST = 0.5
"""Seconds between two checks of one backend, however many attempts fail."""


def periods(settings: Settings) -> dict[str, float]:
    """Return the seconds between checks of each backend that is to be checked, by its name."""
    shortest: dict[str, float] = {}
    for farm in settings.farms.values():
        if farm.check_period > 0:
            for backend in farm.members:
                shortest[backend.name] = min(farm.check_period, shortest.get(backend.name, farm.check_period))
    return shortest


async def reach(backend: Backend, timeouts: Timeouts) -> str | None:
    """Connect by TCP as sessions do, and close; returns None if that worked, else why not.

    Not a byte is sent: RabbitMQ logs a connection without data for debugging only, a broken-off handshake as an error.
    """
    try:
        (await Connector(asyncio.get_running_loop(), lambda: timeouts).connect(backend)).close()
    except Refused as refused:
        return str(refused)
    return None


class Checker:
    """One task a backend. The results are in the routes' markers."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._soon: dict[str, asyncio.Event] = {}
        routes.on_failure = self.soon

    async def first(self) -> None:
        """Check every backend once, all at a time: a farm's quorum is known before the first session."""
        settings = self._routes.settings
        await asyncio.gather(*(self._check(settings.backends[name]) for name in periods(settings)))

    def apply(self, settings: Settings) -> None:
        """Check the backends of `settings`, and no others, from here on."""
        wanted = periods(settings)
        for name in [*self._tasks]:
            if name not in wanted:
                self._tasks.pop(name).cancel()
                self._soon.pop(name, None)
                # What nobody checks counts as ready.
                self._routes.markers.checked(name, True)
        for name in wanted:
            if name not in self._tasks:
                self._soon[name] = asyncio.Event()
                self._tasks[name] = asyncio.create_task(self._keep_checking(name), name=f"check {name}")

    def soon(self, name: str) -> None:
        """Check the backend `name` now rather than when its period is over."""
        if name in self._soon:
            self._soon[name].set()

    async def stop(self) -> None:
        """End all tasks."""
        tasks = [*self._tasks.values()]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_checking(self, name: str) -> None:
        soon = self._soon[name]
        while True:
            period = periods(self._routes.settings).get(name, 5.0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, period - _SOONEST)):
                    await soon.wait()
            soon.clear()
            await asyncio.sleep(min(period, _SOONEST))
            backend = self._routes.settings.backends.get(name)
            if backend is not None:
                await self._check(backend)

    async def _check(self, backend: Backend) -> None:
        why_not = await reach(backend, self._routes.timeouts)
        if self._routes.markers.checked(backend.name, why_not is None, why_not or ""):
            if why_not is None:
                log.info("backend is ready", extra={"backend": backend.name})
            else:
                log.warning("backend is not ready: %s", why_not, extra={"backend": backend.name})
