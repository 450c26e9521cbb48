"""What all tests share."""

from __future__ import annotations

import gc
from itertools import groupby

import pytest
from hypothesis import HealthCheck, settings

# A machine that others use too makes any example slow now and then; how long a test may take is pytest's to watch.
settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")

# Files of the toy product, which tests put into a checkout of their own.
collect_ignore_glob = ["toy/added/*"]

DEPLOYED = pytest.StashKey[bool]()
"""Whether the demo has deployed the topology that the drills behind it go on with."""

# Their tests mostly wait for a process of their own; most others compute.
WAITING = ("router/tests/", "tests/workload/")


def pytest_collection_finish() -> None:
    """Have the garbage collector leave out what stays until the end, and look seldom: it took a seventh of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_unconfigure() -> None:
    """Libraries complain at the end of what they were not given back."""
    gc.unfreeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have files of both kinds take turns, so that those beside each other seldom all wait."""
    files = [[*tests] for _, tests in groupby(items, key=lambda item: item.nodeid.partition("::")[0])]
    kinds = [[], []]
    for tests in files:
        kinds[tests[0].nodeid.startswith(WAITING)].append(tests)
    turns = [((place + 0.5) / len(kind), tests) for kind in kinds for place, tests in enumerate(kind)]
    items[:] = [test for _, tests in sorted(turns, key=lambda turn: turn[0]) for test in tests]
