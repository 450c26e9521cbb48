"""The swap of everything that goes by the settings: whole, or not at all."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import Any

from amqp_session_router.admission.authorization import authorizer_of
from amqp_session_router.admission.current_authorizer import CurrentAuthorizer, Hook
from amqp_session_router.admission.limits import Limiter
from amqp_session_router.base.model import Server
from amqp_session_router.base.paced import Steps, paced, strides
from amqp_session_router.config import loader
from amqp_session_router.config.settings import Problem, Settings
from amqp_session_router.control import listening
from amqp_session_router.control.endpoints import Endpoints
from amqp_session_router.routing.health import Checker
from amqp_session_router.routing.routes import Routes
from amqp_session_router.telemetry.http_status import StatusServer
from amqp_session_router.telemetry.log import Log

log = logging.getLogger(__name__)


class Applier:
    """The parts of one worker that go by the settings."""

    def __init__(
        self,
        log_to: Log,
        routing: Routes,
        limits: Limiter,
        authorizer: CurrentAuthorizer,
        endpoints: Endpoints,
        checker: Checker,
    ) -> None:
        self._log = log_to
        self._routing = routing
        self._limits = limits
        self._authorizer = authorizer
        self._endpoints = endpoints
        self._checker = checker
        self.server: Server | None = None
        """None before the worker listens: no checks run yet, and no packets are sent."""

    async def apply(self, settings: Settings, several: bool) -> list[str]:
        """Have all go by `settings`; returns the places that changed. Raises UsageError with nothing changed.

        `several`: other workers are to listen at the same addresses.
        """
        old = self._routing.settings
        _check_can_change(old, settings)
        # All that can fail is done first, and undone if a later part of it fails.
        undo: contextlib.AsyncExitStack
        async with contextlib.AsyncExitStack() as undo:
            hook = self._authorizer.hook
            if settings.config.authorization != old.config.authorization:
                hook = authorizer_of(settings.config.authorization)
                undo.push_async_callback(hook.close)
            self._log.apply(settings.config.log)
            undo.callback(self._log.apply, old.config.log)
            status = self._endpoints.status
            if settings.config.status != old.config.status:
                status = await self._endpoints.serve(settings.config.status)
                if status is not None:
                    undo.push_async_callback(status.stop)
            if self.server is not None:
                await listening.swap(self.server, old.listeners, settings.listeners, undo, several)
            undo.pop_all()
        await self._go_by(old, settings, hook, status)
        changed = _differences(old.config.model_dump(), settings.config.model_dump())
        log.info("configuration applied", extra={"changed": changed})
        return changed

    async def _go_by(self, old: Settings, settings: Settings, hook: Hook, status: StatusServer | None) -> None:
        """Do what cannot fail."""
        if self.server is not None:
            for name in old.listeners.keys() - settings.listeners.keys():
                if name in self.server.listening():
                    await self.server.stop(name)
        await self._endpoints.swap(status)
        if hook is not self._authorizer.hook:
            self._authorizer.replace(hook)
        self._routing.apply(settings)
        if self.server is not None:
            self.server.renew()
        self._limits.apply(settings.config.limits, settings.backends)
        if self.server is not None:
            self._checker.apply(settings)
            if settings.config.statsd != old.config.statsd:
                self._endpoints.send_statsd(settings.config.statsd)
        # At the end: others have their turn in between, and all else goes by the new settings by then.
        await paced(self._metered())

    def _metered(self) -> Steps[None]:
        for stride in strides(self._routing.sessions.live.values()):
            for session in stride:
                session.meter()
            yield


def _check_can_change(old: Settings, settings: Settings) -> None:
    """Raise Problem for what no running router can take on."""
    for name in ("state_dir", "control"):
        if getattr(old.config, name) != getattr(settings.config, name):
            raise Problem((name,), "it cannot change while the router runs; a planned restart takes it on")
    loader.check_can_follow(old.config.workers, settings.config)


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the places at which two configurations differ, two levels deep: `farms.east`, `timeouts.close`."""
    found = []
    for name in new:
        before, after = old[name], new[name]
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            found += [f"{name}.{key}" for key in {**before, **after} if before.get(key) != after.get(key)]
        else:
            found.append(name)
    return found
