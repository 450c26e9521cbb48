"""FARM and STICKY: groups of brokers, and the keys that they remember."""

from __future__ import annotations

from amqp_session_router.base.errors import UsageError, unknown_name
from amqp_session_router.control import merging
from amqp_session_router.control.merging import Reply
from amqp_session_router.control.rebalancing import why_not
from amqp_session_router.control.service import Service
from amqp_session_router.control.verbs.declaration import (
    Arguments,
    Changes,
    Data,
    Scope,
    Verb,
    a_rate,
    existing,
    parts_without,
)

_BALANCING_RATE = 10.0
"""Sessions a second that `FARM REBALANCE` ends unless another number is given."""


def _add(data: Data, arguments: Arguments) -> None:
    farms = parts_without(data, "farm", arguments["name"])
    farms[arguments["name"]] = {"selector": arguments["selector"], "members": arguments["backend"]}


def _delete(data: Data, arguments: Arguments) -> None:
    existing(data, "farm", arguments["name"])
    del data["farms"][arguments["name"]]


def _partition(data: Data, arguments: Arguments) -> None:
    existing(data, "farm", arguments["name"]).setdefault("policies", []).append(arguments["policy"])


def _unpartition(data: Data, arguments: Arguments) -> None:
    existing(data, "farm", arguments["name"])["policies"] = []


def _join(data: Data, arguments: Arguments) -> None:
    existing(data, "farm", arguments["name"]).setdefault("members", []).append(arguments["backend"])


def _leave(data: Data, arguments: Arguments) -> None:
    members = existing(data, "farm", arguments["name"]).setdefault("members", [])
    if arguments["backend"] not in members:
        raise UsageError(unknown_name(f"member of {arguments['name']}", arguments["backend"], members))
    members.remove(arguments["backend"])


def _print(service: Service, _: Arguments) -> Reply:
    rows = []
    for name, part in service.settings.config.farms.items():
        farm = service.settings.farms[name]
        groups = service.routing.planner.groups(farm)
        rows.append(
            {
                "name": name,
                "selector": part.selector,
                "policies": ", ".join(part.policies),
                "partitions": " > ".join(", ".join(backend.name for backend in group) for group in groups),
                "draining": ", ".join(backend.name for backend in farm.members if backend.drain),
                "ejected": ", ".join(sorted(service.routing.outliers.ejected(farm))),
                "key": "" if part.key is None else part.key.type,
                "quorum": part.quorum,
                "fallback": part.fallback,
                "state": service.routing.planner.why_inactive(farm) or "active",
            }
        )
    return {"rows": rows}


def _sticky_print(service: Service, _: Arguments) -> Reply:
    return {
        "rows": [
            {"farm": name, "keys": len(cache), "timeout": cache.timeout, "file": str(cache.path or "")}
            for name, cache in service.routing.sticky.by_name.items()
        ]
    }


def _sticky_clear(service: Service, arguments: Arguments) -> Reply:
    caches = service.routing.sticky.by_name
    cache = caches.get(arguments["farm"])
    if cache is None:
        raise UsageError(unknown_name("farm with a cache", arguments["farm"], caches))
    count = cache.clear()
    return {"text": f"{count} keys forgotten", "keys": count}


async def _rebalance(service: Service, arguments: Arguments) -> Reply:
    farms = service.routing.settings.farms
    farm = farms.get(arguments["name"])
    if farm is None:
        raise UsageError(unknown_name("farm", arguments["name"], farms))
    if (why := why_not(farm)) is not None:
        raise UsageError(f"the farm {farm.name!r} cannot be balanced: {why}")
    rate = a_rate(arguments["rate"] or f"{_BALANCING_RATE:g}")
    count = await service.rebalancing.begin(farm, rate / service.settings.config.workers)
    return {"text": f"{count} sessions, {rate:g} a second", "sessions": count}


VERBS = (
    Verb("FARM ADD <name> <selector> [backend...]", "Add a farm", Changes.CONFIGURATION, edit=_add),
    Verb("FARM PARTITION <name> <policy>", "Append a partition policy", Changes.CONFIGURATION, edit=_partition),
    Verb("FARM UNPARTITION <name>", "Take its partition policies away", Changes.CONFIGURATION, edit=_unpartition),
    Verb("FARM JOIN <name> <backend>", "Add a member", Changes.CONFIGURATION, edit=_join),
    Verb("FARM LEAVE <name> <backend>", "Take a member away; its sessions stay", Changes.CONFIGURATION, edit=_leave),
    Verb("FARM DELETE <name>", "Remove a farm; its sessions stay", Changes.CONFIGURATION, edit=_delete),
    Verb(
        "FARM REBALANCE <name> [rate]",
        "Connection.Close to the sessions that its members have beyond their part, so many a second (10)",
        Changes.SESSIONS,
        act=_rebalance,
        scope=Scope.EACH,
        merge=merging.SESSIONS,
    ),
    Verb("FARM PRINT", "Show the farms, with their partitions as they are now", Changes.NOTHING, act=_print),
    Verb(
        "STICKY PRINT",
        "Show how many keys each farm remembers",
        Changes.NOTHING,
        act=_sticky_print,
        scope=Scope.EACH,
        merge=merging.rows_added("farm", "keys"),
    ),
    Verb(
        "STICKY CLEAR <farm>",
        "Forget a farm's keys",
        Changes.MEMORY,
        act=_sticky_clear,
        scope=Scope.EACH,
        merge=merging.counted("keys"),
    ),
)
