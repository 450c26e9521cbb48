"""Moves the surplus of a farm's sessions to members that have too few, as after a broker came back."""

from __future__ import annotations

import logging
import math
import operator

from amqp_session_router.base.model import CONNECTION_FORCED, Session
from amqp_session_router.base.paced import Steps, paced, strides
from amqp_session_router.config.settings import Farm
from amqp_session_router.control.live_sessions import Turns, chosen, is_open
from amqp_session_router.control.named_tasks import NamedTasks
from amqp_session_router.routing.routes import Routes
from amqp_session_router.selection import selectors

log = logging.getLogger(__name__)

_STARTED = operator.attrgetter("started")
_REASON = "the router's operator balances the brokers; connect again"
_BY_LOAD = (selectors.least_connections, selectors.weighted, selectors.round_robin)


def why_not(farm: Farm) -> str | None:
    """Return why clients that connect again would come back to where they were, None if they would not."""
    if farm.cached:
        return "its cache brings sessions back to where they were"
    if farm.selector in selectors.OWN.values() and farm.selector not in _BY_LOAD:
        return "its selector brings sessions back to where they were"
    return None


class Rebalancing:
    """The farms that are being balanced, each by a task of its own."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._tasks = NamedTasks("rebalance")

    async def begin(self, farm: Farm, rate: float) -> int:
        """Disconnect the surplus of now, `rate` a second; returns how many sessions that is. What was begun for the
        farm before ends."""
        found = await paced(self.surplus(farm))
        self._tasks.begin(farm.name, self._move(farm.name, rate, found))
        return len(found)

    def stop(self) -> None:
        """Disconnect no more."""
        self._tasks.stop()

    def surplus(self, farm: Farm) -> Steps[list[Session]]:
        """Return the sessions, the youngest first, that members have beyond their part by weight, or that are outside
        of the preferred partition. Members that are not ready are left alone, and so are draining ones."""
        able = self._able(farm)
        groups = [[one for one in group if one.name in able] for group in self._routes.planner.groups(farm)]
        groups = [group for group in groups if group]
        if not groups:
            return []
        at: dict[str, list[Session]] = {one.name: [] for group in groups for one in group}
        sessions = yield from chosen(self._routes, lambda one: _is_of(one, farm))
        for stride in strides(sessions):
            for session in stride:
                if session.backend is not None and session.backend.name in at:
                    at[session.backend.name].append(session)
            yield
        total = sum(map(len, at.values()))
        # Without any weight all are alike.
        weights = {one.name: one.weight for one in groups[0]}
        if not any(weights.values()):
            weights = dict.fromkeys(weights, 1)
        whole = sum(weights.values())
        found: list[Session] = []
        for name, sessions in at.items():
            part = math.ceil(total * weights.get(name, 0) / whole)
            # They are nearly in that order already, so that this is quick.
            youngest = sorted(sessions, key=_STARTED, reverse=True)
            found += youngest[: max(0, len(sessions) - part)]
            yield
        return sorted(found, key=_STARTED, reverse=True)

    def _able(self, farm: Farm) -> set[str]:
        """Return the members that can take sessions."""
        healthy = {name for name in (one.name for one in farm.members) if self._routes.markers.of(name).healthy}
        return healthy - self._routes.outliers.ejected(farm)

    async def _move(self, name: str, rate: float, sessions: list[Session]) -> None:
        """Disconnect them one after the other, as long as that leads anywhere: the farm may be gone by then, or bring
        its sessions back to where they were, or its other members fail."""
        turns = Turns(rate)
        for session in sessions:
            await turns.next()
            farm = self._routes.settings.farms.get(name)
            if farm is None or why_not(farm):
                log.info("rebalancing ended early", extra={"farm": name, "sessions": turns.done})
                return
            here = {session.backend.name} if session.backend else set()
            if _is_of(session, farm) and self._able(farm) - here:
                session.disconnect(CONNECTION_FORCED, _REASON)
                turns.done += 1
        log.info("rebalanced", extra={"farm": name, "sessions": turns.done})


def _is_of(session: Session, farm: Farm) -> bool:
    """Return whether it is open, and a rule sent it to this farm: it would come there again."""
    return is_open(session) and session.route is not None and session.route.target == f"farm {farm.name}"
