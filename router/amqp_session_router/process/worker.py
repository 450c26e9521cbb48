"""One router process: control plane and data path, until it has to leave."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from amqp_session_router.admission import shared_counts
from amqp_session_router.admission.shared_counts import SharedCounts
from amqp_session_router.amqp import boundary, frames
from amqp_session_router.base import native, shared_table
from amqp_session_router.base.errors import RouterError, UsageError
from amqp_session_router.base.model import Backend
from amqp_session_router.config import loader
from amqp_session_router.control import saved_state
from amqp_session_router.control.commands import Control, ControlServer
from amqp_session_router.control.listening import cannot_listen
from amqp_session_router.control.service import Service
from amqp_session_router.control.workers import STATE, Follower, Leader
from amqp_session_router.net import event_loop, poller
from amqp_session_router.process.config_store import ConfigStore
from amqp_session_router.process.descriptors import HANDED_OVER, close_all_but
from amqp_session_router.process.place import Place, region, regions
from amqp_session_router.process.recovery import recovered, rescue
from amqp_session_router.process.service_manager import (
    ListenerStore,
    ServiceManager,
    StoredListener,
    listeners_of,
    stored_listeners,
    words_of,
)
from amqp_session_router.process.start import Start
from amqp_session_router.relay import fastpath, frame_scan, stream_profile
from amqp_session_router.relay.journal import (
    LEAVING,
    LEFT,
    PROGRESS,
    RELIEVED,
    SERVING,
    STARTING,
    TAKING_OVER,
    Journal,
    JournaledSession,
)
from amqp_session_router.relay.pipes import Pipe, pipe_of
from amqp_session_router.routing import stickiness
from amqp_session_router.routing.stickiness import SharedKeys
from amqp_session_router.session.handover import TIMEOUT, receive, send, send_when_possible
from amqp_session_router.session.listeners import Listeners, check_free
from amqp_session_router.telemetry.log import Log

log = logging.getLogger(__name__)


def add_parser(commands: Any) -> None:
    """Add `run` to the subparsers of the program's command line; `run` is its function."""
    parser = commands.add_parser(
        "run", help="run the router", description="Runs the router until a signal or EXIT ends it."
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="the configuration (YAML)")
    parser.add_argument(
        "--drain", type=float, default=30.0, metavar="SECONDS", help="time that sessions have to end after SIGTERM"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check the configuration, then become the supervisor, or that of several, which load nothing of this."""
    manager, stored = ServiceManager(os.environ), stored_listeners(os.environ, os.getpid())
    try:
        settings = loader.load(arguments.config)
    except RouterError:
        _forget(manager, stored)
        raise
    workers = settings.config.workers
    # One worker shares its addresses with nobody, and of several each must have its own sockets.
    strange = [one for one in stored if one.workers != workers]
    _forget(manager, strange)
    _close_all([number for one in strange for number in one.descriptors])
    stored = [one for one in stored if one.workers == workers]
    words = [str(arguments.config.absolute()), str(arguments.drain), words_of(stored)]
    if workers == 1:
        program = "supervisor"
    else:
        program = "group"
        ours = {(one.host, one.port) for one in stored}
        for listener in settings.listeners.values():
            if (listener.host, listener.port) in ours:
                continue
            try:
                check_free(listener)
            except OSError as error:
                raise cannot_listen(listener, error) from None
        count = regions(workers)
        shared = shared_table.create([shared_counts.size(count), stickiness.shared_size(count)])
        os.set_inheritable(shared, True)
        words += [str(workers), str(shared)]
    os.execv(sys.executable, [sys.executable, "-m", f"amqp_session_router.process.{program}", *words])


def _forget(manager: ServiceManager, listeners: Sequence[StoredListener]) -> None:
    """Have listeners kept no more of which no connection would be accepted: their clients would wait."""
    for one in listeners:
        manager.forget(one.name)
    if listeners:
        manager.barrier()


def work(*given: Any) -> int:
    """Be the router's process; returns the exit status. `given` are the fields of `Start`, in their order."""
    start = Start(*given)
    manager, stored = ServiceManager(os.environ), listeners_of(start.stored)
    try:
        found = Journal(start.journal)
        left = [*found.sessions()] if start.recover else []
        listeners = found.saved_listeners() if start.recover else []
        if start.recover:
            ours = {number for one in left for number in (one.client, one.broker)}
            ours |= {half for one in left for pipe in one.pipes if pipe for half in (pipe & 0xFFFFFFFF, pipe >> 32)}
            ours |= {number for one in listeners for number in one[3]} | {*found.active_pipe}
            close_all_but(start.kept | ours)
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
        process = Process(start, service, found, shared, manager)
        return event_loop.run(process.serve(left, listeners, start.predecessor, stored))
    except RouterError as error:
        _forget(manager, stored)
        print(f"amqp-session-router: {error}", file=sys.stderr)
        return error.exit_status


class SharedMemory:
    """The memory in which this worker and the others share counts and keys; empty for the only worker."""

    def __init__(self, place: Place, turn: int, anew: bool) -> None:
        """`anew`: forget the keys that an earlier worker in this place had put there."""
        self.counts: SharedCounts | None = None
        self.keys: SharedKeys | None = None
        self._before = region(place, 1 - turn)
        if not place.alone:
            own, count = region(place, turn), regions(place.workers)
            self.counts = SharedCounts(place.shared, 0, own, count)
            self.keys = SharedKeys(place.shared, shared_counts.size(count), own, count)
            if anew:
                self.keys.empty()

    def predecessor_gone(self) -> None:
        """Clear the counts of its region: its connections have ended, or are ours."""
        if self.counts is not None:
            self.counts.clear(self._before)


def running_of(predecessor: socket.socket) -> saved_state.Running:
    """Ask a predecessor what control changed; raises RouterError if it does not answer in time."""
    predecessor.settimeout(TIMEOUT)
    try:
        send(predecessor, {"ask": "state"})
        # What was meant for a successor that is dead may come first.
        while (answer := receive(predecessor)) is not None and "base" not in answer[0]:
            _close_all(answer[1])
    except OSError as error:
        raise RouterError(f"the process to relieve does not answer: {error}") from None
    if answer is None:
        raise RouterError("the process to relieve is gone")
    return saved_state.Running(answer[0]["base"], answer[0]["config"], tuple(answer[0]["paused"]))


def _close_all(descriptors: Sequence[int]) -> None:
    for number in descriptors:
        os.close(number)


class Process:
    """The control plane and the data path of one process."""

    def __init__(
        self, start: Start, service: Service, journal: Journal, shared: SharedMemory, manager: ServiceManager
    ) -> None:
        self.manager = manager
        self.place = start.place
        self.shared = shared
        self.service = service
        self.drain = start.drain
        self.journal = journal
        self.line = start.line
        self.relieved = False
        self.server: Listeners
        self.control: ControlServer | None = None
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._settled = asyncio.Event()
        self._ended = asyncio.Event()
        self._predecessor: socket.socket | None = None
        self._taken = asyncio.Event()

    async def serve(
        self,
        left: list[JournaledSession],
        listeners: list[Any],
        predecessor: socket.socket | None,
        stored: Sequence[StoredListener],
    ) -> int:
        """Run until SIGTERM, SIGINT, `ctl EXIT` or a successor; SIGHUP reads the configuration anew."""
        loop, service = asyncio.get_running_loop(), self.service
        self.server = server = Listeners(
            loop,
            service.routing,
            service.limits,
            service.authorizer,
            service.routing.client_name,
            self.journal,
            shares=not self.place.alone,
            keep=ListenerStore(self.manager, self.place.index, self.place.workers).keep,
            names=service.names,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, service.exit, self.drain)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._spawn(_reload(service)))
        # The supervisor blocked them: what came until now is handled here.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        try:
            for name, host, port, numbers in [*listeners, *(one[2:] for one in stored)]:
                server.inherit_listener(name, host, port, [socket.socket(fileno=number) for number in numbers])
            self._recover(len(left))
            # Until now the other workers went by the counts of the process before, so none has admitted too many.
            service.limits.publish_all()
            if predecessor is None:
                self.shared.predecessor_gone()
            keeps = bool(left or listeners or predecessor is not None)
            if predecessor is not None:
                await self._take_over(predecessor)
                service.routing.sticky.reopen()
            self.journal.cells[PROGRESS] = SERVING if keeps else STARTING
            control = Control(service)
            if not self.place.alone:
                await self._join(control, first=not keeps)
                if service.leaving and not keeps:
                    return 0
            part = service.settings.config.control
            if part is not None and self.place.leads:
                self.control = ControlServer(control, Path(part.socket))
                try:
                    await self.control.start(take_over=keeps)
                except UsageError as error:
                    if not keeps:
                        raise
                    log.error("the router goes on without a part of it: %s", error)
            await service.start(server, go_on=keeps)
            server.drop_inherited()
            if self.leader is not None:
                # Until now the others waited: whether an address is free shows as long as none of us has it.
                await self.leader.start(socket.socket(fileno=os.dup(self.place.line)))
            self.journal.cells[PROGRESS] = SERVING
            self.line.setblocking(False)
            loop.add_reader(self.line.fileno(), self._asked)
            # What was made until now lives as long as the process: the collector need not look at it again.
            gc.collect()
            gc.freeze()
            if not_compiled := [
                one.__name__
                for one in (native, boundary, frames, poller, fastpath, frame_scan, stream_profile)
                if str(one.__file__).endswith(".py")
            ]:
                log.warning("not compiled, and so slower", extra={"modules": not_compiled})
            log.info("ready", extra={"listeners": {name: one.port for name, one in server.listening().items()}})
            self.manager.notify("READY=1")
            self._spawn(self.manager.live())
            await server.leaving.wait()
            if self.relieved:
                await self._ended.wait()
            server.close()
            return HANDED_OVER if self.relieved else 0
        finally:
            # After a fault the sessions stay as they are, for the next worker.
            await service.stop()
            await self._part()
            if not self.relieved and self.control is not None:
                await self.control.stop()

    async def _join(self, control: Control, first: bool) -> None:
        """Become one of the workers. The leader's others begin to follow it once it listens; at the `first` start they
        wait for that, and for its configuration."""
        if self.place.leads:
            self.leader = Leader(self.place.workers, lambda: self.service.configuration.state)
            self.service.lead(self.leader)
            return

        async def answer(what: str, body: bytes) -> bytes:
            if what == STATE:
                return json.dumps(await self.service.configuration.adopt(json.loads(body))).encode()
            return await control.answer(what, body)

        self.follower = Follower(self.place.leader, self.place.index, answer)
        await self.follower.start()
        if first:
            begun, left = (asyncio.create_task(event.wait()) for event in (self.follower.begun, self.service.left))
            await asyncio.wait((begun, left), return_when=asyncio.FIRST_COMPLETED)
            for task in (begun, left):
                task.cancel()

    async def _part(self) -> None:
        """Be one of the workers no more."""
        if self.leader is not None:
            await self.leader.stop()
        if self.follower is not None:
            await self.follower.stop()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _backend(self, name: str) -> Backend:
        """Return the backend of this name; one that the configuration has no more keeps its name and its sessions."""
        return self.service.settings.backends.get(name) or Backend(name, "")

    # after a kill

    def _recover(self, count: int) -> None:
        """Go on with the `count` sessions of a process that died; killed meanwhile, the next one does so again."""
        over = rescue(self.journal, self.server.relay.pool)
        for one in [*self.journal.sessions()]:
            try:
                flows, pipes = recovered(self.journal, one, over)
            except OSError as error:
                log.error("a session is lost", extra={"session": one.facts["id"], "error": error.strerror})
                self.journal.closed(one.slot)
                os.close(one.client)
                os.close(one.broker)
                continue
            facts = one.facts | {
                "flows": flows,
                "paused": one.paused or one.facts["identity"]["vhost"] in self.service.routing.paused,
                "blocked_sent": one.blocked_sent,
            }
            client, broker = socket.socket(fileno=one.client), socket.socket(fileno=one.broker)
            self.server.adopt(facts, client, broker, self._backend(one.facts["backend"]), pipes, one.slot)
        if count:
            log.warning("recovered after a kill", extra={"sessions": count})

    # as a successor

    async def _take_over(self, line: socket.socket) -> None:
        """Ask for everything; returns when the predecessor keeps nothing that the listeners or endpoints need.

        What came is served at once, while the rest comes.
        """
        line.setblocking(False)
        self._predecessor = line
        # From here on the supervisor must not go back to the predecessor.
        self.journal.cells[PROGRESS] = TAKING_OVER
        self._go(line)
        asyncio.get_running_loop().add_reader(line.fileno(), self._heard)
        # If the peer exits with data unread, the socket reports an error and asyncio delivers no more events.
        self.server.relay.poller.watch(line.fileno(), self)
        await self._settled.wait()

    def _go(self, line: socket.socket) -> None:
        """Ask for all that is not here yet."""
        ask = {"ask": "go", "has": [*self.server.sessions], "settled": self._settled.is_set()}
        self._spawn(self._say(line, ask))

    def drain_on_error(self) -> None:
        """The predecessor is gone: read all that it sent before."""
        while self._heard():
            pass

    def _heard(self) -> bool:
        """Take in one packet; sessions that were in their handshake come when that is done. False: there is none."""
        line = self._predecessor
        if line is None:
            return False
        try:
            packet = receive(line)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True
        if packet is None or packet[0].get("end"):
            asyncio.get_running_loop().remove_reader(line.fileno())
            self.server.relay.poller.leave(line.fileno())
            # The supervisor has the same descriptor: it must not hand this closed number to a later worker.
            self.journal.cells[RELIEVED] = 1
            line.close()
            self._predecessor = None
            self._settled.set()
            self.shared.predecessor_gone()
            return False
        if packet[0].get("settled"):
            self._settled.set()
        elif packet[0].get("again"):
            # It was killed; its keeper does not know what it had given.
            self._go(line)
        else:
            self._packet(*packet)
            if "sessions" in packet[0]:
                self._spawn(self._say(line, {"ask": "more"}))
        return True

    async def _say(self, line: socket.socket, message: dict[str, Any]) -> None:
        """Send to the process at the other end, which may be gone and need no answer."""
        try:
            await send_when_possible(line, message)
        except OSError as error:
            log.info("the other process is gone: a message was not sent: %s", error, extra=message)

    def _packet(self, message: dict[str, Any], descriptors: list[int]) -> None:
        if "listener" in message:
            name, host, port = message["listener"]
            self.server.inherit_listener(name, host, port, [socket.socket(fileno=number) for number in descriptors])
        for facts in message.get("sessions", ()):
            own, descriptors = descriptors[: facts["descriptors"]], descriptors[facts["descriptors"] :]
            if facts["id"] in self.server.sessions:
                # Sent a second time after the first successor died: what the journal had of it is newer.
                _close_all(own)
                continue
            client, broker, *ends = own
            pipes: list[Pipe | None] = []
            for one in facts["flows"]:
                pipes.append(pipe_of(ends.pop(0), ends.pop(0)) if one["left"] else None)
            self.server.adopt(
                facts,
                socket.socket(fileno=client),
                socket.socket(fileno=broker),
                self._backend(facts["backend"]),
                (pipes[0], pipes[1]),
            )

    # as a predecessor

    def _asked(self) -> None:
        try:
            packet = receive(self.line)
        except BlockingIOError:
            return
        if packet is None:
            asyncio.get_running_loop().remove_reader(self.line.fileno())
        elif packet[0]["ask"] == "state":
            running = self.service.configuration.running
            state = {"base": running.base, "config": running.config, "paused": running.paused}
            self._spawn(self._say(self.line, state))
        elif packet[0]["ask"] == "more":
            self._taken.set()
        elif not self.relieved:
            self.relieved = True
            self.journal.cells[PROGRESS] = LEAVING
            self._spawn(self._leave())
        else:
            # Another successor, after the first one died.
            self._spawn(self._repeat())

    async def _repeat(self) -> None:
        try:
            await self.server.repeat_handover()
            if self._settled.is_set():
                await self._give({"settled": True})
        except OSError as error:
            log.error("the handover failed: %s", error)

    async def _give(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        await send_when_possible(self.line, message, descriptors)

    async def _taken_over(self) -> None:
        """Return when the successor has taken the last packet of sessions; raises TimeoutError."""
        async with asyncio.timeout(TIMEOUT):
            await self._taken.wait()
        self._taken.clear()

    async def _leave(self) -> None:
        """Give everything away, and stop what the successor needs the addresses and files of."""
        try:
            given = await self.server.hand_over(self._give, self._taken_over)
            log.info("handed over", extra={"sessions": given})
        except OSError as error:
            log.error("the handover failed: %s", error or "no answer", extra={"sessions": len(self.server.sessions)})
        await self.service.retire()
        await self._part()
        if self.control is not None:
            await self.control.stop()
        self._settled.set()
        await self._say(self.line, {"settled": True})
        self.server.close_given_listeners()
        # Handshakes under way end in time by themselves; TLS sessions were sent a Close.
        await self.server.leaving.wait()
        await self._say(self.line, {"end": True})
        self.journal.cells[PROGRESS] = LEFT
        self._ended.set()


async def _reload(service: Service) -> None:
    try:
        await service.configuration.reload()
    except UsageError as error:
        log.error("the configuration stays as it was: %s", error)
