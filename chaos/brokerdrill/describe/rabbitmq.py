"""RabbitMQ: its descriptor from what its own tools print; its configuration has defaults that no file says."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from brokerdrill.base.errors import UsageError
from brokerdrill.describe.found import LOOPBACK, DescribeOptions, Found, common, console_on_loopback, secured

PRODUCT = "rabbitmq"
# In the command line of the main process: Erlang's (`-s rabbit boot`) once it has notified systemd, a shell before.
MARKER = "rabbit"
CONTROL = "/usr/sbin/rabbitmqctl"
_JSON = "--formatter json"
_BROKER = (
    f"{CONTROL} -q eval '[node(), net_kernel:get_net_ticktime(), "
    "application:get_env(rabbit, cluster_partition_handling, ignore), "
    f"application:get_env(rabbit, collect_statistics_interval, 5000)].' {_JSON}"
)
_LISTENERS = f"/usr/sbin/rabbitmq-diagnostics -q listeners {_JSON}"
_CLUSTER = f"{CONTROL} -q cluster_status {_JSON}"
_QUEUES = f"{CONTROL} -q list_queues name type arguments policy {_JSON}"
_POLICIES = f"{CONTROL} -q list_policies {_JSON}"
COMMANDS = (_BROKER, _LISTENERS, _CLUSTER, _QUEUES, _POLICIES)
# By the product's word for what a listener speaks: the ledger's, and whether it is TLS.
_PROTOCOLS = {
    "amqp": ("amqp091", False),
    "amqp/ssl": ("amqp091", True),
    "http": ("http", False),
    "https": ("https", True),
}
_MANAGED = ("https", "http")
EPMD_PORT, CLUSTERING = 4369, "clustering"


def paths(found: Found) -> list[str]:
    """Return no file: the broker is asked."""
    return []


def describe(found: Found, options: DescribeOptions) -> dict[str, Any]:
    """Return the descriptor of the broker, which is called by its host. Raises UsageError with what cannot be known."""
    node, ticktime_s, partitions, statistics_ms = _printed(found, _BROKER)["value"]
    listeners = _printed(found, _LISTENERS)["listeners"]
    cluster = _printed(found, _CLUSTER)
    members = sorted([*cluster["disk_nodes"], *cluster.get("ram_nodes", [])])
    queues = [queue for queue in _printed(found, _QUEUES) if not str(queue["name"]).startswith("amq.gen")]
    mirroring = {policy["name"] for policy in _printed(found, _POLICIES) if "ha-mode" in policy["definition"]}
    url = options.management_url or _url(found, listeners)
    clustering = [item["port"] for item in listeners if item["protocol"] == CLUSTERING]
    cluster = ["cluster", *([partitions] if isinstance(partitions, str) else [])] if len(members) > 1 else []
    return {
        **common(found, PRODUCT, found.host),
        "role": "member",
        "store": found.host,
        "control": CONTROL,
        "evidence": {"cluster": f"{CONTROL} cluster_status"},
        "listeners": list(_listeners(found, listeners)),
        # By the name of their nodes' hosts; `joined` knows those that are described too.
        "dials": [
            {"link": "cluster", "to": other, "address": other.partition("@")[2], "port": port}
            for other in members
            if other != node
            for port in (EPMD_PORT, *clustering)
        ],
        "management": {"type": "rabbitmq", "url": url, "node": node, "members": members},
        **secured(found, url, options),
        "addresses": [{"name": queue["name"], "dead_letter": _dead_letter(queue["arguments"])} for queue in queues],
        "settings": {
            "net_ticktime_ms": ticktime_s * 1000,
            "statistics_ms": statistics_ms,
            "restart_delay_s": int(found.restart_s),
        },
        "features": [*cluster, *sorted({feature for queue in queues for feature in _features(queue, mirroring)})],
    }


def _printed(found: Found, command: str) -> Any:
    """What a command printed. Raises UsageError where that is no JSON: the broker does not run, or is not ready."""
    try:
        return json.loads(found.files.get(command, ""))
    except ValueError:
        raise UsageError(f"host {found.host}: {found.unit} does not answer {' '.join(command.split()[:3])}") from None


def _listeners(found: Found, listeners: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for item in listeners:
        if item["protocol"] in _PROTOCOLS:
            protocol, tls = _PROTOCOLS[item["protocol"]]
            yield {
                "name": item["protocol"].replace("/", "-"),
                "address": found.reached(item["interface"]),
                "port": item["port"],
                "protocol": protocol,
                "tls": tls,
            }


def _url(found: Found, listeners: Sequence[Mapping[str, Any]]) -> str:
    """The URL of the management. Raises UsageError where there is none that the runner reaches."""
    for protocol in _MANAGED:
        for item in listeners:
            if item["protocol"] == protocol:
                if item["interface"] in LOOPBACK:
                    raise console_on_loopback(found, item["interface"])
                return f"{protocol}://{found.reached(item['interface'])}:{item['port']}"
    raise UsageError(f"host {found.host}: {found.unit} has no management: enable its plugin rabbitmq_management")


def _features(queue: Mapping[str, Any], mirroring: Collection[str]) -> Iterator[str]:
    """What a queue is a sign of; `mirroring`: the names of policies that have queues mirrored."""
    yield f"{queue['type']}_queues"
    if queue["type"] == "classic" and queue.get("policy") in mirroring:
        yield "mirrored_queues"


def _dead_letter(arguments: Mapping[str, Any] | Sequence[Sequence[Any]]) -> str | None:
    """The queue that the default exchange brings a queue's dead letters to."""
    said = arguments if isinstance(arguments, Mapping) else {item[0]: item[-1] for item in arguments}
    to_default = said.get("x-dead-letter-exchange") == ""
    return str(said["x-dead-letter-routing-key"]) if to_default and "x-dead-letter-routing-key" in said else None


def joined(descriptors: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the descriptors with each connection to another of them by that one's name and address."""
    known = {one["management"]["node"]: one for one in descriptors}

    def dial(item: dict[str, Any]) -> dict[str, Any]:
        other = known.get(item["to"])
        if other is None:
            return item
        address = next((place["address"] for place in other["listeners"]), item["address"])
        return {**item, "to": other["instance"], "address": address}

    return [{**one, "dials": [dial(item) for item in one["dials"]]} for one in descriptors]
