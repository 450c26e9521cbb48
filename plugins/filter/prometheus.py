"""Filters of the role prometheus: pure functions from plain data.

`products` are what the lookup of this name returns with details: each product's name, metrics (where Prometheus reads
it; None where it has none) and metrics_files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, TypedDict

from ansible_collections.brokerdrill.ha.plugins.plugin_utils.hosts import HostVars, address_of

Details = Mapping[str, Any]
LABELS = ("host", "instance", "store", "cluster")


class Target(TypedDict):
    """What is scraped: a product's instance at an address, with the store that it serves, its cluster ("": none with a
    name), and whether by TLS."""

    product: str
    host: str
    instance: str
    store: str
    cluster: str
    address: str
    tls: bool


def metrics_ports(products: Sequence[Details], others: Mapping[str, int]) -> dict[str, int]:
    """Return each product's port of its metrics: its own, where `others` does not say another."""
    return {product["name"]: product["metrics"]["port"] for product in _measured(products)} | dict(others)


def prometheus_targets(
    groups: Mapping[str, Sequence[str]], hostvars: HostVars, products: Sequence[Details]
) -> list[Target]:
    """Return the targets of the inventory by product and host: the hosts of each product whose common_metrics is true.

    Address, port, store and cluster are those of the product's variables where the host has them; else the address
    and port of common_metrics_address and common_metrics_ports, and else what the product's metrics say.
    """
    found: list[Target] = []
    for product in sorted(_measured(products), key=lambda one: one["name"]):
        name, metrics = product["name"], product["metrics"]
        variable = metrics.get("variables", {})
        for host in sorted(groups.get(name, ())):
            of = hostvars[host]
            if not _true(of.get("common_metrics", False)):
                continue
            # An empty name is no host's variable.
            without = metrics.get("address", "common_metrics_address")
            address = of.get(variable.get("address", "")) or address_of(host, of, without)
            port = of.get(variable.get("port", "")) or of.get("common_metrics_ports", {}).get(name, metrics["port"])
            found.append(
                {
                    "product": name,
                    "host": host,
                    "instance": str(of.get(f"{name}_instance", host)),
                    "store": str(of.get(variable.get("store", ""), metrics.get("store", host))),
                    "cluster": str(of.get(variable.get("cluster", ""), metrics.get("cluster", ""))),
                    "address": f"[{address}]:{port}" if ":" in address else f"{address}:{port}",
                    "tls": bool(metrics.get("tls", False)),
                }
            )
    return found


def _measured(products: Iterable[Details]) -> list[Details]:
    return [product for product in products if product["metrics"]]


def _true(value: Any) -> bool:
    return str(value).lower() in ("true", "yes", "on", "1")


def prometheus_problems(targets: Sequence[Target], host: str, products: Sequence[Details]) -> list[str]:
    """Return what forbids a Prometheus on `host` with these targets, a sentence each."""
    if targets:
        return []
    names = ", ".join(sorted(product["name"] for product in _measured(products)))
    return [
        f"{host} is in the group prometheus, but no host of {names} serves metrics: set common_metrics to true for them"
    ]


def prometheus_scrape_configs(targets: Sequence[Target], ca: str) -> list[dict[str, Any]]:
    """Return the entries of scrape_configs for `targets`, one a product; the labels say host, instance, store, and
    the cluster where there is one.

    `ca`: the path of the certificate that those are held against which are read by TLS.
    """
    found = []
    for product in dict.fromkeys(target["product"] for target in targets):
        mine = [target for target in targets if target["product"] == product]
        entries = [
            {
                "targets": [target["address"]],
                "labels": {name: of for name in LABELS if (of := target[name])},  # type: ignore[literal-required]
            }
            for target in mine
        ]
        secure = {"scheme": "https", "tls_config": {"ca_file": ca}} if mine[0]["tls"] else {}
        found.append({"job_name": product, **secure, "static_configs": entries})
    return found


def prometheus_product_files(
    targets: Sequence[Target], products: Sequence[Details], directory: str
) -> list[dict[str, str]]:
    """Return what each product among `targets` has for Prometheus, its rules and its dashboard, as files of the module
    `host` below `directory`."""
    scraped = {target["product"] for target in targets}
    return [
        {"dest": f"{directory}/{kind}/{product['name']}{PurePosixPath(path).suffix}", "src": path}
        for product in products
        if product["name"] in scraped
        for kind, path in product["metrics_files"].items()
    ]


def prometheus_more_files(paths: Sequence[str], directory: str) -> list[dict[str, str]]:
    """Return the rule files at `paths` of the controller, as files of the module `host` below `directory`."""
    return [{"dest": f"{directory}/rules/{PurePosixPath(path).stem}.yml", "src": path} for path in paths]


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "metrics_ports": metrics_ports,
            "prometheus_targets": prometheus_targets,
            "prometheus_problems": prometheus_problems,
            "prometheus_scrape_configs": prometheus_scrape_configs,
            "prometheus_product_files": prometheus_product_files,
            "prometheus_more_files": prometheus_more_files,
        }
