"""The process that outlives the router's: it starts it, starts it again when it was killed, and replaces it when asked.

The router's process is made by clone(2) with CLONE_FILES: both share one table of descriptors. However the router
dies, its sockets and pipes stay open in the supervisor, which never looks at them, and its successor finds them under
the same numbers (`journal` says which). This costs a session nothing. A planned restart is different: there old and
new run side by side, each with a table of its own, and pass descriptors on with SCM_RIGHTS (`handover`). The old one's
table has another holder then (`keeper`), who stands in for it if it is killed.

This module imports nothing heavy, so that each router's process reads its own, perhaps newer, code.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from pathlib import Path

from amqp_session_router.process import lifecycle
from amqp_session_router.process.descriptors import HANDED_OVER, clone_sharing_files, close_all_but, unshare_files
from amqp_session_router.process.lifecycle import Death, Step
from amqp_session_router.process.place import ALONE, Place, place_of
from amqp_session_router.relay import journal

_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
_COMM = Path("/proc/self/comm")
NONE_STORED = "[]"
KEEPER = "keeper"
"""What a process that keeps a worker's files is called in lists of processes."""
_PR_SET_PDEATHSIG = 1
_SHORT_LIFE, _SHORT_LIVES = 5.0, 5
"""So many routers in a row that ended within so many seconds are too many."""


def _named(name: str) -> str:
    """Give this process `name` in lists of processes, and so its next child from its first moment on; returns the old
    one. Where /proc is hidden, or for no name, nothing changes."""
    try:
        before = _COMM.read_text().strip()
        if name:
            _COMM.write_text(name)
    except OSError:
        return ""
    return before


