"""Where the running configuration is kept for the processes to come; no session waits for the disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from amqp_session_router.base.errors import UsageError
from amqp_session_router.config import loader
from amqp_session_router.control import saved_state

log = logging.getLogger(__name__)


class StateStore:
    """Keeps what control changed, and writes the configuration's file. Writes are done in order, whoever stops waiting.

    That something cannot be kept is logged; it costs no session and no change.
    """

    def __init__(self) -> None:
        self.on_kept: Callable[[str, saved_state.Running], None] = lambda text, running: None
        """Called with the file's text and what control changed, whenever either is other than before."""
        self._disk = ThreadPoolExecutor(1, "disk")

    def tell(self, text: str, running: saved_state.Running) -> None:
        """Have the next worker go by this."""
        try:
            self.on_kept(text, running)
        except OSError as error:
            log.error("the last good configuration is not kept: %s", error)

    async def keep(self, path: Path, running: saved_state.Running) -> None:
        """Write down at `path`, in the state directory, what the file does not say."""
        try:
            await self._on_disk(saved_state.save, path, running)
        except OSError as error:
            log.error("changes are not kept: %s", error)

    async def write_file(self, path: Path, text: str) -> None:
        """Write `text` to the configuration's file, the old one to `FILE.bak`; raises UsageError."""
        try:
            mode = path.stat().st_mode & 0o777
            old = path.with_name(path.name + ".bak")
            await self._on_disk(saved_state.write_atomically, old, loader.read(path), mode)
            await self._on_disk(saved_state.write_atomically, path, text, mode)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None

    async def _on_disk(self, write: Callable[..., None], *arguments: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(self._disk, write, *arguments)

    def close(self) -> None:
        """Write no more, once what is under way is written."""
        self._disk.shutdown()
