"""One router process: control plane and data path, until it has to leave."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amqp_session_router.amqp import boundary, frames
from amqp_session_router.base import native
from amqp_session_router.base.background_tasks import BackgroundTasks
from amqp_session_router.base.errors import RouterError, UsageError
from amqp_session_router.base.model import Backend
from amqp_session_router.control.commands import Control, ControlServer
from amqp_session_router.control.service import Service
from amqp_session_router.net import event_loop, poller
from amqp_session_router.process.adoption import adopt_journaled
from amqp_session_router.process.config_store import ConfigStore
from amqp_session_router.process.descriptors import HANDED_OVER, close_all_but
from amqp_session_router.process.membership import Membership
from amqp_session_router.process.predecessor import Predecessor
from amqp_session_router.process.service_manager import (
    ListenerStore,
    ServiceManager,
    StoredListener,
    forget_listeners,
    listeners_of,
)
from amqp_session_router.process.shared_memory import SharedMemory
from amqp_session_router.process.start import Start
from amqp_session_router.process.successor import Successor, running_of
from amqp_session_router.relay import fastpath, frame_scan, stream_profile
from amqp_session_router.relay.journal import PROGRESS, SERVING, STARTING, Journal, JournaledSession
from amqp_session_router.session.listeners import Listeners, Saved
from amqp_session_router.session.session_table import SessionTable
from amqp_session_router.telemetry.log import Log

log = logging.getLogger(__name__)


def work(*given: Any) -> int:
    """Be the router's process; returns the exit status. `given` are the fields of `Start`, in their order."""
    start = Start(*given)
    manager, stored = ServiceManager(os.environ), listeners_of(start.stored)
    try:
        journal = Journal(start.journal)
        estate = _estate(start, journal, stored)
        inherited, last_good = None, None
        config_store = ConfigStore(start.store)
        if start.recover:
            last_good, inherited = config_store.load() or (None, None)
        elif start.predecessor is not None:
            inherited = running_of(start.predecessor)
        place = start.place
        shared = SharedMemory(place, start.turn, anew=not start.recover)
        service = Service(
            Path(start.path),
            log_to=None if place.alone else Log(worker=place.index),
            inherited=inherited,
            last_good=last_good,
            follows=not place.leads,
            others=shared.counts,
            keys=shared.keys,
            worker=place.index,
        )
        service.store.on_kept = config_store.save
        return event_loop.run(serve(start, estate, service, journal, shared, manager))
    except RouterError as error:
        forget_listeners(manager, stored)
        print(f"amqp-session-router: {error}", file=sys.stderr)
        return error.exit_status


@dataclass(frozen=True, slots=True)
class Estate:
    """What a worker finds of those before it."""

    sessions: list[JournaledSession]
    """Of one that died."""
    listeners: list[Saved]
    """Of one that died."""
    stored: Sequence[StoredListener]
    """Of a router whose processes all died."""
    predecessor: socket.socket | None
    """Where a process that is still there is asked for its sessions."""

    @property
    def keeps(self) -> bool:
        """Whether there may be sessions to keep: what cannot be had then is no reason to end."""
        return bool(self.sessions or self.listeners or self.predecessor is not None)


def _estate(start: Start, journal: Journal, stored: Sequence[StoredListener]) -> Estate:
    """Return what there is, and after a kill close every descriptor that is none of it."""
    if not start.recover:
        return Estate([], [], stored, start.predecessor)
    found = Estate([*journal.sessions()], journal.saved_listeners(), stored, start.predecessor)
    ours = {number for one in found.sessions for number in (one.client, one.broker)}
    ours |= {half for one in found.sessions for pipe in one.pipes if pipe for half in (pipe & 0xFFFFFFFF, pipe >> 32)}
    ours |= {number for one in found.listeners for number in one[3]} | {*journal.active_pipe}
    close_all_but(start.kept | ours)
    return found


async def serve(
    start: Start, estate: Estate, service: Service, journal: Journal, shared: SharedMemory, manager: ServiceManager
) -> int:
    """Be a worker until SIGTERM, SIGINT, `ctl EXIT` or a successor; SIGHUP reads the configuration anew."""
    return await Worker(start, service, journal, shared, manager).run(estate)


