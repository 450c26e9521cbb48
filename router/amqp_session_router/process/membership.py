"""A worker among the others of its router: it leads them, follows their leader, or is alone."""

from __future__ import annotations

import asyncio
import json
import os
import socket

from amqp_session_router.control.commands import Control
from amqp_session_router.control.service import Service
from amqp_session_router.control.workers import STATE, Follower, Leader
from amqp_session_router.process.place import Place


class Membership:
    """The worker's end of what the workers say to each other."""

    def __init__(self, place: Place, service: Service, control: Control) -> None:
        self._place = place
        self._service = service
        self._control = control
        self._leader: Leader | None = None
        self._follower: Follower | None = None

    async def join(self, first: bool) -> None:
        """Become one of the workers. The leader's others begin to follow it once it listens (`call`); at the `first`
        start they wait for that, and for its configuration."""
        if self._place.alone:
            return
        if self._place.leads:
            self._leader = Leader(self._place.workers, lambda: self._service.configuration.state)
            self._service.lead(self._leader)
            return
        self._follower = Follower(self._place.leader, self._place.index, self._answer)
        await self._follower.start()
        if first:
            events = self._follower.begun, self._service.left
            begun, left = (asyncio.create_task(event.wait()) for event in events)
            await asyncio.wait((begun, left), return_when=asyncio.FIRST_COMPLETED)
            for task in (begun, left):
                task.cancel()

    async def _answer(self, what: str, body: bytes) -> bytes:
        """Do what the leader asks; see `workers.Answer`."""
        if what == STATE:
            return json.dumps(await self._service.configuration.adopt(json.loads(body))).encode()
        return await self._control.answer(what, body)

    async def call(self) -> None:
        """As the leader, take in the others, which wait for it."""
        if self._leader is not None:
            await self._leader.start(socket.socket(fileno=os.dup(self._place.line)))

    async def part(self) -> None:
        """Be one of the workers no more."""
        if self._leader is not None:
            await self._leader.stop()
        if self._follower is not None:
            await self._follower.stop()
