"""The process above the supervisors of a router with several workers.

Each worker has a supervisor of its own (`supervisor`), which holds its descriptors and starts its successors. This one
starts the supervisors, passes signals on, ends all when one ends, and speaks to the service manager for all.

It imports nothing heavy.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from amqp_session_router.process.place import LEADER, Place
from amqp_session_router.process.service_manager import (
    KEPT_WITHIN,
    ServiceManager,
    StoredListener,
    listeners_of,
    name_of,
    words_of,
)

_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
_PR_SET_CHILD_SUBREAPER = 36
_TOGETHER = 5.0
"""Seconds in which all workers end by themselves after an EXIT by control; then the rest get a SIGTERM."""
_BACKLOG = 1024
_LONGEST_WORD = 4096
_MOST_DESCRIPTORS = 253
"""As many as the kernel sends at once."""


class Group:
    """Runs the supervisors."""

    def __init__(
        self,
        config: str,
        drain: str,
        stored: Sequence[StoredListener],
        workers: int,
        shared: int,
        environment: Mapping[str, str],
    ) -> None:
        """`stored`: the listeners that the service manager had kept; `shared`: descriptor of the memory that the
        workers share."""
        self._words = [sys.executable, "-m", "amqp_session_router.process.supervisor", config, drain]
        self._workers = workers
        self._shared = shared
        self._stored = stored
        self._environment = dict(environment)
        self._manager = ServiceManager(environment)
        self._supervisors: dict[int, int] = {}
        """Process id → index of its worker."""
        self._orphans: dict[int, int] = {}
        """The same of workers whose supervisor is gone."""
        self._notified: dict[int, int] = {}
        """Descriptor by which a worker speaks to the service manager → its index."""
        self._lines: list[socket.socket] = []
        self._ready: set[int] = set()
        self._beats: set[int] = set()
        self._status: int | None = None
        """The exit status of the one that ended first."""
        self._end_by: float | None = None
        """When the workers that are left get a SIGTERM."""
        self._places: list[Place] = []
        self._kept: dict[int, set[str]] = {}
        """Index of a worker → the names under which the service manager may keep its listeners."""

    def run(self) -> int:
        """Run until all have ended; returns the exit status."""
        wake, waker = socket.socketpair()
        for end in (wake, waker):
            end.setblocking(False)
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(waker.fileno())
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        with tempfile.TemporaryDirectory(prefix="amqp-session-router-") as directory:
            self._prepare(Path(directory))
            for place in self._places:
                self._start(place, [one for one in self._stored if one.worker == place.index])
            self._drop_stored()
            while self._supervisors or self._orphans:
                self._turn(wake)
        return self._status or 0

    def _prepare(self, directory: Path) -> None:
        path = directory / "leader"
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.bind(str(path))
        line.listen(_BACKLOG)
        for number in (line.fileno(), self._shared):
            os.set_inheritable(number, True)
        self._lines = [line]
        for index in range(self._workers):
            self._places.append(Place(index, self._workers, str(path), line.fileno(), self._shared))
            notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            notified.bind(self._notify_path(index))
            notified.setblocking(False)
            self._lines.append(notified)
            self._notified[notified.fileno()] = index

    def _notify_path(self, index: int) -> str:
        return str(Path(str(self._lines[0].getsockname())).with_name(f"notify-{index}"))

    def _drop_stored(self) -> None:
        """Close our copies of the listeners: a socket listens as long as anybody has it."""
        for one in self._stored:
            for number in one.descriptors:
                os.close(number)
        self._stored = ()

    def _start(self, place: Place, stored: Sequence[StoredListener] = ()) -> None:
        environment = self._environment | {"NOTIFY_SOCKET": self._notify_path(place.index)}
        words = [*self._words, *place.words(), words_of(stored)]
        pid = os.posix_spawn(words[0], words, environment, setsigmask=(), setsigdef=_SIGNALS)
        self._supervisors[pid] = place.index

    def _turn(self, wake: socket.socket) -> None:
        left = None if self._end_by is None else max(0.0, self._end_by - time.monotonic())
        readable, _, _ = select.select([wake.fileno(), *self._notified], [], [], left)
        if self._end_by is not None and time.monotonic() >= self._end_by:
            self._end_by = None
            self._signal(signal.SIGTERM)
        for one in readable:
            if one == wake.fileno():
                for number in {*wake.recv(_LONGEST_WORD)}:
                    self._signalled(signal.Signals(number))
            else:
                self._heard(one)

    def _signalled(self, number: signal.Signals) -> None:
        if number == signal.SIGCHLD:
            self._reap()
        elif number == signal.SIGHUP:
            # The leader passes the configuration on to the others.
            self._signal(number, LEADER)
        else:
            if number != signal.SIGUSR2:
                self._ending(0)
            self._signal(number)

    def _signal(self, number: signal.Signals, index: int | None = None) -> None:
        # A worker without its supervisor cannot be replaced by another.
        receivers = self._supervisors if number == signal.SIGUSR2 else self._supervisors | self._orphans
        for pid, one in receivers.items():
            if index is None or one == index:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def _ending(self, status: int) -> None:
        if self._status is None:
            self._status = status

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            exited = os.waitstatus_to_exitcode(status)
            if pid in self._supervisors:
                self._supervisor_ended(self._supervisors.pop(pid), exited)
            elif pid in self._orphans:
                index = self._orphans.pop(pid)
                if self._status is None and index not in self._orphans.values():
                    _say(f"worker {index} begins anew, with a supervisor")
                    self._start_anew(index)

    def _supervisor_ended(self, index: int, exited: int) -> None:
        if exited >= 0:
            if self._status is None:
                # After an EXIT by control each worker ends by itself; else the others get a signal at once.
                self._end_by = time.monotonic() + (_TOGETHER if exited == 0 else 0.0)
            self._ending(exited)
            return
        # Its children are ours by now.
        found = [pid for pid in _children() if pid not in self._supervisors and pid not in self._orphans]
        self._orphans |= dict.fromkeys(found, index)
        _say(f"the supervisor of worker {index} was killed by signal {-exited}; the worker goes on, without protection")
        if self._status is None and not found:
            self._start_anew(index)

    def _start_anew(self, index: int) -> None:
        """Start a worker of which nothing is left. To the sockets that the service manager keeps of it the kernel goes
        on giving connections, which nobody would accept."""
        for name in self._kept.pop(index, set()):
            self._manager.forget(name)
        self._start(self._places[index])

    def _heard(self, number: int) -> None:
        """Pass on a worker's message to the service manager: sockets to keep at once, READY and WATCHDOG when all have
        sent it."""
        index = self._notified[number]
        with contextlib.suppress(BlockingIOError), socket.socket(fileno=os.dup(number)) as line:
            data, descriptors, _, _ = socket.recv_fds(line, _LONGEST_WORD, _MOST_DESCRIPTORS)
            words = data.decode().split("\n")
            for senders, word in ((self._ready, "READY=1"), (self._beats, "WATCHDOG=1")):
                if word not in words:
                    continue
                senders.add(index)
                if len(senders) == self._workers:
                    self._manager.notify(word)
                    senders.clear()
            if stored_name := name_of(words):
                self._manager.notify(*words, descriptors=descriptors, within=KEPT_WITHIN)
                self._kept.setdefault(index, set()).add(stored_name)
            for one in descriptors:
                os.close(one)


def _children() -> list[int]:
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii")
    except OSError:
        return []
    return [int(word) for word in text.split()]


def _say(text: str) -> None:
    print(f"amqp-session-router: {text}", file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Run with the path of the configuration, the seconds to drain, the listeners that the service manager had kept,
    the number of workers and the descriptor of the memory that they share."""
    config, drain, stored, workers, shared = arguments
    return Group(config, drain, listeners_of(stored), int(workers), int(shared), os.environ).run()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
