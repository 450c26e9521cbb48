"""The control plane of one router process: it holds the settings and everything made from them, and swaps it whole."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from amqp_session_router.admission.authorization import AlwaysAllow, HttpAuthorizer, authorizer_of
from amqp_session_router.admission.limits import Limiter
from amqp_session_router.admission.other_workers import Others
from amqp_session_router.base.errors import RouterError, UsageError
from amqp_session_router.base.model import (
    Allowed,
    AuthRequest,
    Denied,
    Server,
)
from amqp_session_router.config import loader
from amqp_session_router.config.settings import Problem, Settings, state_file
from amqp_session_router.control import listening, saved_state, vhosts
from amqp_session_router.control.emptying import Emptying
from amqp_session_router.control.endpoints import Endpoints
from amqp_session_router.control.workers import Leader
from amqp_session_router.net.names import Names
from amqp_session_router.routing.health import Checker
from amqp_session_router.routing.routes import Routes
from amqp_session_router.routing.stickiness import SharedKeys
from amqp_session_router.telemetry.log import Log
from amqp_session_router.telemetry.loop_lag import LoopLag

log = logging.getLogger(__name__)

State = dict[str, Any]
"""What all workers are to go by: the file's text, what control changed, paused vhosts."""


_LAST_ANSWERS = 60.0
"""Seconds that an authorisation hook which was replaced may take for the answers under way."""


