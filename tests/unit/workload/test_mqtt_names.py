"""What an MQTT client makes of names and answers, and what it refuses."""

from dataclasses import replace
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.workload.client import client_type
from brokerdrill.workload.config import ClientAccount, WorkerConfig
from brokerdrill.workload.mqtt import Mqtt, address_of, said, topic_of

CONFIG = WorkerConfig("r", "w", "w", "mqtt", (), ClientAccount("", ""), ("drill.q0",), transaction=0)


def test_a_topic_is_the_address_with_slashes_for_dots() -> None:
    assert topic_of("drill.q0") == "drill/q0"
    assert address_of(topic_of("a.b.c")) == "a.b.c"


@pytest.mark.parametrize(
    ("code", "result"),
    [(0x00, "ok"), (0x10, "fail"), (0x80, "unknown"), (0x83, "unknown"), (0x87, "fail"), (0x97, "fail")],
)
def test_only_an_answer_that_proves_it_is_a_failure(code: int, result: str) -> None:
    outcome = said(ReasonCode(PacketTypes.PUBACK, identifier=code))
    assert (outcome.result, outcome.usable) == (result, True)
    assert (outcome.error is None) == (result == "ok")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"transaction": 1}, r"send without transactions: set load\.transaction to 0"),
        ({"keys": 1}, r"no message groups: set load\.keys to 0"),
        ({"durable": False}, r"durable messages only: set load\.durable to true"),
        ({"addresses": ("q0", "a/b")}, r"cannot name a/b: it has one of / \+ # \$"),
    ],
)
def test_what_the_protocol_has_no_word_for_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InfrastructureError, match=said):
        Mqtt.start_process(replace(CONFIG, **changes))


def test_all_else_is_taken() -> None:
    Mqtt.start_process(CONFIG)
    assert client_type("mqtt") is Mqtt
