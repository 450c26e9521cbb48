"""What a deployment left of Prometheus, seen from inside after a drill."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from conftest import Instance, topology


def ask(host: Any, instance: Instance, path: str) -> Any:
    """Return the data that Prometheus answers on its own host."""
    (listener,) = instance["listeners"]
    url = f"http://{listener['address']}:{listener['port']}/api/v1/{path}"
    program = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=30).read().decode())"
    answer = json.loads(host.check_output("python3 -c %s %s", program, url))
    assert answer["status"] == "success", answer
    return answer["data"]


def test_it_listens_on_loopback_only(instance: Instance, host: Any) -> None:
    lines = host.check_output("ss -Hltnp").splitlines()
    mine = [line.split()[3] for line in lines if '"prometheus"' in line]
    assert mine
    assert all(address.startswith("127.0.0.1:") for address in mine), mine


def test_it_reads_every_broker(instance: Instance, host: Any) -> None:
    targets = ask(host, instance, "targets?state=active")["activeTargets"]
    hosts = {one.name for product in ("artemis", "activemq_classic", "rabbitmq") for one in topology().group(product)}
    assert {one["labels"]["host"] for one in targets} == hosts
    assert [one["labels"]["host"] for one in targets if one["health"] != "up"] == []


def test_it_understands_its_rules(instance: Instance, host: Any) -> None:
    groups = ask(host, instance, "rules")["groups"]
    rules = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
    assert {"BrokerDown", "NoActiveBroker"} <= set(rules)
    assert set(rules.values()) == {"ok"}


def test_one_broker_of_each_pair_says_that_it_is_active(instance: Instance, host: Any) -> None:
    pairs: dict[str, set[str]] = {}
    for member in topology().group("artemis"):
        pairs.setdefault(str(member.vars.get("artemis_pair", member.name)), set()).add(member.name)
    for store, members in pairs.items():
        query = quote(f'artemis_active{{store="{store}"}}')
        found = ask(host, instance, f"query?query={query}")["result"]
        assert {one["metric"]["host"] for one in found} == members
        assert [one["value"][1] for one in found].count("1") == 1
