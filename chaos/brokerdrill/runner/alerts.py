"""Alerts: the Prometheus that watches the brokers is asked over and over which of them fire; what changed is written
down.

Alerts are told apart by name, instance and store; several that are alike in these are one, which fires while any does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import httpx

from brokerdrill.base.clock import now_ns
from brokerdrill.base.progress import Progress
from brokerdrill.hosts.connection import HostConnection
from brokerdrill.inventory.descriptors import Descriptor, PrometheusDescriptor
from brokerdrill.ledger.contract import ALERTS_WATCHED
from brokerdrill.ledger.events import EventWriter

POLL_PERIOD_S = 0.25
CALL_TIMEOUT_S = 5.0

Labels = Mapping[str, str]


class Key(NamedTuple):
    """What an alert is told apart by: its name, and its labels `instance` and `store` (None: it has none)."""

    name: str
    instance: str | None
    store: str | None


def firing(answer: Any) -> dict[Key, Labels]:
    """Return the alerts that fire by an answer of Prometheus' /api/v1/alerts, with their labels. Raises ValueError for
    what is no such answer."""
    try:
        if answer["status"] != "success":
            raise ValueError(str(answer.get("error", answer["status"])))
        alerts = [one["labels"] for one in answer["data"]["alerts"] if one["state"] == "firing"]
        return {Key(of["alertname"], of.get("instance"), of.get("store")): of for of in alerts}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no list of alerts: {type(error).__name__} {error}") from None


class AlertWatch:
    """Asks one Prometheus, by way of its host, until it is stopped; nothing is written before `record`.

    `stores`: the store of each instance that is drilled, for alerts that name the instance alone.
    """

    def __init__(
        self,
        descriptor: PrometheusDescriptor,
        connection: HostConnection,
        stores: Mapping[str, str | None],
        events: EventWriter,
        progress: Progress,
    ) -> None:
        self._descriptor = descriptor
        self._connection = connection
        self._stores = stores
        self._events = events
        self._progress = progress
        self._fires: dict[Key, Labels] = {}
        self._asked_ns: int | None = None
        self._since_ns: int | None = None
        self._watched = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._watch())

    def record(self) -> None:
        """Write the alerts that fire now, and from here on every change."""
        self._since_ns = now_ns()
        for key, labels in self._fires.items():
            self._write(key, labels, "firing", self._since_ns, 0)

    async def stop(self) -> None:
        """Stop asking. Raises what ended the watch before its time."""
        if self._task is None:
            return
        self._task.cancel()
        (outcome,) = await asyncio.gather(self._task, return_exceptions=True)
        self._mark(False, self._asked_ns or now_ns())
        if isinstance(outcome, Exception):
            raise outcome

    async def _watch(self) -> None:
        address = self._descriptor.api
        port = await self._connection.forward(address.address, address.port)
        url = f"http://127.0.0.1:{port}/api/v1/alerts"
        async with httpx.AsyncClient(timeout=CALL_TIMEOUT_S, trust_env=False) as http:
            while True:
                asked = now_ns()
                try:
                    response = await http.get(url)
                    self._take(firing(response.json()), asked)
                except (httpx.HTTPError, ValueError):
                    # What fires meanwhile is not known.
                    self._mark(False, self._asked_ns or asked)
                await asyncio.sleep(max(0.0, POLL_PERIOD_S - (now_ns() - asked) / 1e9))

    def _take(self, fires: dict[Key, Labels], asked: int) -> None:
        """Take note of what fires by the answer to a question of that time (controller's clock, ns)."""
        if self._since_ns is None:
            self._fires, self._asked_ns = fires, asked
            return
        at = max(asked, self._since_ns)
        since = max(self._asked_ns or asked, self._since_ns)
        self._mark(True, at)
        for value, changed in (("cleared", self._fires.keys() - fires), ("firing", fires.keys() - self._fires)):
            for key in sorted(changed, key=str):
                self._write(key, {**self._fires, **fires}[key], value, at, max(at - since, now_ns() - at))
        self._fires, self._asked_ns = fires, asked

    def _mark(self, watched: bool, at_ns: int) -> None:
        """Write, where that changes, whether it is known from then on which alerts fire."""
        if watched != self._watched and self._since_ns is not None:
            self._watched = watched
            value = "begin" if watched else "end"
            at = max(at_ns, self._since_ns)
            self._events.write("note", at_ns=at, target=self._descriptor.host, name=ALERTS_WATCHED, value=value)

    def _write(self, key: Key, labels: Labels, value: str, at_ns: int, uncertainty_ns: int) -> None:
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
