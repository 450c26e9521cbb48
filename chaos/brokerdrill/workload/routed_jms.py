"""JMS clients that may be led by a connection router: by their library, or by hand where it follows no redirect."""

from __future__ import annotations

from typing import Any

from brokerdrill.workload.client import Aim, ClientError, endpoint_at
from brokerdrill.workload.config import Router, WorkerConfig
from brokerdrill.workload.jms import JmsClient


class RoutedJms(JmsClient):
    """Its library follows the router that it dials."""

    def __init__(self, config: WorkerConfig, name: str) -> None:
        super().__init__(config, name)
        self._aimed: Aim | None = None

    def aim(self, router: Router, key: str) -> None:
        self._aimed = Aim(router, key)

    def _connect(self) -> Any:
        dialled = self._config.endpoints[: self._config.dials or None]
        return self._connect_to((self._aimed.router,) if self._aimed else dialled)


class RedirectedJms(RoutedJms):
    """Its library ends with the redirect: the router either serves, or names who does."""

    def _redirected(self, error: Any) -> str | None:
        """Return `ADDRESS:PORT` of where the throwable sends the client, None where it sends it nowhere."""
        raise NotImplementedError

    def _connect(self) -> Any:
        try:
            return super()._connect()
        except self._throwable as error:
            if self._aimed is None:
                raise
            named = self._redirected(error)
            if named is None:
                raise ClientError(f"the router names nobody: {self._described(error)}") from None
        target = endpoint_at(named, self._config.endpoints)
        if target is None:
            raise ClientError(f"the router names {named}, which is none of the brokers")
        return self._connect_to((target,))
