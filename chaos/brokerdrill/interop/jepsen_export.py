"""`brokerdrill export jepsen`: a run's ledger as a history of a queue workload, for Jepsen's own checkers."""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from brokerdrill.base.atomic import write
from brokerdrill.base.errors import UsageError
from brokerdrill.interop import edn
from brokerdrill.interop.effects import Effect, effects, placed, read_rows
from brokerdrill.interop.folder import read_origin
from brokerdrill.interop.jepsen import COPY, CRASHED_DRAIN, FORMAT
from brokerdrill.interop.nemesis import ANY
from brokerdrill.ledger import contract

_TYPES = {"ok": "ok", "fail": "fail", "unknown": "info"}
_OWN_NUMBER = re.compile(r"process-(\d+)\Z")
_COPY = re.compile(rf"{COPY}\d+\Z")
_NO_KEYWORD = re.compile(r"[^A-Za-z0-9_.*+!?-]+")


@dataclass(frozen=True, slots=True)
class _ExportedFault:
    """One operation to be: values are EDN text; `end` None and `type` info: it never ended."""

    client: str
    f: str
    start: int
    end: int | None
    type: str
    asked: str
    result: str
    error: str | None


def export_jepsen(run_dir: Path, out: Path) -> int:
    """Write the history of `run_dir` to `out`, EDN, an operation a line; return how many there are.

    A message is one enqueue, whatever attempts it took: ok if it was acknowledged, fail if it certainly was not sent. A
    delivery is a dequeue: ok if its message was processed, fail if it was given back, info if it may have been
    processed; but the last of these is ok where no delivery of its message is, since Jepsen knows no message that came
    out and is only perhaps done with. A value is the message's id, with its address before it where a run has several.
    Where every address was drained, an ok drain says so. Raises UsageError where the ledger cannot be read.
    """
    run = contract.read_run(run_dir)
    foreign = read_origin(run_dir).get("format") == FORMAT
    found = _came_out(effects(run_dir))
    if not found:
        raise UsageError(f"{run_dir} holds no message that was sent or received: there is no history to write")
    drained = bool(run.drained) and all(run.drained.values())
    several = len({one.address for one in found}) > 1

    def value(one: Effect) -> str:
        if one.message_id is None:
            return "nil"
        if foreign:
            return _COPY.sub("", one.message_id)
        return edn.write((one.address, one.message_id) if several else one.message_id)

    spans = list(_spans(found, value, drained))
    if drained:
        last = max(spans, key=lambda span: span.end or span.start)
        end = (last.end or last.start) + 1
        spans.append(_ExportedFault(last.client, "drain", end, end, "ok", "nil", "[]", None))
    lines = [*_client_lines(spans), *_nemesis_lines(run, run_dir)]
    text = "".join(
        "{" + f":index {index}, :time {time}, {rest}" + "}\n" for index, (time, _, rest) in enumerate(sorted(lines))
    )
    write(out, text.encode())
    return len(lines)


def _came_out(found: Sequence[Effect]) -> list[Effect]:
    """`found`, where the last delivery of a message that no delivery certainly finished is ok if it may have."""
    taken = {(one.address, one.message_id) for one in found if one.kind == "receive" and one.outcome == "ok"}
    chosen = {
        (one.address, one.message_id): one
        for one in found
        if (one.kind, one.outcome) == ("receive", "unknown")
        and one.message_id is not None
        and (one.address, one.message_id) not in taken
    }
    last = {id(one) for one in chosen.values()}
    return [replace(one, outcome="ok", error=None) if id(one) in last else one for one in found]


def _spans(found: Sequence[Effect], value: Callable[[Effect], str], drained: bool) -> Iterator[_ExportedFault]:
    batches = groupby(found, key=lambda one: (one.kind, one.client, one.start, one.end, one.outcome))
    for (kind, client, start, end, outcome), members in batches:
        group = list(members)
        # What one client took in one and the same time is one drain.
        if drained and kind == "receive" and outcome == "ok" and len(group) > 1:
            result = "[" + " ".join(value(one) for one in group) + "]"
            yield _ExportedFault(client, "drain", start, end, "ok", "nil", result, None)
            continue
        for one in group:
            text, kind_of = value(one), _TYPES[outcome]
            if one.kind == "send":
                yield _ExportedFault(client, "enqueue", start, end, kind_of, text, text, one.error)
            else:
                f = "drain" if one.error == CRASHED_DRAIN else "dequeue"
                result = text if outcome != "fail" else "nil"
                yield _ExportedFault(client, f, start, end, kind_of, "nil", result, one.error)


def _client_lines(spans: Sequence[_ExportedFault]) -> Iterator[tuple[int, tuple[int, int], str]]:
    """Yield (time, place among equals, fields) of every line.

    A Jepsen process does one thing at a time and nothing after one that never became certain; a client whose operations
    overlap, or that went on, gets further processes.
    """
    clients = sorted({span.client for span in spans})
    own = [_OWN_NUMBER.match(client) for client in clients]
    numbers = {
        client: int(match[1]) if match and all(own) else place
        for place, (client, match) in enumerate(zip(clients, own, strict=True))
    }
    fresh = max(numbers.values(), default=-1) + 1
    free: dict[str, list[tuple[int, int]]] = defaultdict(list, {client: [(0, n)] for client, n in numbers.items()})
    for place, span in enumerate(sorted(spans, key=lambda one: (one.start, one.end or one.start, one.client))):
        pool = free[span.client]
        if pool and pool[0][0] <= span.start:
            process = heapq.heappop(pool)[1]
        else:
            process, fresh = fresh, fresh + 1
        fields = f":process {process}, :f :{span.f}"
        yield span.start, (place, 0), f":type :invoke, {fields}, :value {span.asked}"
        if span.end is not None:
            error = f", :error {edn.write(span.error)}" if span.error else ""
            yield span.end, (place, 1), f":type :{span.type}, {fields}, :value {span.result}{error}"
            if span.type != "info":
                heapq.heappush(pool, (span.end, process))


def _nemesis_lines(run: contract.RunInfo, run_dir: Path) -> Iterator[tuple[int, tuple[int, int], str]]:
    """Yield the lines of faults and heals, each as the two that Jepsen logs: asked for, and done."""
    steps = set()
    for row in read_rows(run_dir, contract.EVENTS_DIR):
        kind, name, at = row.get("kind"), row.get("name") or "", placed(run, row, "t_ns")
        if kind not in ("fault", "heal", "note") or at is None:
            continue
        detail = row.get("detail") or {}
        value = detail.get("jepsen") or edn.write(row.get("target") or None)
        keyword = _NO_KEYWORD.sub("-", name) or "event"
        if kind != "note":
            word = "start" if kind == "fault" else "stop"
            keyword = word if name == ANY else f"{word}-{keyword}"
        doubt = int(row.get("uncertainty_ns") or 0)
        # Several targets healed by one step are one operation.
        steps.add((max(0, at - doubt), at + doubt, keyword, value))
    for place, (begin, end, keyword, value) in enumerate(sorted(steps)):
        fields = f":type :info, :process :nemesis, :f :{keyword}, :value {value}"
        yield begin, (-1, 2 * place), fields
        yield end, (-1, 2 * place + 1), fields
