"""The authorisation hook: one POST a session; whatever is not a clear yes is a no.

Request body (JSON): `vhost`, `user`, `client_id`, `source_ip`, `sni_host`, `listener`, `mechanism`, `response` (the
SASL response, base64) and `certificate_name` (of the client's verified certificate).
Answer: status 200 and JSON with `result` (`allow` or `deny`), and where wanted `reason` (text),
`roles` (list of text), `mechanism` and `response` (base64: other credentials for the broker).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import ssl
from pathlib import Path
from typing import Any

from amqp_session_router.base.errors import UsageError
from amqp_session_router.base.model import Allowed, AuthRequest, Denied, short_string
from amqp_session_router.config.schema import AuthorizationPart

log = logging.getLogger(__name__)

_ALLOWED = Allowed()
UNAVAILABLE = Denied("the authorisation service gave no answer")
_LARGEST_ANSWER = 64 * 1024


class AlwaysAllow:
    """No hook: the broker alone decides."""

    async def authorize(self, request: AuthRequest) -> Allowed | Denied:
        """Return Allowed."""
        return _ALLOWED

    async def close(self) -> None:
        """Nothing to close."""


class HttpAuthorizer:
    """Asks the hook of `part`; raises UsageError when its files do not serve."""

    def __init__(self, part: AuthorizationPart) -> None:
        # Not by all: to import it takes 0.03 s of a start, and few routers ask a hook.
        import httpx

        self._part = part
        try:
            verify: ssl.SSLContext | bool = (
                ssl.create_default_context(cafile=part.ca_file) if part.url.startswith("https:") else True
            )
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"authorization.ca_file: {part.ca_file}: {error}") from None
        # Neither a proxy from the environment nor a redirect may see the credentials.
        self._client = httpx.AsyncClient(
            verify=verify,
            headers=_header(part.header_file),
            timeout=part.timeout,
            follow_redirects=False,
            trust_env=False,
            limits=httpx.Limits(max_connections=100, max_keepalive_connections=20),
        )

    async def authorize(self, request: AuthRequest) -> Allowed | Denied:
        """Ask; a timeout, another status than 200 or an answer that is not understood is a Denied."""
        return await asyncio.get_running_loop().create_task(self._answered(request))

    async def _answered(self, request: AuthRequest) -> Allowed | Denied:
        import httpx

        try:
            async with asyncio.timeout(self._part.timeout):
                return answer(await self._ask(request))
        except TimeoutError:
            why = f"no answer within {self._part.timeout:g} s"
        except (httpx.HTTPError, OSError, ValueError) as error:
            why = str(error) or type(error).__name__
        except Exception as error:  # fails closed, whatever the client library raises
            log.exception("authorisation failed")
            why = type(error).__name__
        log.error("authorisation failed, so the session is refused: %s", why, extra={"vhost": request.identity.vhost})
        return UNAVAILABLE

    async def _ask(self, request: AuthRequest) -> bytes:
        identity = request.identity
        body = {
            "vhost": identity.vhost,
            "user": identity.user,
            "client_id": identity.client_id,
            "source_ip": identity.source_ip,
            "sni_host": identity.sni_host,
            "listener": identity.listener,
            "mechanism": request.mechanism,
            "response": base64.b64encode(request.response).decode(),
            "certificate_name": request.certificate_name,
        }
        async with self._client.stream("POST", self._part.url, json=body) as reply:
            if reply.status_code != 200:
                raise ValueError(f"status {reply.status_code}")
            raw = b""
            async for chunk in reply.aiter_bytes():
                raw += chunk
                if len(raw) > _LARGEST_ANSWER:
                    raise ValueError(f"an answer of more than {_LARGEST_ANSWER} bytes")
            return raw

    async def close(self) -> None:
        """Close the connections to the hook."""
        await self._client.aclose()


def answer(raw: bytes) -> Allowed | Denied:
    """Return what the hook's answer says; raises ValueError for one that is not of the form."""
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        raise ValueError("the answer is not JSON") from None
    if not isinstance(data, dict):
        raise ValueError("the answer is not a JSON object")
    result = data.get("result")
    if result == "deny":
        reason = _text(data, "reason")
        return Denied(short_string(reason or "access refused by the authorisation service"))
    if result != "allow":
        raise ValueError("the answer's result is neither allow nor deny")
    roles = data.get("roles") or []
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        raise ValueError("the answer's roles are no list of text")
    mechanism, response = _text(data, "mechanism"), _text(data, "response")
    if (mechanism is None) != (response is None):
        raise ValueError("the answer has one of mechanism and response without the other")
    try:
        credentials = None if response is None else base64.b64decode(response, validate=True)
    except binascii.Error:
        raise ValueError("the answer's response is not base64") from None
    return Allowed(tuple(roles), mechanism, credentials)


def _text(data: dict[str, Any], name: str) -> str | None:
    value = data.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"the answer's {name} is no text")
    return value


def _header(file: str | None) -> dict[str, str]:
    if file is None:
        return {}
    try:
        text = Path(file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"authorization.header_file: cannot read {file}: {error}") from None
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or "\n" in text or not text.isascii():
        raise UsageError(f"authorization.header_file: {file} is not one line 'Name: value'")
    return {name.strip(): value.strip()}


def authorizer_of(part: AuthorizationPart | None) -> AlwaysAllow | HttpAuthorizer:
    """Return the authorizer that the configuration asks for; raises UsageError."""
    return AlwaysAllow() if part is None else HttpAuthorizer(part)
