"""OpenWire and AMQP clients that a connection router redirects: what they dial, and what they read from a redirect."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.workload import amqp_jms, openwire_jms
from brokerdrill.workload.amqp_jms import AmqpJms
from brokerdrill.workload.client import Aim, ClientError
from brokerdrill.workload.config import BrokerEndpoint, ClientAccount, Router, WorkerConfig
from brokerdrill.workload.core_jms import CoreJms
from brokerdrill.workload.openwire_jms import OpenWireJms, place_of

ENDPOINTS = (BrokerEndpoint("192.0.2.1", 61616, "a1", "h1"), BrokerEndpoint("2001:db8::2", 61616, "b1", "h2"))
ROUTER = Router("192.0.2.9", 61622, "r1", "h3")


def config(key_type: str = "CLIENT_ID", tls_ca: str | None = "/ca.pem") -> WorkerConfig:
    return WorkerConfig(
        run_id="r", worker="w", clock="w", client="openwire", endpoints=ENDPOINTS, credentials=ClientAccount("u", "p"),
        addresses=("q",), routers=(ROUTER,), key_type=key_type, tls_ca=tls_ca,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("brokers", "place"),
    [("tcp://192.0.2.1:61616", "192.0.2.1:61616"), ("tcp://a:1,tcp://b:2", "a:1"), (" ", None), ("", None)],
)
def test_a_redirect_names_a_place(brokers: str, place: str | None) -> None:
    assert place_of(brokers) == place


def test_openwire_dials_all_brokers_or_whom_it_is_led_to() -> None:
    made = openwire_jms.url(config(), ENDPOINTS)
    assert made.startswith("failover:(ssl://192.0.2.1:61616,ssl://[2001:db8::2]:61616)?")
    assert "maxReconnectAttempts=-1" in made and "clientID" not in made
    led = openwire_jms.url(config(), [ROUTER], Aim(ROUTER, "anna"))
    assert led.startswith("failover:(ssl://192.0.2.9:61622)?")
    assert "maxReconnectAttempts=0" in led and "jms.clientID=anna" in led, "a lost connection is for the router again"
    assert "clientID" not in openwire_jms.url(config("USER_NAME"), [ROUTER], Aim(ROUTER, "anna"))


def test_amqp_dials_one_place_at_a_time() -> None:
    assert amqp_jms.url(config(), ENDPOINTS[1]).startswith("amqps://[2001:db8::2]:61616?")
    assert amqp_jms.url(config(tls_ca=None), ENDPOINTS[0]).startswith("amqp://192.0.2.1:61616?")
    assert "jms.clientID=anna" in amqp_jms.url(config(), ROUTER, Aim(ROUTER, "anna"))
    assert "clientID" not in amqp_jms.url(config("USER_NAME"), ROUTER, Aim(ROUTER, "anna"))


@pytest.mark.parametrize(
    ("remote", "answered", "reached"),
    [
        ("/192.0.2.1:61616", False, ENDPOINTS[0]),
        ("/192.0.2.9:61622", True, ROUTER),
        ("/192.0.2.9:61622", False, "neither served nor led on by r1"),
        ("/192.0.2.77:1", False, None),
    ],
)
def test_who_is_left_at_a_router_that_serves_nobody_reaches_nobody(
    remote: str, answered: bool, reached: BrokerEndpoint | str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = object.__new__(CoreJms)  # making one needs a JVM
    monkeypatch.setattr(client, "_config", config(), raising=False)
    connection = SimpleNamespace(getRemoteAddress=lambda: remote)
    monkeypatch.setattr(client, "_core", SimpleNamespace(getConnection=lambda: connection), raising=False)
    monkeypatch.setattr(client, "_answered", lambda: answered)
    if isinstance(reached, str):
        with pytest.raises(ClientError, match=reached):
            client.served_by()
    else:
        assert client.served_by() == reached


@pytest.mark.parametrize(
    ("kind", "result", "usable"),
    [
        ("TransactionRolledBackException", "fail", True),
        ("JMSSecurityException", "fail", False),
        ("JmsSendTimedOutException", "unknown", False),
    ],
)
def test_what_an_amqp_exception_proves(kind: str, result: str, usable: bool) -> None:
    outcome = amqp_jms.outcome_of(kind, f"{kind}: why")
    assert (outcome.result, outcome.usable) == (result, usable)


@pytest.mark.parametrize("client", [OpenWireJms, AmqpJms])
def test_a_server_name_is_not_theirs_to_choose(client: type[OpenWireJms] | type[AmqpJms]) -> None:
    with pytest.raises(InfrastructureError, match="server name"):
        client._prepare_process(config("SNI_HOST"))
    client._prepare_process(config("CLIENT_ID"))
