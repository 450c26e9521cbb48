"""What every product with pairs shares."""

from __future__ import annotations

import pytest

from tests.roles.test_plugins import plugin

pairs = plugin("filter", "pairs")


@pytest.mark.parametrize(
    ("states", "good"),
    [
        ({"a1": "active", "a2": "passive"}, True),
        ({"a1": "passive", "a2": "active"}, True),
        ({"a1": "active", "a2": "active"}, False),
        ({"a1": "passive", "a2": "passive"}, False),
        ({"a1": "active", "a2": "syncing"}, False),
        ({"a1": "active"}, False),
    ],
)
def test_a_pair_is_healthy_with_one_active_and_passive_copies(states: dict[str, str], good: bool) -> None:
    assert (pairs.pair_problems(states, {"p1": ["a1", "a2"]}) == []) is good
