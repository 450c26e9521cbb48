"""The server's settings, checked, and its run."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from brokerdrill.base.errors import UsageError
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
    if settings.prefix and not settings.prefix.startswith("/"):
        raise UsageError(f"--prefix {settings.prefix} does not begin with /")
    if token is not None and len(token) < LEAST_TOKEN:
        raise UsageError(f"a token has at least {LEAST_TOKEN} characters, as {secrets.token_urlsafe(18)!r} would be")
    if token is not None and settings.certificate is None and not is_loopback(settings.host):
        raise UsageError(
            f"the token would go through the network in the clear: --host {settings.host} needs --tls-cert"
        )


def serve(
    runs: Path, settings: ServeSettings, token: str | None, applying: Callable[[], Sequence[tuple[str, str]]]
) -> None:
    """Serve the folder of runs until SIGINT or SIGTERM; `settings` and `token` went through `check`."""
    # By name, so that no page elsewhere can make a browser ask this server under a name of its own.
    names = [*LOOPBACK_NAMES, settings.host, *settings.names] if is_loopback(settings.host) or settings.names else ["*"]
    app = make_app(runs, token, applying, names)
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
        root_path=settings.prefix.rstrip("/"),
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
