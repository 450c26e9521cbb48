"""What a worker accepts as its configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest

from brokerdrill.base.errors import UsageError
from brokerdrill.workload.client import client_type, endpoint_at
from brokerdrill.workload.config import BrokerEndpoint, ClientAccount, ClientSpec, WorkerConfig, from_json

MINIMAL: dict[str, Any] = {
    "run_id": "r",
    "worker": "w0",
    "clock": "w0",
    "client": "core",
    "endpoints": [{"address": "10.0.0.1", "port": 61616, "instance": "a1", "host": "h1"}],
    "credentials": {"username": "drill", "password": "s3cret-value"},
    "addresses": ["q0", "q1"],
}


def test_defaults_and_round_trip() -> None:
    config = from_json(json.dumps({**MINIMAL, "producers": ["p", {"name": "p2", "addresses": ["q1"]}]}))
    assert config.producers == (ClientSpec("p", ("q0", "q1")), ClientSpec("p2", ("q1",)))
    assert config.endpoints == (BrokerEndpoint("10.0.0.1", 61616, "a1", "h1"),)
    assert (config.transaction, config.rate, config.spool, config.tls_ca) == (10, None, None, None)
    assert from_json(json.dumps(config.to_json())) == config


def test_the_password_is_not_in_its_text() -> None:
    assert "s3cret-value" not in repr(from_json(json.dumps(MINIMAL)))
    assert ClientAccount("a", "b") == ClientAccount("a", "b")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"run_id": None}, "run_id must be a str"),
        ({"endpoints": []}, "endpoints is empty"),
        ({"endpoints": [{"address": "a", "port": "1", "instance": "i", "host": "h"}]}, "endpoints: port must be a int"),
        ({"credentials": {"username": "drill", "password": 5}}, "credentials: password must be a str"),
        ({"addresses": []}, "addresses is empty"),
        ({"addresses": "q0"}, "addresses must be a list of str"),
        ({"producers": "p"}, "producers must be a list"),
        ({"producers": ["p"], "consumers": ["p"]}, "two clients have one name"),
        ({"producers": ['p"']}, "a name has only"),
        ({"producers": [{"name": "p", "addresses": []}]}, "p has no address"),
        ({"rate": 0}, "rate must be above 0"),
        ({"rate": True}, "rate must be a float"),
        ({"transaction": -1}, "transaction is below 0"),
        ({"payload_bytes": []}, "payload_bytes must be sizes"),
        ({"durable": 1}, "durable must be a bool"),
        ({"url_params": {"a": 1}}, "url_params must map"),
        ({"surprise": 1}, "unknown field surprise"),
    ],
)
def test_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=r"^worker configuration: ") as caught:
        from_json(json.dumps({**MINIMAL, **change}))
    assert said in str(caught.value) and "s3cret-value" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"'])
def test_not_an_object(text: str) -> None:
    with pytest.raises(UsageError):
        from_json(text)


@pytest.mark.parametrize("missing", list(MINIMAL))
def test_missing(missing: str) -> None:
    with pytest.raises(UsageError, match=f"{missing} is missing"):
        from_json(json.dumps({name: value for name, value in MINIMAL.items() if name != missing}))


def test_endpoint_at() -> None:
    one, two, three = (
        BrokerEndpoint(a, p, f"i{p}", "h") for a, p in (("10.0.0.1", 1), ("10.0.0.1", 2), ("10.0.0.2", 1))
    )
    known = (one, two, three)
    assert endpoint_at("tcp://10.0.0.1:2", known) == two
    assert endpoint_at("/10.0.0.2:1", known) == three
    assert endpoint_at("10.0.0.2:77", known) == three, "the only one at that address"
    assert endpoint_at("10.0.0.1:77", known) is None
    assert endpoint_at("10.0.0.1:1", (*known, BrokerEndpoint("10.0.0.1", 1, "other", "h"))) is None, (
        "whoever has it now"
    )
    assert endpoint_at("[fe80::1]:1", (BrokerEndpoint("fe80::1", 1, "i", "h"),)) is not None


def test_clients_by_name() -> None:
    assert client_type("core").protocol == "core"
    assert client_type("tests.workload.fake_client:FakeClient").__name__ == "FakeClient"
    with pytest.raises(UsageError, match="did you mean 'core'"):
        client_type("cor")
    with pytest.raises(UsageError):
        client_type("tests.workload.fake_client:Nobody")


def test_config_is_frozen() -> None:
    config = from_json(json.dumps(MINIMAL))
    assert isinstance(config, WorkerConfig)
    with pytest.raises(AttributeError):
        config.run_id = "other"  # type: ignore[misc]
