"""What is seen of a router from outside: the pages for metrics and health, and the packets for statsd."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from typing import Any, Protocol

from amqp_session_router.admission.limits import Limiter
from amqp_session_router.base.errors import RouterError, UsageError
from amqp_session_router.base.model import Server
from amqp_session_router.base.paced import paced
from amqp_session_router.config.digests import digest
from amqp_session_router.config.schema import StatsdPart, StatusPart
from amqp_session_router.config.settings import Problem, Settings
from amqp_session_router.control import merging
from amqp_session_router.control.workers import WITHIN, Leader
from amqp_session_router.routing.routes import Routes
from amqp_session_router.telemetry import metrics
from amqp_session_router.telemetry.http_status import Answer, StatusServer, json_answer
from amqp_session_router.telemetry.loop_lag import LoopLag

log = logging.getLogger(__name__)

DIGESTS = "/digests"
PAUSED = "paused_vhosts"
_SCRAPE = 2.0
"""Seconds that the other workers have for their part of a page: it must not be late for one that is being replaced."""


class Shown(Protocol):
    """What is shown: `service.Service`, as far as it is read here."""

    routing: Routes
    limits: Limiter
    lag: LoopLag
    others: Leader | None
    follows: bool
    worker: int
    leaving: bool
    server: Server | None

    @property
    def settings(self) -> Settings: ...
    @property
    def unsaved(self) -> bool: ...


class Endpoints:
    """The pages and packets of one worker; those of a leader are of all. `status` serves the pages, None: nobody."""

    def __init__(self, shown: Shown) -> None:
        self._of = shown
        self.status: StatusServer | None = None
        self._statsd: list[asyncio.Task[None]] = []

    @property
    def port(self) -> int:
        """The port of the pages, 0 without."""
        return 0 if self.status is None else self.status.port

    async def start(self, part: StatusPart | None) -> None:
        """Serve the pages as `part` has them; raises Problem."""
        self.status = await self.serve(part)

    async def swap(self, status: StatusServer | None) -> None:
        """Go over to `status`, which `serve` has returned, and stop the one before."""
        before, self.status = self.status, status
        if before is not None and before is not status:
            await before.stop()

    async def stop(self) -> None:
        """Stop serving and sending. Idempotent."""
        for task in self._statsd:
            task.cancel()
        await self.swap(None)

    async def serve(self, part: StatusPart | None) -> StatusServer | None:
        """Return the pages as `part` has them, served; None where there are none. Raises Problem."""
        if part is None or self._of.follows:
            return None
        server = StatusServer(
            {
                "/metrics": self._prometheus,
                "/metrics.json": self._json,
                "/health": _healthy,
                "/ready": self._ready,
                DIGESTS: self._digests,
            }
        )
        try:
            await server.start(part.host, part.port)
        except OSError as error:
            why = error.strerror or str(error)
            raise Problem(("status", "port"), f"cannot listen on {part.host}:{part.port}: {why}") from None
        return server

    async def _prometheus(self) -> Answer:
        own = await self.page(metrics.PAGE)
        if self._of.others is None:
            return 200, metrics.CONTENT_TYPE, own
        pages = [own]
        answers = await self._of.others.ask_all(metrics.PAGE, b"", _SCRAPE)
        pages += [b"" if isinstance(one, RouterError) else one for one in answers]
        return 200, metrics.CONTENT_TYPE, await paced(metrics.joined(pages))

    async def page(self, name: str) -> bytes:
        """Return this worker's own page for Prometheus; raises UsageError if another is asked for."""
        if name != metrics.PAGE:
            raise UsageError(f"there is no page {name!r}")
        worker = self._of.worker if self._of.follows or self._of.others is not None else None
        return await paced(
            metrics.prometheus(self._of.routing, self._of.limits, self._of.lag, self._of.unsaved, worker)
        )

    async def _json(self) -> Answer:
        if self._of.others is None:
            return (
                200,
                "application/json",
                await paced(metrics.as_json(self._of.routing, self._of.limits, self._of.lag)),
            )
        return 200, "application/json", await asyncio.to_thread(_json_line, await self.counts("all", _SCRAPE))

    async def counts(self, only: str, within: float = WITHIN) -> dict[str, Any]:
        """Return what `metrics.as_data` does, of all workers that answer in time."""
        own = await paced(metrics.as_data(self._of.routing, self._of.limits, self._of.lag, only))
        if self._of.others is None:
            return own
        found = await self._of.others.call(["STAT", "PRINT", only], within)
        return await asyncio.to_thread(merging.counts, [own, *(one["data"] for one in found if isinstance(one, dict))])

    async def _digests(self) -> Answer:
        return json_answer(200, self.digests())

    def digests(self) -> dict[str, str]:
        """Return the digest of each section of the running configuration, and of the paused vhosts."""
        return {**self._of.settings.digests, PAUSED: digest(self._of.routing.paused.names)}

    def why_not_ready(self) -> str | None:
        """Return why new sessions had better go to another router, None if nothing speaks against this one."""
        if self._of.leaving:
            return "the router is leaving"
        if self._of.server is None or not self._of.server.listening():
            return "there is no listener"
        farms = self._of.settings.farms.values()
        inactive = [
            f"farm {farm.name} {why}"
            for farm in farms
            if (why := self._of.routing.planner.why_inactive(farm)) is not None
        ]
        if farms and len(inactive) == len(farms):
            return inactive[0]
        backends = self._of.settings.backends
        if not any(self._of.routing.markers.of(name).healthy for name in backends):
            return "no backend is ready" if backends else "there is no backend"
        return None

    async def _ready(self) -> Answer:
        why_not = self.why_not_ready()
        return (
            json_answer(200, {"status": "ready"})
            if why_not is None
            else json_answer(503, {"status": "not ready", "reason": why_not})
        )

    def send_statsd(self, parts: list[StatsdPart]) -> None:
        """Send packets to `parts`, and to nobody else any more. One that follows sends none."""
        if self._of.follows:
            return
        for task in self._statsd:
            task.cancel()
        self._statsd = [asyncio.create_task(self._send_statsd(part), name=f"statsd {part.host}") for part in parts]

    async def _statsd_packets(self, statsd: metrics.Statsd) -> list[bytes]:
        if self._of.others is None:
            return await paced(statsd.packets(self._of.routing, self._of.lag))
        return await paced(statsd.packets_of(await self.counts("all", _SCRAPE)))

    async def _send_statsd(self, part: StatsdPart) -> None:
        statsd = metrics.Statsd(part.prefix)
        loop = asyncio.get_running_loop()
        while True:
            try:
                family, kind, _, _, address = (await loop.getaddrinfo(part.host, part.port, type=socket.SOCK_DGRAM))[0]
                with socket.socket(family, kind) as out:
                    out.setblocking(False)
                    for packet in await self._statsd_packets(statsd):
                        out.sendto(packet, address)
            except OSError as error:
                log.warning("statsd packets were not sent: %s", error, extra={"to": f"{part.host}:{part.port}"})
            await asyncio.sleep(part.period)


def _json_line(data: dict[str, Any]) -> bytes:
    return json.dumps(data).encode() + b"\n"


async def _healthy() -> Answer:
    return json_answer(200, {"status": "ok"})
