"""AUTH: the authorisation hook."""

from __future__ import annotations

from urllib.parse import urlsplit

from amqp_session_router.base.errors import UsageError
from amqp_session_router.control.merging import Reply
from amqp_session_router.control.service import Service
from amqp_session_router.control.verbs.declaration import Arguments, Changes, Data, Verb, integer, part_of


def _service(data: Data, arguments: Arguments) -> None:
    if arguments["port"] is None:
        url = arguments["host"]
        if urlsplit(url).scheme not in ("http", "https"):
            raise UsageError(f"AUTH SERVICE takes a URL, or host, port and target; {url!r} is no URL")
    else:
        target = arguments["target"] or "/"
        host = f"[{arguments['host']}]" if ":" in arguments["host"] else arguments["host"]
        port = integer(arguments["port"], "a port")
        url = f"http://{host}:{port}{'' if target.startswith('/') else '/'}{target}"
    part_of(data, "authorization")["url"] = url


def _allow(data: Data, arguments: Arguments) -> None:
    data["authorization"] = None


def _print(service: Service, _: Arguments) -> Reply:
    part = service.settings.config.authorization
    return {"text": "every client is allowed"} if part is None else {"data": part.model_dump()}


VERBS = (
    Verb(
        "AUTH SERVICE <host> [port] [target]",
        "Ask this HTTP hook, or this URL, about each session",
        Changes.CONFIGURATION,
        edit=_service,
    ),
    Verb("AUTH ALWAYS_ALLOW", "Ask no hook", Changes.CONFIGURATION, edit=_allow),
    Verb("AUTH PRINT", "Show the hook", Changes.NOTHING, act=_print),
)
