"""A role hands its preflight what the type there says, no more and no less, and the preflight reads all of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_type_hints

import pytest

from tests.roles.conftest import ROOT
from tests.roles.test_plugins import plugin

# Filter → where it is, its type, and the file of the role that calls it.
HANDED: Mapping[str, tuple[str, str, str]] = {
    "artemis_problems": ("artemis_preflight", "ArtemisConfig", "artemis/vars/main/preflight.yml"),
    "artemis_router_problems": ("artemis_router_preflight", "RoutersConfig", "artemis/vars/main/routers.yml"),
    "activemq_classic_problems": (
        "activemq_classic_preflight",
        "ClassicConfig",
        "activemq_classic/vars/main/preflight.yml",
    ),
    "openmq_problems": ("openmq_preflight", "OpenmqConfig", "openmq/vars/main.yml"),
    "lease_db_problems": ("lease_db", "LeaseDbConfig", "lease_db/vars/main.yml"),
    "shared_store_problems": ("shared_store", "StoreConfig", "shared_store/vars/main.yml"),
    "rabbitmq_problems": ("rabbitmq", "RabbitmqConfig", "rabbitmq/vars/main.yml"),
}


def handed(text: str, name: str) -> set[str]:
    """Return the keys of the mapping that a role's variables hand to the filter of that name."""
    before = text[: text.index(f"}} | brokerdrill.ha.{name} }}}}")]
    body, depth, keys = before[before.rindex("{{ {") + 4 :], 0, set()
    for found in re.finditer(r"[\[({]|[\])}]|'(\w+)':", body):
        if found[1] is None:
            depth += 1 if found[0] in "[({" else -1
        elif depth == 0:
            keys.add(found[1])
    return keys


@pytest.mark.parametrize("name", HANDED)
def test_a_role_hands_over_what_the_type_says(name: str) -> None:
    module, kind, file = HANDED[name]
    hints: dict[str, Any] = get_type_hints(getattr(plugin("filter", module), kind))
    assert handed((ROOT / "roles" / file).read_text(), name) == set(hints)
    source = (ROOT / "plugins" / "filter" / f"{module}.py").read_text()
    assert not [key for key in hints if not re.search(rf"""\[(["']){key}\1\]""", source)]
