"""What a deployment left on its hosts, seen from inside after a drill: what holds for every product."""

from __future__ import annotations

import json
from typing import Any

from conftest import PRODUCTS, Instance, connect, descriptors, listening, owner, topology

from brokerdrill.ledger.contract import PROTOCOLS
from brokerdrill.products import registry

# It comes with the product that has a virtual address, and is root, since it sets addresses.
KEEPER = "keepalived"


def test_every_host_has_its_descriptors() -> None:
    for host in topology().hosts:
        products = {item["product"] for item in descriptors(host.name)}
        kept = {KEEPER} if host.vars.get("common_virtual_address") else set()
        assert products == set(host.groups) & set(PRODUCTS) | kept, host.name


def test_units_run_enabled_and_not_as_root(instance: Instance, host: Any) -> None:
    if instance["unit"] is None:
        assert instance["product"] == "load"
        return
    unit = host.service(instance["unit"].removesuffix(".service"))
    assert unit.is_running
    assert unit.is_enabled
    assert (owner(host, instance["unit"]) in ("root", "nobody")) == (instance["product"] == KEEPER)


def test_listeners_listen_where_the_descriptor_says(instance: Instance, host: Any) -> None:
    local = listening(host)
    # A passive broker opens its client port when it becomes active; the followers of an ensemble open no quorum port.
    for listener in instance["listeners"]:
        if listener["protocol"] not in PROTOCOLS and listener["name"] != "quorum":
            assert f"{listener['address']}:{listener['port']}" in local


def test_keys_are_private(instance: Instance, host: Any) -> None:
    tls = instance.get("tls")
    if not tls:
        assert instance["product"] in ("balancer", KEEPER, "prometheus", "resolver", "toxiproxy")
        return
    bundle = host.file(tls["bundle"])
    assert (bundle.user, bundle.mode) == ("root", 0o640)
    assert "BEGIN PRIVATE KEY" in bundle.content_string
    assert not host.file("/etc/brokerdrill/tls/ca.key").exists, "the CA's key stays on the controller"


def test_no_secret_is_on_a_command_line_or_in_a_descriptor(instance: Instance, host: Any) -> None:
    credentials = instance.get("credentials")
    if not credentials:
        # A page that only tells asks nobody who it is told to.
        assert instance["product"] not in registry.PRODUCTS or instance["management"]["type"] == "status"
        return
    file = host.file(credentials["file"])
    assert (file.user, file.mode) == ("root", 0o600)
    password = json.loads(file.content_string)["password"]
    assert len(password) >= 32
    assert password not in host.check_output("ps axww -o args")
    assert password not in json.dumps(instance)
    assert password not in host.check_output("journalctl --no-pager -o cat")


def test_no_fault_is_left_behind() -> None:
    for host in topology().hosts:
        tables = connect(host.name).check_output("nft list tables")
        assert "brokerdrill" not in tables, f"{host.name}: {tables}"
        # What the safety kernel would still have to heal, and the lease of who drills.
        records = connect(host.name).check_output("cd /var/lib/brokerdrill/safety && ls lease.json faults/*.json || :")
        assert not records.strip(), f"{host.name}: {records}"
