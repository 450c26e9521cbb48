"""Names of backends: their addresses, also while no resolver answers. One for all who ask, so that each knows what any
of them learned last."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

log = logging.getLogger(__name__)

_SHARE = 4
"""A look-up has this part of an attempt's time, where an earlier answer could do."""
_NO_ANSWER = frozenset({socket.EAI_AGAIN, socket.EAI_FAIL, socket.EAI_SYSTEM})
"""Errors by which the resolver got no answer; all others are an answer."""


class Names:
    """What is known of names."""

    def __init__(self) -> None:
        self._lookups: dict[tuple[str, int], asyncio.Future[list[Any]]] = {}
        self._last: dict[tuple[str, int], list[Any]] = {}
        """The last answer to each look-up."""
        self._unanswered: set[tuple[str, int]] = set()
        """Those that had none since."""

    async def addresses(self, loop: asyncio.AbstractEventLoop, host: str, port: int, deadline: float) -> list[Any]:
        """Return the addresses of `host`: those of the last answer where a resolver gives none, or none soon. Raises
        OSError, of which TimeoutError at the deadline, and UnicodeError."""
        place = (host, port)
        last = self._last.get(place)
        now = loop.time()
        try:
            async with asyncio.timeout_at(deadline if last is None else now + (deadline - now) / _SHARE):
                return await self._resolve(loop, host, port)
        except TimeoutError:
            if last is None:
                raise
        except socket.gaierror as error:
            if last is None or error.errno not in _NO_ANSWER:
                raise
        if place not in self._unanswered:
            self._unanswered.add(place)
            log.warning("a name is not answered for: the addresses that it had last are used", extra={"host": host})
        return last

    async def _resolve(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[Any]:
        """Return the addresses of `host`, as getaddrinfo(3) does; raises OSError, UnicodeError.

        Who asks while the same question is under way gets the same answer: few threads ask for all sessions.
        """
        place = (host, port)
        lookup = self._lookups.get(place)
        if lookup is None:
            asked = loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            lookup = self._lookups[place] = asyncio.ensure_future(asked)
            lookup.add_done_callback(lambda answer: self._answered(place, answer))
        return await asyncio.shield(lookup)

    def _answered(self, place: tuple[str, int], answer: asyncio.Future[list[Any]]) -> None:
        del self._lookups[place]
        if answer.cancelled():
            return
        # Who asked may be gone.
        error = answer.exception()
        if error is None:
            self._last[place] = answer.result()
        elif not (isinstance(error, socket.gaierror) and error.errno in _NO_ANSWER):
            # It has no address any more.
            self._last.pop(place, None)
        else:
            return
        if place in self._unanswered:
            self._unanswered.remove(place)
            log.info("a name is answered for again", extra={"host": place[0]})
