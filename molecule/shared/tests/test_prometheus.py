"""What a deployment left of Prometheus, seen from inside after a drill."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from conftest import Instance, topology

# Of the products that have metrics, by their roles: what each has for Prometheus.
METRICS = {
    path.parents[1].name: path.parents[1] / "files" / "prometheus"
    for path in (Path(__file__).resolve().parents[3] / "roles").glob("*/meta/product.yml")
    if "metrics" in yaml.safe_load(path.read_text())
}


def scraped() -> set[str]:
    """The products whose hosts are read."""
    return {product for product in METRICS if any(one.vars.get("common_metrics") for one in topology().group(product))}


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


def test_it_reads_every_member(instance: Instance, host: Any) -> None:
    targets = ask(host, instance, "targets?state=active")["activeTargets"]
    members = {(product, one.name) for product in scraped() for one in topology().group(product)}
    assert {(one["labels"]["job"], one["labels"]["host"]) for one in targets} == members
    assert [one["lastError"] for one in targets if one["health"] != "up"] == []


def test_rules_and_dashboards_ask_for_what_is_there(instance: Instance, host: Any) -> None:
    for product in scraped():
        rules = yaml.safe_load((METRICS[product] / "rules.yml").read_text())["groups"][0]["rules"]
        panels = json.loads((METRICS[product] / "dashboard.json").read_text())["panels"]
        expressions = [one["expr"] for one in [*rules, *(target for panel in panels for target in panel["targets"])]]
        asked = {name for text in expressions for name in re.findall(r"([a-zA-Z_]+)\{", text)} - {"ALERTS"}
        query = quote(f'{{job="{product}"}}')
        found = set(ask(host, instance, f"label/__name__/values?match[]={query}"))
        assert asked <= found, asked - found


def test_it_understands_its_rules(instance: Instance, host: Any) -> None:
    groups = ask(host, instance, "rules")["groups"]
    rules = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
    files = [yaml.safe_load((METRICS[product] / "rules.yml").read_text()) for product in scraped()]
    assert set(rules) == {rule["alert"] for file in files for rule in file["groups"][0]["rules"]}
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
