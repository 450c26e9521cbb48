"""no_dead_letters: no message that the broker took ends on a dead-letter address instead of with a consumer."""

from __future__ import annotations

from brokerdrill.analysis.checks.by_class import ClassRule
from brokerdrill.promises.catalogue import PROMISES

RULE = ClassRule(
    "no_dead_letters",
    breaking=PROMISES["no_dead_letters"].breaking,
    doubtful=PROMISES["no_dead_letters"].doubtful,
    mapped=True,
)
