"""What the analysis tells stays as it was, in one partition, in several, and of a run by itself."""

from __future__ import annotations

import pytest

from tests.analysis import snapshot
from tests.analysis.in_process import rows_of


@pytest.mark.parametrize("parts", [1, 5])
def test_all_that_is_told_of_many_runs(parts: int) -> None:
    ledgers = snapshot.made()
    assert snapshot.changes(snapshot.told(ledgers, rows_of(ledgers), parts), snapshot.known()) == []


def test_all_that_is_told_of_a_run_by_itself() -> None:
    ledgers = snapshot.made()
    assert snapshot.changes(snapshot.alone(ledgers, rows_of(ledgers)), snapshot.known()) == []
