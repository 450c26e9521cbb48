"""A user's own configuration, told through the roles' variables as docs/operations.md says, element by element."""

from __future__ import annotations

import copy
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import jinja2
from ansible_collections.brokerdrill.ha.plugins.filter import activemq_classic, artemis, own_elements, texts
from ansible_collections.brokerdrill.ha.plugins.plugin_utils import own_configuration
from lxml import etree

from tests.roles.conftest import ROOT, load

CORE = "{urn:activemq:core}"
# What a broker of this kind has by its deployment: places, its name, its HA policy and cluster.
OF_THE_DEPLOYMENT = (
    *("name", "paging-directory", "bindings-directory", "journal-directory", "large-messages-directory"),
    *("connectors", "acceptors", "broadcast-groups", "discovery-groups", "ha-policy", "cluster-connections"),
    *("cluster-user", "cluster-password", "connection-routers"),
)
NUMBERS = {
    "journal-min-files": "artemis_journal_min_files",
    "journal-pool-files": "artemis_journal_pool_files",
    "journal-file-size": "artemis_journal_file_size",
    "journal-buffer-timeout": "artemis_journal_buffer_timeout_ns",
    "id-cache-size": "artemis_id_cache_size",
    "max-disk-usage": "artemis_max_disk_usage_percent",
}


def local(element: etree._Element) -> str:
    return etree.QName(element).localname


def children(element: etree._Element) -> list[etree._Element]:
    return [child for child in element if isinstance(child.tag, str)]


def as_text(element: etree._Element) -> str:
    """An element as a person copies it out of the file: without comments and namespaces."""
    bare = copy.deepcopy(element)
    bare.tail = None
    etree.strip_tags(bare, etree.Comment)
    for one in bare.iter():
        if isinstance(one.tag, str):
            one.tag = local(one)
    etree.cleanup_namespaces(bare)
    return etree.tostring(bare, encoding="unicode")


def canonical(element: etree._Element) -> bytes:
    """What an element says, whatever its spaces and comments."""
    bare = etree.fromstring(as_text(element))
    for one in bare.iter():
        one.text, one.tail = (one.text or "").strip() or None, None
    return etree.tostring(bare, method="c14n2", strip_text=True)


def artemis_variables(core: etree._Element) -> dict[str, Any]:
    """The variables of the role artemis that say what `core` says, apart from OF_THE_DEPLOYMENT."""
    found: dict[str, Any] = {"artemis_address_settings": [], "artemis_security_settings": [], "artemis_addresses": []}
    more, security = [], []
    for element in children(core):
        name = local(element)
        if name in OF_THE_DEPLOYMENT:
            continue
        if name in NUMBERS:
            found[NUMBERS[name]] = (element.text or "").strip()
        elif name == "address-settings":
            found["artemis_address_settings"] += [
                {
                    "match": one.get("match"),
                    "settings": {local(item): (item.text or "").strip() for item in children(one)},
                }
                for one in children(element)
            ]
        elif name == "security-settings":
            for one in children(element):
                if local(one) == "security-setting":
                    rights = {item.get("type"): str(item.get("roles")).split(",") for item in children(one)}
                    found["artemis_security_settings"].append({"match": one.get("match"), "permissions": rights})
                else:
                    security.append(as_text(one))
        elif name == "addresses":
            found["artemis_addresses"] += map(_address, children(element))
        else:
            more.append(as_text(element))
    return found | {"artemis_more_core": "\n".join(more), "artemis_more_security": "\n".join(security)}


def _address(element: etree._Element) -> dict[str, Any]:
    routings = [local(one) for one in children(element)]
    queues = []
    for routing in children(element):
        for queue in children(routing):
            said: dict[str, Any] = {**queue.attrib, "routing": local(routing)}
            for item in children(queue):
                said[local(item)] = item.get("string") if local(item) == "filter" else (item.text or "").strip()
            queues.append(said)
    return {"name": element.get("name"), "routing": routings, "queues": queues}


BROKER = "{http://activemq.apache.org/schema/core}broker"
# Elements of a Classic broker that are the deployment's, or are told otherwise (docs/operations.md).
CLASSIC_OWN = (
    *("managementContext", "shutdownHooks", "sslContext", "persistenceAdapter", "persistenceFactory", "systemUsage"),
    "ioExceptionHandler",
)
CLASSIC_AUTHENTICATION = (
    *("simpleAuthenticationPlugin", "jaasAuthenticationPlugin", "jaasCertificateAuthenticationPlugin"),
    *("jaasDualAuthenticationPlugin", "authorizationPlugin"),
)


