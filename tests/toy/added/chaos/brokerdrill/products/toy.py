"""The toy broker: its role and counts in its own line protocol, its role times by its log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from brokerdrill.products.health.toy import health_of

from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.products.base import Management, ManagementError, QueueCounts
from brokerdrill.products.logs import LogReader, by_words

CALL_TIMEOUT_S = 2.0


class Line:
    """The management of one broker; a connection for each call."""

    def __init__(self, descriptor: Descriptor, credentials: Mapping[str, str]) -> None:
        (self._listener,) = descriptor.listeners
        self._password = credentials["password"]

    async def _ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer to the request, after the greeting. Raises ManagementError without one."""
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(self._listener.address, self._listener.port)
                try:
                    answer: dict[str, Any] = {}
                    for one in ({"op": "hello", "password": self._password}, request):
                        if one:
                            writer.write(json.dumps(one).encode() + b"\n")
                            answer = json.loads(await reader.readline())
                    return answer
                finally:
                    writer.close()
        except (OSError, ValueError) as error:
            refused = isinstance(error, ConnectionRefusedError)
            raise ManagementError(f"{type(error).__name__}: {error}", refused=refused) from None

    async def role(self) -> str:
        return health_of(await self._ask()).state

    async def counts(self, addresses: Sequence[str]) -> Mapping[str, QueueCounts]:
        found = (await self._ask(op="counts", queues=list(addresses)))["queues"]
        return {name: QueueCounts(messages, out, 0, added) for name, (messages, out, added) in found.items()}

    async def prepared(self) -> Collection[str]:
        return ()

    async def in_transit(self) -> int:
        return 0

    async def purge(self, addresses: Sequence[str]) -> int:
        before = await self.counts(addresses)
        await self._ask(op="purge", queues=list(addresses))
        return sum(item.messages for item in before.values())

    async def close(self) -> None:
        return


class Toy:
    """The product, as `products.registry` finds it."""

    name = "toy"
    client: str | None = "toy"

    def manage(self, descriptor: Descriptor, credentials: Mapping[str, str], ca_pem: str) -> Management:
        return Line(descriptor, credentials)

    def log_reader(self) -> LogReader:
        return by_words(("toy is ready", "active"))


PRODUCT = Toy()
