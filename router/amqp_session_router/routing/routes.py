"""Where sessions go: the live form of the settings, swapped whole on a reload, and the registry of live sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from amqp_session_router.base.model import (
    CONNECTION_FORCED,
    FAILURES,
    NO_KEY,
    NOT_ALLOWED,
    SHORT_STRING_MAX,
    Backend,
    Decision,
    End,
    Identity,
    Reject,
    Route,
    Session,
    Timeouts,
    Tune,
    short_string,
)
from amqp_session_router.config.settings import Farm, Settings, state_file
from amqp_session_router.net.reverse_dns import ReverseDns
from amqp_session_router.routing.statistics import Statistics
from amqp_session_router.routing.stickiness import SharedKeys, Stickiness
from amqp_session_router.selection import partitions, selectors
from amqp_session_router.selection.markers import Markers
from amqp_session_router.selection.partitions import Surroundings
from amqp_session_router.selection.rules import (
    Early,
    Target,
    ToBackend,
    ToFarm,
    ToLocal,
    ToReject,
    first_match,
    possible,
)

log = logging.getLogger(__name__)

_REACHABLE = 1024
"""Clients' addresses and host names for which is kept what they may come to, where rules look at these."""


class Routes:
    """See `model.Routing`. All of it runs in the event loop's thread."""

    def __init__(self, settings: Settings, shared: SharedKeys | None = None, worker: int = 0) -> None:
        """`shared`: the keys of all workers, of which this one is number `worker`."""
        self.settings = settings
        self._shared, self._worker = shared, worker
        self.markers = Markers()
        self.statistics = Statistics()
        self.sessions: dict[str, Session] = {}
        self.sticky: dict[str, Stickiness] = {}
        self._names = ReverseDns()
        self.on_failure: Callable[[str], None] = lambda backend: None
        """Called with the name of a backend at which an attempt failed, so that it is checked soon."""
        self.on_greeting: Callable[[str, bytes], None] = lambda backend, start: None
        """See `model.Routing`."""
        self._reachable: dict[tuple[str, str, str], tuple[str, ...]] = {}
        self._paused: dict[str, asyncio.Event] = {}
        self._open: dict[str, str] = {}
        """Session id → name of the backend that it is counted at."""
        self.apply(settings)

    @property
    def timeouts(self) -> Timeouts:
        """The time-outs of now."""
        return self.settings.timeouts

    @property
    def tune(self) -> Tune:
        """What to offer clients."""
        return self.settings.tune

    def apply(self, settings: Settings) -> None:
        """Decide by `settings` from here on. Live sessions stay as they are; marks and stickiness are kept."""
        self.settings = settings
        self._reachable = {}
        self.markers.forget(settings.backends)
        kept: dict[str, Stickiness] = {}
        for farm in settings.farms.values():
            if farm.cached:
                path = _sticky_path(settings, farm, self._worker)
                old = self.sticky.pop(farm.name, None)
                if old is not None and old.path == path:
                    old.timeout, old.most = farm.cache_timeout, farm.cache_entries
                    kept[farm.name] = old
                else:
                    if old is not None:
                        old.close()
                    kept[farm.name] = Stickiness(
                        farm.cache_timeout, path, most=farm.cache_entries, shared=self._shared, farm=farm.name
                    )
                kept[farm.name].know(backend.name for backend in farm.members)
        for gone in self.sticky.values():
            gone.close()
        self.sticky = kept

    def reopen(self) -> None:
        """Read the files of stickiness again: the predecessor wrote them until now."""
        for cache in self.sticky.values():
            cache.reopen()

    def close(self) -> None:
        """Close the files; they are written no more."""
        for cache in self.sticky.values():
            cache.close()

    # --- pausing ---

    @property
    def paused(self) -> list[str]:
        """The vhosts that are paused, sorted."""
        return sorted(self._paused)

    def pause(self, vhost: str) -> None:
        """New sessions of `vhost` wait before they get a backend. Idempotent."""
        self._paused.setdefault(vhost, asyncio.Event())

    def unpause(self, vhost: str) -> bool:
        """Let them go on; returns whether `vhost` was paused."""
        event = self._paused.pop(vhost, None)
        if event is not None:
            event.set()
        return event is not None

    def is_paused(self, vhost: str) -> bool:
        """Must new sessions of `vhost` wait?"""
        return vhost in self._paused

    async def unpaused(self, vhost: str) -> None:
        """Return when `vhost` is not paused."""
        while (event := self._paused.get(vhost)) is not None:
            await event.wait()

    async def client_name(self, address: str) -> str:
        """Return the host name of the client's IP where the configuration asks for names, else `address`."""
        return await self._names.of(address) if self.settings.config.resolve_client_names else address

    # --- deciding ---

    def reachable(self, listener: str, source_ip: str, sni_host: str) -> tuple[str, ...]:
        """Return the names of the backends that a client may come to of whom only this is known."""
        known = Early(listener, source_ip, sni_host).as_looked_at(self.settings.rules)
        found = self._reachable.get(known)
        if found is None:
            backends = [name for target in possible(self.settings.rules, known) for name in self._behind(target)]
            found = tuple(dict.fromkeys(backends))
            if len(self._reachable) >= _REACHABLE:
                self._reachable.clear()
            self._reachable[known] = found
        return found

    def _behind(self, target: Target) -> list[str]:
        """Return the names of the backends that a session may come to by this target of a rule."""
        match target:
            case ToFarm(name):
                return [one.name for farm in self._chain(self.settings.farms[name]) for one in farm.members]
            case ToBackend(name):
                return [name]
            case ToLocal():
                return [one.name for one in self.settings.backends.values() if one.local]
            case ToReject():
                return []

    def decide(self, identity: Identity) -> Decision:
        """Return where the session goes. Each candidate is marked as attempted, once, when it is taken."""
        plan = self.plan(identity)
        if isinstance(plan, Reject):
            return plan
        plan.candidates = self._marking(plan.candidates)
        return plan

    def plan(self, identity: Identity) -> Decision:
        """Return the same without marking: to look at only."""
        found = first_match(self.settings.rules, identity)
        if found is None:
            return Reject(NOT_ALLOWED, short_string(f"vhost '{identity.vhost}' not found"))
        rule, vhost = found
        target = rule.to.title
        if rule.rewrite is not None and len(vhost.encode("utf-8", "surrogateescape")) > SHORT_STRING_MAX:
            return Reject(NOT_ALLOWED, f"the rewritten vhost is longer than {SHORT_STRING_MAX} bytes")
        match rule.to:
            case ToReject(code, text):
                return Reject(code, short_string(text))
            case ToFarm(name):
                return self._to_farm(target, self.settings.farms[name], identity, vhost)
            case ToBackend(name):
                backends = [self.settings.backends[name]]
            case ToLocal():
                backends = [backend for backend in self.settings.backends.values() if backend.local]
        open_ones = [backend for backend in backends if not backend.drain]
        if not open_ones:
            return Reject(CONNECTION_FORCED, short_string(f"{target} takes no new sessions: it drains"))
        if len(open_ones) == 1:
            return Route(target, NO_KEY, vhost, iter(open_ones))
        ranked = selectors.ranking([open_ones], selectors.round_robin, self.markers, NO_KEY)
        return Route(target, NO_KEY, vhost, ranked)

    def _to_farm(self, target: str, farm: Farm, identity: Identity, vhost: str) -> Decision:
        """Go through the farm and its fallbacks, those without quorum left out; the first of them gives the key."""
        active = [one for one in self._chain(farm) if self.why_inactive(one) is None]
        if not active:
            return Reject(CONNECTION_FORCED, short_string(f"{target} {self.why_inactive(farm)}"))
        return Route(target, _key(active[0], identity), vhost, self._through(active, identity))

    def _chain(self, farm: Farm) -> Iterator[Farm]:
        """Yield the farm, its fallback, that one's fallback, …: there is no cycle in the settings."""
        step: str | None = farm.name
        while step is not None:
            farm = self.settings.farms[step]
            yield farm
            step = farm.fallback

    def why_inactive(self, farm: Farm) -> str | None:
        """Return the clause that says why `farm` gives no backend out now, None if it does."""
        if not farm.members:
            return "has no members"
        open_ones = [backend for backend in farm.members if not backend.drain]
        if not open_ones:
            return "takes no new sessions: all its members drain"
        ready = sum(self.markers.of(backend.name).healthy for backend in open_ones)
        if ready < farm.quorum:
            return f"has {ready} ready members of the {farm.quorum} it needs"
        return None

    def groups(self, farm: Farm) -> list[partitions.Group]:
        """Return the partitions of `farm` as they are now, draining members left out."""
        open_ones = [backend for backend in farm.members if not backend.drain]
        return partitions.apply(open_ones, farm.policies, Surroundings(self.settings.config.datacenter, self.markers))

    def _through(self, farms: list[Farm], identity: Identity) -> Iterator[Backend]:
        """Yield each backend of `farms` once, by partitions; the one that the key sticks to is first in its own.

        So a cached backend never comes before a partition that is to be exhausted first.
        """
        seen: set[str] = set()
        for farm in farms:
            key = _key(farm, identity)
            stuck = self._stuck(farm, key)
            for group in self.groups(farm):
                if stuck is not None and stuck in group and stuck.name not in seen:
                    seen.add(stuck.name)
                    yield stuck
                for backend in selectors.ranking([group], farm.selector, self.markers, key):
                    if backend.name not in seen:
                        seen.add(backend.name)
                        yield backend

    def _stuck(self, farm: Farm, key: str) -> Backend | None:
        cache = self.sticky.get(farm.name)
        name = cache.get(key) if cache is not None else None
        for backend in farm.members:
            if backend.name == name and not backend.drain and self.markers.of(backend.name).healthy:
                return backend
        return None

    def _marking(self, candidates: Iterator[Backend]) -> Iterator[Backend]:
        """Mark each backend as attempted once, when it is taken."""
        for backend in candidates:
            self.markers.attempt(backend.name)
            yield backend

    # --- what becomes of sessions ---

    def registered(self, session: Session) -> None:
        """Take `session` into the registry."""
        self.sessions[session.id] = session
        self.statistics.accepted(session)

    def attempted(self, session: Session, backend: Backend, ok: bool, reason: str = "") -> None:
        """Record the outcome of one attempt."""
        counters = session.counters
        counters.attempts += 1
        self.markers.outcome(backend.name, ok)
        self.statistics.attempted(backend.name, ok)
        if not ok:
            log.warning(
                "attempt failed: %s",
                reason or "no reason given",
                extra={"session": session.id, "backend": backend.name, "attempt": counters.attempts},
            )
            self.on_failure(backend.name)

    def opened(self, session: Session) -> None:
        """The session is open at session.backend."""
        if session.id in self._open or session.backend is None:
            return
        name = session.backend.name
        self._open[session.id] = name
        self.markers.opened(name)
        self.statistics.opened(session)
        self._stick(session, name)
        if log.isEnabledFor(logging.INFO):
            log.info("opened", extra=_about(session))
        if session.identity is not None and session.identity.vhost in self._paused:
            # Its vhost was paused while it was connecting: it has waited for nothing, and waits from now on.
            asyncio.get_running_loop().call_soon(session.pause)

    def _stick(self, session: Session, backend: str) -> None:
        """Remember the session's key in the farm of its route that has the backend."""
        if not self.sticky or session.identity is None:
            return
        found = first_match(self.settings.rules, session.identity)
        if found is None or not isinstance(found[0].to, ToFarm):
            return
        for farm in self._chain(self.settings.farms[found[0].to.name]):
            if any(member.name == backend for member in farm.members):
                if farm.name in self.sticky:
                    self.sticky[farm.name].put(_key(farm, session.identity), backend)
                return

    def closed(self, session: Session, how: End, text: str = "") -> None:
        """The session is over. A second call has no effect."""
        if self.sessions.pop(session.id, None) is None:
            return
        name = self._open.pop(session.id, None)
        if name is not None:
            self.markers.closed(name)
        self.statistics.closed(session, how)
        level = logging.WARNING if how in FAILURES else logging.INFO
        if log.isEnabledFor(level):
            counters = session.counters
            about = _about(session) | {
                "how": how.value,
                "bytes_from_client": counters.bytes_from_client,
                "bytes_from_broker": counters.bytes_from_broker,
            }
            if text:
                about["text"] = text
            log.log(level, "closed", extra=about)

    def misplaced(self, session: Session) -> bool:
        """Return whether a new session of the same identity could not come to this session's backend any more."""
        if session.identity is None or session.backend is None:
            return False
        found = first_match(self.settings.rules, session.identity)
        if found is None:
            return True
        name = session.backend.name
        match found[0].to:
            case ToReject():
                return True
            case ToBackend(target):
                return target != name
            case ToLocal():
                return name not in self.settings.backends or not self.settings.backends[name].local
            case ToFarm(target):
                chain = self._chain(self.settings.farms[target])
                return not any(member.name == name for farm in chain for member in farm.members)


def _key(farm: Farm, identity: Identity) -> str:
    return NO_KEY if farm.key is None else farm.key.of(identity)


def _sticky_path(settings: Settings, farm: Farm, worker: int) -> Path | None:
    """Return the file of a farm's keys; each worker but the first has a directory of its own."""
    name = f"sticky-{farm.name}.jsonl"
    return state_file(settings, f"worker-{worker}/{name}" if worker else name) if farm.cache_persisted else None


def _about(session: Session) -> dict[str, object]:
    """Return the fields that name a session in the log."""
    about: dict[str, object] = {"session": session.id, "client": session.client, "listener": session.listener}
    if session.identity is not None:
        about |= {"vhost": session.identity.vhost, "user": session.identity.user}
        if session.identity.client_id:
            about["client_id"] = session.identity.client_id
    if session.backend is not None:
        about["backend"] = session.backend.name
    if session.route is not None:
        about["target"] = session.route.target
        if session.route.key != NO_KEY:
            about["key"] = session.route.key
    return about
