"""Alerts: the Prometheus that monitors the brokers is polled for those that fire; changes are written down.

Alerts are distinguished by name, instance and store; several alike in these are one, which fires while any does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import httpx

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.base.progress import Progress
from brokerdrill.hosts.connection import HostConnection
from brokerdrill.inventory.descriptors import Descriptor, PrometheusDescriptor
from brokerdrill.ledger.contract import ALERTS_WATCHED
from brokerdrill.ledger.events import EventWriter
from brokerdrill.runner.watching.polling import PollingWatch

CALL_TIMEOUT_S = 5.0

Labels = Mapping[str, str]


class AlertKey(NamedTuple):
    """What distinguishes an alert: its name, and its labels `instance` and `store` (None: it has none)."""

    name: str
    instance: str | None
    store: str | None


def firing(answer: Any) -> dict[AlertKey, Labels]:
    """Return the alerts that fire by an answer of Prometheus' /api/v1/alerts, with their labels. Raises ValueError for
    what is no such answer."""
    try:
        if answer["status"] != "success":
            raise ValueError(str(answer.get("error", answer["status"])))
        alerts = [one["labels"] for one in answer["data"]["alerts"] if one["state"] == "firing"]
        return {AlertKey(of["alertname"], of.get("instance"), of.get("store")): of for of in alerts}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no list of alerts: {type(error).__name__} {error}") from None


class AlertWatch(PollingWatch):
    """Asks one Prometheus, by way of its host, which alerts fire.

    `stores`: the store of each instance that is drilled, for alerts that name the instance alone.
    """

    what = "the alerts"
    period_s = 0.25

    def __init__(
        self,
        descriptor: PrometheusDescriptor,
        connection: HostConnection,
        stores: Mapping[str, str | None],
        events: EventWriter,
        progress: Progress,
    ) -> None:
        super().__init__([descriptor.instance])
        self._descriptor = descriptor
        self._connection = connection
        self._stores = stores
        self._events = events
        self._progress = progress
        self._fires: dict[AlertKey, Labels] = {}
        self._asked_ns = 0
        self._watched = False
        self._http = httpx.AsyncClient(timeout=CALL_TIMEOUT_S, trust_env=False)

    async def stop(self) -> None:
        try:
            await super().stop()
        finally:
            self._mark(False, self._asked_ns)
            await self._http.aclose()

    async def _ask(self, name: str, asked_ns: int) -> None:
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                response = await self._http.get(await self._alerts_url())
            self._take(firing(response.json()), asked_ns)
        except (httpx.HTTPError, ValueError, TimeoutError, InfrastructureError):
            # What fires meanwhile is not known.
            self._mark(False, self._asked_ns or asked_ns)

    async def _alerts_url(self) -> str:
        address = self._descriptor.api
        port = await self._connection.forward(address.address, address.port)
        return f"http://127.0.0.1:{port}/api/v1/alerts"

    def _write_known(self, at_ns: int) -> None:
        for key, labels in self._fires.items():
            self._write(key, labels, "firing", at_ns, 0)

    def _take(self, fires: dict[AlertKey, Labels], asked_ns: int) -> None:
        """Take note of what fires by the answer to a question of that time (controller's clock, ns)."""
        if placed := self._placed(asked_ns, self._asked_ns):
            self._mark(True, placed[0])
            for value, changed in (("cleared", self._fires.keys() - fires), ("firing", fires.keys() - self._fires)):
                for key in sorted(changed, key=str):
                    self._write(key, {**self._fires, **fires}[key], value, *placed)
        self._fires, self._asked_ns = fires, asked_ns

    def _mark(self, watched: bool, at_ns: int) -> None:
        """Write, where that changes, whether it is known from then on which alerts fire."""
        if watched != self._watched and self._since_ns is not None:
            self._watched = watched
            value = "begin" if watched else "end"
            at = max(at_ns, self._since_ns)
            self._events.write("note", at_ns=at, target=self._descriptor.host, name=ALERTS_WATCHED, value=value)

    def _write(self, key: AlertKey, labels: Labels, value: str, at_ns: int, uncertainty_ns: int) -> None:
        self._progress.step(f"alert {key.name} of {key.instance or key.store or 'no instance'}: {value}")
        self._events.write(
            "alert",
            at_ns=at_ns,
            uncertainty_ns=uncertainty_ns,
            target=labels.get("host"),
            instance=key.instance,
            store=key.store or self._stores.get(key.instance or ""),
            name=key.name,
            value=value,
            detail=labels,
        )


def alert_watches(
    descriptors: Iterable[Descriptor],
    connections: Mapping[str, HostConnection],
    stores: Mapping[str, str | None],
    events: EventWriter,
    progress: Progress,
) -> list[AlertWatch]:
    """Return a watch for the first Prometheus among `descriptors`, by instance; none where there is none."""
    found = sorted(
        (item for item in descriptors if isinstance(item, PrometheusDescriptor)), key=lambda item: item.instance
    )
    return [AlertWatch(item, connections[item.host], stores, events, progress) for item in found[:1]]
