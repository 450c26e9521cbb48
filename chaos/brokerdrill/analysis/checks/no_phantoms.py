"""no_phantoms, always checked: nothing is delivered that was not sent, or not as it was sent."""

from __future__ import annotations

from brokerdrill.analysis.checks.by_class import rule
from brokerdrill.promises.catalogue import PROMISES

RULE = rule(PROMISES["no_phantoms"], lambda judged: judged.seen)
