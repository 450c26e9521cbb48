"""What the model's tests stand in for: the data path's sessions and listeners."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from amqp_session_router.base.model import Backend, Counters, Identity, Listener, Phase, Route
from amqp_session_router.config import loader
from amqp_session_router.config.settings import Settings
from amqp_session_router.routing.routes import Routes

_ids = itertools.count(1)


class FakeSession:
    """A session that notes what it is told."""

    def __init__(self, identity: Identity | None, route: Route | None = None, backend: Backend | None = None) -> None:
        self.id = f"s{next(_ids)}"
        self.identity = identity
        self.route = route
        self.backend = backend
        self.phase = Phase.OPEN if backend is not None else Phase.HANDSHAKE
        self.listener = "plain"
        self.client = "192.0.2.1:40000"
        self.started = 0.0
        self.counters = Counters(handshake_seconds=0.004)
        self.told: list[tuple[Any, ...]] = []

    def pause(self) -> None:
        self.told.append(("pause",))
        self.phase = Phase.PAUSED

    def unpause(self) -> None:
        self.told.append(("unpause",))
        self.phase = Phase.OPEN

    def disconnect(self, code: int, text: str) -> None:
        self.told.append(("disconnect", code, text))
        self.phase = Phase.CLOSING

    def force(self) -> None:
        self.told.append(("force",))

    def meter(self) -> None:
        pass

    def disconnect_backend(self) -> None:
        self.told.append(("disconnect_backend",))


class FakeServer:
    """Listeners in name only; a port in `taken` cannot be had."""

    def __init__(self, *taken: int) -> None:
        self.taken = set(taken)
        self.open: dict[str, Listener] = {}
        self.left: list[float] = []
        self.renewed = 0

    def check_free(self, listener: Listener) -> None:
        pass

    async def start(self, listener: Listener) -> None:
        if listener.port in self.taken:
            raise OSError(98, "Address already in use")
        self.open[listener.name] = listener

    async def stop(self, name: str) -> None:
        del self.open[name]

    def listening(self) -> Mapping[str, Listener]:
        return self.open

    def renew(self) -> None:
        self.renewed += 1

    def exit(self, drain: float, rate: float | None = None) -> None:
        self.left.append(drain)


def settings(**parts: Any) -> Settings:
    """Return settings of these parts of a configuration."""
    return loader.from_data(parts)


def members(*names: str, **each: Any) -> dict[str, Any]:
    """Return a `backends` part: each name is its own host."""
    return {name: {"host": name, **each} for name in names}


def open_session(routes: Routes, identity: Identity) -> FakeSession:
    """Let a session of `identity` open at its first candidate."""
    decision = routes.decide(identity)
    assert isinstance(decision, Route), decision
    session = FakeSession(identity, decision, next(decision.candidates))
    routes.registered(session)
    assert session.backend is not None
    routes.attempted(session, session.backend, ok=True)
    routes.opened(session)
    return session
