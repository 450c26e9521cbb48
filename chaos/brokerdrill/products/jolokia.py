"""Jolokia: JMX over HTTPS, as the brokers in Java speak it. What the products that have it share."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from brokerdrill.inventory.descriptors import Descriptor, ManagementAccess, management
from brokerdrill.products.base import ManagementError, NotAllowed

CALL_TIMEOUT_S = 2.0
# What Jolokia says of one request, in the words of HTTP: no such bean; the broker's or its own access rules.
NOT_FOUND, FORBIDDEN = 404, 403


def refused(error: BaseException | None) -> bool:
    """Whether a refused connection is at the bottom of `error`: the libraries wrap it several times."""
    while error is not None:
        if isinstance(error, ConnectionRefusedError):
            return True
        error = error.__cause__ or error.__context__
    return False


def answer(reply: Mapping[str, Any], what: str) -> Any:
    """Return the value of a reply. Raises NotAllowed where `what` (for its sentence) was refused, ManagementError where
    it failed."""
    if reply.get("status") == 200:
        return reply.get("value")
    kind = NotAllowed if reply.get("status") == FORBIDDEN else ManagementError
    raise kind(f"{what}: {reply.get('error')}")


def found(reply: Mapping[str, Any], what: str) -> Any:
    """Return the value of a reply, None where the bean that was asked for is not there. Raises as `answer`."""
    return None if reply.get("status") == NOT_FOUND else answer(reply, what)


def counted(addresses: Sequence[str], replies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the value of the reply for each of `addresses` that is there. Raises as `answer`."""
    values = {name: found(reply, f"counts of {name}") for name, reply in zip(addresses, replies, strict=True)}
    return {name: value for name, value in values.items() if value}


class JolokiaClient:
    """An open line to the Jolokia of one instance, at the URL of its descriptor, with the inventory's CA."""

    def __init__(self, descriptor: Descriptor, credentials: Mapping[str, str], ca_pem: str) -> None:
        self._url = management(descriptor, ManagementAccess).url
        self._http = self._opened(credentials, ca_pem)
        # Calls may be under way when others replace them.
        self._replaced: list[httpx.AsyncClient] = []

    def _opened(self, credentials: Mapping[str, str], ca_pem: str) -> httpx.AsyncClient:
        verify = ssl.create_default_context(cadata=ca_pem) if ca_pem else True
        return httpx.AsyncClient(
            auth=(credentials["username"], credentials["password"]),
            headers={"Origin": "/".join(self._url.split("/")[:3]), "Content-Type": "application/json"},
            timeout=CALL_TIMEOUT_S,
            verify=verify,
            trust_env=False,
        )

    def renew(self, credentials: Mapping[str, str], ca_pem: str) -> None:
        """Go on with these."""
        self._replaced.append(self._http)
        self._http = self._opened(credentials, ca_pem)

    async def call(self, *requests: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the replies to `requests`, in order. Raises ManagementError when no usable answer comes."""
        try:
            response = await self._http.post(self._url, json=list(requests))
        except httpx.ConnectError as error:
            raise ManagementError(str(error), refused=refused(error)) from None
        except httpx.HTTPError as error:
            raise ManagementError(f"no answer from {self._url}: {type(error).__name__} {error}".rstrip()) from None
        if response.status_code in (401, 403):
            raise NotAllowed(f"HTTP {response.status_code} from {self._url}")
        if response.status_code != 200:
            raise ManagementError(f"HTTP {response.status_code} from {self._url}")
        try:
            replies = response.json()
        except ValueError:
            raise ManagementError(f"no JSON from {self._url}") from None
        # A broker that shuts down may answer with one error for all requests.
        if not isinstance(replies, list) or len(replies) != len(requests):
            raise ManagementError(f"no reply to each request from {self._url}")
        return replies

    async def close(self) -> None:
        for client in (self._http, *self._replaced):
            await client.aclose()
