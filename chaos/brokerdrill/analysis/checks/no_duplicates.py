"""no_duplicates: no message is processed more than once in one subscription."""

from __future__ import annotations

from brokerdrill.analysis.checks.by_class import ClassRule
from brokerdrill.promises.catalogue import PROMISES

RULE = ClassRule(
    "no_duplicates", breaking=PROMISES["no_duplicates"].breaking, doubtful=PROMISES["no_duplicates"].doubtful
)
