"""Log lines are JSON, one a line, whatever a client called itself; the file may be moved away."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from amqp_session_router.base.errors import UsageError
from amqp_session_router.config.schema import LogPart
from amqp_session_router.telemetry.log import Log

log = logging.getLogger("amqp_session_router.session")


@pytest.fixture
def console() -> Iterator[tuple[Log, io.StringIO]]:
    out = io.StringIO()
    handlers = Log(out)
    try:
        yield handlers, out
    finally:
        handlers.close()


def test_a_line_has_what_the_caller_passed(console: tuple[Log, io.StringIO]) -> None:
    handlers, out = console
    handlers.apply(LogPart())
    log.info("opened", extra={"session": "s1", "vhost": 'a\n{"level": "critical"}\x1b[2J'})
    try:
        raise ValueError("inner")
    except ValueError:
        log.exception("failed: %s", "x", extra={"session": "s1"})
    first, second = map(json.loads, out.getvalue().splitlines())
    assert (first["level"], first["logger"], first["message"], first["session"]) == ("info", "session", "opened", "s1")
    assert datetime.fromisoformat(first["time"]).tzinfo is not None
    assert second["message"] == "failed: x"
    assert "ValueError: inner" in second["exception"]
    assert "\x1b" not in out.getvalue()


def test_levels_of_console_and_file(console: tuple[Log, io.StringIO], tmp_path: Path) -> None:
    handlers, out = console
    file = tmp_path / "log"
    handlers.apply(LogPart(level="error", file=str(file), file_level="debug"))
    log.debug("one")
    log.error("two")
    assert len(out.getvalue().splitlines()) == 1
    assert len(file.read_text().splitlines()) == 2
    file.rename(tmp_path / "log.1")
    log.debug("three")
    assert json.loads(file.read_text())["message"] == "three"
    handlers.apply(LogPart(level="debug"))
    log.debug("four")
    assert len(file.read_text().splitlines()) == 1


def test_a_file_that_cannot_be_written_changes_nothing(console: tuple[Log, io.StringIO], tmp_path: Path) -> None:
    handlers, out = console
    handlers.apply(LogPart(level="debug", file=str(tmp_path / "log")))
    with pytest.raises(UsageError, match=r"log\.file: cannot write .*: No such file or directory"):
        handlers.apply(LogPart(level="error", file=str(tmp_path / "no" / "log")))
    log.info("still")
    assert "still" in (tmp_path / "log").read_text()
    assert "still" in out.getvalue()
