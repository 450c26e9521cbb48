"""toxiproxy-python behind an adapter: each server has its own address, calls have time-outs, and effects are read back.

The library keeps its server's address in a class and takes any status but 400, 404 and 409 for success; here each
server is a subclass of its consumer, and the answer is checked.
"""

from __future__ import annotations

from typing import Any

import requests
from toxiproxy.api import APIConsumer
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.faults.base import Toxic

TIMEOUT_S = 5


class ToxiproxyServer:
    """The toxiproxy at (`host`, `port`); `label` names it in errors."""

    def __init__(self, label: str, host: str, port: int) -> None:
        self.label = label
        self._api: type[APIConsumer] = type("Consumer", (APIConsumer,), {"host": host, "port": port})

    def _call(self, method: str, path: str, **body: Any) -> Any:
        try:
            call = getattr(self._api, method)
            response = call(path, json=body, timeout=TIMEOUT_S) if body else call(path, timeout=TIMEOUT_S)
            if not response.ok:
                raise InvalidToxic(response.content)
            return response.json() if response.content else None
        except (NotFound, InvalidToxic, ProxyExists, requests.RequestException, ValueError) as error:
            what = error.args[0] if error.args else error
            text = what.decode(errors="replace") if isinstance(what, bytes) else str(what)
            raise InfrastructureError(
                f"toxiproxy on {self.label} refuses {method} {path}: {' '.join(text.split())}"
            ) from None

    def apply(self, change: Toxic) -> None:
        """Make `change` and read it back. Raises InfrastructureError when it is refused or does not show."""
        path = f"/proxies/{change.proxy}"
        if change.upstream is not None:
            if change.proxy not in self._call("get", "/proxies"):
                self._call("post", "/proxies", name=change.proxy, upstream=change.upstream, listen=change.listen)
            if self._call("get", path)["upstream"] != change.upstream:
                raise InfrastructureError(f"toxiproxy on {self.label}: proxy {change.proxy} leads elsewhere")
        if change.enabled is not None:
            self._call("post", path, enabled=change.enabled)
            if self._call("get", path)["enabled"] != change.enabled:
                raise InfrastructureError(f"toxiproxy on {self.label}: proxy {change.proxy} did not switch")
        if change.toxic is not None:
            self._call("post", f"{path}/toxics", **change.toxic)
            if change.toxic["name"] not in [toxic["name"] for toxic in self._call("get", f"{path}/toxics")]:
                raise InfrastructureError(f"toxiproxy on {self.label}: toxic {change.toxic['name']} does not show")
