"""The time in which a client library looks for its connection again."""

from __future__ import annotations

import time

from brokerdrill.workload.client import Reconnect


class Outage:
    """When the connection was lost and when it was back, as the library says in threads of its own."""

    def __init__(self) -> None:
        self._lost_ns: int | None = None
        self._over: Reconnect | None = None

    def begins(self, *, anew: bool = False) -> None:
        """Note that the connection is lost. The first loss counts until `take`; `anew`: the newest."""
        if anew or self._lost_ns is None:
            self._lost_ns = time.monotonic_ns()

    def ends(self) -> None:
        """Note that there is a connection again."""
        if self._lost_ns is not None:
            self._over = Reconnect(self._lost_ns, time.monotonic_ns())

    def take(self) -> Reconnect | None:
        """Return the newest outage, once; it is over, for the caller has used the connection."""
        # The session may be back just before the library says so.
        found, self._over = self._over, None
        if found is None and self._lost_ns is not None:
            found = Reconnect(self._lost_ns, time.monotonic_ns())
        self._lost_ns = None
        return found

    def forget(self) -> None:
        """There is a new connection, and what was lost was another one."""
        self._lost_ns = None
        self._over = None
