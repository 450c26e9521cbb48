"""The Open MQ client: what its exceptions prove, and the properties of its connections."""

from __future__ import annotations

import pytest

from brokerdrill.workload.config import BrokerEndpoint, ClientAccount, ClientSpec, WorkerConfig
from brokerdrill.workload.openmq_jms import outcome_of, place_of, properties


@pytest.mark.parametrize(
    ("kind", "result", "usable"),
    [
        ("TransactionRolledBackException", "fail", True),
        ("JMSSecurityException", "fail", False),
        ("ResourceAllocationException", "fail", False),
        ("JMSException", "unknown", False),
        ("IllegalStateException", "unknown", False),
    ],
)
def test_an_exception_proves_no_more_than_it_says(kind: str, result: str, usable: bool) -> None:
    found = outcome_of(kind, f"{kind}: [C4000]")
    assert (found.result, found.usable) == (result, usable)


ENDPOINTS = (BrokerEndpoint("192.0.2.1", 7678, "b1", "h1"), BrokerEndpoint("2001:db8::2", 7678, "b2", "h2"))


def config(**change: object) -> WorkerConfig:
    values = {"run_id": "r", "worker": "w", "clock": "w", "client": "openmq", "addresses": ("q",)}
    return WorkerConfig(**{**values, "endpoints": ENDPOINTS, "credentials": ClientAccount("u", "p"), **change})  # type: ignore[arg-type]


def test_the_address_list_goes_to_the_services_themselves() -> None:
    plain, tls = (properties(config(tls_ca=ca), ENDPOINTS, 0)["imqAddressList"] for ca in (None, "/ca.pem"))
    assert plain == "mqtcp://192.0.2.1:7678/jms,mqtcp://[2001:db8::2]:7678/jms"
    assert tls == "mqssl://192.0.2.1:7678/ssljms,mqssl://[2001:db8::2]:7678/ssljms"


def test_a_scenarios_own_properties_win() -> None:
    own = properties(config(call_timeout_ms=700, url_params={"imqAddressListBehavior": "RANDOM"}), ENDPOINTS, 0)
    assert (own["imqAddressListBehavior"], own["imqAckTimeout"]) == ("RANDOM", "700")


def test_clients_begin_with_different_brokers() -> None:
    specs = tuple(ClientSpec(f"p-{number}", ("q",)) for number in range(3))
    made = config(producers=specs)
    lists = [properties(made, ENDPOINTS, place_of(made, spec.name))["imqAddressList"] for spec in specs]
    assert [each.split(",")[0] for each in lists] == [
        "mqtcp://192.0.2.1:7678/jms",
        "mqtcp://[2001:db8::2]:7678/jms",
        "mqtcp://192.0.2.1:7678/jms",
    ]
    assert all(len(each.split(",")) == 2 for each in lists)
