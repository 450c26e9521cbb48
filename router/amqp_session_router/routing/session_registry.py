"""The live sessions of this worker, and what becomes of each: counted, marked and written to the log."""

from __future__ import annotations

import logging

from amqp_session_router.base.model import FAILURES, NO_KEY, Backend, End, Session
from amqp_session_router.routing.statistics import Statistics
from amqp_session_router.selection.markers import Markers

log = logging.getLogger(__name__)

_LEVELS = {End.DENIED: logging.DEBUG}
"""Of the line about an end that no session's client has to explain: `admission.denials` tells of them together."""


class SessionRegistry:
    """The sessions from accept() to their end."""

    def __init__(self, markers: Markers, statistics: Statistics) -> None:
        self._markers = markers
        self._statistics = statistics
        self.live: dict[str, Session] = {}
        """By their id."""
        self._open: dict[str, str] = {}
        """Session id → name of the backend that it is counted at."""

    def registered(self, session: Session) -> None:
        """`session` was accepted."""
        self.live[session.id] = session
        self._statistics.accepted(session)

    def attempted(self, session: Session, backend: Backend, ok: bool, reason: str) -> None:
        """One attempt of `session` to come to `backend` has ended."""
        counters = session.counters
        counters.attempts += 1
        self._markers.outcome(backend.name, ok)
        self._statistics.attempted(backend.name, ok)
        if not ok:
            log.warning(
                "attempt failed: %s",
                reason or "no reason given",
                extra={"session": session.id, "backend": backend.name, "attempt": counters.attempts},
            )

    def opened(self, session: Session) -> bool:
        """`session` is open at its backend. Returns whether that is news: without a backend it is not open."""
        if session.id in self._open or session.backend is None:
            return False
        name = session.backend.name
        self._open[session.id] = name
        self._markers.opened(name)
        self._statistics.opened(session)
        if log.isEnabledFor(logging.INFO):
            log.info("opened", extra=_about(session))
        return True

    def closed(self, session: Session, how: End, text: str) -> None:
        """`session` is over. A second call has no effect."""
        if self.live.pop(session.id, None) is None:
            return
        name = self._open.pop(session.id, None)
        if name is not None:
            self._markers.closed(name)
        self._statistics.closed(session, how)
        level = logging.WARNING if how in FAILURES else _LEVELS.get(how, logging.INFO)
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
