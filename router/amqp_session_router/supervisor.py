"""The process that outlives the router's: it starts it, starts it again when it was killed, and replaces it when asked.

The router's process is made by clone(2) with CLONE_FILES: both share one table of descriptors. However the router
dies, its sockets and pipes stay open in the supervisor, which never looks at them, and its successor finds them under
the same numbers (`journal` says which). This costs a session nothing. A planned restart is different: there old and
new run side by side, each with a table of its own, and pass descriptors on with SCM_RIGHTS (`handover`).

This module imports nothing heavy, so that each router's process reads its own, perhaps newer, code.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import signal
import socket
import sys
import time

from amqp_session_router import journal

_CLONE_FILES = 0x400
_CLONE_CHILD_SETTID = 0x01000000
_PR_GET_TID_ADDRESS = 40
_SYS_CLONE = {"x86_64": 56, "aarch64": 220}
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
_SHORT_LIFE, _SHORT_LIVES = 5.0, 5
"""So many routers in a row that were killed within so many seconds are too many."""
HANDED_OVER = 75
"""The exit status of a process that a successor has relieved."""


def clone_sharing_files() -> int:
    """fork(), but the child shares this process's table of descriptors; raises OSError. Only without other threads."""
    number = _SYS_CLONE.get(platform.machine())
    if number is None:
        raise OSError(0, f"no clone(2) is known for {platform.machine()}")
    # The GIL is held all the time: the child has only this thread, and it goes on holding it.
    libc, api = ctypes.PyDLL(None, use_errno=True), ctypes.pythonapi
    # glibc keeps the thread's number where the kernel would clear it; the child's has to stand there in the child.
    place = ctypes.c_void_p()
    flags = _CLONE_FILES | signal.SIGCHLD
    if libc.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(place), 0, 0, 0) == 0 and place.value:
        flags |= _CLONE_CHILD_SETTID
    child = ctypes.c_long(place.value or 0)
    nothing = ctypes.c_long(0)
    last = (child, nothing) if platform.machine() == "x86_64" else (nothing, child)
    api.PyOS_BeforeFork()
    pid = int(libc.syscall(ctypes.c_long(number), ctypes.c_long(flags), nothing, nothing, *last))
    if pid == 0:
        api.PyOS_AfterFork_Child()
        return 0
    api.PyOS_AfterFork_Parent()
    if pid < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return pid


def unshare_files() -> None:
    """Have a table of descriptors of our own again, with copies of all that is open."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_FILES):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def close_all_but(kept: set[int]) -> None:
    """Close every descriptor that is not in `kept`."""
    for number in [int(name) for name in os.listdir("/proc/self/fd")]:  # noqa: PTH208
        if number not in kept:
            with contextlib.suppress(OSError):
                os.close(number)


class Supervisor:
    """Runs routers, one after the other."""

    def __init__(self, config: str, drain: float) -> None:
        self.config = config
        self.drain = drain
        self.pid = 0
        self._journal = -1
        self._line: socket.socket | None = None
        """The router's end of the line by which a successor reaches it; None: it runs without our holding its files."""
        self._reach: socket.socket | None = None
        """The other end."""
        self._relieving: tuple[int, socket.socket] | None = None
        self._started = 0.0
        self._short = 0

    def run(self) -> int:
        """Supervise until the router ends by itself; returns its exit status."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self._journal = journal.create()
        self._start(recover=False, predecessor=None)
        while True:
            number = signal.sigwait(_SIGNALS)
            if number == signal.SIGCHLD:
                status = self._reap()
                if status is not None:
                    return status
            elif number == signal.SIGUSR2:
                self._replace()
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, number)

    def _own(self) -> set[int]:
        ends = (self._line, self._reach, None if self._relieving is None else self._relieving[1])
        return {0, 1, 2, self._journal} | {end.fileno() for end in ends if end is not None}

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
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            from amqp_session_router import app

            assert self._line is not None
            status = app.work(self.config, self.drain, self._journal, self._line, self._own(), recover, predecessor)
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
            if self._relieving is not None and pid == self._relieving[0]:
                # The successor, with whom we share it, closes this line when it has heard the end.
                self._relieving[1].detach()
                self._relieving = None
            elif pid == self.pid:
                ended = self._ended(status)
                if ended is not None:
                    return ended

    def _ended(self, status: int) -> int | None:
        """The router ended: start the next one if it was killed."""
        if self._relieving is not None:
            # The successor failed before it took over: the old one goes on, but nobody holds its sockets now.
            print("amqp-session-router: the restart failed; the old process goes on", file=sys.stderr)
            self._drop_line()
            self.pid, self._reach = self._relieving
            self._relieving = None
            return None
        if os.WIFEXITED(status):
            return os.WEXITSTATUS(status)
        self._short = self._short + 1 if time.monotonic() - self._started < _SHORT_LIFE else 0
        if self._short >= _SHORT_LIVES:
            print("amqp-session-router: killed again and again", file=sys.stderr)
            return 128 + os.WTERMSIG(status)
        print(f"amqp-session-router: killed by signal {os.WTERMSIG(status)}; starting again", file=sys.stderr)
        held = self._line is not None
        self._drop_line()
        self._start(recover=held, predecessor=None)
        return None

    def _drop_line(self) -> None:
        for end in (self._line, self._reach):
            if end is not None:
                end.close()
        self._line = self._reach = None

    def _replace(self) -> None:
        """Start a successor beside the router; it takes over by itself."""
        if self._relieving is not None or self._reach is None:
            return
        unshare_files()
        reach = self._reach
        if self._line is not None:
            self._line.close()
        os.close(self._journal)
        self._journal = journal.create()
        self._reach = self._line = None
        self._relieving = (self.pid, reach)
        close_all_but(self._own())
        self._start(recover=False, predecessor=reach)


def main(arguments: list[str]) -> int:
    """Run with the path of the configuration and the seconds to drain."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A session takes two descriptors, and more while bytes are stuck in pipes.
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Nothing that this process was started with may be taken for a session's.
    close_all_but({0, 1, 2})
    return Supervisor(arguments[0], float(arguments[1])).run()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