class Worker:
    """The control plane and the data path of one process, from their start to their end."""

    def __init__(
        self, start: Start, service: Service, journal: Journal, shared: SharedMemory, manager: ServiceManager
    ) -> None:
        """Call it in the event loop."""
        place = start.place
        self._manager = manager
        self._place = place
        self._shared = shared
        self._service = service
        self._drain = start.drain
        self._journal = journal
        self._sessions = SessionTable(
            asyncio.get_running_loop(),
            service.routing,
            service.limits,
            service.authorizer,
            service.routing.client_name,
            journal,
            service.names,
        )
        keep = ListenerStore(manager, place.index, place.workers).keep
        self._listeners = Listeners(self._sessions, shares=not place.alone, keep=keep)
        control = Control(service)
        self._membership = Membership(place, service, control)
        part = service.settings.config.control
        self._controls: list[ControlServer] = []
        if part is not None and place.leads:
            self._controls.append(ControlServer(control, Path(part.socket)))
            if part.read_socket is not None:
                self._controls.append(ControlServer(control, Path(part.read_socket), True, part.read_group))
        self._predecessor = Predecessor(
            start.line, journal, self._listeners, self._sessions, lambda: service.configuration.running, self._retire
        )
        self._tasks = BackgroundTasks()

    async def run(self, estate: Estate) -> int:
        """Serve what there is and what comes; returns the exit status. Raises RouterError."""
        self._heed_signals()
        keeps = estate.keeps
        try:
            await self._inherit(estate)
            self._journal.cells[PROGRESS] = SERVING if keeps else STARTING
            await self._membership.join(first=not keeps)
            if self._service.leaving and not keeps and not self._place.alone:
                return 0
            await self._open(keeps)
            self._ready()
            await self._sessions.gone.wait()
            if self._predecessor.relieved:
                await self._predecessor.left()
            self._listeners.close()
            return HANDED_OVER if self._predecessor.relieved else 0
        finally:
            # After a fault the sessions stay as they are, for the next worker.
            await self._service.stop()
            await self._membership.part()
            if not self._predecessor.relieved:
                await self._stop_controls()

    def _heed_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._service.exit, self._drain)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._tasks.spawn(_reload(self._service)))
        # The supervisor blocked them: what came until now is handled here.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    async def _inherit(self, estate: Estate) -> None:
        """Go on with what those before had; returns when a predecessor keeps nothing that is needed here."""
        for name, host, port, numbers in [*estate.listeners, *(one[2:] for one in estate.stored)]:
            self._listeners.inherit(name, host, port, [socket.socket(fileno=number) for number in numbers])
        routing = self._service.routing
        adopt_journaled(self._journal, self._sessions, self._backend, routing.paused.names)
        if estate.sessions:
            log.warning("recovered after a kill", extra={"sessions": len(estate.sessions)})
        # Until now the other workers went by the counts of the process before, so none has admitted too many.
        self._service.limits.publish_all()
        if estate.predecessor is None:
            self._shared.predecessor_gone()
            return
        await Successor(
            estate.predecessor, self._journal, self._shared, self._listeners, self._sessions, self._backend
        ).take_over()
        routing.sticky.reopen()

    def _backend(self, name: str) -> Backend:
        """See `adoption.BackendOf`."""
        return self._service.settings.backends.get(name) or Backend(name, "")

    async def _open(self, keeps: bool) -> None:
        """Open control socket, listeners and endpoints; raises UsageError where one cannot be had, unless it `keeps`
        sessions."""
        for control in self._controls:
            try:
                await control.start(take_over=keeps)
            except UsageError as error:
                if not keeps:
                    raise
                log.error("the router goes on without a part of it: %s", error)
        await self._service.start(self._listeners, go_on=keeps)
        self._listeners.drop_inherited()
        # Until now the others waited: whether an address is free shows as long as none of us has it.
        await self._membership.call()

    def _ready(self) -> None:
        """From here on a successor may ask."""
        self._journal.cells[PROGRESS] = SERVING
        self._predecessor.answer()
        # What was made until now lives as long as the process: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        hot = native, boundary, frames, poller, fastpath, frame_scan, stream_profile
        if not_compiled := [one.__name__ for one in hot if str(one.__file__).endswith(".py")]:
            log.warning("not compiled, and so slower", extra={"modules": not_compiled})
        ports = {name: one.port for name, one in self._listeners.listening().items()}
        log.info("ready", extra={"listeners": ports})
        self._manager.notify("READY=1")
        self._tasks.spawn(self._manager.live())

    async def _retire(self) -> None:
        """Stop what a successor needs the addresses and files of."""
        await self._service.retire()
        await self._membership.part()
        await self._stop_controls()

    async def _stop_controls(self) -> None:
        for control in self._controls:
            await control.stop()


async def _reload(service: Service) -> None:
    try:
        await service.configuration.reload()
    except UsageError as error:
        log.error("the configuration stays as it was: %s", error)
