"""no_duplicates: no message is processed more than once in one subscription."""

from __future__ import annotations

from brokerdrill.analysis.promises.by_class import ClassRule

RULE = ClassRule("no_duplicates", breaking=("duplicated",))
