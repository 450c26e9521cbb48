"""A Jepsen history as it lies on disk: EDN (an operation a line, or one vector of them) or JSON Lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brokerdrill.base.errors import UsageError
from brokerdrill.interop import edn

# 36 years: the ledger takes no later time.
LATEST_NS = 1 << 60
TYPES = ("invoke", "ok", "fail", "info")
QUEUE_FUNCTIONS = ("enqueue", "dequeue", "drain")
_JSON = re.compile(r'\s*\{\s*"')


@dataclass(frozen=True, slots=True)
class HistoryOp:
    """One operation of a history, at place `index` from 0 and on line `line` of the file.

    `process` is a client's number or another process' name (`nemesis`), `value` as `edn.read` returns it, `time`
    nanoseconds since the test's start or None.
    """

    index: int
    line: int
    process: int | str
    type: str
    f: str
    value: Any = None
    time: int | None = None
    error: Any = None

    @property
    def client(self) -> bool:
        return isinstance(self.process, int)


@dataclass(frozen=True, slots=True)
class Call:
    """A client's operation: what began it and what ended it; either may be missing from a history."""

    invoked: HistoryOp | None
    ended: HistoryOp | None

    @property
    def op(self) -> HistoryOp:
        """The invocation, or where there is none the completion."""
        found = self.invoked or self.ended
        assert found is not None
        return found


def read_history(path: Path) -> list[HistoryOp]:
    """Return the operations of the history in `path`, in its order.

    Raises UsageError, one sentence with file and line: not readable, no EDN or JSON, an operation without a type,
    function or process, a client's function that no queue workload has, an operation begun before the last one ended.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"history {path} cannot be read: {error}") from None
    read = _json_lines if _JSON.match(text) else edn.read
    ops = [_op(value, str(path), index, line) for index, (line, value) in enumerate(read(text, str(path)))]
    if not ops:
        raise UsageError(f"{path}, line 1: the history holds no operation")
    if len({op.time is None for op in ops}) > 1:
        bare = next(op for op in ops if op.time is None)
        raise UsageError(f"{path}, line {bare.line}: the operation has no :time, but others have")
    return ops


def _json_lines(text: str, where: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError as error:
                raise UsageError(f"{where}, line {number}: not JSON: {error}") from None


def _fields(value: Any) -> dict[str, Any] | None:
    """The operation's fields by bare name; None for what is no map."""
    if isinstance(value, edn.Tagged):  # #jepsen.history.Op{…}
        value = value.value
    if isinstance(value, edn.Map):
        return {key.name if isinstance(key, edn.Keyword) else str(key): item for key, item in value.pairs}
    if isinstance(value, dict):
        return {key.removeprefix(":"): item for key, item in value.items()}
    return None


def _word(value: Any) -> Any:
    if isinstance(value, (edn.Keyword, edn.Symbol)):
        return value.name
    return value.removeprefix(":") if isinstance(value, str) else value


def _op(value: Any, path: str, index: int, line: int) -> HistoryOp:
    where = f"{path}, line {line}"
    fields = _fields(value)
    if fields is None:
        raise UsageError(f"{where}: an operation is a map, not {_short(value)}")
    for name in ("type", "f", "process"):
        if fields.get(name) is None:
            raise UsageError(f"{where}: the operation has no :{name}")
    kind, function, process = (_word(fields[name]) for name in ("type", "f", "process"))
    if kind not in TYPES:
        raise UsageError(f"{where}: :type is {_short(fields['type'])}, none of {', '.join(TYPES)}")
    if not isinstance(function, str):
        raise UsageError(f"{where}: :f is {_short(fields['f'])}, which is no name")
    if isinstance(process, bool) or not isinstance(process, (int, str)):
        raise UsageError(f"{where}: :process is {_short(fields['process'])}, neither a number nor a name")
    if isinstance(process, int) and function not in QUEUE_FUNCTIONS:
        known = ", ".join(QUEUE_FUNCTIONS)
        raise UsageError(f"{where}: :f is :{function}, which is of no queue workload ({known})")
    time = fields.get("time")
    if time is not None and (isinstance(time, bool) or not isinstance(time, int) or not 0 <= time <= LATEST_NS):
        raise UsageError(f"{where}: :time is {_short(time)}, no number of nanoseconds")
    return HistoryOp(index, line, process, kind, function, fields.get("value"), time, fields.get("error"))


def _short(value: Any) -> str:
    text = edn.write(value)
    return text if len(text) <= 40 else text[:39] + "…"


def calls(ops: list[HistoryOp], path: Path) -> list[Call]:
    """Return the clients' calls of a history in the order in which they begin.

    Raises UsageError where a process begins an operation before its last one ended, or ends another than it began.
    """
    found: list[Call] = []
    pending: dict[int | str, int] = {}
    for op in ops:
        if not op.client:
            continue
        where = f"{path}, line {op.line}"
        if op.type == "invoke":
            if op.process in pending:
                begun = found[pending[op.process]].op.line
                raise UsageError(f"{where}: process {op.process} has not ended its operation of line {begun}")
            pending[op.process] = len(found)
            found.append(Call(op, None))
        elif op.process in pending:
            begun_op = found[pending[op.process]].invoked
            assert begun_op is not None
            if begun_op.f != op.f:
                raise UsageError(f"{where}: process {op.process} ends :{op.f}, but began :{begun_op.f}")
            found[pending.pop(op.process)] = Call(begun_op, op)
        else:
            found.append(Call(None, op))
    return found
