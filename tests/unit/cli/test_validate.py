"""`new`, `validate`, `plan`: a drill of one's own, what is wrong with it or an inventory, what hosts would get."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from brokerdrill.base import paths
from brokerdrill.cli.app import app
from brokerdrill.inventory.playbooks import Failed
from brokerdrill.inventory.topology import find_topology, topologies
from brokerdrill.inventory.validation import sentences, unread
from brokerdrill.scenario.validation import _is_drill

MINE = "extends: kill_active\ntitle: Mine\ndescription: As kill_active.\n"


def validated(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["validate", *words])
    return result.exit_code, result.stdout


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """A copy of a topology that a test may change."""
    folder = tmp_path / "mine"
    shutil.copytree(paths.INVENTORIES / "artemis_shared_store", folder)
    return folder


def changed(inventory: Path, **variables: object) -> None:
    file = inventory / "group_vars" / "all.yml"
    told = yaml.safe_load(file.read_text()) if file.is_file() else {}
    file.write_text(yaml.safe_dump({**(told or {}), **variables}))


def test_an_inventory_without_a_mistake(inventory: Path) -> None:
    assert validated(str(inventory)) == (0, f"{inventory}: no mistake\n")


def test_all_mistakes_of_an_inventory_are_told_at_once(inventory: Path) -> None:
    """Those of variables that no role has, and those of a role's own preflight, which comes after them."""
    changed(inventory, artemis_acceptr_port=1, artemis_heap_mib=1)
    status, told = validated(str(inventory))
    assert status == 64
    assert "no role has a variable artemis_acceptr_port" in told
    assert "artemis_heap_mib" in told
    # Once, of all hosts that it is said of.
    assert told.count("artemis_acceptr_port") == 1


def test_what_preflight_cannot_work_out_is_no_silence(inventory: Path) -> None:
    changed(inventory, artemis_heap_mib="{{ of_nobody }}")
    status, told = validated(str(inventory))
    assert status == 64
    assert "of_nobody" in told


def test_a_task_that_fails_and_refuses_nothing_is_said_too() -> None:
    refused, beside = Failed("a", "artemis : Preflight", "no pair"), Failed("a", "artemis : Older names", "undefined")
    alone = Failed("b", "artemis : The cluster's members", "undefined")
    assert sentences([]) == []
    assert sentences([refused, beside, alone]) == [
        "preflight refuses a: no pair",
        'b: task "artemis : The cluster\'s members" failed: undefined',
    ]


def test_a_file_of_hosts_is_an_inventory(tmp_path: Path) -> None:
    file = tmp_path / "hosts.yml"
    file.write_text("all:\n  hosts: {h1: {ansible_host: 192.0.2.1}}\n  vars: {artemis_acceptr_port: 1}\n")
    status, told = validated(str(file))
    assert status == 64
    assert "no role has a variable artemis_acceptr_port" in told


def test_variables_of_nobody_are_told(inventory: Path) -> None:
    (inventory / "host_vars").mkdir()
    (inventory / "host_vars" / "artemis3.yml").write_text("artemis_heap_mib: 900\n")
    (inventory / "group_vars" / "artemiss.yml").write_text("artemis_heap_mib: 900\n")
    status, told = validated(str(inventory))
    assert status == 64
    assert "host_vars/artemis3.yml: no host is called 'artemis3'; did you mean 'artemis" in told
    assert "group_vars/artemiss.yml: no group that a host is in is called 'artemiss'; did you mean 'artemis'?" in told


def test_variables_of_shipped_inventories_are_somebodys() -> None:
    assert [line for name, _ in topologies() for line in unread(find_topology(name))] == []


@pytest.mark.parametrize(
    ("group", "hint"), [("artemiss", "did you mean 'artemis'?"), ("qqq", "there are: activemq_classic,")]
)
def test_an_inventory_of_which_nothing_would_be_deployed(tmp_path: Path, group: str, hint: str) -> None:
    (tmp_path / "hosts.ini").write_text(f"[{group}]\nb1 ansible_host=192.0.2.1\n")
    status, told = validated(str(tmp_path / "hosts.ini"))
    assert status == 64 and "nothing would be deployed; " + hint in told


@pytest.mark.parametrize("place", ["hosts.yml", "group_vars/all.yml"])
def test_the_line_that_is_no_yaml_is_told(inventory: Path, place: str) -> None:
    """Ansible says of the first that parsing failed completely."""
    (inventory / place).write_text("all:\n\thosts: {}\n")
    status, told = validated(str(inventory))
    assert status == 64 and f"{inventory}/{place}, line 2: not YAML: found character '\\t'" in told


def test_an_empty_folder_is_no_inventory(tmp_path: Path) -> None:
    status, told = validated(str(tmp_path))
    assert status == 64 and told.rstrip().endswith("cannot be read: there is no file in it")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("kill_activ", "no drill or topology is called 'kill_activ'; did you mean 'kill_active'?"),
        ("artemis_quorom", "no drill or topology is called 'artemis_quorom'; did you mean 'artemis_quorum'?"),
        ("", "no drill or topology is called ''"),
    ],
)
def test_of_a_name_that_is_none_the_nearest_of_both_kinds_is_told(name: str, said: str) -> None:
    status, told = validated(name)
    assert status == 64 and said in told


