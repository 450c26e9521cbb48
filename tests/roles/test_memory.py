"""Memory budgets: the heap that died on the bench is refused, the roles' defaults and the bench's are not."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from brokerdrill.base.paths import ROOT
from tests.roles.test_plugins import plugin

memory = plugin("filter", "memory").FilterModule().filters()


def defaults(path: str) -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / path).read_text(encoding="utf-8")))


def artemis(heap_mib: int, ids: int, addresses: int) -> list[str]:
    config = {"heap_mib": heap_mib, "id_cache_size": ids, "addresses": addresses}
    found: list[str] = memory["heap_problems"](memory["artemis_heap"](config), "artemis_heap_mib", heap_mib, "raise it")
    return found


def test_the_heap_that_died_of_its_duplicate_ids_is_refused() -> None:
    """11 OutOfMemoryErrors in four minutes, at 3 000 messages a second on four addresses."""
    (sentence,) = artemis(192, 200_000, 6)
    assert sentence.startswith(
        "artemis_heap_mib 192 is less than the 373 MiB that the broker may come to need (48 for "
    )
    assert sentence.endswith("229 for 200000 remembered ids on each of 6 addresses): it would die of it; raise it")
    assert artemis(900, 200_000, 6) == [], "the same drill passed with it"


@pytest.mark.parametrize("addresses", [2, 7])
def test_the_roles_defaults_and_the_benchs_add_up(addresses: int) -> None:
    role = defaults("roles/artemis/defaults/main.yml")
    assert artemis(role["artemis_heap_mib"], role["artemis_id_cache_size"], addresses) == []
    assert artemis(192, defaults("bench/group_vars/artemis.yml")["artemis_id_cache_size"], addresses) == []


@pytest.mark.parametrize(("heap_mib", "percent", "refused"), [(1024, 60, 0), (192, 60, 0), (192, 70, 1), (100, 60, 1)])
def test_classic_keeps_room_beside_its_messages(heap_mib: int, percent: int, refused: int) -> None:
    parts = memory["classic_heap"]({"heap_mib": heap_mib, "memory_percent": percent})
    found = memory["heap_problems"](parts, "activemq_classic_heap_mib", heap_mib, "raise it")
    assert len(found) == refused
