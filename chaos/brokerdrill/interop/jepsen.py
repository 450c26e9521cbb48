"""`brokerdrill import jepsen`: a queue history as a ledger, judged by our promises and by Jepsen's own counts."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from brokerdrill.base.errors import UsageError
from brokerdrill.interop import edn, folder, nemesis
from brokerdrill.interop.history import Call, HistoryOp, calls, read_history
from brokerdrill.interop.total_queue import TotalQueue, elements, total_queue
from brokerdrill.ledger import contract
from brokerdrill.promises.catalogue import NO_PHANTOMS

FORMAT = "jepsen"
CLOCK = "jepsen"
ADDRESS = "queue"
PROMISES = ("no_loss", "no_duplicates", NO_PHANTOMS)
CRASHED_DRAIN = "a drain of unknown outcome"
# Between the k-th and the first message of one value: no EDN value ends like this.
COPY = " #"
# Operations of a history without times stand this far apart, by their places.
STEP_NS = 1_000_000
_OUTCOMES = {"ok": "ok", "fail": "fail", "info": "unknown"}


def import_jepsen(path: Path, out: Path, drained: bool | None = None, unknown_errors: str | None = None) -> TotalQueue:
    """Read the history in `path` into the new run directory `out`; return what Jepsen's checker says of it.

    `drained` says whether the queue was empty at the end; None: it was if a drain that is ok began after the last
    enqueue ended, and no drain crashed. `unknown_errors`: a regular expression; enqueues and dequeues that are `:fail`
    with an `:error` in which it is found (one without an error has the empty text) count as of unknown outcome. The
    checker's answer is the same with and without. Raises UsageError: a history that cannot be read (file and line),
    no regular expression, `out` exists.
    """
    folder.check_new(out)
    history = read_history(path)
    verdict = total_queue(history)
    ops = history if unknown_errors is None else _in_doubt(history, unknown_errors)
    found = calls(ops, path)
    times = [op.index * STEP_NS if op.time is None else op.time for op in ops]
    empty = was_drained(found) if drained is None else drained
    run = contract.new_run(
        out.name,
        scenario=contract.ScenarioText(f"jepsen {path.name}"),
        versions={"jepsen history": path.suffix.lstrip(".") or "edn"},
        outcome="completed",
        promises=tuple(contract.PromiseSpec(name) for name in PROMISES),
        expect=dict.fromkeys(PROMISES, "kept"),
        drained={ADDRESS: empty},
        clocks={CLOCK: contract.Clock("jepsen")},
    )
    origin = {
        "format": FORMAT,
        "file": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "operations": len(ops),
        "timed": ops[0].time is not None,
        "unknown_errors": unknown_errors,
        "made_unknown": sum(one is not other for one, other in zip(history, ops, strict=True)),
        "total-queue": verdict.to_json(),
    }
    events = [*_phases(found, times), *_faults(ops, times)]
    folder.write_run_dir(out, run, _rows(found, times), sorted(events, key=lambda event: event["t_ns"]), origin)
    return verdict


def _in_doubt(ops: Sequence[HistoryOp], pattern: str) -> list[HistoryOp]:
    """Return the operations, with those that failed with such an error of unknown outcome: a client that calls an
    enqueue failed when its connection broke does not know."""
    try:
        chosen = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--unknown-errors {pattern!r} is no regular expression: {error}") from None

    def broken(op: HistoryOp) -> bool:
        text = "" if op.error is None else op.error if isinstance(op.error, str) else edn.write(op.error)
        return op.type == "fail" and op.f in ("enqueue", "dequeue") and bool(chosen.search(text))

    return [dataclasses.replace(op, type="info") if broken(op) else op for op in ops]


def was_drained(found: Sequence[Call]) -> bool:
    """Return whether a history itself shows that nothing was left in the queue: a drain that is ok began after the last
    enqueue that ended, and no drain crashed (it may hold elements that it never reported)."""
    drains = [call for call in found if call.op.f == "drain"]
    last = max((call.ended.index for call in found if call.op.f == "enqueue" and call.ended), default=-1)
    crashed = any(call.ended is None or call.ended.type == "info" for call in drains)
    return not crashed and any(call.ended and call.ended.type == "ok" and call.op.index > last for call in drains)


def _value(call: Call) -> str:
    """The value of an enqueue as EDN."""
    return edn.write(call.op.value)


def _certainty(call: Call) -> int:
    """How sure it is that an enqueue took effect: 0 ok, 1 unknown, 2 failed."""
    kind = call.ended.type if call.ended else "info"
    return ("ok", "info", "fail").index(kind)


def message_ids(found: Sequence[Call]) -> tuple[dict[int, str], dict[str, list[str]]]:
    """Name messages: for each enqueue, by the place of its call, its message; for each value the messages in the order
    in which what came out is counted to them.

    To the checker a value enqueued n times is n messages, so that each enqueue makes one of its own. What came out of
    the queue is counted to enqueues that are ok first, then to those of unknown outcome: as with multisets, no loss is
    seen where one need not be.
    """
    copies: dict[str, list[int]] = defaultdict(list)
    for place, call in enumerate(found):
        if call.op.f == "enqueue":
            copies[_value(call)].append(place)
    names = {
        place: value + (f"{COPY}{copy}" if copy > 1 else "")
        for value, places in copies.items()
        for copy, place in enumerate(places, start=1)
    }
    order = {
        value: [names[place] for place in sorted(places, key=lambda place: (_certainty(found[place]), place))]
        for value, places in copies.items()
    }
    return names, order


def _rows(found: Sequence[Call], times: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield the operations' rows."""
    names, order = message_ids(found)
    taken: dict[str, int] = defaultdict(int)
    numbers: dict[str, int] = defaultdict(int)
    sent: dict[str, int] = defaultdict(int)

    def message(value: str) -> str:
        """The message that the next element of this value is: more than were enqueued are the first one again."""
        known = order.get(value) or [value]
        taken[value] += 1
        return known[taken[value] - 1] if taken[value] <= len(known) else known[0]

    for place, call in enumerate(found):
        client = f"process-{call.op.process}"
        start = times[call.op.index]
        common = {"client": client, "session": 0, "address": ADDRESS, "start_ns": start}
        ended = call.ended
        if ended:
            common |= {"end_ns": max(start, times[ended.index]), "outcome": _OUTCOMES[ended.type]}
            if ended.error is not None and ended.type != "ok":
                common["error"] = edn.write(ended.error)
        else:
            common["outcome"] = "unknown"
        if call.op.f == "enqueue":
            row = {"op": "send", "message_id": names[place], "attempt": 0, "producer_seq": sent[client]}
            sent[client] += 1
            yield common | row | {"op_id": numbers[client]}
            numbers[client] += 1
            continue
        if ended is None or ended.type != "ok":
            if call.op.f == "drain" and common["outcome"] == "unknown":
                common["error"] = CRASHED_DRAIN
            yield common | {"op": "receive", "op_id": numbers[client]}
            numbers[client] += 1
            continue
        values = [edn.write(ended.value)] if call.op.f == "dequeue" else elements(ended) or []
        for value in values:
            delivery = f"{client}/{numbers[client]}"
            common |= {"message_id": message(value), "delivery": delivery}
            # A dequeue that is ok has taken the message for good: its acknowledgement is a part of it.
            for name in ("receive", "ack"):
                yield common | {"op": name, "op_id": numbers[client]}
                numbers[client] += 1


def _phases(found: Sequence[Call], times: Sequence[int]) -> list[dict[str, Any]]:
    """The load until its last operation, and the drain where there is one."""

    def span(chosen: Sequence[Call], name: str) -> list[dict[str, Any]]:
        if not chosen:
            return []
        begin = min(times[call.op.index] for call in chosen)
        end = max(times[(call.ended or call.op).index] for call in chosen)
        return [
            {"t_ns": begin, "kind": "phase", "name": name, "value": "begin"},
            {"t_ns": end, "kind": "phase", "name": name, "value": "end"},
        ]

    drains = [call for call in found if call.op.f == "drain"]
    return span([call for call in found if call.op.f != "drain"], "load") + span(drains, "drain")


def _faults(ops: Sequence[HistoryOp], times: Sequence[int]) -> list[dict[str, Any]]:
    return [
        {
            "t_ns": change.t_ns,
            "uncertainty_ns": change.uncertainty_ns,
            "kind": change.kind,
            "name": change.name,
            "target": change.target or None,
            "value": change.value if change.kind == "note" else None,
            "detail": {"jepsen": change.value},
        }
        for change in nemesis.changes(ops, times)
    ]
