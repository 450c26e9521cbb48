"""Filters of the roles' memory budgets."""

from __future__ import annotations

from typing import Any

from ansible_collections.brokerdrill.ha.plugins.plugin_utils.memory import (
    artemis_heap,
    classic_heap,
    heap_problems,
    listed,
)


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "artemis_heap": artemis_heap,
            "classic_heap": classic_heap,
            "heap_problems": lambda parts, variable, heap_mib, advice: heap_problems(variable, heap_mib, parts, advice),
            "heap_listed": listed,
        }
