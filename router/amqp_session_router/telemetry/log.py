"""The log: one JSON object a line, with the fields that the caller passed as `extra` (the session's id among them)."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from typing import IO

from amqp_session_router.base.errors import UsageError
from amqp_session_router.config.schema import LogPart

PACKAGE = "amqp_session_router"
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_json = json.JSONEncoder(default=str).encode


class JsonLines(logging.Formatter):
    """`time` (RFC 3339, UTC), `level`, `logger`, `message`, of several workers `worker`, then the record's extra
    fields."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._always: dict[str, object] = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON; control characters are escaped, so that no client forges a line."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": when.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name.removeprefix(PACKAGE + "."),
            "message": record.getMessage(),
        }
        line |= self._always
        line |= {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _json(line)


class Log:
    """The handlers of the package's loggers, which control may set anew while it runs."""

    def __init__(self, stream: IO[str] | None = None, worker: int | None = None) -> None:
        """`worker`: which of several workers writes."""
        self._worker = worker
        self._logger = logging.getLogger(PACKAGE)
        self.console = logging.StreamHandler(stream or sys.stderr)
        self.console.setFormatter(JsonLines(worker))
        self.file: WatchedFileHandler | None = None
        self._logger.addHandler(self.console)
        self._logger.propagate = False

    def apply(self, part: LogPart) -> None:
        """Set levels and file; raises UsageError if the file cannot be opened, with nothing changed."""
        fresh = self.file
        if part.file is None:
            fresh = None
        elif self.file is None or self.file.baseFilename != part.file:
            try:
                fresh = WatchedFileHandler(part.file, encoding="utf-8")
            except OSError as error:
                raise UsageError(f"log.file: cannot write {part.file}: {error.strerror}") from None
            fresh.setFormatter(JsonLines(self._worker))
        if fresh is not self.file:
            if self.file is not None:
                self._logger.removeHandler(self.file)
                self.file.close()
            if fresh is not None:
                self._logger.addHandler(fresh)
            self.file = fresh
        self.console.setLevel(part.level.upper())
        levels = [self.console.level]
        if self.file is not None:
            self.file.setLevel(part.file_level.upper())
            levels.append(self.file.level)
        self._logger.setLevel(min(levels))

    def close(self) -> None:
        """Take the handlers away."""
        self._logger.removeHandler(self.console)
        if self.file is not None:
            self._logger.removeHandler(self.file)
            self.file.close()
            self.file = None
