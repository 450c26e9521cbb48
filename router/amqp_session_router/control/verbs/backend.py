"""BACKEND: the brokers, and what is done to the sessions of one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from amqp_session_router.base.errors import RouterError, UsageError, unknown_name
from amqp_session_router.base.model import Session
from amqp_session_router.base.paced import Steps, paced
from amqp_session_router.control import merging
from amqp_session_router.control.live_sessions import is_at, of_backend
from amqp_session_router.control.merging import Reply
from amqp_session_router.control.service import Service
from amqp_session_router.control.verbs.declaration import (
    Arguments,
    Changes,
    Data,
    Edit,
    Handler,
    Scope,
    Verb,
    a_rate,
    existing,
    integer,
    part_of,
    parts_without,
)
from amqp_session_router.control.verbs.session import on_each
from amqp_session_router.control.workers import WORDS, Leader
from amqp_session_router.telemetry import metrics

_EMPTYING_RATE = 100.0
"""Sessions a second that `BACKEND DISCONNECT_GRACEFUL` ends unless another number is given."""
_OPTIONS = ("SEND-PROXY", "SEND-PROXY-V2", "TLS", "LOCAL", "DRAIN", "WEIGHT=n", "ADDRESS=ip", "VHOST=name")


def _add(data: Data, arguments: Arguments) -> None:
    backends = parts_without(data, "backend", arguments["name"])
    part: Data = {"host": arguments["host"], "port": integer(arguments["port"], "a port")}
    if arguments["datacenter"]:
        part["datacenter"] = arguments["datacenter"]
    for option in arguments["option"]:
        name, _, value = option.partition("=")
        match name.upper(), value:
            case "SEND-PROXY", "":
                part["proxy_protocol"] = 1
            case "SEND-PROXY-V2", "":
                part["proxy_protocol"] = 2
            case "TLS", "":
                part["tls"] = {}
            case "LOCAL" | "DRAIN", "":
                part[name.lower()] = True
            case "WEIGHT", value if value:
                part["weight"] = integer(value, "a weight")
            case "ADDRESS" | "VHOST", value if value:
                part[name.lower()] = value
            case _:
                raise UsageError(f"{option!r} is no option of a backend; there are: {', '.join(_OPTIONS)}")
    backends[arguments["name"]] = part


def _delete(data: Data, arguments: Arguments) -> None:
    name = arguments["name"]
    existing(data, "backend", name)
    users = [farm for farm, part in part_of(data, "farms").items() if name in part.get("members", [])]
    if users:
        raise UsageError(f"the backend {name!r} is a member of the farm {users[0]!r}: FARM LEAVE first")
    del data["backends"][name]


def _set(key: str, value: Callable[[Arguments], Any]) -> Edit:
    def edit(data: Data, arguments: Arguments) -> None:
        existing(data, "backend", arguments["name"])[key] = value(arguments)

    return edit


def _print(service: Service, _: Arguments) -> Reply:
    return {"rows": metrics.backends(service.routing)}


def _sessions(service: Service, name: str) -> Steps[list[Session]]:
    """Return the sessions of a backend, which may be deleted; raises UsageError if there never was one."""
    sessions = yield from of_backend(service.routing, name)
    if not sessions and name not in service.routing.settings.backends:
        raise UsageError(unknown_name("backend", name, service.routing.settings.backends))
    return sessions


def _on_sessions(act: Callable[[Session], None]) -> Handler:
    def handler(service: Service, arguments: Arguments) -> Steps[Reply]:
        name = arguments["name"]
        return on_each(service, _sessions(service, name), act, lambda session: is_at(session, name))

    return handler


async def _empty(service: Service, arguments: Arguments) -> Reply:
    name = arguments["name"]
    rate = a_rate(arguments["rate"] or f"{_EMPTYING_RATE:g}")
    if service.others is None:
        await paced(_sessions(service, name))
        count = await service.emptying.begin(name, rate)
    else:
        count = await _empty_everywhere(service, service.others, name, rate)
    return {"text": f"{count} sessions, {rate:g} a second", "sessions": count}


async def _empty_everywhere(service: Service, others: Leader, name: str, rate: float) -> int:
    """Have each worker disconnect its sessions of a backend at its share of `rate`; returns how many there are."""
    found = _replies(await others.call(["CONN", f"backend={name}"]))
    counts = [len(await paced(of_backend(service.routing, name))), *(len(one["rows"]) for one in found)]
    if not any(counts):
        await paced(_sessions(service, name))
    own, *theirs = merging.shares(rate, counts)
    total = await service.emptying.begin(name, own)
    for index, share in enumerate(theirs, 1):
        if not counts[index] and name not in service.routing.settings.backends:
            continue
        words = ["BACKEND", "DISCONNECT_GRACEFUL", name, repr(share)]
        total += json.loads(await others.ask(index, WORDS, json.dumps(words).encode()))["sessions"]
    return total


def _replies(answers: Sequence[Reply | RouterError]) -> list[Reply]:
    """Return the replies; raises RouterError if one is missing."""
    for one in answers:
        if isinstance(one, RouterError):
            raise one
    return [one for one in answers if isinstance(one, dict)]


VERBS = (
    Verb(
        "BACKEND ADD <name> <datacenter> <host> <port> [option...]",
        f"Add a broker; options: {', '.join(_OPTIONS)}",
        Changes.CONFIGURATION,
        edit=_add,
    ),
    Verb(
        "BACKEND ADD_DNS <name> <datacenter> <host> <port> [option...]",
        "The same: a host is resolved at each attempt",
        Changes.CONFIGURATION,
        edit=_add,
    ),
    Verb("BACKEND DELETE <name>", "Remove a broker; its sessions stay", Changes.CONFIGURATION, edit=_delete),
    Verb(
        "BACKEND DRAIN <name>",
        "Give it no new sessions",
        Changes.CONFIGURATION,
        edit=_set("drain", lambda _: True),
    ),
    Verb(
        "BACKEND UNDRAIN <name>",
        "Give it new sessions again",
        Changes.CONFIGURATION,
        edit=_set("drain", lambda _: False),
    ),
    Verb(
        "BACKEND WEIGHT <name> <weight>",
        "Set its weight",
        Changes.CONFIGURATION,
        edit=_set("weight", lambda arguments: integer(arguments["weight"], "a weight")),
    ),
    Verb(
        "BACKEND CONNECTIONS <name> [most]",
        "Set the most sessions that it may have, or none",
        Changes.CONFIGURATION,
        edit=_set("connections", lambda one: None if one["most"] is None else integer(one["most"], "a most")),
    ),
    Verb(
        "BACKEND DISCONNECT_GRACEFUL <name> [rate]",
        "Connection.Close to all its sessions, so many a second (100); of one that drains until it has none left",
        Changes.SESSIONS,
        act=_empty,
    ),
    Verb(
        "BACKEND FORCE_DISCONNECT <name>",
        "Cut both sockets of all its sessions",
        Changes.SESSIONS,
        act=_on_sessions(lambda one: one.force()),
        scope=Scope.EACH,
        merge=merging.SESSIONS,
    ),
    Verb(
        "BACKEND BACKEND_DISCONNECT <name>",
        "Cut the broker's side of all its sessions",
        Changes.SESSIONS,
        act=_on_sessions(lambda one: one.disconnect_backend()),
        scope=Scope.EACH,
        merge=merging.SESSIONS,
    ),
    Verb(
        "BACKEND PRINT",
        "Show the brokers, with what their checks say",
        Changes.NOTHING,
        act=_print,
        scope=Scope.EACH,
        merge=merging.BACKENDS,
    ),
)
