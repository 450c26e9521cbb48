"""What loops that are tested begin with."""

from __future__ import annotations

import pytest

from tests.unit.workload.loop_bench import config
from tests.workload.fake_client import FakeClient


@pytest.fixture
def empty_queue() -> None:
    FakeClient.start_process(config())
