"""The role shared_store: an NFS mount whose locks hold. Rendered and checked here; the bench's kernel has no NFS."""

from __future__ import annotations

import json
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest

from tests.roles.conftest import ROOT, Render, inventories, playbook
from tests.roles.test_plugins import plugin

store = plugin("filter", "shared_store")
INVENTORY = ROOT / "inventories" / "artemis_shared_store"
NFS = {
    "shared_store_kind": "nfs",
    "shared_store_nfs_server": "nfs.example",
    "shared_store_nfs_export": "/export/artemis",
}


def test_the_mount_as_systemd_reads_it(render: Render) -> None:
    found = render(
        "shared_store", "artemis1", {"unit": "mount.j2"}, ["__shared_store_files"], inventory=INVENTORY, **NFS
    )
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[method-assign,assignment]
    unit.read_string(found["files"]["unit"])
    mount = dict(unit["Mount"])
    assert (mount["What"], mount["Where"], mount["Type"]) == ("nfs.example:/export/artemis", "/srv/artemis", "nfs4")
    assert {"vers=4.1", "sync", "noac", "lookupcache=none", "soft"} <= set(mount["Options"].split(","))
    assert found["variables"]["__shared_store_files"][0]["dest"] == "/etc/systemd/system/srv-artemis.mount"


def test_the_brokers_wait_for_the_mount(render: Render) -> None:
    found = render("artemis", "artemis1", {}, ["__artemis_unit", "__artemis_store_outside"], inventory=INVENTORY)
    assert found["variables"]["__artemis_store_outside"] is True
    assert found["variables"]["__artemis_unit"]["requires_mounts_for"] == "/srv/artemis/orders_pair1"


def test_check_mode_says_what_it_would_write(tmp_path: Path) -> None:
    book = tmp_path / "play.yml"
    tasks = [
        {"ansible.builtin.include_role": {"name": "brokerdrill.ha.shared_store", "tasks_from": part}}
        for part in ("preflight", "configure", "service")
    ]
    book.write_text(json.dumps([{"hosts": "artemis1", "gather_facts": False, "tasks": tasks}]))
    local = {**NFS, "ansible_connection": "local", "shared_store_path": "/srv/brokerdrill-check"}
    done = playbook(
        [*inventories(INVENTORY), str(book), "--check", "--diff", "-e", json.dumps(local)], tmp_path / "cache"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "What=nfs.example:/export/artemis" in done.stdout
    assert not Path("/etc/systemd/system/srv-brokerdrill\\x2dcheck.mount").exists()


@pytest.mark.parametrize(
    ("path", "unit"),
    [("/srv/artemis", "srv-artemis.mount"), ("/srv/a-b/c d/", "srv-a\\x2db-c\\x20d.mount")],
)
def test_unit_names(path: str, unit: str) -> None:
    assert store.mount_unit(path) == unit


def config(**change: Any) -> dict[str, Any]:
    options = ["vers=4.1", "sync"]
    return {"kind": "nfs", "path": "/srv/a", "server": "s", "export": "/e", "options": options, **change}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"path": "/"}, "no directory to mount at"),
        ({"server": ""}, "needs shared_store_nfs_server"),
        ({"export": ""}, "needs shared_store_nfs_export"),
        ({"options": ["vers=3"]}, "NFS version 3"),
        ({"options": ["nolock"]}, "locks would be this host's alone"),
        ({"options": ["local_lock=all"]}, "locks would be this host's alone"),
        ({"options": ["async"]}, "before the server has it"),
        ({"options": ["ac"]}, "see the other's files late"),
        ({"options": ["hard"]}, "would hang on a server that is gone"),
    ],
)
def test_what_is_not_safe_is_refused(change: dict[str, Any], said: str) -> None:
    (problem,) = store.shared_store_problems(config(**change))
    assert said in problem


def test_what_is_safe_passes() -> None:
    assert store.shared_store_problems(config()) == []
    assert store.shared_store_problems(config(kind="mounted", server="", export="", options=["vers=3"])) == []


@pytest.mark.parametrize(
    ("found", "kind", "said"),
    [
        ("nfs4 rw,sync,hard", "nfs", ""),
        ("ext4 rw", "mounted", ""),
        ("ext4 rw", "nfs", "ext4 is mounted there, not nfs4"),
        ("nfs4 ro,sync", "nfs", "it is mounted read-only"),
        ("nfs4 rw,local_lock=all", "nfs", "mounted with local_lock=all: locks would be this host's alone"),
        ("", "mounted", "there is no such directory"),
    ],
)
def test_what_is_mounted_is_looked_at(found: str, kind: str, said: str) -> None:
    assert store.mounted_problem(found, kind) == said
