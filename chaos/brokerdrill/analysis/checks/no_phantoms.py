"""no_phantoms, always checked: nothing is delivered that was not sent, or not as it was sent."""

from __future__ import annotations

from brokerdrill.analysis.checks.by_class import ClassRule
from brokerdrill.promises.catalogue import PROMISES

RULE = ClassRule(
    "no_phantoms", breaking=PROMISES["no_phantoms"].breaking, doubtful=PROMISES["no_phantoms"].doubtful, failed_too=True
)
