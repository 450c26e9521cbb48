"""Filters of the role prometheus: pure functions from plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, TypedDict

from ansible_collections.brokerdrill.ha.plugins.plugin_utils.hosts import HostVars, address_of

PRODUCTS = ("activemq_classic", "amqp_router", "artemis", "rabbitmq")
"""The products whose roles serve metrics where common_metrics is true."""
STORES = {"activemq_classic": "activemq_classic_pair", "artemis": "artemis_pair"}
"""Product to the variable that says which store a host serves; without it, and in others, each host has its own."""


class Target(TypedDict):
    """What is scraped: a product's instance at an address, with the store that it serves."""

    product: str
    host: str
    instance: str
    store: str
    address: str


def prometheus_targets(
    groups: Mapping[str, Sequence[str]], hostvars: HostVars, ports: Mapping[str, int]
) -> list[Target]:
    """Return the targets of the inventory by product and host: the hosts of each product whose common_metrics is true.

    `ports`: product to its port where a host's common_metrics_ports does not say another.
    """
    found: list[Target] = []
    for product in PRODUCTS:
        for host in sorted(groups.get(product, ())):
            of = hostvars[host]
            if not _true(of.get("common_metrics", False)):
                continue
            address = address_of(host, of, "common_metrics_address")
            port = {**ports, **of.get("common_metrics_ports", {})}[product]
            found.append(
                {
                    "product": product,
                    "host": host,
                    "instance": str(of.get(f"{product}_instance", host)),
                    "store": str(of.get(STORES.get(product, ""), host)),
                    "address": f"[{address}]:{port}" if ":" in address else f"{address}:{port}",
                }
            )
    return found


def _true(value: Any) -> bool:
    return str(value).lower() in ("true", "yes", "on", "1")


def prometheus_problems(targets: Sequence[Target], host: str) -> list[str]:
    """Return what forbids a Prometheus on `host` with these targets, a sentence each."""
    if targets:
        return []
    return [
        f"{host} is in the group prometheus, but no host of {', '.join(PRODUCTS)} serves metrics: set "
        "common_metrics to true for them"
    ]


def prometheus_scrape_configs(targets: Sequence[Target]) -> list[dict[str, Any]]:
    """Return the entries of scrape_configs for `targets`, one a product; the labels say host, instance and store."""
    return [
        {
            "job_name": product,
            "static_configs": [
                {
                    "targets": [target["address"]],
                    "labels": {name: target[name] for name in ("host", "instance", "store")},  # type: ignore[literal-required]
                }
                for target in targets
                if target["product"] == product
            ],
        }
        for product in dict.fromkeys(target["product"] for target in targets)
    ]


def prometheus_product_files(products: Sequence[str], directory: str) -> list[dict[str, str]]:
    """Return the rules and the dashboard of each product, as files of the module `host` below `directory`."""
    kinds = (("rules", "yml"), ("dashboards", "json"))
    return [
        {"dest": f"{directory}/{kind}/{product}.{suffix}", "src": f"{kind}/{product}.{suffix}"}
        for product in products
        for kind, suffix in kinds
    ]


def prometheus_more_files(paths: Sequence[str], directory: str) -> list[dict[str, str]]:
    """Return the rule files at `paths` of the controller, as files of the module `host` below `directory`."""
    return [{"dest": f"{directory}/rules/{PurePosixPath(path).stem}.yml", "src": path} for path in paths]


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "prometheus_targets": prometheus_targets,
            "prometheus_problems": prometheus_problems,
            "prometheus_scrape_configs": prometheus_scrape_configs,
            "prometheus_product_files": prometheus_product_files,
            "prometheus_more_files": prometheus_more_files,
        }
