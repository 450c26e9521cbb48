"""Fixtures of the router's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from router_support import Broker, Router, config_of, router_of


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A RabbitMQ for the whole run."""
    found = Broker(tmp_path_factory.mktemp("rabbitmq"))
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def router(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    """A router in front of the broker, for the tests of one module."""
    with router_of(config_of(broker.port)) as found:
        yield found


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """An empty directory."""
    return tmp_path
