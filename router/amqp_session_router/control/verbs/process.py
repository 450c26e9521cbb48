"""EXIT and WORKERS: the router's processes."""

from __future__ import annotations

import os

from amqp_session_router.base.errors import UsageError
from amqp_session_router.control import merging
from amqp_session_router.control.merging import Reply
from amqp_session_router.control.service import Service
from amqp_session_router.control.verbs.declaration import Arguments, Changes, Scope, Verb, a_rate, decimal
from amqp_session_router.telemetry import metrics


def _exit(service: Service, arguments: Arguments) -> Reply:
    drain, grace = (decimal(arguments[name] or default, name) for name, default in (("seconds", "30"), ("grace", "0")))
    for name, value in (("seconds", drain), ("grace", grace)):
        if not 0 <= value <= 3600:
            raise UsageError(f"{name} is 0 to 3600 seconds, not {value:g}")
    rate = None if arguments["rate"] is None else a_rate(arguments["rate"])
    count = len(service.routing.sessions.live)
    service.exit(drain, grace, rate)
    return {"text": f"leaving{f' in {grace:g} s' if grace else ''}, with {count} sessions", "sessions": count}


def _workers(service: Service, _: Arguments) -> Reply:
    row = {
        "worker": service.worker,
        "pid": os.getpid(),
        "uptime": round(metrics.uptime(), 1),
        "sessions": len(service.routing.sessions.live),
    }
    return {"rows": [row]}


VERBS = (
    Verb(
        "EXIT [seconds] [grace] [rate]",
        "Say on `/ready` that it leaves; after the grace (0) take no more sessions, close all within `seconds` (30), "
        "so many a second (`exit_rate`)",
        Changes.SESSIONS,
        act=_exit,
        scope=Scope.EACH,
        merge=merging.SESSIONS,
    ),
    Verb(
        "WORKERS PRINT",
        "Show the router's processes, the seconds that each runs, and its sessions",
        Changes.NOTHING,
        act=_workers,
        scope=Scope.EACH,
        merge=merging.rows_joined,
    ),
)
