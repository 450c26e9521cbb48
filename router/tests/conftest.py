"""Fixtures of the router's tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from router_support import Broker, Router, config_of, router_of

from amqp_session_router.telemetry.log import PACKAGE

# A machine that others use too makes any example slow now and then; how long a test may take is pytest's to watch.
settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")


@pytest.fixture(autouse=True)
def log_handlers() -> Iterator[None]:
    """Take away the handlers that a test left with the package's logger: each later test would write to them too."""
    logger = logging.getLogger(PACKAGE)
    before = list(logger.handlers)
    yield
    for handler in [found for found in logger.handlers if found not in before]:
        logger.removeHandler(handler)


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
