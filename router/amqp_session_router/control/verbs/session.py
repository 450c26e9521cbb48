"""CONN, SESSION and VHOST: live sessions, one by one and by virtual host."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from amqp_session_router.base.errors import UsageError, unknown_name
from amqp_session_router.base.model import CONNECTION_FORCED, Session
from amqp_session_router.base.paced import Steps, strides
from amqp_session_router.control import merging
from amqp_session_router.control.live_sessions import of_vhost
from amqp_session_router.control.merging import Reply
from amqp_session_router.control.service import Service
from amqp_session_router.control.verbs.declaration import Arguments, Changes, Handler, Scope, Verb, pairs

_BY_CONTROL = "closed by the router's operator"
_FILTERS = ("vhost", "backend", "user", "source", "phase")


def no_session(name: str) -> UsageError:
    """Return what is raised where no worker has a session of this id."""
    return UsageError(f"no session has the id {name!r}; CONN shows them")


def on_each(
    service: Service,
    found: Steps[list[Session]],
    act: Callable[[Session], None],
    still: Callable[[Session], bool] = lambda _: True,
) -> Steps[Reply]:
    """Do something to all sessions of `found` that do not end meanwhile and are `still` meant; reply how many."""
    live, count = service.routing.sessions.live, 0
    for stride in strides((yield from found)):
        for session in stride:
            if session.id in live and still(session):
                act(session)
                count += 1
        yield
    return {"text": f"{count} sessions", "sessions": count}


def _disconnect(session: Session) -> None:
    session.disconnect(CONNECTION_FORCED, _BY_CONTROL)


def _found(service: Service, name: str) -> Session:
    found = service.routing.sessions.live.get(name)
    if found is None:
        raise no_session(name)
    return found


def _row(session: Session) -> dict[str, Any]:
    identity = session.identity
    return {
        "id": session.id,
        "phase": session.phase.value,
        "client": session.client,
        "source": "" if identity is None else identity.source_ip,
        "vhost": "" if identity is None else identity.vhost,
        "user": "" if identity is None else identity.user,
        "client_id": "" if identity is None else identity.client_id,
        "target": "" if session.route is None else session.route.target,
        "backend": "" if session.backend is None else session.backend.name,
        "listener": session.listener,
        "age": round(time.time() - session.started, 1),
        "from_client": session.counters.bytes_from_client,
        "from_broker": session.counters.bytes_from_broker,
        "attempts": session.counters.attempts,
    }


def _conn(service: Service, arguments: Arguments) -> Steps[Reply]:
    wanted = pairs(arguments["filter"], _FILTERS)
    rows: list[dict[str, Any]] = []
    for stride in strides(service.routing.sessions.live.values()):
        of_stride = [_row(session) for session in stride]
        rows += [row for row in of_stride if all(str(row[name]) == value for name, value in wanted.items())]
        yield
    return {"rows": rows}


def _print(service: Service, arguments: Arguments) -> Reply:
    return {"data": _row(_found(service, arguments["id"]))}


def _on_session(act: Callable[[Session], None]) -> Handler:
    def handler(service: Service, arguments: Arguments) -> Reply:
        session = _found(service, arguments["id"])
        act(session)
        return {"text": f"session {session.id}: {session.phase.value}"}

    return handler


def _on_vhost(act: Callable[[Session], None]) -> Handler:
    return lambda service, arguments: on_each(service, of_vhost(service.routing, arguments["vhost"]), act)


async def _pause(service: Service, arguments: Arguments) -> Reply:
    count = await service.configuration.pause_vhost(arguments["vhost"])
    return {"text": f"paused, with {count} sessions", "sessions": count}


async def _unpause(service: Service, arguments: Arguments) -> Reply:
    if arguments["vhost"] not in service.routing.paused:
        raise UsageError(unknown_name("paused vhost", arguments["vhost"], service.routing.paused.names))
    going_on, disconnected = await service.configuration.unpause_vhost(arguments["vhost"])
    return {
        "text": f"{going_on} sessions go on, {disconnected} are mapped elsewhere now and were disconnected",
        "going_on": going_on,
        "disconnected": disconnected,
    }


def _vhosts(service: Service, _: Arguments) -> Steps[Reply]:
    counts = dict.fromkeys(service.routing.paused.names, 0)
    for stride in strides(service.routing.sessions.live.values()):
        for session in stride:
            if session.identity is not None:
                counts[session.identity.vhost] = counts.get(session.identity.vhost, 0) + 1
        yield
    return {
        "rows": [
            {"vhost": vhost, "sessions": count, "paused": vhost in service.routing.paused}
            for vhost, count in sorted(counts.items())
        ]
    }


VERBS = (
    Verb(
        "CONN [filter...]",
        f"Show the sessions; filters: {', '.join(f'{name}=' for name in _FILTERS)}",
        Changes.NOTHING,
        act=_conn,
        scope=Scope.EACH,
        merge=merging.rows_joined,
    ),
    Verb("SESSION <id> PRINT", "Show one session", Changes.NOTHING, act=_print, scope=Scope.OWNER),
    Verb(
        "SESSION <id> PAUSE",
        "Read no more from its client",
        Changes.SESSIONS,
        act=_on_session(lambda one: one.pause()),
        scope=Scope.OWNER,
    ),
    Verb(
        "SESSION <id> UNPAUSE",
        "Read on",
        Changes.SESSIONS,
        act=_on_session(lambda one: one.unpause()),
        scope=Scope.OWNER,
    ),
    Verb(
        "SESSION <id> DISCONNECT_GRACEFUL",
        "Connection.Close to both sides",
        Changes.SESSIONS,
        act=_on_session(_disconnect),
        scope=Scope.OWNER,
    ),
    Verb(
        "SESSION <id> FORCE_DISCONNECT",
        "Cut both sockets",
        Changes.SESSIONS,
        act=_on_session(lambda one: one.force()),
        scope=Scope.OWNER,
    ),
    Verb(
        "SESSION <id> BACKEND_DISCONNECT",
        "Cut the broker's side",
        Changes.SESSIONS,
        act=_on_session(lambda one: one.disconnect_backend()),
        scope=Scope.OWNER,
    ),
    Verb("VHOST PAUSE <vhost>", "Pause its sessions and those that come", Changes.SESSIONS, act=_pause),
    Verb(
        "VHOST UNPAUSE <vhost>",
        "Let them go on; one that is mapped elsewhere now is disconnected gracefully",
        Changes.SESSIONS,
        act=_unpause,
    ),
    Verb(
        "VHOST DISCONNECT_GRACEFUL <vhost>",
        "Connection.Close to all its sessions",
        Changes.SESSIONS,
        act=_on_vhost(_disconnect),
        scope=Scope.EACH,
        merge=merging.SESSIONS,
    ),
    Verb(
        "VHOST FORCE_DISCONNECT <vhost>",
        "Cut both sockets of all its sessions",
        Changes.SESSIONS,
        act=_on_vhost(lambda one: one.force()),
        scope=Scope.EACH,
        merge=merging.SESSIONS,
    ),
    Verb(
        "VHOST BACKEND_DISCONNECT <vhost>",
        "Cut the broker's side of all its sessions",
        Changes.SESSIONS,
        act=_on_vhost(lambda one: one.disconnect_backend()),
        scope=Scope.EACH,
        merge=merging.SESSIONS,
    ),
    Verb(
        "VHOST PRINT",
        "Show the vhosts with sessions, and the paused ones",
        Changes.NOTHING,
        act=_vhosts,
        scope=Scope.EACH,
        merge=merging.by_vhost,
    ),
)
