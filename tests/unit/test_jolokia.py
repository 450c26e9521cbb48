"""Jolokia's answers: what is none of the expected shape is no answer."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.products.base import ManagementError
from brokerdrill.products.jolokia import JolokiaClient

DESCRIPTOR = Descriptor(
    schema=1,
    product="artemis",
    instance="a1",
    host="a1",
    listeners=[],
    dials=[],
    management={"type": "jolokia", "url": "http://a1:1/console/jolokia"},
)


def told(answer: Any) -> list[dict[str, Any]]:
    async def ask() -> list[dict[str, Any]]:
        client = JolokiaClient(DESCRIPTOR, {"username": "u", "password": "p"}, "")
        await client._http.aclose()
        transport = httpx.MockTransport(lambda _: httpx.Response(200, json=answer))
        client._http = httpx.AsyncClient(transport=transport)
        try:
            return await client.call({"type": "read"})
        finally:
            await client.close()

    return asyncio.run(ask())


def test_a_reply_to_each_request() -> None:
    assert told([{"status": 200, "value": 1}]) == [{"status": 200, "value": 1}]


@pytest.mark.parametrize("answer", [{"status": 500, "error": "it ends"}, [], [{}, {}], "no"])
def test_what_is_none_is_no_answer(answer: Any) -> None:
    with pytest.raises(ManagementError, match="no reply to each request"):
        told(answer)
