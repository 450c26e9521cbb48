"""What a deployment left of Artemis, seen from inside after a drill."""

from __future__ import annotations

from typing import Any

from conftest import Instance, connect, descriptors, listening, owner, topology


def test_management_needs_a_password(instance: Instance, host: Any) -> None:
    url = instance["management"]["url"]
    script = (
        "import ssl,sys,urllib.request as u;"
        f"c=ssl.create_default_context(cafile='{instance['tls']['ca']}');"
        f"r=u.Request('{url}',headers={{'Origin':'{url.split('/console')[0]}'}});"
        "u.build_opener(u.ProxyHandler({}),u.HTTPSHandler(context=c)).open(r,timeout=10)"
    )
    answer = host.run("python3 -c %s", script)
    assert answer.rc != 0
    assert "401" in answer.stderr or "403" in answer.stderr, answer.stderr


def test_its_data_is_its_own(instance: Instance, host: Any) -> None:
    data = host.file(instance["data_dir"])
    assert data.is_directory
    assert data.user == owner(host, instance["unit"])
    assert host.file(f"{instance['data_dir']}/journal").is_directory


def test_the_log_has_the_codes_that_roles_are_read_from(instance: Instance, host: Any) -> None:
    log = host.check_output("journalctl --no-pager -o cat -u %s", instance["unit"])
    # Active, or a synchronous copy; where the store is shared, a backup waits for its lock instead.
    codes = ["AMQ221007", *(["AMQ221010", "AMQ221109"] if instance["ha_policy"] == "shared_store" else ["AMQ221024"])]
    assert any(code in log for code in codes)


def test_one_broker_of_each_pair_is_active() -> None:
    pairs: dict[str, list[str]] = {}
    for host in topology().group("artemis"):
        for item in descriptors(host.name):
            if item["product"] == "artemis":
                # A listener for each protocol of the acceptor, all at one place.
                (core,) = {f"{one['address']}:{one['port']}" for one in item["listeners"] if one["name"] == "core"}
                serves = core in listening(connect(host.name))
                pairs.setdefault(item["store"], []).append("active" if serves else "passive")
    assert pairs
    for store, roles in pairs.items():
        assert sorted(roles) == ["active", *["passive"] * (len(roles) - 1)], store
