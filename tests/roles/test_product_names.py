"""A variable's description names what the product calls it: a search for `connection-ttl` finds the variable."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.roles.conftest import ROOT, load
from tests.roles.test_plugins import plugin

# Role → variables of its vars/ whose keys are the product's names: what the templates write one by one.
BY_NAME: Mapping[str, tuple[str, ...]] = {
    "activemq_classic": (
        "__activemq_classic_adapter_attributes",
        "__activemq_classic_locker_attributes",
        "__activemq_classic_named_statements",
    ),
    "amqp_router": ("__amqp_router_own",),
    "artemis": ("__artemis_curator_properties", "__artemis_elements"),
    "openmq": ("__openmq_own_properties", "__openmq_pass_properties", "__openmq_shared_properties"),
    "rabbitmq": (),
    "zookeeper": (),
}
ROLES = tuple(BY_NAME)
# Templates of command lines and of environments, whose names nobody looks for in the product's documents.
NOT_THE_PRODUCTS = ("*.options.j2", "secrets.*", "metrics.yml.j2", "login.config.j2")
# Names that say nothing by themselves, and so find nothing.
OF_ANYTHING = {"name", "value", "class", "host", "port", "config", "User", "tls"}

cluster = plugin("filter", "artemis_cluster")
routers = plugin("filter", "artemis_routers")


# What no pattern below sees, for loops, lists of arguments and filters write it.
BY_HAND: Mapping[str, Mapping[str, str]] = {
    "activemq_classic": {
        "activemq_classic_authorization_entries": "authorizationEntry",
        "activemq_classic_connectors": "transportConnectors",
        "activemq_classic_io_exception_handler": "ioExceptionHandler",
        "activemq_classic_persistence_adapter": "persistenceAdapter",
        "activemq_classic_store_limit_gib": "storeUsage",
        "activemq_classic_store_limit_percent": "percentLimit",
        "activemq_classic_temporary_authorization": "tempDestinationAuthorizationEntry",
    },
    "amqp_router": {
        "amqp_router_backends": "backends",
        "amqp_router_default_farm": "default.farm",
        "amqp_router_farms": "farms",
        "amqp_router_port": "listeners.amqp.port",
        "amqp_router_rules": "rules",
        "amqp_router_status_port": "status.port",
    },
    "artemis": {
        "artemis_acceptors": "acceptors",
        "artemis_address_settings": "address-settings",
        "artemis_addresses": "addresses",
        "artemis_broadcast_groups": "broadcast-groups",
        "artemis_check_for_active_server": "check-for-active-server",
        "artemis_cluster_connections": "cluster-connections",
        "artemis_cluster_password": "cluster-password",
        "artemis_colocated_excludes": "excludes",
        "artemis_connection_routers": "connection-routers",
        "artemis_discovery_groups": "discovery-groups",
        "artemis_ha_policy": "ha-policy",
        "artemis_more_connectors": "connectors",
        "artemis_quorum_class_name": "class-name",
        "artemis_scale_down": "scale-down",
        "artemis_scale_down.commit_interval": "commit-interval",
        "artemis_security_settings": "security-settings",
    },
    "openmq": {
        "openmq_admin_port": "imq.ssladmin.tls.port",
        "openmq_cluster_master": "imq.cluster.masterbroker",
        "openmq_jms_port": "imq.ssljms.tls.port",
    },
    "rabbitmq": {
        "rabbitmq_net_ticktime_s": "net_ticktime",
        "rabbitmq_policies": "policies",
        "rabbitmq_port": "listeners.ssl.1",
        "rabbitmq_queues[].type": "x-queue-type",
    },
    "zookeeper": {"zookeeper_id": "myid", "zookeeper_quorum_port": "server.N"},
}


def values(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield each text in data with the key that it stands under, or its list."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from values(inner, str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from values(inner, key)
    else:
        yield key, str(value)


def in_templates(role: str) -> Iterator[tuple[str, str]]:
    """Yield (variable, the product's name) for what a template writes from a variable straight away."""
    variable = rf"\{{\{{ \(?({role}_\w+)"
    shapes = (
        rf"<(?P<name>[\w-]+)>{variable}",
        rf'<property name="(?P<name>\w+)" value="{variable}',
        rf'(?<!value)(?<!\w)(?P<name>[A-Za-z][\w-]*)="{variable}',
        rf"^(?P<name>[\w.]+) ?= ?{variable}",
        rf"^(?P<name>[\w.]+)\.\{{\{{[^}}]*\}}\}} = {variable}",
    )
    for path in sorted((ROOT / "roles" / role / "templates").rglob("*.j2")):
        if any(path.match(pattern) for pattern in NOT_THE_PRODUCTS):
            continue
        for line in path.read_text().splitlines():
            for shape in shapes:
                for found in re.finditer(shape, line):
                    yield found[2], found["name"]


def in_variables(role: str) -> Iterator[tuple[str, str]]:
    """Yield (variable, the product's name) for what the role's own variables write by the product's names."""
    folder = ROOT / "roles" / role / "vars"
    texts: dict[str, Any] = {}
    for path in sorted(folder.rglob("*.yml")):
        texts |= load(path)
    for name in BY_NAME[role]:
        for key, text in values(texts[name]):
            if found := re.match(rf"\{{\{{ \(?({role}_\w+)", text):
                yield found[1], key
            for found in re.finditer(rf"'([\w.]+)': ({role}_\w+)", text):
                yield found[2], found[1]


def in_filters() -> Iterator[tuple[str, str]]:
    """Yield (variable, element) for what Artemis' filters make of an entry of the inventory and of its defaults."""
    topology = load(ROOT / "roles" / "artemis" / "vars" / "main" / "topology.yml")
    lists = (
        ("discovery_groups", "__artemis_discovery_settings", cluster.artemis_discovery_groups),
        ("broadcast_groups", "__artemis_discovery_settings", cluster.artemis_broadcast_groups),
        ("cluster_connections", "__artemis_connection_settings", cluster.artemis_cluster_connections),
    )
    options = load(ROOT / "roles" / "artemis" / "meta" / "argument_specs.yml")["argument_specs"]["main"]["options"]
    for name, defaults, fill in lists:
        settings: dict[str, Any] = topology[defaults]
        entry = {one: f"{{{{ artemis_{name}[].{one} }}}}" for one in options[f"artemis_{name}"]["options"]}
        for kind in ("udp", "jgroups"):
            (by_default,) = fill([{"name": "x", "type": kind}], settings)
            (given,) = fill([{**entry, "type": kind, "elements": {}}], settings)
            for element, text in (*by_default["elements"].items(), *given["elements"].items()):
                if found := re.match(r"\{\{ (artemis_[\w.[\]]+)", str(text)):
                    yield found[1], element
    router = options["artemis_connection_routers"]["options"]

    def entries(options: Mapping[str, Any], where: str) -> dict[str, Any]:
        return {
            one: entries(option["options"], f"{where}.{one}") if "options" in option else f"{where}.{one}"
            for one, option in options.items()
        }

    (filled,) = routers.artemis_connection_routers([entries(router, "artemis_connection_routers[]")], "user")
    for key, text in values(filled):
        if text.startswith("artemis_connection_routers[].") and key not in ("password", "name"):
            # A pool's kinds have the role's names until the template writes them.
            kinds = {"cluster_connection": "cluster-connection", "static_connectors": "static-connectors"}
            yield text, {**kinds, "discovery_group": "discovery-group-ref"}.get(key, key)


def written(role: str) -> dict[str, set[str]]:
    """Return the role's variables (those within a list as LIST[].NAME) with what the product calls each."""
    found: dict[str, set[str]] = {}
    pairs = [*in_templates(role), *in_variables(role), *BY_HAND[role].items()]
    pairs += in_filters() if role == "artemis" else ()
    for variable, name in pairs:
        if name not in OF_ANYTHING:
            found.setdefault(variable, set()).add(name)
    return found


def names(text: str, name: str) -> bool:
    """Return whether a description has the product's name; of one that begins with a point, the end of it."""
    before = "" if name.startswith(".") else r"(?<![\w.-])"
    return re.search(before + re.escape(name) + r"(?![\w-])", text) is not None


def described(options: Mapping[str, Any], parent: str = "") -> Iterator[tuple[str, str]]:
    """Yield (variable, description) for each option and those within it."""
    for name, option in options.items():
        yield f"{parent}{name}", option["description"]
        inner = f"{parent}{name}{'[]' if option['type'] == 'list' else ''}."
        yield from described(option.get("options", {}), inner)


@pytest.mark.parametrize("role", ROLES)
def test_a_search_for_the_products_name_finds_the_variable(role: str) -> None:
    spec = load(ROOT / "roles" / role / "meta" / "argument_specs.yml")["argument_specs"]["main"]["options"]
    texts = dict(described(spec))
    missing = {
        variable: lacks
        for variable, of in written(role).items()
        if variable in texts and (lacks := sorted(name for name in of if not names(texts[variable], name)))
    }
    assert missing == {}


def test_what_is_looked_for_is_found() -> None:
    """The search above sees each way in which a name reaches the product."""
    artemis = written("artemis")
    assert artemis["artemis_connection_ttl_ms"] == {"connection-ttl"}
    assert artemis["artemis_cluster_connections[].connection_ttl_ms"] == {"connection-ttl"}
    assert artemis["artemis_journal_min_files"] == {"journal-min-files"}
    assert artemis["artemis_quorum_session_ms"] == {"session-ms"}
    assert artemis["artemis_connection_routers[].pool.quorum_timeout_ms"] == {"quorum-timeout"}
    assert written("activemq_classic")["activemq_classic_fail_if_locked"] == {"failIfLocked"}
    assert written("openmq")["openmq_monitor_threshold"] == {"imq.cluster.monitor.threshold"}
    assert written("rabbitmq")["rabbitmq_heartbeat_s"] == {"heartbeat"}
    assert written("zookeeper")["zookeeper_init_limit_ticks"] == {"initLimit"}
    assert written("amqp_router")["amqp_router_open_files"] == {"LimitNOFILE"}
