"""Tells sessions what happens at their sockets, where `poller.pyx` could not be compiled: the reasons for what it does
stand there.

What is compiled is imported in its place. The tests of flows and sessions run with either.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Callable, Sized
from typing import Protocol

from amqp_session_router.net.event_loop import EventLoop

_ENTERED, _POLLED, _WANTED, _FAILED = 1, 2, 4, 8
_MOST = 256


class Keeper(Protocol):
    """Who has a socket."""

    def drain_on_error(self) -> None:
        """The socket failed or is shut in both directions: read until the error or the end is seen."""


class Poller:
    """Calls the reader of a socket when there is something to read, and the keeper of one that failed."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._readers: dict[int, Callable[[], object]] = {}
        self._keepers: dict[int, Keeper] = {}
        self._states: dict[int, int] = {}
        self.turn = 0
        """How many poll cycles there were: epoll_wait with events, and the calls of their readers."""
        self._others = loop.wait_by(self.wait)
        self._epoll.register(self._others, select.EPOLLIN)

    def watch(self, fd: int, keeper: Keeper) -> None:
        """Have `keeper.drain_on_error` called once the socket `fd` has failed, in place of any earlier keeper's."""
        if fd < 0:
            raise ValueError("this socket is closed")
        if self._keepers.get(fd) is keeper:
            return
        self._keepers[fd] = keeper
        state = self._states.setdefault(fd, 0)
        if state & _FAILED:
            self._loop.call_soon(keeper.drain_on_error)
        elif not state & _ENTERED:
            self._epoll.register(fd, select.EPOLLIN)
            self._states[fd] = state | _ENTERED | _POLLED

    def read(self, fd: int, reader: Callable[[], object]) -> None:
        """Call `reader` whenever there is something to read at `fd`, which is watched, in place of any earlier one."""
        state = self._states[fd] | _WANTED
        self._readers[fd] = reader
        if state & _ENTERED and not state & _POLLED:
            self._epoll.modify(fd, select.EPOLLIN)
            state |= _POLLED
        self._states[fd] = state

    def unread(self, fd: int) -> None:
        """Call no reader of `fd`. Idempotent."""
        if fd in self._states:
            self._states[fd] &= ~_WANTED
            self._readers.pop(fd, None)

    def forget(self, fd: int) -> None:
        """Forget the socket `fd`, which is about to be closed and has no duplicates (the kernel drops it by itself)."""
        self._states.pop(fd, None)
        self._readers.pop(fd, None)
        self._keepers.pop(fd, None)

    def leave(self, fd: int) -> None:
        """Stop watching `fd`, of which another process has a duplicate."""
        if self._states.get(fd, 0) & _ENTERED:
            self._epoll.unregister(fd)
        self.forget(fd)

    def close(self) -> None:
        """Release everything."""
        self._loop.wait_by(None)
        self._epoll.close()
        self._readers, self._keepers, self._states = {}, {}, {}

    def wait(self, timeout: float | None, ready: Sized, timers: Sized) -> bool:
        """Tell of what happens for at most `timeout` seconds, None: for ever; until there is something in `ready`, in
        `timers` or for the event loop. Returns whether the latter is so."""
        until = math.inf if timeout is None else time.monotonic() + max(0.0, timeout)
        while True:
            left = until - time.monotonic()
            # Not earlier than asked: epoll counts milliseconds.
            events = self._epoll.poll(None if left == math.inf else math.ceil(max(0.0, left) * 1e3) * 1e-3, _MOST)
            if not events:
                return False
            if self._told(events):
                return True
            if ready or timers or time.monotonic() >= until:
                return False

    def _told(self, events: list[tuple[int, int]]) -> bool:
        """Tell of `events`; returns whether there is something for the event loop."""
        others = False
        self.turn += 1
        for fd, seen in events:
            if fd == self._others:
                others = True
                continue
            if fd not in self._states:
                continue
            try:
                if seen & (select.EPOLLERR | select.EPOLLHUP):
                    self._fail(fd)
                elif self._states[fd] & (_WANTED | _ENTERED) == _ENTERED:
                    self._epoll.modify(fd, 0)
                    self._states[fd] &= ~_POLLED
                if seen & select.EPOLLIN and self._states[fd] & _WANTED:
                    self._readers[fd]()
            except Exception as error:
                self._loop.call_exception_handler({"message": f"a socket's reader failed: {error}", "exception": error})
        return others

    def _fail(self, fd: int) -> None:
        """The socket has failed, or is shut in both directions: no event will say more."""
        now = select.poll()
        now.register(fd, 0)
        if self._states[fd] & _ENTERED and now.poll(0):
            self._epoll.unregister(fd)
            self._states[fd] = self._states[fd] & _WANTED | _FAILED
            self._loop.call_soon(self._keepers[fd].drain_on_error)
