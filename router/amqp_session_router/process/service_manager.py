"""What the router reports to systemd, and what systemd keeps for it: sd_notify(3) and sd_listen_fds(3), without
systemd's library.

A worker speaks for the service, and a worker is never its main process: the unit needs `NotifyAccess=all`. With
`FileDescriptorStoreMax=` systemd keeps the listening sockets: where all processes of the router were killed, clients
that connect wait for the next one, and are not refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import socket
from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote

_FIRST = 3
"""The first descriptor that a service manager gives."""
_LONGEST_NAME = 255
_PARTS = 5
_NAME = "FDNAME="
_BARRIER_MS = 5000
KEPT_WITHIN = 1.0
"""Seconds. A sign of life may be lost, but not that a socket is listened on no more: many listeners are many words, of
which a kernel may hold no more than ten."""
_BEATS = 3
"""Signs of life in one watchdog period."""


class ServiceManager:
    """The service manager that started the router; without one, reports go nowhere."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment` has NOTIFY_SOCKET, and WATCHDOG_USEC where the unit has a watchdog."""
        path = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        period = environment.get("WATCHDOG_USEC", "")
        self.beat = int(period) / 1e6 / _BEATS if self._address and period.isdecimal() and int(period) else None
        """Seconds between two signs of life; None: nobody waits for any."""

    def notify(self, *words: str, descriptors: Sequence[int] = (), within: float = 0.0) -> None:
        """Send `words`, such as `READY=1`, and `descriptors`; one who does not listen is no trouble. `within`: seconds
        to wait for one who has too much to hear."""
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.settimeout(within)
            # Not socket.send_fds, which forgets the address.
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
            line.sendmsg(["\n".join(words).encode()], rights, 0, self._address)

    def store(self, name: str, descriptors: Sequence[int]) -> None:
        """Have copies of `descriptors` kept under `name`, beside what is kept there."""
        self.notify("FDSTORE=1", _NAME + name, descriptors=descriptors, within=KEPT_WITHIN)

    def forget(self, name: str) -> None:
        """Have nothing kept under `name` any more."""
        self.notify("FDSTOREREMOVE=1", _NAME + name, within=KEPT_WITHIN)

    def barrier(self) -> None:
        """Return once the manager has processed all messages, or does not answer in time; see sd_notify_barrier(3)."""
        if not self._address:
            return
        reading, writing = os.pipe()
        try:
            self.notify("BARRIER=1", descriptors=[writing])
        finally:
            os.close(writing)
        waiting = select.poll()
        waiting.register(reading, 0)
        # It closes its copy then.
        waiting.poll(_BARRIER_MS)
        os.close(reading)

    async def live(self) -> None:
        """Give signs of life until cancelled: an event loop that is stuck gives none."""
        while self.beat is not None:
            self.notify("WATCHDOG=1")
            await asyncio.sleep(self.beat)


class StoredListener(NamedTuple):
    """A listener whose sockets a service manager keeps."""

    worker: int
    """The index of the worker that listens."""
    workers: int
    """How many there are."""
    listener: str
    host: str
    port: int
    """As in the configuration."""
    descriptors: tuple[int, ...]

    @property
    def name(self) -> str:
        """What its sockets are kept under; empty: none that systemd takes, so they are not kept."""
        name = "/".join(quote(str(part), safe="") for part in self[:_PARTS])
        return name if len(name) <= _LONGEST_NAME else ""


def name_of(words: Sequence[str]) -> str:
    """Return the name of which `words` say that something is kept or forgotten under it; empty: they do not."""
    return next((word.removeprefix(_NAME) for word in words if word.startswith(_NAME)), "")


def words_of(listeners: Sequence[StoredListener]) -> str:
    """Return the listeners as an argument of a program that inherits their descriptors."""
    return json.dumps(listeners)


def listeners_of(words: str) -> list[StoredListener]:
    """Return what `words_of` made, but what has been closed since."""
    passed = [
        StoredListener(worker, workers, listener, host, port, (*numbers,))
        for worker, workers, listener, host, port, numbers in json.loads(words)
    ]
    return [one for one in passed if all(map(_listens, one.descriptors))]


def _listens(number: int) -> bool:
    try:
        with socket.socket(fileno=os.dup(number)) as one:
            return bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False


def stored_listeners(environment: Mapping[str, str], process: int) -> list[StoredListener]:
    """Return the listeners that were given to the process of this id when it was started, as `environment` says.

    What else was given is left alone.
    """
    if environment.get("LISTEN_PID") != str(process):
        return []
    found: dict[str, list[int]] = {}
    for number, name in enumerate(environment.get("LISTEN_FDNAMES", "").split(":"), _FIRST):
        with contextlib.suppress(OSError):
            os.fstat(number)
            found.setdefault(name, []).append(number)
    listeners = []
    for name, descriptors in found.items():
        parts = [unquote(part) for part in name.split("/")]
        if len(parts) == _PARTS and all(parts[place].isdecimal() for place in (0, 1, 4)):
            worker, workers, listener, host, port = parts
            one = StoredListener(int(worker), int(workers), listener, host, int(port), tuple(descriptors))
            listeners.append(one)
    return listeners


def forget_listeners(manager: ServiceManager, listeners: Sequence[StoredListener]) -> None:
    """Have listeners kept no more of which no connection would be accepted: their clients would wait."""
    for one in listeners:
        manager.forget(one.name)
    if listeners:
        manager.barrier()


class ListenerStore:
    """What one of several workers has kept of its listeners."""

    def __init__(self, manager: ServiceManager, worker: int, workers: int) -> None:
        self._manager = manager
        self._place = worker, workers
        self._kept: dict[str, frozenset[int]] = {}
        """By name, the sockets' inodes."""

    def keep(self, listeners: Sequence[tuple[str, str, int, Sequence[int]]]) -> None:
        """Have these kept (name, host, port and descriptors of each) and no others.

        A socket that nobody accepts from would leave clients waiting: what is no longer listened on is forgotten first.
        systemd keeps a socket once, under the first of its names: whenever it forgets one, all are sent again.
        """
        current = [
            StoredListener(*self._place, name, host, port, (*numbers,)) for name, host, port, numbers in listeners
        ]
        found = {one.name: one.descriptors for one in current if one.name and one.descriptors}
        now = {name: frozenset(os.fstat(one).st_ino for one in numbers) for name, numbers in found.items()}
        if now == self._kept:
            return
        # What an earlier process had kept under a name that is new here is not known here.
        for name in (name for name in self._kept | now if self._kept.get(name) != now.get(name)):
            self._manager.forget(name)
        for name, numbers in found.items():
            self._manager.store(name, numbers)
        self._kept = now
