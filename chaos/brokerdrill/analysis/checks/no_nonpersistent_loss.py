"""no_nonpersistent_loss: every message that the broker took and that was not durable is processed, or still may be
where the address was not drained."""

from __future__ import annotations

from brokerdrill.analysis.checks.by_class import ClassRule
from brokerdrill.promises.catalogue import PROMISES

_PROMISE = PROMISES["no_nonpersistent_loss"]
# What is unseen may not be durable, whichever promise the class is shown with.
_DOUBTFUL = ("unseen",)
RULE = ClassRule(_PROMISE.name, _PROMISE.breaking, _DOUBTFUL, _PROMISE.words.doubtful, lambda judged: judged.passing)
