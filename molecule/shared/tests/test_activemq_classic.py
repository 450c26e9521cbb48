"""What a deployment left of ActiveMQ Classic, seen from inside after a drill."""

from __future__ import annotations

from typing import Any

from conftest import Instance, connect, descriptors, listening, owner, topology


def test_management_needs_a_password(instance: Instance, host: Any) -> None:
    url = instance["management"]["url"]
    script = (
        "import ssl,urllib.request as u;"
        f"c=ssl.create_default_context(cafile='{instance['tls']['ca']}');"
        f"r=u.Request('{url}',headers={{'Origin':'{'/'.join(url.split('/')[:3])}'}});"
        "u.build_opener(u.ProxyHandler({}),u.HTTPSHandler(context=c)).open(r,timeout=10)"
    )
    answer = host.run("python3 -c %s", script)
    assert answer.rc != 0
    assert "401" in answer.stderr, answer.stderr


def test_its_store_is_its_own(instance: Instance, host: Any) -> None:
    if instance["persistence_adapter"] == "kahadb":
        data = host.file(instance["data_dir"])
        assert data.is_directory
        assert data.user == owner(host, instance["unit"])
        assert host.file(f"{instance['data_dir']}/db.data").is_file


def test_the_log_has_the_lines_that_roles_are_read_from(instance: Instance, host: Any) -> None:
    log = host.check_output("journalctl --no-pager -o cat -u %s", instance["unit"])
    assert "Using Persistence Adapter" in log
    waits = ("now in slave mode", "exclusive lease to become the master", "exclusive lock to become the Master")
    assert "Connector openwire started" in log or any(words in log for words in waits)


def test_one_broker_of_each_pair_is_master() -> None:
    pairs: dict[str, list[str]] = {}
    for host in topology().group("activemq_classic"):
        for item in descriptors(host.name):
            if item["product"] == "activemq_classic":
                (client,) = [one for one in item["listeners"] if one["name"] == "openwire"]
                serves = f"{client['address']}:{client['port']}" in listening(connect(host.name))
                pairs.setdefault(item["store"], []).append("master" if serves else "slave")
    assert pairs
    for store, roles in pairs.items():
        assert sorted(roles) == ["master", *["slave"] * (len(roles) - 1)], store
