"""The role shared_store: a mount whose locks hold. NFS is rendered and checked here alone: the bench's kernel has none.
GlusterFS is drilled (topology artemis_glusterfs); what is here of it are the rules and the readers."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.products.health.answer import Health
from brokerdrill.products.health.shared_store import health_of
from tests.roles.conftest import ROOT, Render, inventories, playbook
from tests.roles.test_plugins import plugin

store = plugin("filter", "shared_store")
INVENTORY = ROOT / "inventories" / "artemis_shared_store"
GLUSTERFS = ROOT / "inventories" / "artemis_glusterfs"
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


def members(*hosts: str) -> dict[str, Any]:
    hostvars = {host: {"ansible_host": f"10.0.0.{number}"} for number, host in enumerate(hosts, 1)}
    found: dict[str, Any] = store.shared_store_members(list(hosts), hostvars, {"brick": "/srv/b", "port": 49152})
    return found


def config(**change: Any) -> dict[str, Any]:
    options = ["vers=4.1", "sync"]
    nfs = {"kind": "nfs", "path": "/srv/a", "server": "s", "export": "/e", "options": options}
    glusterfs = {
        "members": members("a1", "a2", "s1"),
        "brick": "/srv/b",
        "brick_port": 49152,
        "volume": "shared",
        "ping_timeout_s": 5,
        "server_timeout_s": 15,
        "volume_options": {},
    }
    return {**nfs, **glusterfs, **change}


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
        (
            {"kind": "glusterfs", "members": members("a1", "a2")},
            "keeps 3 copies, a host each; the group shared_store has 2",
        ),
        ({"kind": "glusterfs", "brick": "/srv/a/b"}, "is no directory beside shared_store_path"),
        ({"kind": "glusterfs", "brick": "/srv"}, "is no directory beside shared_store_path"),
        ({"kind": "glusterfs", "brick_port": 24007}, "is none that a brick can have"),
        ({"kind": "glusterfs", "brick_port": 80}, "is none that a brick can have"),
        ({"kind": "glusterfs", "brick_port": 24005}, "is none that a brick can have"),
        ({"kind": "glusterfs", "brick_port": 65533}, "is none that a brick can have"),
        ({"kind": "glusterfs", "volume": "a b"}, "is no name of a volume"),
        ({"kind": "glusterfs", "ping_timeout_s": 0}, "nobody notices a server that is gone"),
        ({"kind": "glusterfs", "ping_timeout_s": 15}, "would give a lock to the next broker"),
        (
            {"kind": "glusterfs", "volume_options": {"client.strict-locks": "off"}},
            "shared_store_glusterfs_strict_locks says",
        ),
    ],
)
def test_what_is_not_safe_is_refused(change: dict[str, Any], said: str) -> None:
    (problem,) = store.shared_store_problems(config(**change))
    assert said in problem


def test_what_is_safe_passes() -> None:
    assert store.shared_store_problems(config()) == []
    assert store.shared_store_problems(config(kind="glusterfs", server="", export="")) == []
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
        ("fuse.glusterfs rw,nosuid", "glusterfs", ""),
        ("overlay rw", "glusterfs", "overlay is mounted there, not fuse.glusterfs"),
    ],
)
def test_what_is_mounted_is_looked_at(found: str, kind: str, said: str) -> None:
    assert store.mounted_problem(found, kind) == said


def test_each_server_dials_the_daemon_and_the_brick_of_the_others() -> None:
    assert store.shared_store_dials(members("a1", "a2", "s1"), "a2") == [
        {"link": "store", "to": f"store-{host}", "address": address, "port": port}
        for host, address in (("a1", "10.0.0.1"), ("s1", "10.0.0.3"))
        for port in (24007, 49152, 49153, 49154, 49155)
    ]


def test_the_mount_of_glusterfs_asks_every_server(render: Render) -> None:
    found = render(
        "shared_store", "artemis2", {"unit": "mount.j2", "daemon": "glusterd.vol.j2"}, [], inventory=GLUSTERFS
    )
    unit = found["files"]["unit"]
    assert "What=172.30.28.22:/shared\n" in unit and "Type=glusterfs\n" in unit
    assert "backup-volfile-servers=172.30.28.21:172.30.28.11" in unit and "direct-io-mode=enable" in unit
    assert "After=network-online.target glusterd.service\n" in unit
    assert "base-port 49152\n" in found["files"]["daemon"] and "max-port 49155\n" in found["files"]["daemon"]


def test_a_volume_has_a_copy_on_each_server_and_the_options_of_its_variables(render: Render) -> None:
    asked = ["__shared_store_volume_options", "__shared_store_more_descriptors"]
    found = render("shared_store", "store1", {}, asked, inventory=GLUSTERFS)["variables"]
    options = found["__shared_store_volume_options"]
    assert (options["network.ping-timeout"], options["server.tcp-user-timeout"]) == ("5", "15")
    assert (options["client.strict-locks"], options["performance.write-behind"]) == ("on", "off")
    assert options["auth.allow"] == "172.30.28.21,172.30.28.22,172.30.28.11"
    (server,) = found["__shared_store_more_descriptors"]
    assert server["features"] == ["store_servers", "strict_locks"]
    assert {(one["protocol"], one["port"]) for one in server["listeners"]} == {
        ("glusterd", 24007), *(("glusterfs", port) for port in range(49152, 49156)),
    }  # fmt: skip


PEERS = """<cliOutput><opRet>0</opRet><peerStatus>
<peer><hostname>10.0.0.2</hostname><hostnames><hostname>10.0.0.2</hostname></hostnames><connected>1</connected></peer>
<peer><hostname>10.0.0.3</hostname><hostnames><hostname>10.0.0.3</hostname></hostnames><connected>0</connected></peer>
</peerStatus></cliOutput>"""
VOLUMES = """<cliOutput><opRet>0</opRet><volInfo><volumes><volume><name>shared</name><statusStr>Started</statusStr>
<bricks><brick uuid="1">10.0.0.1:/b<name>10.0.0.1:/b</name></brick>
<brick uuid="2">10.0.0.2:/b<name>10.0.0.2:/b</name></brick></bricks>
<options><option><name>network.ping-timeout</name><value>42</value></option></options></volume></volumes></volInfo></cliOutput>"""
BRICKS = ["10.0.0.1:/b", "10.0.0.2:/b"]


def test_what_is_missing_of_a_volume_is_made_and_no_more() -> None:
    module = plugin("modules", "glusterfs_volume")
    assert module.connected(ElementTree.fromstring(PEERS)) == {"10.0.0.2"}
    there = module.volume(ElementTree.fromstring(VOLUMES), "shared")
    assert there == {"bricks": BRICKS, "options": {"network.ping-timeout": "42"}, "started": True}
    assert module.volume(ElementTree.fromstring(VOLUMES), "other") is None
    assert module.steps("shared", BRICKS, {"network.ping-timeout": "42"}, there) == []
    assert module.steps("shared", BRICKS, {"network.ping-timeout": "5"}, there) == [
        ["volume", "set", "shared", "network.ping-timeout", "5"]
    ]
    assert module.steps("shared", BRICKS, {"a": "1"}, None) == [
        ["volume", "create", "shared", "replica", "2", *BRICKS, "force"],
        ["volume", "set", "shared", "a", "1"],
        ["volume", "start", "shared"],
    ]
    with pytest.raises(module.Refused, match=r"the volume shared has the bricks 10.0.0.1:/b, 10.0.0.2:/b, not x:/b"):
        module.steps("shared", ["x:/b"], {}, there)


def test_a_server_is_healthy_once_it_serves_and_sees_the_others() -> None:
    pool = "UUID\tHostname\tState\n1\t10.0.0.2\tConnected\n2\tlocalhost\tConnected\n"
    assert health_of([], pool) == Health("active", True, "2 servers")
    assert health_of(["glusterfs"], pool).detail == "nothing listens for glusterfs"
    assert health_of([], pool.replace("Connected", "Disconnected", 1)).detail == "it does not reach 10.0.0.2"
    assert health_of([], "").state == "starting"
