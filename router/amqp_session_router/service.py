"""The control plane of one router process: it holds the settings and everything made from them, and swaps it whole."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from amqp_session_router import config, metrics, state
from amqp_session_router.authorize import AlwaysAllow, HttpAuthorizer, authorizer_of
from amqp_session_router.errors import UsageError
from amqp_session_router.health import Checker
from amqp_session_router.limits import Limiter
from amqp_session_router.log import Log
from amqp_session_router.model import (
    CONNECTION_FORCED,
    Allowed,
    AuthRequest,
    Denied,
    Listener,
    Phase,
    Server,
    Session,
)
from amqp_session_router.routing import Routes
from amqp_session_router.schema import StatsdPart, StatusPart
from amqp_session_router.settings import Problem, Settings, state_file
from amqp_session_router.status import Answer, StatusServer, json_answer

log = logging.getLogger(__name__)

_LAST_ANSWERS = 60.0
"""Seconds that an authorisation hook which was replaced may take for the answers under way."""


class Service:
    """Made of a configuration file before the event loop runs, started with the data path's `Server`.

    `routing`, `limits` and the Service itself (as `Authorizer`) are what the data path is given; they stay the same
    objects over every reload.
    """

    def __init__(self, path: Path, log_to: Log | None = None, inherited: state.Running | None = None) -> None:
        """Read the file at `path`, and what control had changed: `inherited` from the process that hands over, else
        from the state directory. Raises UsageError."""
        self.path = path
        self._text = config.read(path)
        settings = config.parse(self._text, str(path))
        self._saved = settings.config
        kept = _kept(settings, self._text, inherited)
        self._log = log_to or Log()
        self._own_log = log_to is None
        self._log.apply(settings.config.log)
        if kept is not None and kept.config is not None:
            try:
                settings = config.from_data(kept.config)
                self._log.apply(settings.config.log)
            except UsageError as error:
                log.error("what control had changed does not fit any more: the file counts: %s", error)
        self.routing = Routes(settings)
        for vhost in kept.paused if kept is not None else ():
            self.routing.pause(vhost)
        self.limits = Limiter(settings.config.limits)
        self._authorizer: AlwaysAllow | HttpAuthorizer = authorizer_of(settings.config.authorization)
        self.checker = Checker(self.routing)
        self.server: Server | None = None
        self.leaving = False
        self._status: StatusServer | None = None
        self._statsd: list[asyncio.Task[None]] = []
        self._lock = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()

    @property
    def settings(self) -> Settings:
        """The settings of now."""
        return self.routing.settings

    @property
    def status_port(self) -> int:
        """The port of the HTTP endpoints, 0 without."""
        return 0 if self._status is None else self._status.port

    @property
    def unsaved(self) -> bool:
        """Whether control changed something that the file does not say."""
        return self.settings.config != self._saved

    @property
    def running(self) -> state.Running:
        """What control changed, for the state directory or a process that takes over."""
        data = config.to_data(self.settings.config) if self.unsaved else None
        return state.Running(state.digest(self._text), data, tuple(self.routing.paused))

    async def authorize(self, request: AuthRequest) -> Allowed | Denied:
        """Ask the hook of now; see `model.Authorizer`."""
        return await self._authorizer.authorize(request)

    # --- life ---

    async def start(self, server: Server) -> None:
        """Check the backends once, then start the listeners, endpoints and checks; raises UsageError if an address
        cannot be had, with everything stopped again."""
        self.server = server
        await self.checker.first()
        try:
            self._status = await self._status_server(self.settings.config.status)
            for listener in self.settings.listeners.values():
                await self._listen(listener)
        except BaseException:
            await self.stop()
            raise
        self.checker.apply(self.settings)
        self._start_statsd(self.settings.config.statsd)

    async def stop(self) -> None:
        """Stop what `start` started, but the control socket and the sessions, which are others'."""
        if self.server is not None:
            for name in [*self.server.listening()]:
                await self.server.stop(name)
        await self.checker.stop()
        for task in self._statsd:
            task.cancel()
        if self._status is not None:
            await self._status.stop()
        for task in [*self._background]:
            task.cancel()
        await self._authorizer.close()
        self.routing.close()
        if self._own_log:
            self._log.close()

    # --- changes ---

    async def reload(self) -> list[str]:
        """Go by the file as it is now; returns the places that changed. Raises UsageError with nothing changed."""
        async with self._lock:
            text = config.read(self.path)
            settings = config.parse(text, str(self.path))
            changed = await self._apply(settings)
            self._text, self._saved = text, settings.config
            self._keep()
            return changed

    async def change(self, edit: Callable[[dict[str, Any]], None]) -> list[str]:
        """Apply `edit` to a copy of the running configuration's data and go by that; raises UsageError."""
        async with self._lock:
            data = copy.deepcopy(config.to_data(self.settings.config))
            edit(data)
            changed = await self._apply(config.from_data(data))
            self._keep()
            return changed

    async def save(self) -> None:
        """Write the running configuration to the file, the old one to `FILE.bak`; raises UsageError."""
        async with self._lock:
            text = config.to_yaml(self.settings.config)
            try:
                mode = self.path.stat().st_mode & 0o777
                state.write_atomically(self.path.with_name(self.path.name + ".bak"), config.read(self.path), mode)
                state.write_atomically(self.path, text, mode)
            except OSError as error:
                raise UsageError(f"{self.path}: {error.strerror}") from None
            self._text, self._saved = text, self.settings.config
            self._keep()

    async def _apply(self, settings: Settings) -> list[str]:
        """Swap the settings. All that can fail is done first, and undone if a later part of it fails."""
        old = self.settings
        for name in ("state_dir", "control"):
            if getattr(old.config, name) != getattr(settings.config, name):
                raise Problem((name,), "it cannot change while the router runs; a planned restart takes it on")
        authorizer = self._authorizer
        undo: contextlib.AsyncExitStack
        async with contextlib.AsyncExitStack() as undo:
            if settings.config.authorization != old.config.authorization:
                authorizer = authorizer_of(settings.config.authorization)
                undo.push_async_callback(authorizer.close)
            self._log.apply(settings.config.log)
            undo.callback(self._log.apply, old.config.log)
            status = self._status
            if settings.config.status != old.config.status:
                status = await self._status_server(settings.config.status)
                if status is not None:
                    undo.push_async_callback(status.stop)
            await self._swap_listeners(old.listeners, settings.listeners, undo)
            undo.pop_all()
        if self.server is not None:
            for name in old.listeners.keys() - settings.listeners.keys():
                if name in self.server.listening():
                    await self.server.stop(name)
        if status is not self._status:
            if self._status is not None:
                await self._status.stop()
            self._status = status
        if authorizer is not self._authorizer:
            self._retire(self._authorizer)
            self._authorizer = authorizer
        self.routing.apply(settings)
        self.limits.apply(settings.config.limits)
        for session in self.routing.sessions.values():
            session.meter()
        if self.server is not None:
            self.checker.apply(settings)
            if settings.config.statsd != old.config.statsd:
                self._start_statsd(settings.config.statsd)
        changed = _differences(old.config.model_dump(), settings.config.model_dump())
        log.info("configuration applied", extra={"changed": changed})
        return changed

    async def _swap_listeners(
        self, old: Mapping[str, Listener], new: Mapping[str, Listener], undo: contextlib.AsyncExitStack
    ) -> None:
        if self.server is None:
            return
        for name, listener in new.items():
            # A TLS listener is always renewed: its certificate's files may have changed.
            if old.get(name) == listener and listener.tls is None:
                continue
            await self._listen(listener)
            undo.push_async_callback(self._unlisten, name, old.get(name))

    async def _unlisten(self, name: str, before: Listener | None) -> None:
        assert self.server is not None
        if before is None:
            await self.server.stop(name)
        else:
            await self.server.start(before)

    async def _listen(self, listener: Listener) -> None:
        assert self.server is not None
        try:
            await self.server.start(listener)
        except OSError as error:
            why = error.strerror or str(error)
            raise Problem(
                ("listeners", listener.name), f"cannot listen on {listener.host}:{listener.port}: {why}"
            ) from None

    def _retire(self, authorizer: AlwaysAllow | HttpAuthorizer) -> None:
        async def later() -> None:
            try:
                await asyncio.sleep(_LAST_ANSWERS)
            finally:
                await authorizer.close()

        task = asyncio.create_task(later(), name="close the old authorisation hook")
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _keep(self) -> None:
        """Write down what the file does not say. That it cannot be written costs no session and no change."""
        path = state_file(self.settings, state.FILE)
        if path is None:
            return
        try:
            state.save(path, self.running)
        except OSError as error:
            log.error("changes are not kept: %s", error)

    # --- vhosts and sessions ---

    def sessions_of(self, vhost: str) -> list[Session]:
        """Return the live sessions of `vhost`."""
        return [
            session
            for session in self.routing.sessions.values()
            if session.identity is not None and session.identity.vhost == vhost
        ]

    def pause_vhost(self, vhost: str) -> int:
        """Pause `vhost`: its sessions, and those that come; returns how many there are."""
        self.routing.pause(vhost)
        self._keep()
        sessions = self.sessions_of(vhost)
        for session in sessions:
            session.pause()
        return len(sessions)

    def unpause_vhost(self, vhost: str) -> tuple[int, int]:
        """End the pause. A session that the rules would put elsewhere now is disconnected gracefully, so that its
        client comes back to the right place, the others go on. Returns (going on, disconnected)."""
        self.routing.unpause(vhost)
        self._keep()
        going_on = disconnected = 0
        for session in self.sessions_of(vhost):
            if session.phase in (Phase.OPEN, Phase.PAUSED) and self.routing.misplaced(session):
                session.disconnect(CONNECTION_FORCED, f"vhost '{vhost}' has moved to another broker; connect again")
                disconnected += 1
            else:
                session.unpause()
                going_on += 1
        return going_on, disconnected

    def exit(self, drain: float) -> None:
        """Begin to leave: `/ready` says so, then the server takes no more sessions and closes all within `drain`."""
        self.leaving = True
        if self.server is not None:
            self.server.exit(drain)

    # --- seen from outside ---

    async def _status_server(self, part: StatusPart | None) -> StatusServer | None:
        if part is None:
            return None
        server = StatusServer(
            {
                "/metrics": self._prometheus,
                "/metrics.json": lambda: json_answer(200, metrics.as_data(self.routing, self.limits)),
                "/health": lambda: json_answer(200, {"status": "ok"}),
                "/ready": self._ready,
            }
        )
        try:
            await server.start(part.host, part.port)
        except OSError as error:
            why = error.strerror or str(error)
            raise Problem(("status", "port"), f"cannot listen on {part.host}:{part.port}: {why}") from None
        return server

    def _prometheus(self) -> Answer:
        return 200, metrics.CONTENT_TYPE, metrics.prometheus(self.routing, self.limits)

    def why_not_ready(self) -> str | None:
        """Return why new sessions had better go to another router, None if nothing speaks against this one."""
        if self.leaving:
            return "the router is leaving"
        if self.server is None or not self.server.listening():
            return "there is no listener"
        farms = self.settings.farms.values()
        inactive = [f"farm {farm.name} {why}" for farm in farms if (why := self.routing.why_inactive(farm)) is not None]
        if farms and len(inactive) == len(farms):
            return inactive[0]
        backends = self.settings.backends
        if not any(self.routing.markers.of(name).healthy for name in backends):
            return "no backend is ready" if backends else "there is no backend"
        return None

    def _ready(self) -> Answer:
        why_not = self.why_not_ready()
        return (
            json_answer(200, {"status": "ready"})
            if why_not is None
            else json_answer(503, {"status": "not ready", "reason": why_not})
        )

    def _start_statsd(self, parts: list[StatsdPart]) -> None:
        for task in self._statsd:
            task.cancel()
        self._statsd = [asyncio.create_task(self._send_statsd(part), name=f"statsd {part.host}") for part in parts]

    async def _send_statsd(self, part: StatsdPart) -> None:
        statsd = metrics.Statsd(part.prefix)
        loop = asyncio.get_running_loop()
        while True:
            try:
                family, kind, _, _, address = (await loop.getaddrinfo(part.host, part.port, type=socket.SOCK_DGRAM))[0]
                with socket.socket(family, kind) as out:
                    out.setblocking(False)
                    for packet in statsd.packets(metrics.as_data(self.routing, self.limits)):
                        out.sendto(packet, address)
            except OSError as error:
                log.warning("statsd packets were not sent: %s", error, extra={"to": f"{part.host}:{part.port}"})
            await asyncio.sleep(part.period)


def _kept(settings: Settings, text: str, inherited: state.Running | None) -> state.Running | None:
    """Return what control had changed; without a configuration if that was made on another file than `text`."""
    kept = inherited
    path = state_file(settings, state.FILE)
    if path is not None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"state_dir: cannot make {path.parent}: {error.strerror}") from None
        kept = kept or state.load(path)
    if kept is not None and kept.base != state.digest(text):
        return state.Running(kept.base, None, kept.paused)
    return kept


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the places at which two configurations differ, two levels deep: `farms.east`, `timeouts.close`."""
    found = []
    for name in new:
        before, after = old[name], new[name]
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            found += [f"{name}.{key}" for key in {**before, **after} if before.get(key) != after.get(key)]
        else:
            found.append(name)
    return found
