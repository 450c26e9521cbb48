"""A real worker process, driven over its pipes as the runner drives it; and what its ledger says, judged naively."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brokerdrill.ledger import spool as form

ROOT = Path(__file__).resolve().parents[2]


class WorkerProcess:
    """Starts the worker at once; `config` is its first line of input."""

    def __init__(self, config: Mapping[str, Any], *, env: Mapping[str, str] | None = None, **popen: Any) -> None:
        path = os.pathsep.join([str(ROOT / "chaos"), str(ROOT)])
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "brokerdrill.workload.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {}), "PYTHONPATH": path},
            **popen,
        )
        self.status: dict[str, Any] = {}
        self.events: list[dict[str, Any]] = []
        self.errors = ""
        self._queue: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self._stderr = threading.Thread(target=self._read_errors, daemon=True)
        self._stderr.start()
        self.say(config)

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._queue.put(json.loads(line))
        self._queue.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr
        self.errors = self.process.stderr.read().decode(errors="replace")

    def say(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def forget(self) -> None:
        """Forget what the worker has said so far and nobody has asked for."""
        while not self._queue.empty():
            if self._queue.get() is None:
                self._queue.put(None)
                return

    def tell(self, cmd: str, **values: Any) -> None:
        self.say({"cmd": cmd, **values})

    def until(self, event: str, deadline_s: float = 60) -> dict[str, Any]:
        """Return the next `event`. Raises AssertionError when the worker ends, fails or takes too long."""
        return self._until(lambda message: message["event"] == event, event, deadline_s)

    def until_status(self, condition: Callable[[dict[str, Any]], bool], deadline_s: float = 60) -> dict[str, Any]:
        """Return the next status for which `condition` holds."""
        return self._until(lambda message: message["event"] == "status" and condition(message), "status", deadline_s)

    def _until(self, wanted: Callable[[dict[str, Any]], bool], what: str, deadline_s: float) -> dict[str, Any]:
        end = time.monotonic() + deadline_s
        while True:
            try:
                message = self._queue.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {what} within {deadline_s} s: {self.status}, {self.events}") from None
            if message is None:
                self.process.wait(10)
                self._stderr.join(5)
                raise AssertionError(f"the worker ended ({self.process.returncode}): {self.events}\n{self.errors}")
            if message["event"] == "status":
                self.status = message
            else:
                self.events.append(message)
            if wanted(message):
                return message
            if message["event"] == "fatal":
                raise AssertionError(f"fatal: {message['error']}")

    def begin(self) -> None:
        """Wait until ready, and start the load."""
        self.until("ready")
        self.tell("start")
        self.until("started")

    def finish(self, **values: Any) -> dict[str, Any]:
        """Stop everything; return the last status. The worker must end with status 0."""
        self.tell("stop", **values)
        self.until("closed")
        assert self.process.wait(10) == 0
        return self.status

    def kill(self) -> None:
        """SIGKILL, and wait."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)


def rows_of(*spools: Path) -> list[dict[str, Any]]:
    """The rows of spools; a torn last line is left out, one elsewhere is an error."""
    return [row for spool in spools for row in form.rows(spool.read_text().split("\n")[:-1])]


def merged(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of one operation merged as the ledger's contract says."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        op = found.setdefault((row["client"], row["op_id"]), {})
        outcomes = {op.get("outcome"), row["outcome"]} - {None, "unknown"}
        assert len(outcomes) <= 1, f"ok against fail: {op} {row}"
        op.update({name: value for name, value in row.items() if value is not None})
        op["outcome"] = outcomes.pop() if outcomes else "unknown"
    return list(found.values())


@dataclass
class Judgement:
    """Message ids by what became of them."""

    acknowledged: set[str] = field(default_factory=set)
    attempted: set[str] = field(default_factory=set)
    delivered: set[str] = field(default_factory=set)
    processed: set[str] = field(default_factory=set)
    duplicated: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    phantoms: set[str] = field(default_factory=set)


def judge(rows: Iterable[Mapping[str, Any]]) -> Judgement:
    """A naive judgement of transacted messages on one queue: for small ledgers, in the words of the contract."""
    ops = merged(rows)
    decided: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for op in ops:
        if op["op"] in ("commit", "rollback"):
            decided[op["txn"]].append((op["op"], op["outcome"]))

    def fate(op: Mapping[str, Any]) -> str:
        ends = decided.get(op["txn"], [])
        commits = [outcome for kind, outcome in ends if kind == "commit"]
        if op["outcome"] == "fail" or ("rollback", "ok") in ends or all(outcome == "fail" for outcome in commits):
            return "fail"
        return "ok" if op["outcome"] == "ok" and "ok" in commits else "unknown"

    said = Judgement()
    attempts: dict[str, set[str]] = defaultdict(set)
    taken: dict[str, list[str]] = defaultdict(list)
    for op in ops:
        if op["op"] == "send":
            attempts[op["message_id"]].add(fate(op))
        elif op["op"] == "receive" and op["outcome"] == "ok":
            taken[op["message_id"]].append(fate(op))
    said.attempted = set(attempts)
    said.acknowledged = {name for name, fates in attempts.items() if "ok" in fates}
    said.delivered = set(taken)
    said.processed = {name for name, fates in taken.items() if "ok" in fates}
    said.duplicated = {name for name, fates in taken.items() if fates.count("ok") > 1}
    said.lost = {name for name in said.acknowledged if not {"ok", "unknown"} & set(taken[name])}
    said.phantoms = {name for name in taken if attempts.get(name, {"fail"}) == {"fail"}} & said.delivered
    return said
