"""Instances that keep no message: all that is to be known of them stands on one page."""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence

import httpx

from brokerdrill.products.base import ManagementError, QueueCounts
from brokerdrill.products.jolokia import CALL_TIMEOUT_S, refused


class StatusPage(ABC):
    """The management of one such instance, by the page at `url`; TLS with `ca_pem`'s CA, else with the host's own."""

    def __init__(self, url: str, ca_pem: str = "") -> None:
        verify = ssl.create_default_context(cadata=ca_pem) if ca_pem else True
        self._url = url
        self._http = httpx.AsyncClient(timeout=CALL_TIMEOUT_S, verify=verify, trust_env=False)

    @abstractmethod
    def role_of(self, response: httpx.Response) -> str:
        """Return the role that the page says. Raises ValueError for what is no such page."""

    async def role(self) -> str:
        """Return the live role. Raises ManagementError when no usable answer comes."""
        try:
            return self.role_of(await self._http.get(self._url))
        except httpx.ConnectError as error:
            raise ManagementError(str(error), refused=refused(error)) from None
        except (httpx.HTTPError, ValueError) as error:
            raise ManagementError(f"{type(error).__name__}: {error}") from None

    async def counts(self, addresses: Sequence[str]) -> Mapping[str, QueueCounts]:
        return {}

    async def prepared(self) -> Collection[str]:
        return ()

    async def in_transit(self) -> int:
        return 0

    async def purge(self, addresses: Sequence[str]) -> int:
        return 0

    async def close(self) -> None:
        await self._http.aclose()
