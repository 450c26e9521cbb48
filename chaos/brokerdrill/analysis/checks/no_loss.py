"""no_loss: every durable message that the broker took is processed, or still may be where the address was not
drained."""

from __future__ import annotations

from brokerdrill.analysis.checks.by_class import rule
from brokerdrill.promises.catalogue import PROMISES

RULE = rule(PROMISES["no_loss"], lambda judged: judged.owed)