def classic_variables(beans: etree._Element) -> dict[str, Any]:
    """The variables of the role activemq_classic that say what a file of the broker says, apart from CLASSIC_OWN."""
    broker = beans.find(BROKER)
    own = own_configuration.CLASSIC_ATTRIBUTES.by
    attributes = {name: value for name, value in broker.attrib.items() if "}" not in name and name not in own}
    found: dict[str, Any] = {"activemq_classic_broker_attributes": attributes}
    more, policies, plugins, entries = [], [], [], []
    for element in children(broker):
        name = local(element)
        if name == "destinationPolicy":
            policies = [as_text(one) for one in element.iter(f"{{{etree.QName(broker).namespace}}}policyEntry")]
        elif name == "plugins":
            plugins = [as_text(one) for one in children(element) if local(one) not in CLASSIC_AUTHENTICATION]
            for one in element.iter(f"{{{etree.QName(broker).namespace}}}authorizationEntry"):
                (kind,) = {"queue", "topic"} & set(one.attrib)
                rights = {right: str(one.get(right, "")).split(",") for right in ("read", "write", "admin")}
                entries.append({kind: one.get(kind), **rights})
        elif name == "destinations":
            for kind in ("queue", "topic"):
                found[f"activemq_classic_{kind}s"] = [
                    one.get("physicalName") for one in children(element) if local(one) == kind
                ]
        elif name == "transportConnectors":
            found["activemq_classic_connectors"] = list(map(_connector, children(element)))
        elif name not in CLASSIC_OWN:
            more.append(as_text(element))
    lists = {"more_elements": more, "policy_entries": policies, "more_plugins": plugins}
    return found | {
        **{f"activemq_classic_{name}": "\n".join(texts) for name, texts in lists.items()},
        "activemq_classic_authorization_entries": entries,
    }


def _connector(element: etree._Element) -> dict[str, Any]:
    uri = urlsplit(element.get("uri"))
    others = {name: value for name, value in element.attrib.items() if name not in ("name", "uri")}
    return {
        "name": element.get("name") or f"port{uri.port}",
        "scheme": uri.scheme,
        "port": uri.port,
        "parameters": dict(parse_qsl(uri.query)),
        "attributes": others,
    }


def activemq_xml(variables: dict[str, Any]) -> str:
    """activemq.xml of a broker with a store in files, by the role's defaults and `variables`."""
    return (
        templates("activemq_classic", activemq_classic, own_elements, texts)
        .get_template("activemq.xml.j2")
        .render(
            load(ROOT / "roles" / "activemq_classic" / "defaults" / "main.yml")
            | {"activemq_classic_config_dir": "/etc/own", "activemq_classic_data_dir": "/data"}
            | {"activemq_classic_broker_name": "own", "activemq_classic_address": "192.0.2.1"}
            | {"common_tls_bundle": "/b", "common_tls_ca": "/c", "activemq_classic_connector_parameters": {}}
            | variables,
            __activemq_classic_uses_database=False,
            __activemq_classic_own_default_policy=">"
            in own_elements.xml_attribute_values(variables["activemq_classic_policy_entries"], "queue"),
            __activemq_classic_drill_queues=[],
            __activemq_classic_addresses=[
                {"name": name, "routing": "anycast"} for name in variables.get("activemq_classic_queues", [])
            ],
            __activemq_classic_handlers={},
            __activemq_classic_handler="org.apache.activemq.util.DefaultIOExceptionHandler",
            __activemq_classic_authorization_entries=variables["activemq_classic_authorization_entries"],
            __activemq_classic_adapter_attributes={"directory": "/data/kahadb"},
            __activemq_classic_locker="shared_file",
            __activemq_classic_locker_elements={"shared_file": "shared-file-locker"},
            __activemq_classic_locker_attributes={},
            __activemq_classic_all_statements={},
            __activemq_classic_kahadb_lease=False,
        )
    )


def templates(role: str, *modules: Any) -> jinja2.Environment:
    """The templates of a role, with the filters of `modules`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ROOT / "roles" / role / "templates"),
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["combine"] = lambda one, other: {**one, **other}
    for module in modules:
        found = module.FilterModule().filters()
        environment.filters |= {f"brokerdrill.ha.{name}": function for name, function in found.items()}
    return environment


def broker_xml(variables: dict[str, Any]) -> str:
    """broker.xml of a broker alone, by the role's defaults and `variables`."""
    plain = load(ROOT / "roles" / "artemis" / "vars" / "main" / "own.yml")["__artemis_plain_defaults"]
    more = own_elements.xml_names(variables["artemis_more_core"])
    place = {"name": "own", "address": "192.0.2.1", "port": 61616, "parameters": {}}
    settings = {f"__{name}": variables[name] for name in ("artemis_addresses", "artemis_address_settings")}
    return (
        templates("artemis", artemis, own_elements, texts)
        .get_template("broker.xml.j2")
        .render(
            load(ROOT / "roles" / "artemis" / "defaults" / "main.yml"),
            **variables | {"artemis_instance": "own", "artemis_store_dir": "/store"},
            **settings,
            __artemis_security_settings=variables["artemis_security_settings"],
            __artemis_plain_elements={name: value for name, value in plain.items() if name not in more},
            __artemis_policy="primary_only",
            __artemis_members=["own"],
            __artemis_connectors={"own": place},
            __artemis_acceptors=[place],
            __artemis_all_discovery_groups=[],
            __artemis_all_broadcast_groups=[],
            __artemis_all_cluster_connections=[],
            __artemis_connection_routers=[],
        )
    )
