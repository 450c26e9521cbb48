"""What a login shell says before the agent, or between its answers, is none of these."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from brokerdrill.hosts.channels import CommandEnd
from brokerdrill.hosts.session import Session, _End


class Noisy:
    """Says `noise` before each of its answers."""

    def __init__(self, noise: str) -> None:
        self._noise = noise
        self._asked: asyncio.Queue[str] = asyncio.Queue()

    async def write(self, line: str) -> None:
        await self._asked.put(line)

    async def lines(self) -> AsyncIterator[str]:
        while True:
            request = json.loads(await self._asked.get())
            yield f"{self._noise}\n"
            yield json.dumps({"id": request["id"], "rc": 0, "out": "", "err": "", "t0": 1, "t1": 2}) + "\n"

    async def end_input(self) -> None:
        pass

    async def ending(self) -> CommandEnd:
        return CommandEnd("")

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("noise", ["welcome", "42", "null", "[1]", '"id"', "{}", '{"id": []}', '{"id": 77}'])
def test_noise_keeps_no_answer_away(noise: str) -> None:
    async def asked() -> int:
        session = Session(SimpleNamespace(name="one"), None, _End(), _agent=Noisy(noise))  # type: ignore[arg-type]
        session._reader = asyncio.create_task(session._read(session._agent))  # type: ignore[arg-type]
        try:
            return int((await session.request({"ping": True}, 2))["t0"])
        finally:
            await session.close()

    assert asyncio.run(asked()) == 1
