"""The server's settings, checked, and its run."""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from brokerdrill.base.errors import InfrastructureError, UsageError
from brokerdrill.web.app import make_app

TOKEN_VARIABLE = "BROKERDRILL_TOKEN"
LEAST_TOKEN = 16
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]", "::1")


@dataclass(frozen=True)
class ServeSettings:
    """Where to listen; `prefix` is a reverse proxy's path, `names` by which hosts the server may be called."""

    host: str = "127.0.0.1"
    port: int = 8099
    certificate: Path | None = None
    key: Path | None = None
    prefix: str = ""
    names: tuple[str, ...] = ()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check(settings: ServeSettings, token: str | None) -> None:
    """Raise UsageError for settings that do not go together, or that would show the token to the network."""
    if (settings.certificate is None) != (settings.key is None):
        raise UsageError("--tls-cert and --tls-key go together")
    for path in (settings.certificate, settings.key):
        if path is not None and not path.is_file():
            raise UsageError(f"{path} is no file")
    if settings.certificate is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.certificate, settings.key)
        except OSError as error:
            raise UsageError(
                f"{settings.certificate} and {settings.key} are no certificate and its key: {error}"
            ) from None
    if settings.prefix and not settings.prefix.startswith("/"):
        raise UsageError(f"--prefix {settings.prefix} does not begin with /")
    if token is not None and len(token) < LEAST_TOKEN:
        raise UsageError(f"a token has at least {LEAST_TOKEN} characters, as {secrets.token_urlsafe(18)!r} would be")
    if token is not None and settings.certificate is None and not is_loopback(settings.host):
        raise UsageError(
            f"the token would go through the network in the clear: --host {settings.host} needs --tls-cert"
        )


def listening(settings: ServeSettings) -> socket.socket:
    """Return a socket of the address and port. Raises InfrastructureError: taken, not this machine's, unknown."""
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
        family, kind, _, _, address = found[0]
        with contextlib.ExitStack() as unless_bound:
            made = unless_bound.enter_context(socket.socket(family, kind))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            unless_bound.pop_all()
            return made
    except OSError as error:
        place = f"{settings.host} port {settings.port}"
        raise InfrastructureError(f"{place} cannot be listened on: {error.strerror or error}") from None


def serve(
    runs: Path,
    settings: ServeSettings,
    token: str | None,
    applying: Callable[[], Sequence[tuple[str, str]]],
    on: socket.socket,
) -> None:
    """Serve the folder of runs until SIGINT or SIGTERM; `settings` and `token` went through `check`, and `on` is theirs
    by `listening`."""
    # By name, so that no page elsewhere can make a browser ask this server under a name of its own.
    names = [*LOOPBACK_NAMES, settings.host, *settings.names] if is_loopback(settings.host) or settings.names else ["*"]
    app = make_app(runs, token, applying, names)
    config = uvicorn.Config(
        app,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
        root_path=settings.prefix.rstrip("/"),
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[on])
