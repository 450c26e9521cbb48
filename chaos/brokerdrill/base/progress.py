"""What the user sees while long work goes on: one line a step, and on a terminal a moving one below it."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console
from rich.status import Status


class Progress:
    """Prints steps with the time since the start; `tick` replaces the moving line (on a terminal only)."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._started = time.monotonic()
        self._status: Status | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._status = self.console.status("")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status:
            self._status.stop()

    def step(self, text: str) -> None:
        """Say that a step has been reached."""
        elapsed = time.monotonic() - self._started
        self.console.print(f"[dim]{elapsed:6.1f} s[/dim]  {text}", highlight=False)

    def tick(self, text: str) -> None:
        """Show `text` as what happens right now."""
        if self._status:
            self._status.update(text)
