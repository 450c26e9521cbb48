"""The running configuration: what the file says, and what control has changed since. All workers go by the same."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from amqp_session_router.base.errors import RouterError, UsageError
from amqp_session_router.base.paced import paced
from amqp_session_router.config import loader
from amqp_session_router.config.settings import Settings, state_file
from amqp_session_router.control import saved_state, vhosts
from amqp_session_router.control.applier import Applier
from amqp_session_router.control.startup import FirstText
from amqp_session_router.control.state_store import StateStore
from amqp_session_router.control.workers import Leader
from amqp_session_router.routing.routes import Routes

State = dict[str, Any]
"""What all workers are to go by: the file's text, what control changed, paused vhosts."""


class RunningConfiguration:
    """Changes the configuration and the paused vhosts: one change at a time, in all workers or in none, and kept."""

    def __init__(
        self, file: Path, first: FirstText, routing: Routes, applier: Applier, store: StateStore, follows: bool
    ) -> None:
        """`first`: what the `file` says, or the last good one of which `routing` has the settings of now. One that
        `follows` keeps nothing in the state directory: that is the leader's."""
        self.file = file
        self.others: Leader | None = None
        """The other workers, where this is the leader of several."""
        self._text = first.text
        self._saved = first.settings.config
        self._applied = time.time_ns()
        """Other than before whenever settings were applied: those of TLS stand in files, too."""
        self._routing = routing
        self._applier = applier
        self._store = store
        self._follows = follows
        self._lock = asyncio.Lock()

    # --- what it is ---

    @property
    def settings(self) -> Settings:
        """The settings of now."""
        return self._routing.settings

    @property
    def unsaved(self) -> bool:
        """Whether control changed something that the file does not say."""
        return self.settings.config != self._saved

    @property
    def running(self) -> saved_state.Running:
        """What control changed, for the state directory or a process that takes over."""
        data = loader.to_data(self.settings.config) if self.unsaved else None
        return saved_state.Running(saved_state.digest(self._text), data, tuple(self._routing.paused.names))

    @property
    def state(self) -> State:
        """What the other workers are to go by."""
        running = self.running
        return {"text": self._text, "config": running.config, "paused": running.paused, "applied": self._applied}

    # --- changes of it ---

    async def adopt(self, state: State) -> State:
        """Go by the state that the leader sent; returns how many sessions each paused vhost has here,
        and what became of those whose pause ended. Raises UsageError with no setting changed."""
        async with self._lock:
            text = state["text"]
            saved = loader.parse(text, str(self.file))
            settings = saved if state["config"] is None else loader.from_data(state["config"])
            if state["applied"] != self._applied:
                await self._apply(settings)
                self._applied = state["applied"]
            self._text, self._saved = text, saved.config
            going_on = disconnected = 0
            for vhost in self._routing.paused.names:
                if vhost not in state["paused"]:
                    more = await paced(vhosts.unpause(self._routing, vhost))
                    going_on, disconnected = going_on + more[0], disconnected + more[1]
            paused = {vhost: await paced(vhosts.pause(self._routing, vhost)) for vhost in state["paused"]}
            self.tell()
            return {"paused": paused, "going_on": going_on, "disconnected": disconnected}

    async def reload(self) -> list[str]:
        """Go by the file as it is now; returns the places that changed. Raises UsageError with nothing changed."""
        async with self._lock:
            text = loader.read(self.file)
            settings = loader.parse(text, str(self.file))
            return await self._go_by(settings, text, settings)

    async def change(self, edit: Callable[[dict[str, Any]], None]) -> list[str]:
        """Apply `edit` to a copy of the running configuration's data and go by that; raises UsageError."""
        async with self._lock:
            data = copy.deepcopy(loader.to_data(self.settings.config))
            edit(data)
            return await self._go_by(loader.from_data(data))

    async def save(self) -> None:
        """Write the running configuration to the file, the old one to `FILE.bak`; raises UsageError."""
        async with self._lock:
            text = loader.to_yaml(self.settings.config)
            await self._store.write_file(self.file, text)
            self._text, self._saved = text, self.settings.config
            await self._keep()
            await self._agree()

    async def pause_vhost(self, vhost: str) -> int:
        """Pause `vhost`: its sessions, and those that come; returns how many there are. Raises RouterError if a worker
        has not confirmed it in time."""
        count = await paced(vhosts.pause(self._routing, vhost))
        await self._keep()
        # The pause may have ended by then.
        return count + sum(one["paused"].get(vhost, 0) for one in await self._agree())

    async def unpause_vhost(self, vhost: str) -> tuple[int, int]:
        """End the pause. A session that the rules would put elsewhere now is disconnected gracefully, so that its
        client comes back to the right place, the others go on. Returns (going on, disconnected). Raises RouterError if
        a worker has not confirmed it in time."""
        going_on, disconnected = await paced(vhosts.unpause(self._routing, vhost))
        await self._keep()
        answers = await self._agree()
        return going_on + sum(one["going_on"] for one in answers), disconnected + sum(
            one["disconnected"] for one in answers
        )

    # --- in all workers, and over a restart ---

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

    async def _apply(self, settings: Settings) -> list[str]:
        return await self._applier.apply(settings, several=self.others is not None)

    async def _agree(self) -> list[State]:
        """Have the other workers go by the state of now; returns what each answers. Raises RouterError."""
        return [] if self.others is None else await self.others.agree()

    def tell(self) -> None:
        """Have the next worker go by what this one goes by now."""
        self._store.tell(self._text, self.running)

    async def _keep(self) -> None:
        """Keep what the file does not say, for the next worker and over the router's end."""
        self.tell()
        path = None if self._follows else state_file(self.settings, saved_state.FILE)
        if path is not None:
            await self._store.keep(path, self.running)


def changed(places: Sequence[str]) -> str:
    """Return what is replied to a verb that changed the configuration at these places."""
    return f"changed: {', '.join(places)}" if places else "nothing changed"
