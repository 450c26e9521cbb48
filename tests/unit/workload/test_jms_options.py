"""The options of a worker's JVM."""

from __future__ import annotations

from typing import Any

import pytest

from brokerdrill.workload.config import ClientAccount, ClientSpec, WorkerConfig
from brokerdrill.workload.jvm import KEEPS_A_RATE, jvm_options

PRODUCERS = (ClientSpec("producer-0", ("q",)),)


@pytest.mark.parametrize(
    ("changes", "one_compiler"),
    [
        ({"rate": None, "producers": PRODUCERS}, False),
        ({"rate": 100.0, "producers": PRODUCERS}, True),
        ({"rate": None, "producers": ()}, True),
    ],
)
def test_who_sends_as_fast_as_it_can_has_both_compilers(changes: dict[str, Any], one_compiler: bool) -> None:
    config = WorkerConfig("r", "w", "w", "core", (), ClientAccount("", ""), ("q",), **changes)
    assert set(KEEPS_A_RATE).issubset(jvm_options(config)) == one_compiler


def test_the_configurations_own_options_win() -> None:
    own = ("-Xmx64m", "-XX:TieredStopAtLevel=4")
    config = WorkerConfig("r", "w", "w", "core", (), ClientAccount("", ""), ("q",), rate=1.0, jvm_options=own)
    assert jvm_options(config, ("-Da=b",))[-3:] == ("-Da=b", *own)
