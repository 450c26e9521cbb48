"""The routing of one worker, as its sessions see it: the live form of the settings, swapped whole on a reload."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from amqp_session_router.base.model import Backend, Decision, End, Identity, Reject, Session, Timeouts, Tune
from amqp_session_router.config.settings import Settings
from amqp_session_router.net.reverse_dns import ReverseDns
from amqp_session_router.routing.outliers import Outliers
from amqp_session_router.routing.paused_vhosts import PausedVhosts
from amqp_session_router.routing.planner import RoutePlanner
from amqp_session_router.routing.retry_budget import RetryBudgets
from amqp_session_router.routing.session_registry import SessionRegistry
from amqp_session_router.routing.statistics import Statistics
from amqp_session_router.routing.stickiness import SharedKeys
from amqp_session_router.routing.sticky_farms import StickyFarms
from amqp_session_router.selection.markers import Markers


class Routes:
    """See `model.Routing`. All of it runs in the event loop's thread.

    What outlives a reload (marks, stickiness, pauses, the registry of sessions) is here; who decides by the settings is
    made anew with them (`planner`).
    """

    def __init__(self, settings: Settings, shared: SharedKeys | None = None, worker: int = 0) -> None:
        """`shared`: the keys of all workers, of which this one is number `worker`."""
        self.markers = Markers()
        self.statistics = Statistics()
        self.sessions = SessionRegistry(self.markers, self.statistics)
        self.sticky = StickyFarms(shared, worker)
        self.paused = PausedVhosts()
        self.outliers = Outliers()
        self.budgets = RetryBudgets()
        self._names = ReverseDns()
        self.on_failure: Callable[[str], None] = lambda backend: None
        """Called with the name of a backend at which an attempt failed, so that it is checked soon."""
        self.on_greeting: Callable[[str, bytes], None] = lambda backend, start: None
        """See `model.Routing`."""
        self.settings: Settings
        self.planner: RoutePlanner
        self._go_by(settings)

    def apply(self, settings: Settings) -> None:
        """Decide by `settings` from here on. Live sessions stay as they are; marks and stickiness are kept. A backend
        that took no sessions until now begins slowly."""
        for name, backend in settings.backends.items():
            old = self.settings.backends.get(name)
            if not backend.drain and (old is None or old.drain):
                self.markers.begins(name)
        self._go_by(settings)

    def _go_by(self, settings: Settings) -> None:
        self.settings = settings
        self.markers.forget(settings.backends)
        self.sticky.apply(settings)
        self.outliers.apply(settings.farms)
        self.budgets.apply(settings.farms)
        self.planner = RoutePlanner(settings, self.markers, self.sticky, self.outliers)

    @property
    def timeouts(self) -> Timeouts:
        """The time-outs of now."""
        return self.settings.timeouts

    @property
    def tune(self) -> Tune:
        """What to offer clients."""
        return self.settings.tune

    # --- what a session asks before it has a backend ---

    def is_paused(self, vhost: str) -> bool:
        """Must new sessions of `vhost` wait?"""
        return vhost in self.paused

    async def unpaused(self, vhost: str) -> None:
        """Return when `vhost` is not paused."""
        await self.paused.end_of(vhost)

    async def client_name(self, address: str) -> str:
        """Return the host name of the client's IP where the configuration asks for names, else `address`."""
        return await self._names.of(address) if self.settings.config.resolve_client_names else address

    def reachable(self, listener: str, source_ip: str, sni_host: str) -> tuple[str, ...]:
        """Return the names of the backends that a client may come to of whom only this is known."""
        return self.planner.reachable(listener, source_ip, sni_host)

    def decide(self, identity: Identity, takes: Callable[[str], bool] | None = None) -> Decision:
        """Return where the session goes. Each candidate is marked as attempted, once, when it is taken; those that
        `takes` says no of are passed over."""
        plan = self.planner.plan(identity)
        if isinstance(plan, Reject):
            return plan
        plan.candidates = self._marking(plan.candidates, takes, plan.farm)
        return plan

    def _marking(
        self, candidates: Iterator[Backend], takes: Callable[[str], bool] | None, farm: str | None
    ) -> Iterator[Backend]:
        """Mark each backend as attempted once, when it is taken; end where the retry budget of `farm` is used up."""
        budget = None if farm is None else self.budgets.by_farm.get(farm)
        first = True
        for backend in candidates:
            if takes is not None and not takes(backend.name):
                continue
            if budget is not None:
                if first:
                    budget.first()
                elif not budget.retry():
                    return
            first = False
            self.markers.attempt(backend.name)
            yield backend

    # --- what becomes of a session ---

    def registered(self, session: Session) -> None:
        """Take `session` into the registry."""
        self.sessions.registered(session)

    def attempted(self, session: Session, backend: Backend, ok: bool, reason: str = "") -> None:
        """Record the outcome of one attempt."""
        self.sessions.attempted(session, backend, ok, reason)
        if not ok:
            self.outliers.failed(backend.name)
            self.on_failure(backend.name)

    def opened(self, session: Session) -> None:
        """The session is open at session.backend."""
        if not self.sessions.opened(session) or session.identity is None or session.backend is None:
            return
        if self.sticky.by_name and (place := self.planner.sticks_in(session.identity, session.backend.name)):
            self.sticky.remember(*place, session.backend.name)
        if session.identity.vhost in self.paused:
            # Its vhost was paused while it was connecting: it has waited for nothing, and waits from now on.
            asyncio.get_running_loop().call_soon(self._pause, session, session.identity.vhost)

    def _pause(self, session: Session, vhost: str) -> None:
        # Else the pause has ended meanwhile, and nobody would end this session's.
        if vhost in self.paused:
            session.pause()

    def closed(self, session: Session, how: End, text: str = "") -> None:
        """The session is over. A second call has no effect."""
        if how is End.BROKER_LOST and session.backend is not None and session.id in self.sessions.live:
            self.outliers.failed(session.backend.name)
        self.sessions.closed(session, how, text)
