"""Filters of the role rabbitmq: pure functions from plain data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict
from urllib.parse import quote

from ansible_collections.brokerdrill.ha.plugins.plugin_utils import own_configuration
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.descriptor import Dial
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.hosts import HostVars, address_of

EPMD_PORT = 4369
SALT_BYTES = 4
# Where a quorum queue keeps its first copies: more than five cost more than they save.
MOST_COPIES = 5
DRILL_VHOST = "/"


class RabbitmqMember(TypedDict):
    """A broker as the others of its cluster see it."""

    instance: str
    address: str
    node: str
    cluster_port: int
    partition_handling: str
    net_ticktime_s: int


def rabbitmq_members(
    hosts: Sequence[str], hostvars: HostVars, own: str, defaults: Mapping[str, Any]
) -> dict[str, RabbitmqMember]:
    """Return the brokers on `hosts` that are of the cluster of the host `own`, by host in sorted order.

    What a host's inventory does not set is what the role would set there: `defaults` for cluster_port,
    partition_handling and net_ticktime_s.
    """
    found: dict[str, RabbitmqMember] = {}
    for host in sorted(hosts):
        of = hostvars[host]
        if of.get("rabbitmq_cluster") != hostvars[own].get("rabbitmq_cluster"):
            continue
        address = address_of(host, of, "rabbitmq_address")
        found[host] = {
            "instance": of.get("rabbitmq_instance", host),
            "address": address,
            "node": f"rabbit@{address}",
            "cluster_port": int(of.get("rabbitmq_cluster_port", defaults["cluster_port"])),
            "partition_handling": of.get("rabbitmq_partition_handling", defaults["partition_handling"]),
            "net_ticktime_s": int(of.get("rabbitmq_net_ticktime_s", defaults["net_ticktime_s"])),
        }
    return found


def rabbitmq_other_clusters(hosts: Sequence[str], hostvars: HostVars, own: str) -> list[str]:
    """Return the first host, in sorted order, of each cluster on `hosts` but that of the host `own`."""
    first: dict[str, str] = {}
    for host in sorted(hosts):
        first.setdefault(hostvars[host].get("rabbitmq_cluster", ""), host)
    return [host for cluster, host in sorted(first.items()) if cluster != hostvars[own].get("rabbitmq_cluster", "")]


def rabbitmq_left_behind(listed: Iterable[Mapping[str, Any]], target: Mapping[str, Any]) -> dict[str, Any]:
    """Return which queues have messages that are to move (`moving`: host and queue), and which of those the target has
    not (`missing`).

    `listed`: the results of `rabbitmqctl list_queues name messages --formatter json` on the sources, each with its host
    as `item`; `target`: that on the target.
    """
    moving = [
        {"host": source["item"], "queue": row["name"]}
        for source in listed
        for row in json.loads(source["stdout"])
        if int(row["messages"]) > 0
    ]
    there = {row["name"] for row in json.loads(target["stdout"])}
    return {"moving": moving, "missing": sorted({one["queue"] for one in moving} - there)}


def rabbitmq_uris(hosts: Sequence[str], hostvars: HostVars, config: Mapping[str, Any]) -> dict[str, str]:
    """Return by host of `hosts` the URI by which a shovel connects to its broker.

    `config`: port (where a host sets no rabbitmq_port), tls, ca, vhost, user, password.
    """
    scheme, query = ("amqps", f"?verify=verify_peer&cacertfile={config['ca']}") if config["tls"] else ("amqp", "")
    who = ":".join(quote(config[name], safe="") for name in ("user", "password"))
    found = {}
    for host in hosts:
        address = address_of(host, hostvars[host], "rabbitmq_address")
        place = f"[{address}]" if ":" in address else address
        port = hostvars[host].get("rabbitmq_port", config["port"])
        found[host] = f"{scheme}://{who}@{place}:{port}/{quote(config['vhost'], safe='')}{query}"
    return found


def rabbitmq_dials(members: Mapping[str, RabbitmqMember], host: str) -> list[Dial]:
    """Return what the broker on `host` dials: of every other one its Erlang port mapper and its node."""
    return [
        {"link": "cluster", "to": member["instance"], "address": member["address"], "port": port}
        for other, member in members.items()
        if other != host
        for port in (EPMD_PORT, member["cluster_port"])
    ]


class RabbitmqConfig(TypedDict):
    """What the role's vars/main.yml hands over: the cluster's members by host and what is to be declared in it.

    `more`: definitions as the product exports them. `memory`: the high watermark, a part of the host's memory or a
    size. `allow`: the names of rules (even_cluster, few_copies) that a drill wants broken.
    """

    members: Mapping[str, RabbitmqMember]
    queues: Sequence[Mapping[str, Any]]
    vhosts: Sequence[str]
    policies: Sequence[Mapping[str, Any]]
    users: Sequence[Mapping[str, Any]]
    more: Mapping[str, Any]
    memory: str
    allow: Sequence[str]


def rabbitmq_problems(config: RabbitmqConfig) -> list[str]:
    """Return what forbids this broker, a sentence each."""
    members = config["members"]
    problems: dict[str, list[str]] = {"even_cluster": [], "few_copies": [], "": []}
    own = problems[""]
    for field, name in (
        ("partition_handling", "rabbitmq_partition_handling"),
        ("net_ticktime_s", "rabbitmq_net_ticktime_s"),
    ):
        values = {member[field]: host for host, member in sorted(members.items(), reverse=True)}  # type: ignore[literal-required]
        if len(values) > 1:
            own.append(f"{' and '.join(sorted(values.values()))} are of one cluster and differ in {name}")
    handling = {member["partition_handling"] for member in members.values()}
    if "pause_minority" in handling and len(members) > 1 and len(members) % 2 == 0:
        problems["even_cluster"].append(
            f"pause_minority with {len(members)} brokers: cut in halves, none is a majority and all of them pause; "
            "give the cluster an odd number"
        )
    quorum = [queue["name"] for queue in config["queues"] if queue.get("type", "quorum") == "quorum"]
    if quorum and len(members) == 2:
        problems["few_copies"].append(
            f"quorum queues ({', '.join(quorum)}) in a cluster of 2 stop when either is gone: give it a third broker"
        )
    names: dict[tuple[str, str], int] = {}
    for queue in config["queues"]:
        place = (queue.get("vhost", DRILL_VHOST), queue["name"])
        names[place] = names.get(place, 0) + 1
    definitions = config["more"] or {}
    vhosts = list(dict.fromkeys([*config["vhosts"], *(one.get("name") for one in listed(definitions, "vhosts"))]))
    own += [
        f"queue {name} is of vhost {vhost}, which is none of {', '.join(map(str, vhosts))}"
        for vhost, name in names
        if vhost not in vhosts
    ]
    own += _definition_problems(config, vhosts, definitions) + _more_problems(definitions, config, vhosts)
    own += [f"two queues of vhost {vhost} are called {name}" for (vhost, name), count in names.items() if count > 1]
    if re.fullmatch(r"[0-9.]+", config["memory"]) and not 0 < float(config["memory"]) < 1:
        own.append(
            f"rabbitmq_memory_high_watermark {config['memory']} is no part of the host's memory: give 0.4, or 256MiB"
        )
    if unknown := sorted(set(config["allow"]) - set(problems)):
        own.append(f"rabbitmq_allow: {unknown[0]} is no rule; there are even_cluster, few_copies")
    return [problem for rule, found in problems.items() if rule not in config["allow"] for problem in found]


def listed(definitions: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    """The objects of a kind that definitions have."""
    found = definitions.get(kind) if isinstance(definitions, Mapping) else None
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list | tuple) else []


def _definition_problems(config: RabbitmqConfig, vhosts: Sequence[Any], more: Mapping[str, Any]) -> list[str]:
    """Return what RabbitMQ would take of the definitions without a word, the last of several or none of it."""
    # (Only the role's own policies have a vhost by default: RabbitMQ knows none for those of an exported file.)
    policies = [(one.get("name"), one.get("vhost", DRILL_VHOST)) for one in config["policies"]]
    policies += [(one.get("name"), one.get("vhost")) for one in listed(more, "policies")]
    places = [(f"policy {name}", vhost) for name, vhost in policies] + [
        (f"a permission of user {user['name']}", vhost)
        for user in config["users"]
        for vhost in user.get("permissions") or {}
    ]
    for kind, word in (("permissions", "a permission of user"), ("topic_permissions", "a topic permission of user")):
        places += [(f"{word} {one.get('user')}", one.get("vhost")) for one in listed(more, kind)]
    for kind in ("queues", "exchanges", "parameters"):
        places += [(f"{kind[:-1]} {one.get('name')}", one.get("vhost")) for one in listed(more, kind)]
    places += [(f"the binding of {one.get('source')} to {one.get('destination')}", one.get("vhost"))
               for one in listed(more, "bindings")]  # fmt: skip
    found = [
        f"{what} names no vhost: a file that was exported of one vhost does not say which"
        if vhost is None
        else f"{what} is of vhost {vhost}, which is none of {', '.join(map(str, vhosts))}"
        for what, vhost in dict.fromkeys(places)
        if vhost not in vhosts
    ]
    users = [user["name"] for user in [*config["users"], *listed(more, "users")] if "name" in user]
    granted = [(user["name"], vhost) for user in config["users"] for vhost in user.get("permissions") or {}]
    named: dict[str, list[tuple[Any, ...]]] = {
        "vhost {}": [(vhost,) for vhost in config["vhosts"]],
        "vhost {} of rabbitmq_more_definitions": [(one.get("name"),) for one in listed(more, "vhosts")],
        "user {}": [(name,) for name in users],
        "a permission of user {} in vhost {}": [
            *granted, *((one.get("user"), one.get("vhost")) for one in listed(more, "permissions")),
        ],
        "policy {} of vhost {}": policies,
        "queue {} of vhost {}": [
            *((queue["name"], queue.get("vhost", DRILL_VHOST)) for queue in config["queues"]),
            *((one.get("name"), one.get("vhost")) for one in listed(more, "queues")),
        ] if listed(more, "queues") else [],
        "exchange {} of vhost {}": [(one.get("name"), one.get("vhost")) for one in listed(more, "exchanges")],
        "parameter {} {} of vhost {}": [
            (one.get("component"), one.get("name"), one.get("vhost")) for one in listed(more, "parameters")
        ],
        "global parameter {}": [(one.get("name"),) for one in listed(more, "global_parameters")],
    }  # fmt: skip
    return found + [
        f"{what.format(*name)} is there {count} times"
        for what, names in named.items()
        for name, count in Counter(names).items()
        if count > 1
    ]


# What a broker has without anybody's word, in each vhost.
_BUILT_IN = ("", "amq.")
# What a cluster is called, and is: not what another one was.
_OF_A_CLUSTER = ("cluster_name", "internal_cluster_id")
_KINDS = (
    *("vhosts", "users", "permissions", "topic_permissions", "parameters", "global_parameters", "policies"),
    *("queues", "exchanges", "bindings"),
)


def _more_problems(more: Mapping[str, Any], config: RabbitmqConfig, vhosts: Sequence[Any]) -> list[str]:
    """Return what definitions of the inventory's own name that is nowhere, and what of them is no definition."""
    if not isinstance(more, Mapping):
        return ["rabbitmq_more_definitions is no mapping, as the product exports its definitions"]
    known = (*_KINDS, *own_configuration.RABBITMQ_DEFINITIONS.by)
    found = [
        f"rabbitmq_more_definitions has {kind}: there are {', '.join(_KINDS)}" for kind in more if kind not in known
    ]
    found += [
        f"{kind} of rabbitmq_more_definitions is no list of mappings"
        for kind in _KINDS
        if kind in more and len(listed(more, kind)) != len(more[kind] if isinstance(more[kind], list | tuple) else [0])
    ]
    users = {user["name"] for user in config["users"]} | {one.get("name") for one in listed(more, "users")}
    found += [
        f"{word} is of user {one.get('user')}, who is nowhere"
        for kind, word in (("permissions", "a permission"), ("topic_permissions", "a topic permission"))
        for one in listed(more, kind)
        if one.get("user") not in users
    ]
    found += [
        f"user {one.get('name')} of rabbitmq_more_definitions has neither password_hash nor password"
        for one in listed(more, "users")
        if "password_hash" not in one and "password" not in one
    ]
    there = {
        kind: {(one.get("vhost"), one.get("name")) for one in listed(more, f"{kind}s")}
        for kind in ("queue", "exchange")
    }
    for one in listed(more, "bindings"):
        vhost, source = one.get("vhost"), str(one.get("source", ""))
        kind, name = str(one.get("destination_type", "queue")), one.get("destination")
        if vhost not in vhosts:
            continue
        if source and not source.startswith(_BUILT_IN[1]) and (vhost, source) not in there["exchange"]:
            found.append(f"the binding of {source} to {name} is of an exchange that rabbitmq_more_definitions has not")
        if (vhost, name) not in there.get(kind, set()) and not (kind == "exchange" and str(name).startswith("amq.")):
            found.append(f"the binding of {source} to {name} is to a {kind} that rabbitmq_more_definitions has not")
    return found


