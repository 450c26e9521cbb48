"""What the console says while the load goes on."""

from __future__ import annotations

import pytest

from brokerdrill.runner.drain import received_words
from brokerdrill.runner.guards.silence import status_line
from brokerdrill.runner.load.control import Totals


@pytest.mark.parametrize(
    ("behind_s", "said"),
    [
        (0.0, "5 acknowledged  4 received  unanswered: 1 sends, 3 receipts   a active  b passive"),
        (0.49, "5 acknowledged  4 received  unanswered: 1 sends, 3 receipts   a active  b passive"),
        (
            12.34,
            "5 acknowledged  4 received  unanswered: 1 sends, 3 receipts  12.3 s behind its rate   a active  b passive",
        ),
    ],
)
def test_how_far_the_load_is_behind_its_rate(behind_s: float, said: str) -> None:
    assert status_line(Totals(5, 1, 0, 4, 2, behind_s, 3), {"b": "passive", "a": "active"}) == said


def test_what_was_received_when_it_is_drained() -> None:
    """A message that was delivered, but whose commit a failover met, is not missing."""
    assert received_words(Totals(5, 1, 0, 5, 0)) == "5 messages acknowledged, 5 received"
    told = "5 messages acknowledged, 3 received and up to 2 more, to whose receipt the broker gave no answer"
    assert received_words(Totals(5, 1, 0, 3, 0, received_unknown=2)) == told
