"""LISTEN: the addresses that clients connect to."""

from __future__ import annotations

from amqp_session_router.base.errors import UsageError
from amqp_session_router.control.merging import Reply
from amqp_session_router.control.service import Service
from amqp_session_router.control.verbs.declaration import Arguments, Changes, Data, Edit, Verb, integer, part_of


def _start(secure: bool) -> Edit:
    def edit(data: Data, arguments: Arguments) -> None:
        port = integer(arguments["port"], "a port")
        listeners = part_of(data, "listeners")
        name = f"{'secure' if secure else 'plain'}-{port}"
        if name in listeners:
            raise UsageError(f"port {port} is listened on already")
        listeners[name] = {"port": port} | ({"tls": {}} if secure else {})

    return edit


def _stop(data: Data, arguments: Arguments) -> None:
    listeners = part_of(data, "listeners")
    if arguments["port"] is None:
        listeners.clear()
        return
    wanted = arguments["port"]
    names = [name for name, part in listeners.items() if wanted in (name, str(part.get("port", 5672)))]
    if not names:
        raise UsageError(f"no listener has the port or name {wanted!r}")
    for name in names:
        del listeners[name]


def _print(service: Service, _: Arguments) -> Reply:
    listening = {} if service.server is None else service.server.listening()
    return {
        "rows": [
            {
                "name": listener.name,
                "host": listener.host,
                "port": listener.port,
                "tls": listener.tls is not None,
                "proxy_protocol": listener.proxy_protocol,
                "allow": None if listener.gate.allow is None else [*listener.gate.allow],
                "deny": [*listener.gate.deny],
            }
            for listener in listening.values()
        ]
    }


VERBS = (
    Verb("LISTEN START <port>", "Listen on a port, plain", Changes.CONFIGURATION, edit=_start(False)),
    Verb(
        "LISTEN START_SECURE <port>",
        "Listen on a port, with the TLS INGRESS settings",
        Changes.CONFIGURATION,
        edit=_start(True),
    ),
    Verb(
        "LISTEN STOP [port]",
        "Listen no more on this port, or on none; sessions stay",
        Changes.CONFIGURATION,
        edit=_stop,
    ),
    Verb("LISTEN PRINT", "Show the listeners", Changes.NOTHING, act=_print),
)
