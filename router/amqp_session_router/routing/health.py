"""Checks whether backends can be reached, each at the shortest period of its farms, at once after a failed attempt."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from amqp_session_router.amqp.negotiation import AttemptFailed, Blameless, NoResources
from amqp_session_router.base.model import Backend, Timeouts
from amqp_session_router.config.settings import Settings
from amqp_session_router.net.dialer import Connector
from amqp_session_router.net.greeting import greeted
from amqp_session_router.net.names import Names
from amqp_session_router.routing.routes import Routes

log = logging.getLogger(__name__)

_FIRST_GREETINGS = 1.0
"""Seconds for which the first clients wait until the brokers have sent their Start."""
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


def greeting(settings: Settings) -> set[str]:
    """Return the names of the backends that have to greet at each check: one of their farms asks for it."""
    farms = [farm for farm in settings.farms.values() if farm.check_greeting and farm.check_period > 0]
    return {backend.name for farm in farms for backend in farm.members}


Heard = Callable[[str, bytes], None]
"""Takes the name of a backend and its Start."""


async def reach(
    backend: Backend, timeouts: Timeouts, heard: Heard | None = None, names: Names | None = None
) -> str | None:
    """Connect by TCP as sessions do, and close; returns None if that worked, else why not.

    Not a byte is sent: RabbitMQ logs a connection without data for debugging only, a broken-off handshake as an error.
    With `heard` it has to greet, too, as a broker does. Raises NoResources, Blameless.
    """
    try:
        sock = await Connector(asyncio.get_running_loop(), lambda: timeouts, names).connect(backend)
        if heard is not None:
            heard(backend.name, await greeted(sock, backend, timeouts.backend_handshake))
        else:
            sock.close()
    except (NoResources, Blameless):
        raise
    except AttemptFailed as refused:
        return str(refused)
    return None


class Checker:
    """One task a backend. The results are in the routes' markers.

    A backend at which an attempt failed has to greet before it counts as ready again: it may accept and hang, which a
    connection alone does not show. One of a farm that asks for it has to greet at every check.
    """

    def __init__(self, routes: Routes, names: Names) -> None:
        """`names`: as sessions have them, so that a resolver that is away makes no backend unready."""
        self._routes = routes
        self._names = names
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._soon: dict[str, asyncio.Event] = {}
        self._doubted: set[str] = set()
        """Backends that have to greet."""
        routes.on_failure = self.soon

    async def first(self) -> None:
        """Check every backend once, all at a time: a farm's quorum is known before the first session."""
        settings = self._routes.settings
        await asyncio.gather(*(self._check(settings.backends[name]) for name in periods(settings)))
        await self.greet(_FIRST_GREETINGS)

    async def greet(self, seconds: float) -> None:
        """Have all backends greet, whatever they are found to be: the first client is to be shown what they say."""
        every = [self._greet(backend) for backend in self._routes.settings.backends.values()]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*every)

    async def _greet(self, backend: Backend) -> None:
        with contextlib.suppress(AttemptFailed):
            await reach(backend, self._routes.timeouts, self._routes.on_greeting, self._names)

    def apply(self, settings: Settings) -> None:
        """Check the backends of `settings`, and no others, from here on."""
        wanted = periods(settings)
        for name in [*self._tasks]:
            if name not in wanted:
                self._tasks.pop(name).cancel()
                self._soon.pop(name, None)
                self._doubted.discard(name)
                # What nobody checks counts as ready.
                self._routes.markers.checked(name, True)
        for name in wanted:
            if name not in self._tasks:
                self._soon[name] = asyncio.Event()
                self._tasks[name] = asyncio.create_task(self._keep_checking(name), name=f"check {name}")

    def soon(self, name: str) -> None:
        """An attempt at the backend `name` failed: check it now rather than when its period is over."""
        if name in self._soon:
            self._doubted.add(name)
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
        try:
            greets = backend.name in self._doubted or backend.name in greeting(self._routes.settings)
            heard = self._routes.on_greeting if greets else None
            why_not = await reach(backend, self._routes.timeouts, heard, self._names)
        except (NoResources, Blameless) as error:
            log.error("backend is not checked: %s", error, extra={"backend": backend.name})
            return
        if why_not is None:
            self._doubted.discard(backend.name)
        if self._routes.markers.checked(backend.name, why_not is None, why_not or ""):
            if why_not is None:
                log.info("backend is ready", extra={"backend": backend.name})
            else:
                log.warning("backend is not ready: %s", why_not, extra={"backend": backend.name})