def _wait_for_end(process: int) -> None:
    """Return when the process of this descriptor (pidfd) has ended. Dies with the supervisor: without it nobody would
    start a successor that could ask."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    waiting = select.poll()
    waiting.register(process, select.POLLIN)
    waiting.poll()


class Supervisor:
    """Runs routers, one after the other."""

    def __init__(self, config: str, drain: float, place: Place = ALONE, stored: str = NONE_STORED) -> None:
        """`stored`: the listeners that the service manager had kept, in words that the first worker understands."""
        self.place = place
        self._stored = stored
        self._turn = 0
        """0 or 1, alternating with each planned restart: which of its two shared regions the worker writes to."""
        self.config = config
        self.drain = drain
        self.pid = 0
        self._journal = -1
        self._line: socket.socket | None = None
        """The router's end of the line by which a successor reaches it; None: it runs without our holding its files."""
        self._reach: socket.socket | None = None
        """The other end."""
        self._relieving: tuple[int, socket.socket] | None = None
        """A predecessor that has given nothing or not all away yet (0: it was killed, and its keeper stands in for it),
        and the end by which its successor reaches it."""
        self._keeper = 0
        """The process that keeps the files of a predecessor, or of one that goes on since its successor failed."""
        self._started = 0.0
        self._short = 0
        self._served = False
        self._store = -1
        """The last good configuration."""
        self._again = False
        """Whether a restart follows the one that is under way."""

    def run(self) -> int:
        """Supervise until the router ends by itself; returns its exit status."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self._journal = journal.create()
        self._store = os.memfd_create("amqp-session-router-config")
        self._start(recover=False, predecessor=None)
        while True:
            number = signal.sigwait(_SIGNALS)
            if number == signal.SIGCHLD:
                status = self._reap()
                if status is not None:
                    return status
                if self._again and self._relieving is None:
                    self._replace()
            elif number == signal.SIGUSR2:
                self._replace()
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, number)

    def _own(self) -> set[int]:
        ends = (self._line, self._reach, None if self._relieving is None else self._relieving[1])
        lasting = {0, 1, 2, self._journal, self._store} | self.place.descriptors()
        return lasting | {end.fileno() for end in ends if end is not None}

    def _start(self, recover: bool, predecessor: socket.socket | None) -> None:
        self._line, self._reach = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._started = time.monotonic()
        pid = clone_sharing_files()
        if pid == 0:
            self._become_router(recover, predecessor)
        self.pid = pid

    def _become_router(self, recover: bool, predecessor: socket.socket | None) -> None:
        status = 70
        try:
            # They stay blocked until the worker can handle them: the default of each would end it, and what an operator
            # asked for with it would be lost.
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            from amqp_session_router.process import worker

            assert self._line is not None
            status = worker.work(
                self.config,
                self.drain,
                self._journal,
                self._line,
                self._own(),
                recover,
                predecessor,
                self._store,
                self.place,
                self._turn,
                self._stored,
            )
        except BaseException as error:
            print(f"amqp-session-router: {type(error).__name__}: {error}", file=sys.stderr)
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _reap(self) -> int | None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return 70
            if not pid:
                return None
            if pid == self._keeper:
                self._keeper = 0
                if self._relieving is not None and not self._relieving[0]:
                    self._relieved()
            elif self._relieving is not None and pid == self._relieving[0]:
                if self._keeper and os.waitstatus_to_exitcode(status) != HANDED_OVER:
                    self._relieving = (0, self._relieving[1])
                else:
                    self._relieved()
            elif pid == self.pid:
                ended = self._ended(status)
                if ended is not None:
                    return ended

    def _relieved(self) -> None:
        """The predecessor is gone."""
        assert self._relieving is not None
        # The successor, which shares this descriptor, closes it after the last message.
        self._relieving[1].detach()
        self._relieving = None

    def _ended(self, status: int) -> int | None:
        """The newest worker ended: do what `lifecycle` decides. Returns the exit status if that is to leave."""
        exited = os.waitstatus_to_exitcode(status)
        progress = journal.progress(self._journal)
        if self._relieving is not None and journal.relieved(self._journal):
            # SIGCHLD for the predecessor may arrive later.
            self._relieved()
        self._served = self._served or progress != journal.STARTING
        if self._served:
            # From here on the journal says which sockets listen.
            self._stored = NONE_STORED
        step = lifecycle.after(
            Death(
                progress=progress,
                status=exited if exited >= 0 else None,
                predecessor=self._relieving is not None and self._relieving[0] != 0,
                protected=self._line is not None,
                served=self._served,
            )
        )
        if step is Step.END:
            return exited
        if step is Step.FALL_BACK:
            assert self._relieving is not None
            print("amqp-session-router: the restart failed; the old process goes on", file=sys.stderr)
            self._drop_line()
            self.pid, self._reach = self._relieving
            self._relieving = None
            self._served = True
            self._turn = 1 - self._turn
            return None
        if exited != -signal.SIGKILL:
            # SIGKILL comes from outside (an operator, a drill, a kernel without memory): however often, it is no fault
            # of the router, and leaving would end sessions that the next worker can go on with.
            self._short = self._short + 1 if time.monotonic() - self._started < _SHORT_LIFE else 0
        how = f"killed by signal {-exited}" if exited < 0 else f"ended with status {exited}"
        if self._short >= _SHORT_LIVES:
            print(f"amqp-session-router: {how}, again and again", file=sys.stderr)
            return 128 - exited if exited < 0 else exited
        print(f"amqp-session-router: {how}; starting again", file=sys.stderr)
        if self._keeper and self._line is None and self._reach is not None:
            # A worker that went on since its successor failed: its sessions are its keeper's.
            self._relieving, self._reach = (0, self._reach), None
        self._drop_line()
        reach = None if self._relieving is None else self._relieving[1]
        # With a keeper, too, the next one goes by the last good configuration: no router ends for a wrong file.
        self._start(recover=step is Step.RECOVER or reach is not None, predecessor=reach)
        return None

    def _keep(self, line: int) -> int:
        """Make the process that keeps the worker's files while we keep those of its successor.

        Returns the descriptor by which it sees the worker's end; -1: there is no such process, and the restart is made
        without.
        """
        name, worker = "", -1
        try:
            # Here, where nobody else waits for the worker: by the time that the keeper runs it may be dead.
            worker = os.pidfd_open(self.pid)
            name = _named(KEEPER)
            pid = clone_sharing_files()
        except OSError as error:
            _named(name)
            if worker >= 0:
                os.close(worker)
            print(f"amqp-session-router: a restart without a keeper: {error.strerror}", file=sys.stderr)
            return -1
        if pid == 0:
            try:
                _wait_for_end(worker)
                # Only now, as it may be newer code.
                from amqp_session_router.process import keeper

                keeper.stand_in(line, self._journal, self._store)
            except BaseException as error:
                print(f"amqp-session-router: keeper: {type(error).__name__}: {error}", file=sys.stderr)
            finally:
                sys.stderr.flush()
                os._exit(0)
        _named(name)
        self._keeper = pid
        return worker

    def _drop_line(self) -> None:
        for end in (self._line, self._reach):
            if end is not None:
                end.close()
        self._line = self._reach = None

    def _replace(self) -> None:
        """Start a successor beside the router; it takes over by itself. While one does, the next restart waits until
        it is done: there may be newer code by then."""
        if self._relieving is not None or self._reach is None:
            print("amqp-session-router: a restart is under way: the next one follows it", file=sys.stderr)
            self._again = True
            return
        self._again = False
        watch = -1 if self._line is None else self._keep(self._line.fileno())
        try:
            unshare_files()
        except OSError as error:
            # A container engine's seccomp profile may forbid unshare(2).
            why = f"this process may not have its own descriptors: {error.strerror}"
            print(f"amqp-session-router: no restart: {why}", file=sys.stderr)
            if watch >= 0:
                os.kill(self._keeper, signal.SIGKILL)
                os.close(watch)
            return
        reach = self._reach
        if self._line is not None:
            self._line.close()
        os.close(self._journal)
        self._journal = journal.create()
        self._reach = self._line = None
        self._stored = NONE_STORED
        self._relieving = (self.pid, reach)
        self._turn = 1 - self._turn
        close_all_but(self._own())
        self._start(recover=False, predecessor=reach)


def main(arguments: list[str]) -> int:
    """Run with the path of the configuration, the seconds to drain, the words of a `Place` where there are several
    workers, and last the listeners that the service manager had kept, which a group from before an upgrade does not
    give."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A session takes two descriptors, and more while bytes are stuck in pipes.
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    config, drain, *more = arguments
    stored = more.pop() if more and more[-1].startswith("[") else NONE_STORED
    place = place_of(more)
    listening = {number for one in json.loads(stored) for number in one[-1]}
    # Nothing else that this process was started with may be taken for a session's.
    close_all_but({0, 1, 2} | place.descriptors() | listening)
    return Supervisor(config, float(drain), place, stored).run()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
