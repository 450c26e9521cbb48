"""LOG: how much is logged, and where."""

from __future__ import annotations

from amqp_session_router.base.errors import UsageError
from amqp_session_router.control.merging import Reply
from amqp_session_router.control.service import Service
from amqp_session_router.control.verbs.declaration import Arguments, Changes, Data, Verb, part_of

_VERBOSITY = ("critical", "error", "warning", "info", "debug", "debug")


def _level(text: str) -> str:
    if text.isdigit() and int(text) < len(_VERBOSITY):
        return _VERBOSITY[int(text)]
    names = {"fatal": "critical", "warn": "warning", "trace": "debug"}
    return names.get(text.lower(), text.lower())


def _console(data: Data, arguments: Arguments) -> None:
    part_of(data, "log")["level"] = _level(arguments["verbosity"])


def _file(data: Data, arguments: Arguments) -> None:
    log = part_of(data, "log")
    log["file_level"] = _level(arguments["verbosity"])
    if arguments["file"] is not None:
        log["file"] = arguments["file"]
    if log.get("file") is None:
        raise UsageError("there is no log file yet; name one: LOG FILE <verbosity> <file>")


def _print(service: Service, _: Arguments) -> Reply:
    return {"data": service.settings.config.log.model_dump()}


VERBS = (
    Verb(
        "LOG CONSOLE <verbosity>",
        "Set the level on standard error: 0 (fatal) to 5, or its name",
        Changes.CONFIGURATION,
        edit=_console,
    ),
    Verb(
        "LOG FILE <verbosity> [file]", "Set the level in the log file, and the file", Changes.CONFIGURATION, edit=_file
    ),
    Verb("LOG PRINT", "Show both", Changes.NOTHING, act=_print),
)
