"""A variable that no role reads is refused with the nearest name, and so is an address that is none."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.roles.conftest import ROOT, load, playbook
from tests.roles.test_plugins import plugin

variables = plugin("filter", "variables")


def preflight(tmp_path: Path, hosts: dict[str, Any] | None = None, **more: Any) -> str:
    """Return what the site's first play says of an inventory with these variables, and `hosts` in place of its own; ""
    where it passes."""
    inventory = shutil.copytree(ROOT / "inventories" / "artemis_quorum", tmp_path / "inventory")
    if hosts:
        (inventory / "hosts.yml").write_text(yaml.safe_dump(hosts))
    (inventory / "group_vars" / "all").mkdir(parents=True, exist_ok=True)
    (inventory / "group_vars" / "all" / "more.yml").write_text(yaml.safe_dump(more))
    first, *_ = load(ROOT / "playbooks" / "site.yml")
    (tmp_path / "book.yml").write_text(yaml.safe_dump([{**first, "tasks": first["tasks"][:1]}]))
    done = playbook(["-i", str(inventory), str(tmp_path / "book.yml")], tmp_path / "cache")
    return "" if done.returncode == 0 else " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "artemis_quorum_sesion_ms",
            4000,
            "no role has a variable artemis_quorum_sesion_ms: did you mean artemis_quorum_session_ms?",
        ),
        ("artemis_address", "", "artemis_address is empty: say an address, or leave it out for the default"),
        ("zookeeper_address", None, "zookeeper_address is empty"),
    ],
)
def test_what_no_role_can_use_is_refused(tmp_path: Path, name: str, value: Any, said: str) -> None:
    assert said in preflight(tmp_path, **{name: value})


def test_what_is_somebodys_own_is_let_be(tmp_path: Path) -> None:
    own = {"load_average_alert": 4, "artemis_team": "orders", "artemis_quorum_sesion_ms": 1}
    assert preflight(tmp_path, **own, common_own_variables=["artemis_quorum_sesion_ms"]) == ""


def test_no_inventory_of_ours_has_one() -> None:
    names = [
        name
        for folder in ("inventories", "bench")
        for path in (ROOT / folder).rglob("*.yml")
        for name in names_in(
            load(path),
            is_vars=path.parent.parent.name in ("group_vars", "host_vars")
            or (path.parent.name in ("group_vars", "host_vars")),
        )
    ]
    assert "artemis_cluster" in names or len(names) > 100
    assert variables.unknown_variables(names) == []


def names_in(content: Any, is_vars: bool) -> list[str]:
    """The variables in a file of an inventory: all keys of a file of variables, else those of hosts and of `vars`."""
    if not isinstance(content, dict):
        return []
    if is_vars:
        return list(content)
    found = [name for host in (content.get("hosts") or {}).values() for name in host or {}]
    found += list(content.get("vars") or {})
    groups = (
        (content.get("children") or {}) if "hosts" in content or "children" in content or "vars" in content else content
    )
    return found + [name for group in groups.values() for name in names_in(group, is_vars=False)]


def test_an_address_that_may_be_none_is_not_asked_for() -> None:
    assert variables.address_variables(["common_virtual_address", "artemis_address", "other_address"]) == [
        "artemis_address"
    ]


def test_two_products_of_one_host_are_not_called_the_same(tmp_path: Path) -> None:
    """Three machines for everything, written by hand: one's descriptor was written over the other's."""
    assert variables.same_instances({}, "m1", ["toxiproxy", "zookeeper", "artemis"]) == [
        "zookeeper and artemis on m1 are both called m1: set another zookeeper_instance, such as zookeeper-m1"
    ]
    apart = {"zookeeper_instance": "zookeeper-m1"}
    assert variables.same_instances(apart, "m1", ["toxiproxy", "zookeeper", "artemis", "prometheus", "resolver"]) == []
    assert variables.same_instances({}, "m1", ["shared_store", "artemis"]) == [], "a directory is no instance"
    clash = {"zookeeper_instance": "toxiproxy-m1"}
    assert len(variables.same_instances(clash, "m1", ["toxiproxy", "zookeeper", "artemis"])) == 1
    hosts = load(ROOT / "inventories" / "artemis_quorum" / "hosts.yml")
    hosts["all"]["children"]["zookeeper"]["hosts"] = {"zk1": None, "zk2": None, "artemis1": None}
    assert "zookeeper and artemis on artemis1 are both called artemis1" in preflight(tmp_path, hosts)


def test_one_machine_by_two_names_gets_a_product_once(tmp_path: Path) -> None:
    """A copied line: the second broker's address was the first one's, and both were deployed there."""
    hosts = {"a": {"ansible_host": "192.0.2.1"}, "b": {"ansible_host": "192.0.2.1"}, "c": {}}
    groups = {"artemis": ["a", "b", "c"], "shared_store": ["a", "b"]}
    (said,) = variables.same_machines(hosts, "a", groups, ["artemis", "shared_store"])
    assert said.startswith("a and b are one machine (192.0.2.1), and artemis would be deployed there more than once")
    assert variables.same_machines(hosts, "b", groups, ["artemis"]) == [said]
    assert variables.same_machines(hosts, "c", groups, ["artemis"]) == []
    for variable, values in (("ansible_port", (2201, 2202)), ("artemis_unit", ("artemis", "artemis-b"))):
        apart = {name: {**hosts[name], variable: value} for name, value in zip("ab", values, strict=True)} | {"c": {}}
        assert variables.same_machines(apart, "a", groups, ["artemis"]) == [], f"by {variable}"
    inventory = load(ROOT / "inventories" / "artemis_quorum" / "hosts.yml")
    addresses = {"zk1": "192.0.2.1", "zk2": "192.0.2.2", "zk3": "192.0.2.2"}
    inventory["all"]["hosts"] = {name: {"ansible_host": address} for name, address in addresses.items()}
    assert "zk2 and zk3 are one machine (192.0.2.2), and zookeeper would" in preflight(tmp_path, inventory)
