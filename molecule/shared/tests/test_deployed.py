"""What a deployment left on its hosts, seen from inside after a drill."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from conftest import connect, descriptors, topology

Instance = dict[str, Any]


def of(product: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give the test only the instances of `product`."""

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        test.__dict__["product"] = product
        return test

    return mark


def owner(host: Any, unit: str) -> str:
    pid = host.check_output("systemctl show --value -p MainPID %s", unit).strip()
    return host.check_output("stat -c %%U /proc/%s", pid).strip()


def listening(host: Any) -> set[str]:
    """Return the addresses with ports that something on the host listens on."""
    sockets = host.check_output("ss -Hltn").splitlines()
    return {line.split()[3].replace("[::ffff:", "").replace("]", "") for line in sockets}


def test_every_host_has_its_descriptors() -> None:
    for host in topology().hosts:
        products = {item["product"] for item in descriptors(host.name)}
        assert products == set(host.groups) & {"zookeeper", "artemis", "toxiproxy", "load"}, host.name


def test_units_run_enabled_and_not_as_root(instance: Instance, host: Any) -> None:
    if instance["unit"] is None:
        assert instance["product"] == "load"
        return
    unit = host.service(instance["unit"].removesuffix(".service"))
    assert unit.is_running
    assert unit.is_enabled
    assert owner(host, instance["unit"]) not in ("root", "nobody")


def test_listeners_listen_where_the_descriptor_says(instance: Instance, host: Any) -> None:
    local = listening(host)
    # A passive broker opens its client port when it becomes active; the followers of an ensemble open no quorum port.
    optional = {"core", "quorum"}
    for listener in instance["listeners"]:
        if listener["name"] not in optional:
            assert f"{listener['address']}:{listener['port']}" in local


def test_keys_are_private(instance: Instance, host: Any) -> None:
    tls = instance.get("tls")
    if not tls:
        assert instance["product"] == "toxiproxy"
        return
    bundle = host.file(tls["bundle"])
    assert (bundle.user, bundle.mode) == ("root", 0o640)
    assert "BEGIN PRIVATE KEY" in bundle.content_string
    assert not host.file("/etc/brokerdrill/tls/ca.key").exists, "the CA's key stays on the controller"


def test_no_secret_is_on_a_command_line_or_in_a_descriptor(instance: Instance, host: Any) -> None:
    credentials = instance.get("credentials")
    if not credentials:
        assert instance["product"] != "artemis"
        return
    file = host.file(credentials["file"])
    assert (file.user, file.mode) == ("root", 0o600)
    password = json.loads(file.content_string)["password"]
    assert len(password) >= 32
    assert password not in host.check_output("ps axww -o args")
    assert password not in json.dumps(instance)
    assert password not in host.check_output("journalctl --no-pager -o cat")


@of("zookeeper")
def test_zookeeper_wants_a_certificate(instance: Instance, host: Any) -> None:
    (client,) = [item for item in instance["listeners"] if item["name"] == "client"]
    connect_to = f"-connect {client['address']}:{client['port']} -CAfile {instance['tls']['ca']} -quiet -no_ign_eof"
    bundle = instance["tls"]["bundle"]
    asked = f"printf srvr | timeout 10 openssl s_client {connect_to} -verify_return_error"
    assert "Mode:" in host.run(f"{asked} -cert {bundle} -key {bundle} -ign_eof").stdout
    assert "Mode:" not in host.run(asked).stdout


@of("artemis")
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


@of("artemis")
def test_its_data_is_its_own(instance: Instance, host: Any) -> None:
    data = host.file(instance["data_dir"])
    assert data.is_directory
    assert data.user == owner(host, instance["unit"])
    assert host.file(f"{instance['data_dir']}/journal").is_directory


@of("artemis")
def test_the_log_has_the_codes_that_roles_are_read_from(instance: Instance, host: Any) -> None:
    log = host.check_output("journalctl --no-pager -o cat -u %s", instance["unit"])
    # Active, or a synchronous copy; where the store is shared, a backup waits for its lock instead.
    codes = ["AMQ221007", *(["AMQ221010", "AMQ221109"] if instance["ha_policy"] == "shared_store" else ["AMQ221024"])]
    assert any(code in log for code in codes)


@of("toxiproxy")
def test_toxiproxy_listens_on_loopback_only(instance: Instance, host: Any) -> None:
    user = host.user(instance["user"])
    assert user.uid == instance["uid"]
    lines = host.check_output("ss -Hltnp").splitlines()
    mine = [line.split()[3] for line in lines if "toxiproxy" in line]
    assert mine
    assert all(address.startswith("127.0.0.1:") for address in mine), mine
    assert "toxiproxy" in host.check_output("%s --version", instance["cli"])


@of("load")
def test_workers_can_start(instance: Instance, host: Any) -> None:
    assert host.file(instance["spool_dir"]).is_directory
    script = (
        "import glob,sys;"
        f"sys.path.insert(0,'{instance['pythonpath']}');"
        "import jpype;"
        f"jpype.startJVM(classpath=glob.glob('{instance['jars']}/*.jar'));"
        "print(jpype.JClass('org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory'))"
    )
    assert "ActiveMQConnectionFactory" in host.check_output("python3 -c %s", script)


def test_no_fault_is_left_behind() -> None:
    for host in topology().hosts:
        tables = connect(host.name).check_output("nft list tables")
        assert "brokerdrill" not in tables, f"{host.name}: {tables}"
        timers = connect(host.name).check_output("systemctl list-timers --all --plain --no-legend 'brokerdrill-*'")
        assert not timers.strip(), f"{host.name}: {timers}"


def test_one_broker_of_each_pair_is_active() -> None:
    pairs: dict[str, list[str]] = {}
    for host in topology().group("artemis"):
        for item in descriptors(host.name):
            if item["product"] == "artemis":
                (core,) = [one for one in item["listeners"] if one["name"] == "core"]
                serves = f"{core['address']}:{core['port']}" in listening(connect(host.name))
                pairs.setdefault(item["store"], []).append("active" if serves else "passive")
    assert pairs
    for store, roles in pairs.items():
        assert sorted(roles) == ["active", *["passive"] * (len(roles) - 1)], store