class Service:
    """Made of a configuration file before the event loop runs, started with the data path's `Server`.

    `routing`, `limits` and the Service itself (as `Authorizer`) are what the data path is given; they stay the same
    objects over every reload.
    """

    def __init__(
        self,
        path: Path,
        log_to: Log | None = None,
        inherited: saved_state.Running | None = None,
        last_good: str | None = None,
        follows: bool = False,
        others: Others | None = None,
        keys: SharedKeys | None = None,
        worker: int = 0,
    ) -> None:
        """Read the file at `path`, and what control had changed: `inherited` from the worker before, else from the
        state directory. `last_good`: the text to go by where the file is wrong now. Raises UsageError.

        One of several workers, number `worker`, counts with `others` and shares `keys`; one that `follows` has no
        endpoints and goes by the state that the leader sends, and by `last_good` until then.
        """
        self.path = path
        self.follows = follows
        self.worker = worker
        """The number of this one."""
        self.others: Leader | None = None
        """The other workers, where this is the leader of several."""
        self.on_kept: Callable[[str, saved_state.Running], None] = lambda text, running: None
        """Called with the file's text and what control changed, whenever either is other than before."""
        wrong: UsageError | None = None
        try:
            # Only the leader reads the file.
            self._text = last_good if follows and last_good is not None else loader.read(path)
            settings = loader.parse(self._text, str(path))
        except UsageError as error:
            if last_good is None:
                raise
            wrong = error
            self._text = last_good
            settings = loader.parse(last_good, str(path))
        self._saved = settings.config
        self._applied = time.time_ns()
        """Other than before whenever settings were applied: those of TLS stand in files, too."""
        kept = _kept(settings, self._text, inherited)
        self._log = log_to or Log()
        self._own_log = log_to is None
        self._log.apply(settings.config.log)
        if wrong is not None:
            log.error("the configuration stays as it was: %s", wrong)
        if kept is not None and kept.config is not None:
            try:
                settings = loader.from_data(kept.config)
                self._log.apply(settings.config.log)
            except UsageError as error:
                log.error("what control had changed does not fit any more: the file counts: %s", error)
        self.routing = Routes(settings, keys, worker)
        for vhost in kept.paused if kept is not None else ():
            self.routing.paused.pause(vhost)
        self.limits = Limiter(settings.config.limits, others=others)
        self._authorizer: AlwaysAllow | HttpAuthorizer = authorizer_of(settings.config.authorization)
        self.names = Names()
        self.checker = Checker(self.routing, self.names)
        self.emptying = Emptying(self.routing)
        self.lag = LoopLag()
        self.server: Server | None = None
        self.leaving = False
        self.left = asyncio.Event()
        """Set with `leaving`."""
        self._drain = 0.0
        self._grace: asyncio.TimerHandle | None = None
        self._greeting: asyncio.Task[None] | None = None
        self.endpoints = Endpoints(self)
        self._lock = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()
        self._disk = ThreadPoolExecutor(1, "disk")

    @property
    def settings(self) -> Settings:
        """The settings of now."""
        return self.routing.settings

    @property
    def status_port(self) -> int:
        """The port of the HTTP endpoints, 0 without."""
        return self.endpoints.port

    @property
    def unsaved(self) -> bool:
        """Whether control changed something that the file does not say."""
        return self.settings.config != self._saved

    @property
    def running(self) -> saved_state.Running:
        """What control changed, for the state directory or a process that takes over."""
        data = loader.to_data(self.settings.config) if self.unsaved else None
        return saved_state.Running(saved_state.digest(self._text), data, tuple(self.routing.paused.names))

    @property
    def gives_credentials(self) -> bool:
        """Whether there is a hook; see `model.Authorizer`."""
        return isinstance(self._authorizer, HttpAuthorizer)

    async def authorize(self, request: AuthRequest) -> Allowed | Denied:
        """Ask the hook of now; see `model.Authorizer`."""
        return await self._authorizer.authorize(request)

    # --- life ---

    async def start(self, server: Server, go_on: bool = False) -> None:
        """Start the listeners, endpoints and checks; raises UsageError if an address cannot be had, with everything
        stopped again. With `go_on` there are sessions to keep: what cannot be had is only logged."""
        self.server = server
        if not go_on:
            await self.checker.first()
        else:
            self._greeting = asyncio.create_task(self.checker.greet(self.routing.timeouts.connect))
        try:
            with self._or_go_on(go_on):
                await self.endpoints.start(self.settings.config.status)
            for listener in self.settings.listeners.values():
                with self._or_go_on(go_on):
                    await listening.listen(server, listener)
        except BaseException:
            await self.stop()
            raise
        self._tell_kept()
        self.lag.start()
        self.checker.apply(self.settings)
        if not self.follows:
            self.endpoints.send_statsd(self.settings.config.statsd)
        if self.leaving:
            server.exit(self._drain)

    @contextlib.contextmanager
    def _or_go_on(self, go_on: bool) -> Iterator[None]:
        try:
            yield
        except UsageError as error:
            if not go_on:
                raise
            log.error("the router goes on without a part of it: %s", error)

    def _tell_kept(self) -> None:
        try:
            self.on_kept(self._text, self.running)
        except OSError as error:
            log.error("the last good configuration is not kept: %s", error)

    async def retire(self) -> None:
        """Stop what a successor needs the addresses and files of; handshakes under way go on. Idempotent."""
        if self.server is not None:
            for name in [*self.server.listening()]:
                await self.server.stop(name)
        await self.endpoints.stop()
        self.routing.sticky.close()

    async def stop(self) -> None:
        """Stop what `start` started, but the control socket and the sessions, which are others'."""
        await self.retire()
        self.emptying.stop()
        self.lag.stop()
        await self.checker.stop()
        for task in [*self._background]:
            task.cancel()
        await self._authorizer.close()
        self._disk.shutdown()
        if self._own_log:
            self._log.close()

    # --- changes ---

    @property
    def state(self) -> State:
        """What the other workers are to go by."""
        running = self.running
        return {"text": self._text, "config": running.config, "paused": running.paused, "applied": self._applied}

    async def adopt(self, state: State) -> State:
        """Go by the state that the leader sent; returns how many sessions each paused vhost has here,
        and what became of those whose pause ended. Raises UsageError with no setting changed."""
        async with self._lock:
            text = state["text"]
            saved = loader.parse(text, str(self.path))
            settings = saved if state["config"] is None else loader.from_data(state["config"])
            if state["applied"] != self._applied:
                await self._apply(settings)
                self._applied = state["applied"]
            self._text, self._saved = text, saved.config
            going_on = disconnected = 0
            for vhost in self.routing.paused.names:
                if vhost not in state["paused"]:
                    more = vhosts.unpause(self.routing, vhost)
                    going_on, disconnected = going_on + more[0], disconnected + more[1]
            paused = {vhost: vhosts.pause(self.routing, vhost) for vhost in state["paused"]}
            self._tell_kept()
            return {"paused": paused, "going_on": going_on, "disconnected": disconnected}

    async def reload(self) -> list[str]:
        """Go by the file as it is now; returns the places that changed. Raises UsageError with nothing changed."""
        async with self._lock:
            text = loader.read(self.path)
            settings = loader.parse(text, str(self.path))
            return await self._go_by(settings, text, settings)

    async def change(self, edit: Callable[[dict[str, Any]], None]) -> list[str]:
        """Apply `edit` to a copy of the running configuration's data and go by that; raises UsageError."""
        async with self._lock:
            data = copy.deepcopy(loader.to_data(self.settings.config))
            edit(data)
            return await self._go_by(loader.from_data(data))

    async def _agree(self) -> list[State]:
        """Have the other workers go by the state of now; returns what each answers. Raises RouterError."""
        return [] if self.others is None else await self.others.agree()

    async def _go_by(self, settings: Settings, text: str | None = None, saved: Settings | None = None) -> list[str]:
        """Apply `settings` in all workers, or (UsageError) in none; with the file's `text` and what that says."""
        before, text_before, saved_before = self.settings, self._text, self._saved
        changed = await self._apply(settings)
        self._applied += 1
        if text is not None and saved is not None:
            self._text, self._saved = text, saved.config
        await self._keep()
        try:
            await self._agree()
        except UsageError:
            await self._apply(before)
            self._applied += 1
            self._text, self._saved = text_before, saved_before
            await self._keep()
            with contextlib.suppress(RouterError):
                await self._agree()
            raise
        return changed

    async def save(self) -> None:
        """Write the running configuration to the file, the old one to `FILE.bak`; raises UsageError."""
        async with self._lock:
            text = loader.to_yaml(self.settings.config)
            try:
                mode = self.path.stat().st_mode & 0o777
                old = self.path.with_name(self.path.name + ".bak")
                await self._on_disk(saved_state.write_atomically, old, loader.read(self.path), mode)
                await self._on_disk(saved_state.write_atomically, self.path, text, mode)
            except OSError as error:
                raise UsageError(f"{self.path}: {error.strerror}") from None
            self._text, self._saved = text, self.settings.config
            await self._keep()
            await self._agree()

    async def _apply(self, settings: Settings) -> list[str]:
        """Swap the settings. All that can fail is done first, and undone if a later part of it fails."""
        old = self.settings
        for name in ("state_dir", "control"):
            if getattr(old.config, name) != getattr(settings.config, name):
                raise Problem((name,), "it cannot change while the router runs; a planned restart takes it on")
        loader.check_can_follow(old.config.workers, settings.config)
        authorizer = self._authorizer
        undo: contextlib.AsyncExitStack
        async with contextlib.AsyncExitStack() as undo:
            if settings.config.authorization != old.config.authorization:
                authorizer = authorizer_of(settings.config.authorization)
                undo.push_async_callback(authorizer.close)
            self._log.apply(settings.config.log)
            undo.callback(self._log.apply, old.config.log)
            status = self.endpoints.status
            if settings.config.status != old.config.status:
                status = await self.endpoints.serve(settings.config.status)
                if status is not None:
                    undo.push_async_callback(status.stop)
            if self.server is not None:
                await listening.swap(self.server, old.listeners, settings.listeners, undo, self.others is not None)
            undo.pop_all()
        if self.server is not None:
            for name in old.listeners.keys() - settings.listeners.keys():
                if name in self.server.listening():
                    await self.server.stop(name)
        await self.endpoints.swap(status)
        if authorizer is not self._authorizer:
            self._retire(self._authorizer)
            self._authorizer = authorizer
        self.routing.apply(settings)
        if self.server is not None:
            self.server.renew()
        self.limits.apply(settings.config.limits)
        for session in self.routing.sessions.live.values():
            session.meter()
        if self.server is not None:
            self.checker.apply(settings)
            if settings.config.statsd != old.config.statsd and not self.follows:
                self.endpoints.send_statsd(settings.config.statsd)
        changed = _differences(old.config.model_dump(), settings.config.model_dump())
        log.info("configuration applied", extra={"changed": changed})
        return changed

    def _retire(self, authorizer: AlwaysAllow | HttpAuthorizer) -> None:
        async def later() -> None:
            try:
                await asyncio.sleep(_LAST_ANSWERS)
            finally:
                await authorizer.close()

        task = asyncio.create_task(later(), name="close the old authorisation hook")
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _keep(self) -> None:
        """Write down what the file does not say. That it cannot be written costs no session and no change."""
        self._tell_kept()
        if self.follows:
            return
        path = state_file(self.settings, saved_state.FILE)
        if path is None:
            return
        try:
            await self._on_disk(saved_state.save, path, self.running)
        except OSError as error:
            log.error("changes are not kept: %s", error)

    async def _on_disk(self, write: Callable[..., None], *arguments: Any) -> None:
        """Call `write`, which waits for the disk, where no session waits for it; in order, whoever stops waiting."""
        await asyncio.get_running_loop().run_in_executor(self._disk, write, *arguments)

    # --- vhosts and sessions ---

    async def pause_vhost(self, vhost: str) -> int:
        """Pause `vhost`: its sessions, and those that come; returns how many there are. Raises RouterError if a worker
        has not confirmed it in time."""
        count = vhosts.pause(self.routing, vhost)
        await self._keep()
        return count + sum(one["paused"][vhost] for one in await self._agree())

    async def unpause_vhost(self, vhost: str) -> tuple[int, int]:
        """End the pause. A session that the rules would put elsewhere now is disconnected gracefully, so that its
        client comes back to the right place, the others go on. Returns (going on, disconnected). Raises RouterError if
        a worker has not confirmed it in time."""
        going_on, disconnected = vhosts.unpause(self.routing, vhost)
        await self._keep()
        answers = await self._agree()
        return going_on + sum(one["going_on"] for one in answers), disconnected + sum(
            one["disconnected"] for one in answers
        )

    def exit(self, drain: float, grace: float = 0.0) -> None:
        """Begin to leave: `/ready` says so, and `grace` s later the server takes no sessions and closes all within
        `drain` s. Called again, it leaves at once, if that is without a grace.

        One that has not started yet leaves once it has, with what it took over by then.
        """
        self.leaving = True
        self.left.set()
        self._drain = drain
        if self._grace is not None:
            self._grace.cancel()
        if self.server is None:
            return
        if grace > 0:
            self._grace = asyncio.get_running_loop().call_later(grace, self.server.exit, drain)
        else:
            self.server.exit(drain)


def changed(places: Sequence[str]) -> str:
    """Return what is replied to a verb that changed the configuration at these places."""
    return f"changed: {', '.join(places)}" if places else "nothing changed"


def _kept(settings: Settings, text: str, inherited: saved_state.Running | None) -> saved_state.Running | None:
    """Return what control had changed; without a configuration if that was made on another file than `text`."""
    kept = inherited
    path = state_file(settings, saved_state.FILE)
    if path is not None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"state_dir: cannot make {path.parent}: {error.strerror}") from None
        kept = kept or saved_state.load(path)
    if kept is not None and kept.base != saved_state.digest(text):
        return saved_state.Running(kept.base, None, kept.paused)
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
