# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: annotation_typing=False
"""Calls sessions when something happens at their sockets, by an epoll of our own in which the event loop waits.
Compiled, with the types of `poller.pxd`: it runs once per event.

The event loop's own readers cost a connection several system calls and a message one iteration of the loop. Here a
socket is registered once. Who stops reading is found not to want the next event, and only then is the kernel asked to
be silent; closing does that by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sized
from typing import Protocol

from amqp_session_router.base import native
from amqp_session_router.net.event_loop import EventLoop

_ENTERED = 1  # the kernel knows the socket
_POLLED = 2  # and is asked for what can be read
_WANTED = 4  # which somebody wants
_FAILED = 8
_MOST = 256  # events at once
_LONGEST = 3_600_000  # milliseconds


class Keeper(Protocol):
    """Who has a socket."""

    def drain_on_error(self) -> None:
        """The socket failed or is shut in both directions: read until the error or the end is seen."""


class Poller:
    """Calls the reader of a socket when there is something to read, and the keeper of one that failed.

    `turn` counts the poll cycles: epoll_wait with events, and the calls of their readers.
    """

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        # By descriptor: the kernel gives the lowest number that is free.
        self._readers: list[Callable[[], object] | None] = []
        self._keepers: list[Keeper | None] = []
        self._states = bytearray()
        self.turn = 0
        self._room = bytearray(_MOST * native.EVENT_SIZE)
        self._events = native.events_in(self._room)
        self._epoll = native.epoll_new()
        self._check(self._epoll)
        self._others = loop.wait_by(self.wait)
        self._check(native.epoll_add(self._epoll, self._others, native.EPOLLIN))

    def watch(self, fd: int, keeper: Keeper) -> None:
        """Have `keeper.drain_on_error` called once the socket `fd` has failed, in place of any earlier keeper's."""
        if fd < 0:
            raise ValueError("this socket is closed")
        if not self._knows(fd):
            self._grow(fd)
        state = self._states[fd]
        if self._keepers[fd] is keeper:
            return
        self._keepers[fd] = keeper
        if state & _FAILED:
            self._loop.call_soon(keeper.drain_on_error)
        elif not state & _ENTERED:
            self._check(native.epoll_add(self._epoll, fd, native.EPOLLIN))
            self._states[fd] = state | _ENTERED | _POLLED

    def read(self, fd: int, reader: Callable[[], object]) -> None:
        """Call `reader` whenever there is something to read at `fd`, which is watched, in place of any earlier one."""
        if not self._knows(fd):
            raise KeyError(fd)
        state = self._states[fd] | _WANTED
        self._readers[fd] = reader
        if state & _ENTERED and not state & _POLLED:
            self._check(native.epoll_change(self._epoll, fd, native.EPOLLIN))
            state |= _POLLED
        self._states[fd] = state

    def unread(self, fd: int) -> None:
        """Call no reader of `fd`. Idempotent."""
        if self._knows(fd):
            self._states[fd] &= ~_WANTED & 0xFF
            self._readers[fd] = None

    def forget(self, fd: int) -> None:
        """Forget the socket `fd`, which is about to be closed and has no duplicates (the kernel drops it by itself)."""
        if self._knows(fd):
            self._states[fd] = 0
            self._readers[fd] = self._keepers[fd] = None

    def leave(self, fd: int) -> None:
        """Stop watching `fd`, of which another process has a duplicate."""
        if self._knows(fd):
            if self._states[fd] & _ENTERED:
                native.epoll_drop(self._epoll, fd)
            self.forget(fd)

    def close(self) -> None:
        """Release everything."""
        self._loop.wait_by(None)
        native.epoll_end(self._epoll)
        self._readers, self._keepers, self._states = [], [], bytearray()

    def _knows(self, fd: int) -> bool:
        return 0 <= fd < len(self._states)

    def _grow(self, fd: int) -> None:
        more = max(fd + 1, 64)
        self._states.extend(bytes(more))
        self._readers.extend([None] * more)
        self._keepers.extend([None] * more)

    def _check(self, result: int) -> None:
        """Raise OSError where a call of `native` has failed."""
        if result < 0:
            raise OSError(-result, os.strerror(-result))

    def wait(self, timeout: float | None, ready: Sized, timers: Sized) -> bool:
        """Handle events for at most `timeout` seconds, None: for ever; until there is something in `ready`, in `timers`
        or for the event loop. Returns whether the latter is so."""
        left = -1
        until = 0.0
        if timeout is not None:
            left = native.whole_ms(timeout * 1000, _LONGEST)
            if left:
                until = native.monotonic_ms() + left
        while True:
            count = native.epoll_wait(self._epoll, self._events, _MOST, left)
            # None, or a signal.
            if count <= 0:
                return False
            if self._handle(count):
                return True
            if left == 0 or len(ready) or len(timers):
                return False
            if left > 0:
                # Not earlier than asked.
                left = native.whole_ms(until - native.monotonic_ms(), _LONGEST)

    def _handle(self, count: int) -> bool:
        """Handle the first `count` of `_events`; returns whether there is something for the event loop."""
        others = False
        self.turn += 1
        for index in range(count):
            fd, seen = native.fd_of(self._events, index), native.seen_by(self._events, index)
            if fd == self._others:
                others = True
                continue
            if not self._knows(fd):
                # Closed meanwhile.
                continue
            try:
                if seen & (native.EPOLLERR | native.EPOLLHUP):
                    self._fail(fd)
                elif self._states[fd] & (_WANTED | _ENTERED) == _ENTERED:
                    self._check(native.epoll_change(self._epoll, fd, 0))
                    self._states[fd] &= ~_POLLED & 0xFF
                if seen & native.EPOLLIN and self._states[fd] & _WANTED:
                    self._readers[fd]()  # type: ignore[misc]
            except Exception as error:
                # As the event loop does it: the others go on.
                self._loop.call_exception_handler({"message": f"a socket's reader failed: {error}", "exception": error})
        return others

    def _fail(self, fd: int) -> None:
        """The socket has failed, or is shut in both directions: no event will say more."""
        # What failed may have been closed in this poll cycle, and its number be another's.
        if self._states[fd] & _ENTERED and native.has_events(fd):
            native.epoll_drop(self._epoll, fd)
            self._states[fd] = self._states[fd] & _WANTED | _FAILED
            self._loop.call_soon(self._keepers[fd].drain_on_error)  # type: ignore[union-attr]
