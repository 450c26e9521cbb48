"""LIMIT: what clients may use."""

from __future__ import annotations

from collections.abc import Mapping

from amqp_session_router.admission.limits import describe, describe_user
from amqp_session_router.base.errors import UsageError, unknown_name
from amqp_session_router.config.schema import ConnectionLimits
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


_OF_USERS = {word: setting for word, setting in LIMITS.items() if setting in ConnectionLimits.model_fields}


def _setting(word: str, known: Mapping[str, str]) -> str:
    if word.upper() not in known:
        raise UsageError(unknown_name("limit", word.upper(), known))
    return known[word.upper()]


def _place(arguments: Arguments, users: bool) -> tuple[tuple[str, ...], str | None, Mapping[str, str]]:
    """Return where the limits stand that are meant, of whom (None: the default), and the words for them."""
    if users:
        return ("limits", "users"), arguments.get("user"), _OF_USERS
    return ("limits",), arguments.get("vhost"), LIMITS


def _set(users: bool) -> Edit:
    def edit(data: Data, arguments: Arguments) -> None:
        path, whose, known = _place(arguments, users)
        own = ("default",) if whose is None else ("names" if users else "vhosts", whose)
        limit = _setting(arguments["limit"], known)
        part_of(data, *path, *own)[limit] = number(arguments["value"], "a limit")

    return edit


def _disable(users: bool) -> Edit:
    def edit(data: Data, arguments: Arguments) -> None:
        path, whose, known = _place(arguments, users)
        name = _setting(arguments["limit"], known)
        if whose is None:
            part_of(data, *path, "default").pop(name, None)
            return
        parts = part_of(data, *path, "names" if users else "vhosts")
        part = parts.get(whose, {})
        part.pop(name, None)
        if not part:
            parts.pop(whose, None)

    return edit


def _alarm_only(on: bool) -> Edit:
    def edit(data: Data, arguments: Arguments) -> None:
        part_of(data, "limits")["alarm_only"] = on

    return edit


def _print(service: Service, arguments: Arguments) -> Reply:
    return {"rows": describe(service.limits, service.settings.config.limits, arguments["vhost"])}


def _print_user(service: Service, arguments: Arguments) -> Reply:
    return {"rows": describe_user(service.limits, arguments["user"])}


VERBS = (
    Verb("LIMIT ALARM_ONLY ON", "Let every limit only warn", Changes.CONFIGURATION, edit=_alarm_only(True)),
    Verb("LIMIT ALARM_ONLY OFF", "Let limits refuse and delay again", Changes.CONFIGURATION, edit=_alarm_only(False)),
    Verb(
        "LIMIT DISABLE <limit> DEFAULT", "Take a default limit away", Changes.CONFIGURATION, edit=_disable(users=False)
    ),
    Verb(
        "LIMIT DISABLE <limit> VHOST <vhost>",
        "Take a vhost's own limit away: the default counts",
        Changes.CONFIGURATION,
        edit=_disable(users=False),
    ),
    Verb("LIMIT PRINT [vhost]", "Show the default limits, or those of a vhost", Changes.NOTHING, act=_print),
    Verb(
        "LIMIT <limit> DEFAULT <value>",
        f"Set a limit of every vhost; limits: {', '.join(LIMITS)}",
        Changes.CONFIGURATION,
        edit=_set(users=False),
    ),
    Verb(
        "LIMIT <limit> VHOST <vhost> <value>", "Set a limit of one vhost", Changes.CONFIGURATION, edit=_set(users=False)
    ),
    Verb(
        "LIMIT DISABLE <limit> USER_DEFAULT",
        "Take a default limit of users away",
        Changes.CONFIGURATION,
        edit=_disable(users=True),
    ),
    Verb(
        "LIMIT DISABLE <limit> USER <user>",
        "Take a user's own limit away: the default of users counts",
        Changes.CONFIGURATION,
        edit=_disable(users=True),
    ),
    Verb("LIMIT PRINT USER <user>", "Show the limits of a user", Changes.NOTHING, act=_print_user),
    Verb(
        "LIMIT <limit> USER_DEFAULT <value>",
        f"Set a limit of every user; limits: {', '.join(_OF_USERS)}",
        Changes.CONFIGURATION,
        edit=_set(users=True),
    ),
    Verb("LIMIT <limit> USER <user> <value>", "Set a limit of one user", Changes.CONFIGURATION, edit=_set(users=True)),
)
