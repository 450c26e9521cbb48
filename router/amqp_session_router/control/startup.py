"""What a process goes by when it starts: the file or the last good one, and what control had changed of it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from amqp_session_router.base.errors import UsageError
from amqp_session_router.config import loader
from amqp_session_router.config.settings import Settings, state_file
from amqp_session_router.control import saved_state
from amqp_session_router.telemetry.log import Log

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FirstText:
    """The text to begin with."""

    text: str
    settings: Settings
    """What it means."""
    wrong: UsageError | None = None
    """Why it is not the file's."""


def first_text(path: Path, last_good: str | None, follows: bool) -> FirstText:
    """Return the text of the file at `path`, or `last_good` where that is wrong now; one of several workers that
    `follows` goes by `last_good` first, for only the leader reads the file. Raises UsageError."""
    try:
        text = last_good if follows and last_good is not None else loader.read(path)
        return FirstText(text, loader.parse(text, str(path)))
    except UsageError as error:
        if last_good is None:
            raise
        return FirstText(last_good, loader.parse(last_good, str(path)), error)


def kept_changes(first: FirstText, inherited: saved_state.Running | None) -> saved_state.Running | None:
    """Return what control had changed: `inherited` from the worker before, else what the state directory has; without a
    configuration if that was made on another text. Raises UsageError if there can be no such directory."""
    kept = inherited
    path = state_file(first.settings, saved_state.FILE)
    if path is not None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"state_dir: cannot make {path.parent}: {error.strerror}") from None
        kept = kept or saved_state.load(path)
    if kept is not None and kept.base != saved_state.digest(first.text):
        return saved_state.Running(kept.base, None, kept.paused)
    return kept


def with_changes(settings: Settings, kept: saved_state.Running | None, log_to: Log) -> Settings:
    """Return the settings with what control had changed, if that still fits; the log goes by them."""
    if kept is None or kept.config is None:
        return settings
    try:
        changed = loader.from_data(kept.config)
        log_to.apply(changed.config.log)
    except UsageError as error:
        log.error("what control had changed does not fit any more: the file counts: %s", error)
        return settings
    return changed
