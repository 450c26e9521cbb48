"""Filters of the roles' memory budgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.brokerdrill.ha.plugins.plugin_utils.memory import (
    artemis_heap,
    classic_heap,
    heap_problems,
)


def parts_problems(parts: Mapping[str, float], variable: str, heap_mib: int, advice: str) -> list[str]:
    """Return a sentence where `parts` together need more than `heap_mib`, the value of `variable`."""
    return heap_problems(variable, heap_mib, parts, advice)


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "artemis_heap": artemis_heap,
            "classic_heap": classic_heap,
            "heap_problems": parts_problems,
        }
