"""Moves the surplus of a farm's sessions to members that have too few, as after a broker came back."""

from __future__ import annotations

import asyncio
import logging
import math

from amqp_session_router.base.model import CONNECTION_FORCED, Phase, Session
from amqp_session_router.config.settings import Farm
from amqp_session_router.control.named_tasks import NamedTasks
from amqp_session_router.routing.routes import Routes
from amqp_session_router.selection import selectors

log = logging.getLogger(__name__)

_TICK = 0.05
"""Seconds between two looks: what is due by then goes together."""
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

    def begin(self, farm: Farm, rate: float) -> int:
        """Disconnect the surplus of now, `rate` a second; returns how many sessions that is. What was begun for the
        farm before ends."""
        found = self.surplus(farm)
        self._tasks.begin(farm.name, self._move(farm.name, rate, found))
        return len(found)

    def stop(self) -> None:
        """Disconnect no more."""
        self._tasks.stop()

    def surplus(self, farm: Farm) -> list[Session]:
        """Return the sessions, the youngest first, that members have beyond their part by weight, or that are outside
        of the preferred partition. Members that are not ready are left alone, and so are draining ones."""
        able = {name for name in (one.name for one in farm.members) if self._routes.markers.of(name).healthy}
        able -= self._routes.outliers.ejected(farm)
        groups = [[one for one in group if one.name in able] for group in self._routes.planner.groups(farm)]
        groups = [group for group in groups if group]
        if not groups:
            return []
        at: dict[str, list[Session]] = {one.name: [] for group in groups for one in group}
        for session in self._routes.sessions.live.values():
            if _is_of(session, farm) and session.backend is not None and session.backend.name in at:
                at[session.backend.name].append(session)
        total = sum(map(len, at.values()))
        # Without any weight all are alike.
        weights = {one.name: one.weight for one in groups[0]}
        if not any(weights.values()):
            weights = dict.fromkeys(weights, 1)
        whole = sum(weights.values())
        found: list[Session] = []
        for name, sessions in at.items():
            part = math.ceil(total * weights.get(name, 0) / whole)
            youngest = sorted(sessions, key=lambda one: one.started, reverse=True)
            found += youngest[: max(0, len(sessions) - part)]
        return sorted(found, key=lambda one: one.started, reverse=True)

    async def _move(self, farm: str, rate: float, sessions: list[Session]) -> None:
        loop = asyncio.get_running_loop()
        begun, done = loop.time(), 0
        for session in sessions:
            while done > (loop.time() - begun) * rate:
                await asyncio.sleep(max(_TICK, 1 / rate))
            if session.phase in (Phase.OPEN, Phase.PAUSED):
                session.disconnect(CONNECTION_FORCED, _REASON)
                done += 1
        log.info("rebalanced", extra={"farm": farm, "sessions": done})


def _is_of(session: Session, farm: Farm) -> bool:
    """Return whether it is open, and a rule sent it to this farm: it would come there again."""
    open_ = session.phase in (Phase.OPEN, Phase.PAUSED)
    return open_ and session.route is not None and session.route.target == f"farm {farm.name}"
