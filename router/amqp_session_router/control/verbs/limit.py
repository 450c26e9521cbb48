"""LIMIT: what clients may use."""

from __future__ import annotations

from amqp_session_router.admission.limits import describe
from amqp_session_router.base.errors import UsageError, unknown_name
from amqp_session_router.control.merging import Reply
from amqp_session_router.control.service import Service
from amqp_session_router.control.verbs.declaration import Arguments, Changes, Data, Edit, Verb, number, part_of

LIMITS = {
    "CONN_RATE": "connection_rate",
    "CONN_RATE_ALARM": "connection_rate_alarm",
    "TOTAL_CONN": "connections",
    "TOTAL_CONN_ALARM": "connections_alarm",
    "DATA_RATE": "data_rate",
    "DATA_RATE_ALARM": "data_rate_alarm",
    "CONN_DATA_RATE": "connection_data_rate",
    "CONN_DATA_RATE_ALARM": "connection_data_rate_alarm",
    "FRAME_MAX": "frame_max",
}
"""The verbs' word for a limit → its setting."""


def _setting(word: str) -> str:
    if word.upper() not in LIMITS:
        raise UsageError(unknown_name("limit", word.upper(), LIMITS))
    return LIMITS[word.upper()]


def _set(data: Data, arguments: Arguments) -> None:
    path = ("limits", "default") if arguments.get("vhost") is None else ("limits", "vhosts", arguments["vhost"])
    part_of(data, *path)[_setting(arguments["limit"])] = number(arguments["value"], "a limit")


def _disable(data: Data, arguments: Arguments) -> None:
    name = _setting(arguments["limit"])
    if arguments.get("vhost") is None:
        part_of(data, "limits", "default").pop(name, None)
        return
    vhosts = part_of(data, "limits", "vhosts")
    part = vhosts.get(arguments["vhost"], {})
    part.pop(name, None)
    if not part:
        vhosts.pop(arguments["vhost"], None)


def _alarm_only(on: bool) -> Edit:
    def edit(data: Data, arguments: Arguments) -> None:
        part_of(data, "limits")["alarm_only"] = on

    return edit


def _print(service: Service, arguments: Arguments) -> Reply:
    return {"rows": describe(service.limits, service.settings.config.limits, arguments["vhost"])}


VERBS = (
    Verb("LIMIT ALARM_ONLY ON", "Let every limit only warn", Changes.CONFIGURATION, edit=_alarm_only(True)),
    Verb("LIMIT ALARM_ONLY OFF", "Let limits refuse and delay again", Changes.CONFIGURATION, edit=_alarm_only(False)),
    Verb("LIMIT DISABLE <limit> DEFAULT", "Take a default limit away", Changes.CONFIGURATION, edit=_disable),
    Verb(
        "LIMIT DISABLE <limit> VHOST <vhost>",
        "Take a vhost's own limit away: the default counts",
        Changes.CONFIGURATION,
        edit=_disable,
    ),
    Verb("LIMIT PRINT [vhost]", "Show the default limits, or those of a vhost", Changes.NOTHING, act=_print),
    Verb(
        "LIMIT <limit> DEFAULT <value>",
        f"Set a limit of every vhost; limits: {', '.join(LIMITS)}",
        Changes.CONFIGURATION,
        edit=_set,
    ),
    Verb("LIMIT <limit> VHOST <vhost> <value>", "Set a limit of one vhost", Changes.CONFIGURATION, edit=_set),
)
