"""Where a session may go: a decision by the rules and farms of one configuration and what is known of its backends."""

from __future__ import annotations

from collections.abc import Iterator

from amqp_session_router.base.model import (
    CONNECTION_FORCED,
    NO_KEY,
    NOT_ALLOWED,
    SHORT_STRING_MAX,
    Backend,
    Decision,
    Identity,
    Reject,
    Route,
    Session,
    short_string,
)
from amqp_session_router.config.settings import Farm, Settings
from amqp_session_router.routing.outliers import Outliers
from amqp_session_router.routing.sticky_farms import StickyFarms
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

_REACHABLE = 1024
"""Clients' addresses and host names for which is kept what they may come to, where rules look at these."""


class RoutePlanner:
    """Decides by `settings`, of which another has a planner of its own. To ask it changes nothing."""

    def __init__(self, settings: Settings, markers: Markers, sticky: StickyFarms, outliers: Outliers) -> None:
        self._settings = settings
        self._markers = markers
        self._sticky = sticky
        self._outliers = outliers
        self._reachable: dict[tuple[str, str, str], tuple[str, ...]] = {}

    # --- of whom little is known yet ---

    def reachable(self, listener: str, source_ip: str, sni_host: str) -> tuple[str, ...]:
        """Return the names of the backends that a client may come to of whom only this is known."""
        rules = self._settings.rules
        known = Early(listener, source_ip, sni_host).as_looked_at(rules)
        found = self._reachable.get(known)
        if found is None:
            backends = [name for target in possible(rules, known) for name in self._behind(target)]
            found = tuple(dict.fromkeys(backends))
            if len(self._reachable) >= _REACHABLE:
                self._reachable.clear()
            self._reachable[known] = found
        return found

    def _behind(self, target: Target) -> list[str]:
        """Return the names of the backends that a session may come to by this target of a rule."""
        match target:
            case ToFarm(name):
                return [one.name for farm in self._chain(name) for one in farm.members]
            case ToBackend(name):
                return [name]
            case ToLocal():
                return [one.name for one in self._settings.backends.values() if one.local]
            case ToReject():
                return []

    # --- of whom all is known ---

    def plan(self, identity: Identity) -> Decision:
        """Return where the session goes. Its candidates are not marked as attempted."""
        found = first_match(self._settings.rules, identity)
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
                return self._to_farm(target, self._settings.farms[name], identity, vhost)
            case ToBackend(name):
                backends = [self._settings.backends[name]]
            case ToLocal():
                backends = [backend for backend in self._settings.backends.values() if backend.local]
        open_ones = [backend for backend in backends if not backend.drain]
        if not open_ones:
            return Reject(CONNECTION_FORCED, short_string(f"{target} takes no new sessions: it drains"))
        if len(open_ones) == 1:
            return Route(target, NO_KEY, vhost, iter(open_ones))
        ranked = selectors.ranking([open_ones], selectors.round_robin, self._markers, NO_KEY)
        return Route(target, NO_KEY, vhost, ranked)

    def _to_farm(self, target: str, farm: Farm, identity: Identity, vhost: str) -> Decision:
        """Go through the farm and its fallbacks, those without quorum left out; the first of them gives the key."""
        active = [one for one in self._chain(farm.name) if self.why_inactive(one) is None]
        if not active:
            return Reject(CONNECTION_FORCED, short_string(f"{target} {self.why_inactive(farm)}"))
        return Route(target, _key(active[0], identity), vhost, self._through(active, identity), farm.name)

    def _chain(self, name: str) -> Iterator[Farm]:
        """Yield the farm, its fallback, that one's fallback, …: there is no cycle in the settings."""
        step: str | None = name
        while step is not None:
            farm = self._settings.farms[step]
            yield farm
            step = farm.fallback

    def why_inactive(self, farm: Farm) -> str | None:
        """Return the clause that says why `farm` gives no backend out now, None if it does."""
        if not farm.members:
            return "has no members"
        open_ones = [backend for backend in farm.members if not backend.drain]
        if not open_ones:
            return "takes no new sessions: all its members drain"
        ready = sum(self._markers.of(backend.name).healthy for backend in open_ones)
        if ready < farm.quorum:
            return f"has {ready} ready members of the {farm.quorum} it needs"
        return None

    def groups(self, farm: Farm) -> list[partitions.Group]:
        """Return the partitions of `farm` as they are now, draining members left out, ejected ones last."""
        open_ones = [backend for backend in farm.members if not backend.drain]
        surroundings = Surroundings(self._settings.config.datacenter, self._markers)
        groups = partitions.apply(open_ones, farm.policies, surroundings)
        ejected = self._outliers.ejected(farm)
        if not ejected:
            return groups
        halves = [tuple(b for b in group if (b.name in ejected) == out) for out in (False, True) for group in groups]
        return [half for half in halves if half]

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
                for backend in selectors.ranking([group], farm.selector, self._markers, key):
                    if backend.name not in seen:
                        seen.add(backend.name)
                        yield backend

    def _stuck(self, farm: Farm, key: str) -> Backend | None:
        name = self._sticky.backend_of(farm.name, key)
        for backend in farm.members:
            if backend.name == name and not backend.drain and self._markers.of(backend.name).healthy:
                return backend
        return None

    # --- who has a backend already ---

    def sticks_in(self, identity: Identity, backend: str) -> tuple[str, str] | None:
        """Return the farm of the session's route that has `backend`, and the session's key there; None without one."""
        found = first_match(self._settings.rules, identity)
        if found is None or not isinstance(found[0].to, ToFarm):
            return None
        for farm in self._chain(found[0].to.name):
            if any(member.name == backend for member in farm.members):
                return farm.name, _key(farm, identity)
        return None

    def misplaced(self, session: Session) -> bool:
        """Return whether a new session of the same identity could not come to this session's backend any more."""
        if session.identity is None or session.backend is None:
            return False
        found = first_match(self._settings.rules, session.identity)
        if found is None:
            return True
        name = session.backend.name
        match found[0].to:
            case ToReject():
                return True
            case ToBackend(target):
                return target != name
            case ToLocal():
                return name not in self._settings.backends or not self._settings.backends[name].local
            case ToFarm(target):
                return not any(member.name == name for farm in self._chain(target) for member in farm.members)


def _key(farm: Farm, identity: Identity) -> str:
    return NO_KEY if farm.key is None else farm.key.of(identity)