def rabbitmq_drill_queues(names: Sequence[str], kind: str, dead_letters: str) -> list[dict[str, Any]]:
    """Return the drills' queues `names`, all of type `kind`, whose dead letters go to the queue `dead_letters`."""
    return [
        {"name": name, "type": kind, **({} if name == dead_letters else {"dead_letter": dead_letters})}
        for name in names
    ]


def rabbitmq_addresses(queues: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the queues as a descriptor names them."""
    return [
        {"name": queue["name"], "routing": "anycast"}
        | ({"dead_letter": queue["dead_letter"]} if queue.get("dead_letter") else {})
        for queue in queues
    ]


def rabbitmq_declarations(queues: Iterable[Mapping[str, Any]], brokers: int) -> list[dict[str, Any]]:
    """Return name, vhost and arguments of each queue as it is declared in a cluster of that many brokers.

    A quorum queue has copies on all of them, at most five; leaders and classic queues are spread over the cluster.
    """
    found = []
    for queue in queues:
        kind = queue.get("type", "quorum")
        arguments: dict[str, Any] = {"x-queue-type": kind}
        if kind == "quorum":
            arguments |= {
                "x-quorum-initial-group-size": min(brokers, MOST_COPIES),
                "x-queue-leader-locator": "balanced",
            }
        else:
            arguments["x-queue-master-locator"] = "min-masters"
        if queue.get("dead_letter"):
            arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue["dead_letter"]}
        more = queue.get("arguments", {})
        found.append(
            {"name": queue["name"], "vhost": queue.get("vhost", DRILL_VHOST), "arguments": {**arguments, **more}}
        )
    return found


def rabbitmq_drill_permissions(names: Sequence[str]) -> dict[str, str]:
    """Return the permissions of who reads the queues `names` alone, and makes nothing. Who may write to a queue may by
    the default exchange write to any: RabbitMQ looks at the exchange's name alone."""
    return {"configure": "^$", "write": "^amq[.]default$", "read": f"^({'|'.join(map(re.escape, names))})$"}


def rabbitmq_all_of(vhosts: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the permissions of who may do everything in each of `vhosts`."""
    return {vhost: {"configure": ".*", "write": ".*", "read": ".*"} for vhost in vhosts}


def rabbitmq_password_hash(password: str, user: str) -> str:
    """Return what RabbitMQ keeps of a password: a salt and the SHA-256 of salt and password, in base64.

    The salt follows from user and password, so that the same ones always give the same file.
    """
    salt = hashlib.sha256(f"{user}\0{password}".encode()).digest()[:SALT_BYTES]
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def rabbitmq_queue_features(queues: Iterable[Mapping[str, Any]], policies: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the features of a descriptor that follow from the queues' types and the policies that hold for them."""
    found = set()
    for queue in queues:
        kind = queue.get("type", "quorum")
        found.add(f"{kind}_queues")
        if kind == "classic" and any("ha-mode" in one["definition"] and _holds(one, queue) for one in policies):
            found.add("mirrored_queues")
    return sorted(found)


def _holds(policy: Mapping[str, Any], queue: Mapping[str, Any]) -> bool:
    """Whether a policy's pattern and vhost are a queue's."""
    here = policy.get("vhost", DRILL_VHOST) == queue.get("vhost", DRILL_VHOST)
    return here and _found(policy["pattern"], queue["name"])


def _found(pattern: str, name: str) -> bool:
    """Whether `name` has what the PCRE `pattern` says; of one that Python has no words for it is not known, and not."""
    try:
        return re.search(re.sub(r"\(\?<(?=[A-Za-z_])", "(?P<", pattern), name) is not None
    except re.error:
        return False


def rabbitmq_definitions(
    users: Sequence[Mapping[str, Any]],
    vhosts: Sequence[str],
    policies: Sequence[Mapping[str, Any]] = (),
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what the brokers load at their start: vhosts, users (name, password, tags) and their permissions,
    policies, and `more` definitions as the product exports them, without what says who wrote them."""
    others = {kind: list(more[kind]) for kind in _KINDS if more and kind in more}
    if "global_parameters" in others:
        others["global_parameters"] = [one for one in others["global_parameters"] if one["name"] not in _OF_A_CLUSTER]
    described = {one["name"] for one in others.get("vhosts", [])}
    own: dict[str, list[Any]] = {
        "vhosts": [{"name": vhost} for vhost in vhosts if vhost not in described],
        "users": [
            {
                "name": user["name"],
                "password_hash": rabbitmq_password_hash(user["password"], user["name"]),
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": list(user.get("tags", [])),
            }
            for user in users
        ],
        "permissions": [
            {"user": user["name"], "vhost": vhost, **permission}
            for user in users
            for vhost, permission in user.get("permissions", {}).items()
        ],
        "policies": [
            {
                "vhost": policy.get("vhost", DRILL_VHOST),
                "name": policy["name"],
                "pattern": policy["pattern"],
                "apply-to": policy.get("apply_to", "queues"),
                "priority": policy.get("priority", 0),
                "definition": policy["definition"],
            }
            for policy in policies
        ],
    }
    return own | {kind: [*own.get(kind, []), *found] for kind, found in others.items()}


class FilterModule:
    """Names for templates."""

    def filters(self) -> dict[str, Any]:
        return {
            "rabbitmq_addresses": rabbitmq_addresses,
            "rabbitmq_all_of": rabbitmq_all_of,
            "rabbitmq_declarations": rabbitmq_declarations,
            "rabbitmq_definitions": rabbitmq_definitions,
            "rabbitmq_dials": rabbitmq_dials,
            "rabbitmq_drill_permissions": rabbitmq_drill_permissions,
            "rabbitmq_drill_queues": rabbitmq_drill_queues,
            "rabbitmq_members": rabbitmq_members,
            "rabbitmq_other_clusters": rabbitmq_other_clusters,
            "rabbitmq_left_behind": rabbitmq_left_behind,
            "rabbitmq_uris": rabbitmq_uris,
            "rabbitmq_problems": rabbitmq_problems,
            "rabbitmq_queue_features": rabbitmq_queue_features,
        }
