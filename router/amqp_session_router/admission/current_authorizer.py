"""The authorisation hook of now: another may take its place while sessions ask."""

from __future__ import annotations

import asyncio

from amqp_session_router.admission.authorization import AlwaysAllow, HttpAuthorizer
from amqp_session_router.base.model import Allowed, AuthRequest, Denied

Hook = AlwaysAllow | HttpAuthorizer

_LAST_ANSWERS = 60.0
"""Seconds that a hook which was replaced may take for the answers under way."""


class CurrentAuthorizer:
    """See `model.Authorizer`. Sessions ask it over every reload."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        """The one that is asked now."""
        self._retiring: set[asyncio.Task[None]] = set()

    @property
    def gives_credentials(self) -> bool:
        """Whether there is a hook; see `model.Authorizer`."""
        return isinstance(self.hook, HttpAuthorizer)

    async def authorize(self, request: AuthRequest) -> Allowed | Denied:
        """Ask the hook of now; see `model.Authorizer`."""
        return await self.hook.authorize(request)

    def replace(self, hook: Hook) -> None:
        """Ask `hook` from here on; the one before still gives the answers under way."""
        before, self.hook = self.hook, hook
        task = asyncio.create_task(_close_later(before), name="close the old authorisation hook")
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def close(self) -> None:
        """Close the connections to the hook, and to those before it."""
        for task in [*self._retiring]:
            task.cancel()
        await self.hook.close()


async def _close_later(hook: Hook) -> None:
    try:
        await asyncio.sleep(_LAST_ANSWERS)
    finally:
        await hook.close()