def test_a_folder_may_be_called_as_a_file(inventory: Path) -> None:
    moved = inventory.rename(inventory.with_suffix(".yml"))
    assert validated(str(moved)) == (0, f"{moved}: no mistake\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is nothing in it, and a scenario is a mapping of fields"),
        ("- a\n", "line 1: a scenario is a mapping of fields, not a list"),
        ("words\n", "line 1: a scenario is a mapping of fields, not only 'words'"),
        ("$ANSIBLE_VAULT;1.1;AES256\n6162\n", "not only '$ANSIBLE_VAULT"),
        (MINE + "set: [1]\n", "set is a mapping of places and their values, and not [1]"),
        (MINE + "set: load.rate\n", "set is a mapping of places and their values, and not 'load.rate'"),
        (MINE + "set: {1: 2}\n", "1: there is no such field"),
        (MINE.replace("kill_active", "[a]", 1), "extends is the name of one drill or null, and not ['a']"),
        (MINE + "without: [orderd]\n", "no promise that it would have is called 'orderd'; did you mean 'ordered'?"),
        (MINE + "set: {load.rat: 4}\n", "load.rat: there is no such field; did you mean 'rate'?"),
        (MINE + "metod: []\n", "metod: there is no such field; did you mean 'method'?"),
        (MINE + "load: {rate: 4, producer: 2}\n", "load.producer: there is no such field; did you mean 'producers'?"),
        (MINE + "method: [{type: probe, name: a, until: failed_over, timeot: 1}]\n", "did you mean 'timeout'?"),
        (MINE.encode("utf-16"), "it is no text in UTF-8, from byte 1 on"),
    ],
)
def test_a_drill_that_is_none_is_told_in_one_sentence(tmp_path: Path, text: str | bytes, said: str) -> None:
    drill = tmp_path / "mine.yml"
    drill.write_bytes(text if isinstance(text, bytes) else text.encode())
    status, told = validated(str(drill))
    assert status == 64 and said in told and len(told.splitlines()) == 1


def test_what_is_no_file_is_no_drill(tmp_path: Path) -> None:
    """A pipe would be waited for."""
    os.mkfifo(tmp_path / "mine.yml")
    status, told = validated(str(tmp_path / "mine.yml"))
    assert status == 64 and "mine.yml cannot be read: it is no file" in told


def test_what_is_no_inventory_is_told_beside_what_is_well(tmp_path: Path) -> None:
    drill = tmp_path / "mine.yml"
    drill.write_text(MINE)
    status, told = validated(str(drill), str(tmp_path / "nowhere"))
    assert status == 64
    assert told.splitlines()[0] == f"{drill}: no mistake"
    assert "there is no inventory" in told.splitlines()[1]


def test_all_mistakes_of_a_drill_are_told_at_once(tmp_path: Path) -> None:
    drill = tmp_path / "mine.yml"
    drill.write_text(MINE + "loadd: {}\npromises: [{name: failover_withn, bound_ms: 1}]\n")
    status, told = validated(str(drill))
    assert status == 64
    assert "did you mean 'failover_within'?" in told
    assert "loadd" in told
    assert len(told.splitlines()) == 1


def test_a_drill_is_held_against_an_inventory() -> None:
    assert validated("kill_active", "--on", "artemis_shared_store")[0] == 0
    status, told = validated("kill_active", "--on", "openmq_peers")
    assert (status, told.count("it needs standby")) == (64, 1)


def test_each_host_of_an_inventory_is_planned() -> None:
    result = CliRunner().invoke(app, ["plan", "artemis_shared_store", "--json"])
    assert result.exit_code == 0
    rows = json.loads(result.stdout)["instances"]
    brokers = [row for row in rows if row["product"] == "artemis"]
    assert {row["store"] for row in brokers} == {"orders_pair1"}
    assert all("61616" in row["listens on"] for row in brokers)
    # A host that gets no broker stands there too.
    assert any(row["product"].startswith("load") for row in rows)


@pytest.mark.parametrize("name", ["my_drill.yml", "a: {b} #c.yml"])
@pytest.mark.parametrize("words", [(), ("--extends", "kill_active")])
def test_a_new_drill_runs_as_it_is(tmp_path: Path, words: tuple[str, ...], name: str) -> None:
    file = tmp_path / name
    assert CliRunner().invoke(app, ["new", str(file), *words]).exit_code == 0
    assert validated(str(file), "--on", "artemis_shared_store") == (0, f"{file}: no mistake\n")
    again = CliRunner().invoke(app, ["new", str(file)])
    assert str(again.exception) == f"{file} is there already"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("mine",), "mine: a drill's file ends in .yml or .yaml"),
        (("nowhere/mine.yml",), "nowhere/mine.yml cannot be written: No such file or directory"),
        (("mine.yml", "--extends", "kil_active"), "no drill is called 'kil_active'; did you mean 'kill_active'?"),
    ],
)
def test_a_drill_that_cannot_be_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(CliRunner().invoke(app, ["new", *words]).exception) == why
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", ["!vault |\n      $ANSIBLE_VAULT;1.1;AES256\n      3132", "2026-99-99", "!unsafe x"])
def test_one_file_of_hosts_is_an_inventory_whatever_its_values_are(value: str, tmp_path: Path) -> None:
    """It was taken for a drill, or ended in a traceback: the values are Ansible's to read."""
    file = tmp_path / "hosts.yml"
    file.write_text(f"all:\n  vars:\n    word: {value}\n  hosts:\n    a:\n")
    assert not _is_drill(str(file))


def test_a_name_that_no_file_can_have_is_a_mistake_among_the_others() -> None:
    status, told = validated("x" * 300 + ".yml", "kill_active")
    assert (status, told.splitlines()) == (64, [f"{'x' * 300}.yml: File name too long", "kill_active: no mistake"])
