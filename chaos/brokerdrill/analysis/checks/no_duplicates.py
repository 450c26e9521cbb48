"""no_duplicates: no message is processed more than once in one subscription."""

from __future__ import annotations

from brokerdrill.analysis.checks.by_class import rule
from brokerdrill.promises.catalogue import PROMISES

RULE = rule(PROMISES["no_duplicates"], lambda judged: judged.processed)
