"""What all tests share."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# A machine that others use too makes any example slow now and then; how long a test may take is pytest's to watch.
settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")

# Files of the toy product, which tests put into a checkout of their own.
collect_ignore_glob = ["toy/added/*"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together, where several processes run the tests (`-n`), what shares fixtures or the bench's hosts."""
    for item in items:
        group = "bench" if item.get_closest_marker("bench") else item.path.as_posix()
        item.add_marker(pytest.mark.xdist_group(group))
