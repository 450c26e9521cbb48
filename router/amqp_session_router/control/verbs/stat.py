"""STAT: the counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from amqp_session_router.base.errors import UsageError
from amqp_session_router.control import merging
from amqp_session_router.control.merging import Reply
from amqp_session_router.control.service import Service
from amqp_session_router.control.verbs.declaration import Arguments, Changes, Data, Handler, Scope, Verb, integer

_STREAM_PERIOD = 1.0
"""Seconds between two replies of `STAT LISTEN`."""


def _filter(arguments: Arguments) -> str:
    """Return what `metrics.as_data` takes; raises UsageError."""
    text: str = arguments["filter"] or "overall"
    name, _, value = text.partition("=")
    if text in ("all", "overall", "process") or (name in ("vhost", "backend", "source") and value):
        return text
    raise UsageError(f"{text!r} is none of overall, process, all, vhost=NAME, backend=NAME, source=ADDRESS")


async def _print(service: Service, arguments: Arguments) -> Reply:
    return {"data": await service.endpoints.counts(_filter(arguments))}


async def _listen(service: Service, arguments: Arguments) -> AsyncIterator[Reply]:
    if arguments["format"].lower() not in ("json", "human"):
        raise UsageError(f"the format is json or human, not {arguments['format']!r}")
    only = _filter(arguments)
    while True:
        yield {"data": await service.endpoints.counts(only), "format": arguments["format"].lower()}
        await asyncio.sleep(_STREAM_PERIOD)


def _send(data: Data, arguments: Arguments) -> None:
    receivers = data.setdefault("statsd", [])
    fresh = {"host": arguments["host"], "port": integer(arguments["port"], "a port")}
    if any(one["host"] == fresh["host"] and one.get("port", 8125) == fresh["port"] for one in receivers):
        raise UsageError(f"metrics go to {arguments['host']}:{arguments['port']} already")
    receivers.append(fresh)


def _stop(data: Data, arguments: Arguments) -> None:
    data["statsd"] = []


def _per_source(on: bool) -> Handler:
    def handler(service: Service, arguments: Arguments) -> Reply:
        if arguments["which"].lower() != "per-source":
            raise UsageError(f"only per-source can be switched, not {arguments['which']!r}")
        statistics = service.routing.statistics
        statistics.by_source = on
        if not on:
            statistics.forget_sources()
        return {"text": f"per-source is {'counted' if on else 'not counted'}"}

    return handler


VERBS = (
    Verb(
        "STAT PRINT [filter]",
        "Show the counts; filter: overall, process, all, vhost=, backend=, source=",
        Changes.NOTHING,
        act=_print,
    ),
    Verb(
        "STAT LISTEN <format> [filter]",
        "Show them every second, as json or human",
        Changes.NOTHING,
        act=_listen,
    ),
    Verb("STAT SEND <host> <port>", "Send them as statsd packets, too", Changes.CONFIGURATION, edit=_send),
    Verb("STAT STOP SEND", "Send them to nobody", Changes.CONFIGURATION, edit=_stop),
    Verb(
        "STAT ENABLE <which>",
        "Count per-source",
        Changes.MEMORY,
        act=_per_source(True),
        scope=Scope.EACH,
        merge=merging.first,
    ),
    Verb(
        "STAT DISABLE <which>",
        "Do not count per-source",
        Changes.MEMORY,
        act=_per_source(False),
        scope=Scope.EACH,
        merge=merging.first,
    ),
)
