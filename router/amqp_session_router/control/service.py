"""The control plane of one router process: its parts, from their start to their end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

from amqp_session_router.admission.authorization import authorizer_of
from amqp_session_router.admission.current_authorizer import CurrentAuthorizer
from amqp_session_router.admission.limits import Limiter
from amqp_session_router.admission.other_workers import Others
from amqp_session_router.base.errors import UsageError
from amqp_session_router.base.model import Server
from amqp_session_router.config.settings import Settings
from amqp_session_router.control import listening, saved_state
from amqp_session_router.control.applier import Applier
from amqp_session_router.control.emptying import Emptying
from amqp_session_router.control.endpoints import Endpoints
from amqp_session_router.control.rebalancing import Rebalancing
from amqp_session_router.control.running_configuration import RunningConfiguration
from amqp_session_router.control.startup import first_text, kept_changes, with_changes
from amqp_session_router.control.state_store import StateStore
from amqp_session_router.control.workers import Leader
from amqp_session_router.net.names import Names
from amqp_session_router.routing.health import Checker
from amqp_session_router.routing.routes import Routes
from amqp_session_router.routing.stickiness import SharedKeys
from amqp_session_router.telemetry.log import Log
from amqp_session_router.telemetry.loop_lag import LoopLag

log = logging.getLogger(__name__)


class Service:
    """Made of a configuration file before the event loop runs, started with the data path's `Server`.

    `routing`, `limits` and `authorizer` are what the data path is given; they stay the same objects over every reload.
    """

    def __init__(
        self,
        path: Path,
        log_to: Log | None = None,
        inherited: saved_state.Running | None = None,
        last_good: str | None = None,
        follows: bool = False,
        others: Others | None = None,
        keys: SharedKeys | None = None,
        worker: int = 0,
    ) -> None:
        """Read the file at `path`, and what control had changed: `inherited` from the worker before, else from the
        state directory. `last_good`: the text to go by where the file is wrong now. Raises UsageError.

        One of several workers, number `worker`, counts with `others` and shares `keys`; one that `follows` has no
        endpoints and goes by the state that the leader sends, and by `last_good` until then.
        """
        first = first_text(path, last_good, follows)
        kept = kept_changes(first, inherited)
        self._log = log_to or Log()
        self._own_log = log_to is None
        self._log.apply(first.settings.config.log)
        if first.wrong is not None:
            log.error("the configuration stays as it was: %s", first.wrong)
        settings = with_changes(first.settings, kept, self._log)

        self.follows = follows
        self.worker = worker
        """The number of this one."""
        self.others: Leader | None = None
        """The other workers, where this is the leader of several."""
        self.server: Server | None = None
        self.routing = Routes(settings, keys, worker)
        for vhost in kept.paused if kept is not None else ():
            self.routing.paused.pause(vhost)
        self.limits = Limiter(settings.config.limits, others=others)
        self.limits.apply(settings.config.limits, settings.backends)
        self.authorizer = CurrentAuthorizer(authorizer_of(settings.config.authorization))
        self.names = Names()
        self.checker = Checker(self.routing, self.names)
        self.emptying = Emptying(self.routing)
        self.rebalancing = Rebalancing(self.routing)
        self.lag = LoopLag()
        self.endpoints = Endpoints(self)
        self.store = StateStore()
        self._applier = Applier(self._log, self.routing, self.limits, self.authorizer, self.endpoints, self.checker)
        self.configuration = RunningConfiguration(path, first, self.routing, self._applier, self.store, follows)
        self.leaving = False
        self.left = asyncio.Event()
        """Set with `leaving`."""
        self._drain = 0.0
        self._rate: float | None = None
        self._grace: asyncio.TimerHandle | None = None
        self._greeting: asyncio.Task[None] | None = None

    @property
    def settings(self) -> Settings:
        """The settings of now."""
        return self.routing.settings

    @property
    def unsaved(self) -> bool:
        """See `RunningConfiguration.unsaved`."""
        return self.configuration.unsaved

    def lead(self, others: Leader) -> None:
        """This is the leader of several workers: the `others` go by what it does."""
        self.others = self.configuration.others = others

    async def start(self, server: Server, go_on: bool = False) -> None:
        """Start the listeners, endpoints and checks; raises UsageError if an address cannot be had, with everything
        stopped again. With `go_on` there are sessions to keep: what cannot be had is only logged."""
        self.server = self._applier.server = server
        if not go_on:
            await self.checker.first()
        else:
            self._greeting = asyncio.create_task(self.checker.greet(self.routing.timeouts.connect))
        try:
            with _or_go_on(go_on):
                await self.endpoints.start(self.settings.config.status)
            for listener in self.settings.listeners.values():
                with _or_go_on(go_on):
                    await listening.listen(server, listener)
        except BaseException:
            await self.stop()
            raise
        self.configuration.tell()
        self.lag.start()
        self.checker.apply(self.settings)
        self.endpoints.send_statsd(self.settings.config.statsd)
        if self.leaving:
            server.exit(self._drain, self._exit_rate)

    async def retire(self) -> None:
        """Stop what a successor needs the addresses and files of; handshakes under way go on. Idempotent."""
        if self.server is not None:
            for name in [*self.server.listening()]:
                await self.server.stop(name)
        await self.endpoints.stop()
        self.routing.sticky.close()

    async def stop(self) -> None:
        """Stop what `start` started, but the control socket and the sessions, which are others'."""
        await self.retire()
        self.emptying.stop()
        self.rebalancing.stop()
        self.lag.stop()
        await self.checker.stop()
        await self.authorizer.close()
        self.store.close()
        if self._own_log:
            self._log.close()

    def exit(self, drain: float, grace: float = 0.0, rate: float | None = None) -> None:
        """Begin to leave: `/ready` says so, and `grace` s later the server takes no sessions and closes all within
        `drain` s, `rate` a second (None: as was said before, or as the settings say). Called again, it leaves at once,
        if that is without a grace.

        One that has not started yet leaves once it has, with what it took over by then.
        """
        self.leaving = True
        self.left.set()
        self._drain = drain
        self._rate = self._rate if rate is None else rate
        if self._grace is not None:
            self._grace.cancel()
        if self.server is None:
            return
        if grace > 0:
            self._grace = asyncio.get_running_loop().call_later(grace, self.server.exit, drain, self._exit_rate)
        else:
            self.server.exit(drain, self._exit_rate)

    @property
    def _exit_rate(self) -> float | None:
        """Sessions that this worker closes a second; None: all at once."""
        rate = self._rate or self.settings.config.exit_rate
        return None if rate is None else rate / self.settings.config.workers


@contextlib.contextmanager
def _or_go_on(go_on: bool) -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        if not go_on:
            raise
        log.error("the router goes on without a part of it: %s", error)
