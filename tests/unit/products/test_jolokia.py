"""Jolokia's answers: what is none of the expected shape is no answer."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.products.activemq_classic import ActiveMQClassic
from brokerdrill.products.artemis import Artemis
from brokerdrill.products.base import ManagementError, NotAllowed, Product, QueueCounts
from brokerdrill.products.jolokia import JolokiaClient
from brokerdrill.products.openmq import OpenMq
from brokerdrill.products.registry import DESCRIPTORS

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


ARTEMIS = {"MessageCount": 1, "DeliveringCount": 0, "ScheduledCount": 0, "MessagesAdded": 4, "ConsumerCount": 2}
CLASSIC = {"QueueSize": 1, "InFlightCount": 0, "EnqueueCount": 4, "ConsumerCount": 2}
OPENMQ = {
    "NumMsgs": 1,
    "NumMsgsRemote": 0,
    "NumMsgsPendingAcks": 0,
    "NumMsgsInDelayDelivery": 0,
    "NumMsgsIn": 4,
    "NumConsumers": 2,
}


@pytest.mark.parametrize(
    ("product", "value"),
    [
        (Artemis(), {"queue": ARTEMIS, "address": {"MessageCount": 1, "Paging": False}}),
        (ActiveMQClassic(), CLASSIC),
        (OpenMq(), {"bean": OPENMQ}),
    ],
    ids=lambda item: getattr(item, "name", ""),
)
def test_what_is_not_there_is_left_out_and_what_may_not_be_said_is_refused(product: Product, value: Any) -> None:
    def counts(*replies: dict[str, Any]) -> Any:
        where = {"type": "jolokia", "url": "http://a1:1/jolokia", "broker_name": "a1", "service": "jms"}
        one = DESCRIPTORS[product.name].model_validate({**DESCRIPTOR.model_dump(by_alias=True), "management": where})
        management: Any = product.manage(one, {"username": "u", "password": "p"}, "")
        transport = httpx.MockTransport(lambda _: httpx.Response(200, json=replies))
        management._client._http = httpx.AsyncClient(transport=transport)
        return asyncio.run(management.counts(["q", "other"][: len(replies)]))

    there, gone = {"status": 200, "value": value}, {"status": 404, "error": "no such bean"}
    assert counts(there, gone) == {"q": QueueCounts(1, 0, 0, 4, 2)}
    with pytest.raises(NotAllowed, match="counts of other: the policy forbids it"):
        counts(there, {"status": 403, "error": "the policy forbids it"})
    with pytest.raises(ManagementError, match="counts of q: broken") as failed:
        counts({"status": 500, "error": "broken"})
    assert not isinstance(failed.value, NotAllowed)


def test_an_address_with_pages_is_not_empty_whatever_is_counted() -> None:
    none = dict.fromkeys(ARTEMIS, 0)

    def counted(beans: dict[str, Any]) -> Any:
        management: Any = Artemis().manage(
            DESCRIPTORS["artemis"].model_validate(
                {
                    **DESCRIPTOR.model_dump(by_alias=True),
                    "management": {"type": "jolokia", "url": "http://a1:1/jolokia", "broker_name": "a1"},
                }
            ),
            {"username": "u", "password": "p"},
            "",
        )
        reply = httpx.Response(200, json=[{"status": 200, "value": beans}])
        management._client._http = httpx.AsyncClient(transport=httpx.MockTransport(lambda _: reply))
        return asyncio.run(management.counts(["q"]))

    assert not counted({"address": {"MessageCount": 0, "Paging": True}, "queue": none})["q"].empty
    assert counted({"address": {"MessageCount": 0, "Paging": False}, "queue": none})["q"].empty
    assert counted({"address": {"MessageCount": 0, "Paging": False}}) == {}
