"""Where the clients of a load connect, and how."""

from __future__ import annotations

import re

import pytest

from brokerdrill.base.errors import InfrastructureError, UsageError
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.runner.load.plan import endpoints, plan_workers, secure
from brokerdrill.scenario.model import Load


def server(name: str, *, tls: bool, clients: bool = True) -> Descriptor:
    listeners = [
        {
            "name": "amqp",
            "address": "a",
            "port": 5672,
            "protocol": "amqp091",
            "tls": tls,
            "clients": clients,
        },
        {"name": "management", "address": "a", "port": 15671, "protocol": "https", "tls": True},
    ]
    return Descriptor.model_validate(
        {"schema": 1, "instance": name, "product": "p", "host": name, "listeners": listeners}
    )


BEHIND = [server(f"rabbit{number}", tls=True, clients=False) for number in (1, 2)]


def test_clients_of_brokers_behind_routers_dial_these() -> None:
    servers = [*BEHIND, server("router2", tls=False), server("router1", tls=False)]
    assert [end.instance for end in endpoints(servers, "amqp091")] == ["router1", "router2"]
    assert not secure(servers, "amqp091")


def test_clients_speak_tls_where_the_servers_do() -> None:
    assert secure([*BEHIND, server("router1", tls=True)], "amqp091")
    with pytest.raises(InfrastructureError, match="some listeners of amqp091 use TLS"):
        secure([server("router1", tls=True), server("router2", tls=False)], "amqp091")


@pytest.mark.parametrize(
    ("protocol", "load", "told"),
    [
        ("amqp091", Load(addresses=["q"], transaction=1), "send without transactions: set load.transaction to 0"),
        ("mqtt", Load(addresses=["q"], transaction=1), "send without transactions: set load.transaction to 0"),
        (
            "core",
            Load(addresses=["q"], confirms=False),
            "always wait for the broker's word on a send: leave load.confirms out",
        ),
        (
            "stomp",
            Load(addresses=["q"], transaction=0, window=2),
            "have one message in flight here, those of amqp, amqp091, core several: leave load.window out",
        ),
        (
            "core",
            Load(addresses=["t"], consumers=1, subscriptions=True),
            "have no durable subscriptions here: leave load.subscriptions out",
        ),
        (
            "stomp",
            Load(addresses=["q"], url_params={"reconnectAttempts": "1"}),
            "take no parameters of their connections: leave load.url_params out",
        ),
        (
            "core",
            Load(addresses=["q"], transaction=0, window=2, url_params={"confirmationWindowSize": -1}),
            "with confirmationWindowSize=-1 are told that a message arrived before the broker has it: leave "
            "load.url_params.confirmationWindowSize out, or let them send in transactions (load.transaction)",
        ),
        (
            "openwire",
            Load(addresses=["q"], transaction=0, url_params={"jms.useAsyncSend": True}),
            "with jms.useAsyncSend=true are told that a message arrived before the broker has it: leave "
            "load.url_params.jms.useAsyncSend out, or let them send in transactions (load.transaction)",
        ),
    ],
)
def test_what_a_protocol_cannot_do_is_refused_before_anything_is_started(protocol: str, load: Load, told: str) -> None:
    with pytest.raises(UsageError, match=f"^clients of {protocol} {re.escape(told)}$"):
        plan_workers(
            run_id="r", seed=1, protocol=protocol, load=load, servers=[],
            credentials={"username": "u", "password": "p"}, hosts=[],
        )  # fmt: skip
