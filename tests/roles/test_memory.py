"""Memory budgets: the heap that died on the bench is refused, the roles' defaults and the bench's are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from brokerdrill.base.paths import ROOT
from tests.roles.conftest import playbook
from tests.roles.test_plugins import plugin

memory = plugin("filter", "memory").FilterModule().filters()
budget = plugin("plugin_utils", "memory")


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


def hosts_memory(hosts: dict[str, dict[str, Any]], groups: dict[str, list[str]], tmp_path: Path) -> str:
    """Run the check on this machine as those hosts; return what Ansible said."""
    local = {"ansible_connection": "local"}
    inventory = {
        "all": {
            "hosts": {name: {**local, **values} for name, values in hosts.items()},
            "children": {group: {"hosts": {name: {} for name in names}} for group, names in groups.items()},
        }
    }
    (tmp_path / "hosts.yml").write_text(json.dumps(inventory))
    (tmp_path / "play.yml").write_text("- hosts: all\n  gather_facts: false\n  tasks:\n    - brokerdrill.ha.memory:\n")
    done = playbook(["-v", "-i", str(tmp_path / "hosts.yml"), str(tmp_path / "play.yml")], tmp_path / "cache")
    return done.stdout + done.stderr


def test_the_heaps_of_one_machine_are_held_against_its_memory(tmp_path: Path) -> None:
    """Two hosts of the inventory with one address are one machine, and each product of a host has its JVM; a heap may
    be a template. Who has no JVM is not asked."""
    here = {"ansible_host": "127.0.0.1"}
    hosts = {
        "big1": {**here, "artemis_heap_mib": "{{ 9000 * 1000 }}"},
        "big2": here,
        "one": {"ansible_host": "127.0.0.2", "artemis_heap_mib": 100},
        "none": {"ansible_host": "192.0.2.1", "ansible_connection": "ssh"},
    }
    said = hosts_memory(hosts, {"artemis": ["big1", "one"], "zookeeper": ["big2"], "load": ["none"]}, tmp_path)
    default = defaults("roles/zookeeper/defaults/main.yml")["zookeeper_heap_mib"]
    for host in ("big1", "big2"):
        (line,) = [line for line in said.splitlines() if line.startswith(f"fatal: [{host}]")]
        assert f"9000000 for artemis_heap_mib of big1, {default} for zookeeper_heap_mib of big2, 96 for each" in line
    assert "ok: [one] => " in said and "ok: [none] => " in said


@pytest.mark.parametrize(
    ("limit", "has"),
    [("max", 2000), (str(512 << 20), 512), (str(2**63 - 4096), 2000), ("", 2000), (f"max\n{1 << 30}", 1024)],
)
def test_a_container_has_no_more_memory_than_it_may_take(limit: str, has: int) -> None:
    assert budget.memory_mib(f"MemTotal:        2048000 kB\nMemFree:  5 kB\n{limit}\n") == has


def test_a_machine_that_just_holds_its_jvms() -> None:
    assert budget.machine_problems({"a": 1000, "b": 500}, 1500 + 3 * 96) == []
    (sentence,) = budget.machine_problems({"a": 1000, "b": 500}, 1500 + 3 * 96 - 1)
    assert sentence.startswith("the JVMs of this host may take 1788 MiB (1000 for a, 500 for b, 96 for each beside its")
    assert "and it has 1787: the kernel would end one of them" in sentence
