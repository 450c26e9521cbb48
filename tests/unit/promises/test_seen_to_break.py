"""A promise that nothing breaks says nothing: each was seen to be broken on a real product, in a run that is kept."""

from __future__ import annotations

from brokerdrill.ledger.verdict import FAIL
from brokerdrill.promises.catalogue import PROMISES
from brokerdrill.results.proof import PROVEN, read


def test_every_promise_was_seen_to_break() -> None:
    broken = {one["name"] for row in read(PROVEN) for one in row["promises"] if one["verdict"] == FAIL}
    assert sorted(set(PROMISES) - broken) == []
