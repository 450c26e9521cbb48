"""Inventories for a few machines: what is chosen for how many, and what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from brokerdrill.base import paths
from brokerdrill.base.errors import BrokerdrillError, UsageError
from brokerdrill.base.progress import Progress
from brokerdrill.cli.app import app
from brokerdrill.inventory.layouts import LAYOUTS, Answers, Layout, Machine, choose, machines, written
from brokerdrill.inventory.planned import planned
from brokerdrill.inventory.topology import load
from brokerdrill.scenario.drill import load_drill

STORE = "/srv/shared/it's here"


def given(count: int) -> list[Machine]:
    return [Machine(f"m{number}", f"10.0.0.{number}") for number in range(1, count + 1)]


def files(layout: Layout, **answers: Any) -> dict[str, str]:
    store = STORE if layout.shared_store else ""
    found = given(layout.machines)
    return written(layout, found, Answers(store=store, **answers), paths.INVENTORIES / layout.topology)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda one: f"{one.topology}-{one.machines}")
def test_preflight_accepts_each_and_every_host_of_it_is_one_of_the_machines(layout: Layout, tmp_path: Path) -> None:
    for path, text in files(layout, user="ops", drills=True).items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    topology = load(tmp_path)
    assert [(host.name, host.address) for host in topology.hosts] == [
        (one.name, one.address) for one in given(layout.machines)
    ]
    assert topology.drill_allowed and {host.user for host in topology.hosts} == {"ops"}
    found = planned(topology, Progress(Console(quiet=True)))
    names = [(one.host, one.instance) for one in found]
    assert len(set(names)) == len(names)
    brokers = [one for one in found if one.product == layout.product]
    hosts = {f"m{place + 1}" for name, place in layout.places.items() if name[:3] in ("art", "cla", "ope")}
    assert {one.host for one in brokers} == hosts
    assert load_drill(layout.drill).unmet(found) == []
    if layout.shared_store:
        assert all(getattr(one, "data_dir", "").startswith(STORE) for one in brokers)


def test_every_place_is_a_host_of_the_topology() -> None:
    for layout in LAYOUTS:
        shipped = (paths.INVENTORIES / layout.topology / "hosts.yml").read_text()
        assert all(f"{name}:" in shipped for name in layout.places), layout
        assert sorted(set(layout.places.values())) == list(range(layout.machines)), "no machine has nothing to do"


def test_drills_are_allowed_only_where_that_was_said() -> None:
    assert "drill_allowed" not in files(LAYOUTS[0])["hosts.yml"]
    assert yaml.safe_load(files(LAYOUTS[0], drills=True)["hosts.yml"])["all"]["vars"]["drill_allowed"] is True


def test_variables_that_name_a_host_name_the_machine() -> None:
    openmq = choose("openmq", 4, False)
    assert yaml.safe_load(files(openmq)["group_vars/openmq.yml"])["openmq_cluster_master"] == "m1"


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["10.0.0.1", "10.0.0.1"], "two machines have the address 10.0.0.1"),
        (["a=10.0.0.1", "a=10.0.0.2"], "two machines have the name a"),
        (["a b=10.0.0.1"], "is no machine"),
        (["=10.0.0.1"], "is no machine"),
        (["a="], "is no machine"),
        (["a=10.0.0.1; reboot"], "is no machine"),
        (["a=127.0.0.1"], "the others cannot reach 127.0.0.1"),
    ],
)
def test_what_is_no_machine_is_refused(texts: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        machines(texts)


def test_machines_without_names_have_some() -> None:
    assert machines(["10.0.0.1", "web.example.net", "fd00::1", "db=10.0.0.9"]) == [
        Machine("host1", "10.0.0.1"),
        Machine("web", "web.example.net"),
        Machine("host3", "fd00::1"),
        Machine("db", "10.0.0.9"),
    ]


def test_two_machines_are_told_the_way_out() -> None:
    with pytest.raises(UsageError, match=r"3 machines.*and not on 2\. .* add a third, small one"):
        choose("artemis", 2, False)


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        (Answers(user="ad min"), "no login"),
        (Answers(user="root\nansible_become: false"), "no login"),
        (Answers(user="{{ lookup('pipe', 'id') }}"), "no login"),
        (Answers(store="/srv/{% raw %}"), "no path"),
        (Answers(store="/srv\n"), "no path"),
    ],
)
def test_an_answer_that_would_be_something_else_in_a_file_is_refused(answers: Answers, why: str) -> None:
    layout = choose("artemis", 3, bool(answers.store))
    with pytest.raises(UsageError, match=why):
        written(layout, given(3), answers, paths.INVENTORIES / layout.topology)


@pytest.mark.parametrize("user", ["CORP\\drills", "drills@corp.example", "émile", "0x"])
def test_a_login_of_a_directory_is_one(user: str) -> None:
    layout = choose("artemis", 3, False)
    files = written(layout, given(3), Answers(user=user), paths.INVENTORIES / layout.topology)
    assert yaml.safe_load(files["hosts.yml"])["all"]["vars"]["ansible_user"] == user


@pytest.mark.parametrize("store", ["srv", "~/x", "/", "//"])
def test_a_shared_directory_has_an_absolute_path(store: str) -> None:
    layout = choose("artemis", 3, True)
    with pytest.raises(UsageError, match="no absolute path"):
        written(layout, given(3), Answers(store=store), paths.INVENTORIES / layout.topology)


def test_the_next_commands_mean_the_inventory_that_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["init", "artemis_quorum", *(f"--host=m{number}=10.0.0.{number}" for number in range(3)), "--drills"]
    done = CliRunner().invoke(app, words)
    assert "brokerdrill deploy ./artemis_quorum\n" in done.stdout
    assert load(Path("artemis_quorum")).host("m0").address == "10.0.0.0"


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    words = ["init", str(tmp_path), *(f"--host=m{number}=10.0.0.{number}" for number in range(3))]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, UsageError) and "not empty" in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("place", ["file/inventory", "file"])
def test_a_folder_that_cannot_be_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    done = CliRunner().invoke(app, ["init", place, *(f"--host=m{number}=10.0.0.{number}" for number in range(3))])
    assert isinstance(done.exception, BrokerdrillError) and place in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["all", "localhost", "artemis", "zookeeper", "orders"])
def test_a_machine_is_not_called_as_what_means_something_else(name: str) -> None:
    """A host called as a group is a warning of Ansible's, and then a deployment that nobody understands."""
    layout = choose("artemis", 3, False)
    odd = [Machine(name, "10.0.0.9"), *given(3)[1:]]
    with pytest.raises(UsageError, match=f"no machine may be called {name}, which means something else"):
        written(layout, odd, Answers(), paths.INVENTORIES / layout.topology)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("10.0.0.1:2222", r"'10.0.0.1:2222' is no machine: 10.0.0.1:2222 is no address; SSH's port is `ansible_port`"),
        ("a=10.0.0.1:22", "10.0.0.1:22 is no address; SSH's port is `ansible_port`"),
        ("a.example:22", "a.example:22 is no address; SSH's port is `ansible_port`"),
        ("a=256.1.1.1", "256.1.1.1 is no address$"),
        ("10.0.0", "10.0.0 is no address$"),
    ],
)
def test_an_address_that_is_none(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        machines([text])


def test_addresses_of_ipv6_and_names_are_taken() -> None:
    found = [(one.name, one.address) for one in machines(["a=fd00::1", "fd00::2", "c.example"])]
    assert found == [("a", "fd00::1"), ("host2", "fd00::2"), ("c", "c.example")]
