"""no_loss: every durable message that the broker took is processed, or still may be where the address was not
drained."""

from __future__ import annotations

from brokerdrill.analysis.checks.by_class import ClassRule
from brokerdrill.promises.catalogue import PROMISES

RULE = ClassRule("no_loss", breaking=PROMISES["no_loss"].breaking, doubtful=PROMISES["no_loss"].doubtful)
