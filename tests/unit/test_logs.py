"""What is read and kept of the instances' logs."""

from __future__ import annotations

import asyncio
import gzip
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.runner.logs import LOG_MARGIN_S, has_own_log, log_text, processes, read_log

LINE = '{"__MONOTONIC_TIMESTAMP": "2000000", "MESSAGE": "AMQ221007: Server is now active"}\n'


@dataclass
class Answer:
    out: str = LINE


class Connection:
    """Answers every command with one line of a journal."""

    name = "h"

    def __init__(self) -> None:
        self.scripts: list[str] = []

    async def sh(self, script: str, **_: Any) -> Answer:
        self.scripts.append(script)
        return Answer()


@pytest.mark.parametrize(
    ("more", "own"),
    [({}, True), ({"log": "journal"}, True), ({"log": None}, False), ({"unit": None}, False)],
)
def test_a_shared_log_proves_nothing(more: dict[str, Any], own: bool) -> None:
    told = {"schema": 1, "product": "artemis", "instance": "a", "host": "h", "unit": "artemis.service", **more}
    assert has_own_log(Descriptor.model_validate(told)) == own


def test_a_process_is_read_once_for_all_instances_in_it() -> None:
    def instance(name: str, host: str, unit: str | None) -> Any:
        told = {"schema": 1, "product": "artemis", "instance": name, "host": host, "unit": unit}
        return SimpleNamespace(descriptor=Descriptor.model_validate(told))

    told = [instance("a", "h1", "u"), instance("b", "h2", "u"), instance("a2", "h1", "u"), instance("c", "h1", None)]
    assert [(one.descriptor.instance, others) for one, others in processes(told)] == [("a", ("a2",)), ("b", ())]


def test_no_more_of_a_log_is_read_than_the_run_lasted() -> None:
    told = {"schema": 1, "product": "artemis", "instance": "a", "host": "h", "unit": "artemis.service"}
    connection = Connection()
    asyncio.run(read_log(connection, Descriptor.model_validate(told), 0, 29.5))  # type: ignore[arg-type]
    assert connection.scripts[0].endswith(f"--since=-{30 + LOG_MARGIN_S}s")


def test_a_log_is_kept_in_the_time_of_the_run() -> None:
    kept = gzip.decompress(log_text([(1_500_000_000, "waits"), (13_236_000_000, "is active")], 1_000_000_000)).decode()
    assert kept == "     0.500  waits\n    12.236  is active\n"
