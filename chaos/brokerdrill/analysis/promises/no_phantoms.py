"""no_phantoms, always checked: nothing is delivered that was not sent, or not as it was sent."""

from __future__ import annotations

from brokerdrill.analysis.promises.by_class import ClassRule

RULE = ClassRule("no_phantoms", breaking=("corrupted", "phantom", "unexpected"), failed_too=True)
