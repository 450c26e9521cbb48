"""What the console says while the load goes on."""

from __future__ import annotations

import pytest

from brokerdrill.runner.abort import status_line
from brokerdrill.runner.load_control import Totals


@pytest.mark.parametrize(
    ("behind_s", "said"),
    [
        (0.0, "5 acknowledged  4 received  1 unknown   a active  b passive"),
        (0.49, "5 acknowledged  4 received  1 unknown   a active  b passive"),
        (12.34, "5 acknowledged  4 received  1 unknown  12.3 s behind its rate   a active  b passive"),
    ],
)
def test_how_far_the_load_is_behind_its_rate(behind_s: float, said: str) -> None:
    assert status_line(Totals(5, 1, 0, 4, 2, behind_s), {"b": "passive", "a": "active"}) == said
