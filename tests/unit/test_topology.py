"""Topologies are what Ansible reads, and bad ones end in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerdrill.errors import UsageError
from brokerdrill.topology import find_topology, fingerprint, load, topologies

HOSTS = """\
# Two brokers on a shelf
all:
  vars: {drill_allowed: true, base: 10.9.8, ansible_user: admin, secret_made_late: "{{ lookup('pipe', 'touch MARK') }}"}
  children:
    brokers:
      children:
        pair:
          hosts:
            b2: {ansible_host: "{{ base }}.2", ansible_port: 2222, ansible_ssh_private_key_file: keys/id}
            b1: {}
"""


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    directory = tmp_path / "inventories" / "shelf"
    directory.mkdir(parents=True)
    (directory / "hosts.yml").write_text(HOSTS.replace("MARK", str(tmp_path / "mark")))
    return directory


def test_hosts_groups_and_connection_are_read(shelf: Path) -> None:
    topology = find_topology("shelf", shelf.parent)
    assert topology.name == "shelf"
    assert topology.directory == shelf
    assert topology.drill_allowed is True
    assert [host.name for host in topology.hosts] == ["b1", "b2"]
    b1, b2 = topology.group("brokers")
    assert (b2.address, b2.port, b2.user, b2.groups) == ("10.9.8.2", 2222, "admin", ("brokers", "pair"))
    assert b2.key_file is not None and b2.key_file.endswith("/keys/id")
    assert (b1.address, b1.port, b1.key_file) == ("b1", 22, None)
    assert topology.group("pair") == topology.hosts == topology.group("all")
    assert topology.group("nobody") == ()
    assert topology.vars["base"] == "10.9.8" and "ansible_host" not in topology.vars


def test_reading_makes_no_secret(shelf: Path, tmp_path: Path) -> None:
    assert "lookup" in find_topology("shelf", shelf.parent).vars["secret_made_late"]
    assert not (tmp_path / "mark").exists()


def test_unknown_host_names_the_nearest(shelf: Path) -> None:
    with pytest.raises(UsageError, match=r"no host of shelf is called 'b3'; did you mean 'b\d'\?"):
        load(shelf).host("b3")
    assert load(shelf).host("b1").name == "b1"


def test_one_host_that_does_not_allow_drills_forbids_them(shelf: Path) -> None:
    (shelf / "host_vars").mkdir()
    (shelf / "host_vars" / "b1.yml").write_text("drill_allowed: false\n")
    assert load(shelf).drill_allowed is False


@pytest.mark.parametrize("line", ["", "drill_allowed: 'yes'\n"])
def test_drills_need_a_plain_true(shelf: Path, line: str) -> None:
    (shelf / "hosts.yml").write_text("all: {hosts: {b1: {}}}\n")
    (shelf / "group_vars").mkdir()
    (shelf / "group_vars" / "all.yml").write_text(line)
    assert load(shelf).drill_allowed is False


def test_unknown_topology_names_the_nearest(shelf: Path) -> None:
    with pytest.raises(UsageError, match="no topology is called 'shelv'; did you mean 'shelf'"):
        find_topology("shelv", shelf.parent)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("all: [this is no inventory\n", "cannot be read"),
        ("just text\n", "cannot be read"),
        ("all: {}\n", "has no hosts"),
        ("all: {hosts: {b1: {ansible_port: many}}}\n", "host b1 has no valid ansible_port: 'many'"),
        ("all: {hosts: {b1: {ansible_host: '{{ nowhere }}'}}}\n", "nowhere"),
    ],
)
def test_a_bad_inventory_is_one_sentence(shelf: Path, content: str, said: str) -> None:
    (shelf / "hosts.yml").write_text(content)
    with pytest.raises(UsageError) as caught:
        load(shelf)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_directory_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no inventory directory"):
        find_topology(tmp_path / "nowhere")


def test_fingerprint_follows_every_file(shelf: Path) -> None:
    before = fingerprint(shelf)
    assert fingerprint(shelf) == before
    (shelf / "group_vars").mkdir()
    (shelf / "group_vars" / "all.yml").write_text("a: 1\n")
    assert fingerprint(shelf) != before


def test_list_has_names_and_descriptions(shelf: Path) -> None:
    (shelf.parent / "bare").mkdir()
    assert topologies(shelf.parent) == [("bare", ""), ("shelf", "Two brokers on a shelf")]


def test_the_shipped_topologies_load() -> None:
    names = [name for name, description in topologies() if description]
    assert "artemis_quorum" in names
    quorum = find_topology("artemis_quorum")
    assert [host.name for host in quorum.group("zookeeper")] == ["zk1", "zk2", "zk3"]
    assert {host.vars["artemis_ha_role"] for host in quorum.group("orders_pair1")} == {"primary", "backup"}
    assert [host.name for host in quorum.group("toxiproxy")] == ["artemis1", "artemis2", "load1"]
    assert quorum.drill_allowed
