"""Where a product's own configuration goes: which variable says which element, and which elements no variable says.

The roles refuse by it what they write themselves, and docs/operations.md has its tables from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Elements:
    """The elements of one place in a file of a product.

    `place`: file and element, as a person finds it. `by`: element → the variables that say it, or, where none does, why
    (a sentence without a full stop); a name that ends in `…` is a family of names. `others`: the variable that says
    every other element of the place, None where there is none other.
    """

    role: str
    place: str
    by: Mapping[str, tuple[str, ...] | str] = field(default_factory=dict)
    others: str | None = None


ARTEMIS_CORE = Elements(
    "artemis",
    "broker.xml, `core`",
    {
        "name": ("artemis_instance",),
        **dict.fromkeys(
            ("paging-directory", "bindings-directory", "journal-directory", "large-messages-directory"),
            ("artemis_store_dir",),
        ),
        "journal-min-files": ("artemis_journal_min_files",),
        "journal-pool-files": ("artemis_journal_pool_files",),
        "journal-file-size": ("artemis_journal_file_size",),
        "journal-buffer-timeout": ("artemis_journal_buffer_timeout_ns",),
        "id-cache-size": ("artemis_id_cache_size",),
        "max-disk-usage": ("artemis_max_disk_usage_percent",),
        "connectors": ("artemis_more_connectors",),
        "acceptors": ("artemis_acceptors",),
        "broadcast-groups": ("artemis_broadcast_groups",),
        "discovery-groups": ("artemis_discovery_groups",),
        "ha-policy": ("artemis_ha_policy", "artemis_ha_role"),
        "cluster-user": ("artemis_cluster_user",),
        "cluster-password": ("artemis_cluster_password",),
        "cluster-connections": ("artemis_cluster_connections",),
        "connection-routers": ("artemis_connection_routers",),
        "security-settings": ("artemis_security_settings", "artemis_more_security"),
        "address-settings": ("artemis_address_settings",),
        "addresses": ("artemis_addresses",),
        "queues": ("artemis_addresses",),
        "mask-password": "passwords are not masked in the file: it names variables of the broker's environment",
        "password-codec": "passwords are not masked in the file: it names variables of the broker's environment",
    },
    "artemis_more_core",
)
ARTEMIS_FILES = Elements(
    "artemis",
    "other files",
    {
        "bootstrap.xml": "the role's own: artemis_console_port says where the console is",
        "login.config": ("artemis_login_modules",),
        "artemis-users.properties": ("artemis_more_users",),
        "artemis-roles.properties": ("artemis_more_users",),
        "artemis.profile, JAVA_ARGS": ("artemis_heap_mib", "artemis_jvm_args"),
        "management.xml": "the role's own",
        "jolokia-access.xml": "the role's own",
        "log4j2.properties": "the role's own: the journal of systemd has the log",
        "${…} in broker.xml": ("artemis_more_secrets",),
        "broker.properties, xi:include": "the file is one",
        "cluster-connection-uri": "the elements of a cluster-connection say the same: artemis_cluster_connections",
        "jms (in broker.xml beside core)": "the broker has it no more: artemis_addresses",
    },
)

CLASSIC_BROKER = Elements(
    "activemq_classic",
    "activemq.xml, `broker`",
    {
        "destinationPolicy": ("activemq_classic_policy_entries",),
        "destinations": ("activemq_classic_queues", "activemq_classic_topics"),
        "ioExceptionHandler": (
            "activemq_classic_io_exception_handler",
            "activemq_classic_io_exception_handler_properties",
        ),
        "managementContext": "the role's own: the broker is managed by HTTPS, at activemq_classic_management_port",
        "persistenceAdapter": (
            "activemq_classic_persistence_adapter",
            "activemq_classic_persistence_properties",
            "activemq_classic_locker",
        ),
        "persistenceFactory": "of the stores there are kahadb and jdbc (activemq_classic_persistence_adapter)",
        "plugins": ("activemq_classic_more_plugins", "activemq_classic_authorization_entries"),
        "shutdownHooks": "the role's own: a broker that stops ends its process",
        "sslContext": "the role's own: key and authorities are the deployment's (common_tls_bundle, common_tls_ca)",
        "systemUsage": (
            "activemq_classic_memory_percent",
            "activemq_classic_store_limit_percent",
            "activemq_classic_store_limit_gib",
            "activemq_classic_temp_limit_percent",
        ),
        "transportConnectors": ("activemq_classic_connectors",),
    },
    "activemq_classic_more_elements",
)
CLASSIC_ATTRIBUTES = Elements(
    "activemq_classic",
    "activemq.xml, attributes of `broker`",
    {
        "brokerName": ("activemq_classic_broker_name",),
        "dataDirectory": ("activemq_classic_data_dir",),
        "schedulePeriodForDiskUsageCheck": ("activemq_classic_disk_check_period_ms",),
        "diskUsageCheckRegrowThreshold": ("activemq_classic_disk_regrow_threshold",),
        "useJmx": "the role's own: health and drills ask the broker's beans",
        "persistent": "the role's own: what is not kept no drill can look for",
        "persistenceAdapter": ("activemq_classic_persistence_adapter",),
        "start": "the role's own",
    },
    "activemq_classic_broker_attributes",
)
CLASSIC_FILES = Elements(
    "activemq_classic",
    "other files, and beside `broker`",
    {
        "beans, import (Camel, data sources)": ("activemq_classic_more_beans",),
        "policyMap's defaultEntry": "a policyEntry of `>` says the same",
        "memoryUsage and tempUsage with limit": "in percent alone: activemq_classic_memory_percent",
        "the data source of a store": (
            "activemq_classic_jdbc_url",
            "activemq_classic_jdbc_driver_class",
            "activemq_classic_jdbc_user",
            "activemq_classic_jdbc_password",
            "activemq_classic_datasource_properties",
        ),
        "${…} in activemq.xml, credentials.properties": ("activemq_classic_more_secrets",),
        "users.properties, groups.properties, jetty-realm.properties": ("activemq_classic_more_users",),
        "login.config": ("activemq_classic_login_modules",),
        "simpleAuthenticationPlugin, jaasCertificateAuthenticationPlugin, jaasDualAuthenticationPlugin": (
            "the role's own is jaasAuthenticationPlugin: activemq_classic_more_users, activemq_classic_login_modules"
        ),
        "jetty.xml": "the role's own: activemq_classic_management_port",
        "env, ACTIVEMQ_OPTS": ("activemq_classic_heap_mib", "activemq_classic_jvm_args"),
        "log4j2.properties": "the role's own: the journal of systemd has the log",
    },
)

_CLUSTER_FILE = ("openmq_cluster", "openmq_cluster_id", "openmq_cluster_master")
OPENMQ_PROPERTIES = Elements(
    "openmq",
    "config.properties, and what imqbrokerd's `-D` says",
    {
        "imq.hostname": ("openmq_address",),
        "imq.portmapper.port": ("openmq_port",),
        "imq.jms.tcp.port": ("openmq_jms_port", "openmq_tls"),
        "imq.ssljms.tls.port": ("openmq_jms_port", "openmq_tls"),
        "imq.admin.tcp.port": ("openmq_admin_port", "openmq_tls"),
        "imq.ssladmin.tls.port": ("openmq_admin_port", "openmq_tls"),
        "imq.service.activelist": ("openmq_tls",),
        "imq.persist.file.sync.enabled": ("openmq_file_sync",),
        "imq.brokerid": ("openmq_broker_id",),
        "imq.cluster.brokerlist": _CLUSTER_FILE,
        "imq.cluster.masterbroker": _CLUSTER_FILE,
        "imq.cluster.nomasterbroker": _CLUSTER_FILE,
        "imq.cluster.ha": _CLUSTER_FILE,
        "imq.cluster.clusterid": _CLUSTER_FILE,
        "imq.cluster.url": "the role's own: cluster.properties on each host, for which openmq_cluster_properties is",
        "imq.cluster.port": ("openmq_cluster_port",),
        "imq.cluster.hostname": ("openmq_cluster_hostname",),
        "imq.cluster.transport": ("openmq_cluster_transport",),
        "imq.cluster.heartbeat.interval": ("openmq_heartbeat_interval_s",),
        "imq.cluster.heartbeat.threshold": ("openmq_heartbeat_threshold",),
        "imq.cluster.monitor.interval": ("openmq_monitor_interval_s",),
        "imq.cluster.monitor.threshold": ("openmq_monitor_threshold",),
        "imq.persist.store": ("openmq_cluster",),
        "imq.keystore.password": ("openmq_keystore_password",),
        "imq.imqcmd.password": ("openmq_admin_password",),
        "imq.passfile.enabled": "the role's own: passwords are variables",
        "imq.passfile.dirpath": "the role's own: passwords are variables",
        "imq.passfile.name": "the role's own: passwords are variables",
        "imq.keystore.file.dirpath": "the role's own: the key is the deployment's (common_tls_bundle)",
        "imq.keystore.file.name": "the role's own: the key is the deployment's (common_tls_bundle)",
        "imq.user_repository.file.dirpath": "the role's own: openmq_more_users",
        "imq.user_repository.file.filename": "the role's own: openmq_more_users",
        "imq.accesscontrol.file.dirpath": "the role's own: openmq_access_control",
        "imq.accesscontrol.file.filename": "the role's own: openmq_access_control",
    },
    "openmq_properties",
)
OPENMQ_FILES = Elements(
    "openmq",
    "other files",
    {
        "cluster.properties (imq.cluster.url)": ("openmq_cluster_properties",),
        "accesscontrol.properties": ("openmq_access_control",),
        "passwd": ("openmq_more_users",),
        "passfile": ("openmq_admin_password", "openmq_keystore_password", "openmq_jdbc_password"),
        "imq.persist.jdbc.… of a database that others run": (
            "openmq_jdbc_url",
            "openmq_jdbc_vendor",
            "openmq_jdbc_driver_class",
            "openmq_jdbc_user",
        ),
        "imqbrokerd's -vmargs": ("openmq_heap_mib", "openmq_jvm_args"),
        "destinations (imqcmd create dst)": ("openmq_queues", "openmq_topics"),
        "attributes of a destination (imqcmd create dst -o)": (
            "the broker keeps what `imqcmd update dst` sets once; for those that clients make: openmq_properties"
        ),
        "imqbridgemgr, jmsbridge.xml": "bridges are not deployed",
    },
)

_WRITTEN_BY = "it says who wrote the file; the brokers are of the distribution's package"
RABBITMQ_DEFINITIONS = Elements(
    "rabbitmq",
    "definitions.json",
    {
        **dict.fromkeys(
            (
                *("rabbit_version", "rabbitmq_version", "product_name", "product_version", "explanation", "metadata"),
                *("rabbitmq_definition_format", "original_vhost_name", "original_cluster_name"),
            ),
            _WRITTEN_BY,
        ),
        "vhosts": ("rabbitmq_vhosts", "rabbitmq_more_definitions"),
        "users": ("rabbitmq_more_users", "rabbitmq_more_definitions"),
        "permissions": ("rabbitmq_more_users", "rabbitmq_more_definitions"),
        "policies": ("rabbitmq_policies", "rabbitmq_more_definitions"),
        "queues": ("rabbitmq_queues", "rabbitmq_more_definitions"),
    },
    "rabbitmq_more_definitions",
)
_KEYS = "the role's own: key and authorities are the deployment's (common_tls_bundle, common_tls_ca)"
RABBITMQ_SETTINGS = Elements(
    "rabbitmq",
    "rabbitmq.conf",
    {
        "cluster_name": ("rabbitmq_cluster",),
        "listeners.…": ("rabbitmq_address", "rabbitmq_port", "rabbitmq_tls"),
        "ssl_options.verify": ("rabbitmq_client_certificates",),
        "ssl_options.fail_if_no_peer_cert": ("rabbitmq_client_certificates",),
        "ssl_cert_login_from": ("rabbitmq_client_certificates",),
        "auth_mechanisms.…": ("rabbitmq_client_certificates",),
        **dict.fromkeys(("ssl_options.cacertfile", "ssl_options.certfile", "ssl_options.keyfile"), _KEYS),
        "ssl_options.versions.…": "the role's own: TLS 1.2 and 1.3",
        "heartbeat": ("rabbitmq_heartbeat_s",),
        "management.ssl.…": ("rabbitmq_management_port",),
        "prometheus.tcp.…": ("common_metrics", "common_metrics_address"),
        "collect_statistics_interval": ("rabbitmq_statistics_ms",),
        "cluster_formation.…": "the role's own: the brokers of rabbitmq_cluster",
        "cluster_partition_handling": ("rabbitmq_partition_handling",),
        "net_ticktime": ("rabbitmq_net_ticktime_s",),
        "vm_memory_high_watermark.…": ("rabbitmq_memory_high_watermark",),
        "disk_free_limit.…": ("rabbitmq_disk_free_limit",),
        "load_definitions": ("rabbitmq_more_definitions",),
        "definitions.…": ("rabbitmq_more_definitions",),
        "default_user": ("rabbitmq_admin_user",),
        "default_pass": ("rabbitmq_admin_password",),
        "log.file": "the role's own: the journal of systemd has the log",
        "log.console": "the role's own: the journal of systemd has the log",
        "log.console.level": "the role's own: the journal of systemd has the log",
    },
    "rabbitmq_settings",
)
RABBITMQ_FILES = Elements(
    "rabbitmq",
    "other files",
    {
        "enabled_plugins": ("rabbitmq_plugins",),
        "rabbitmq-env.conf, ADDITIONAL_ERL_ARGS": ("rabbitmq_erl_args", "rabbitmq_schedulers"),
        ".erlang.cookie": ("rabbitmq_cookie",),
        "advanced.config": "Erlang's terms are not written; most of what they say rabbitmq.conf says, too",
    },
)

ALL = (
    ARTEMIS_CORE,
    ARTEMIS_FILES,
    CLASSIC_BROKER,
    CLASSIC_ATTRIBUTES,
    CLASSIC_FILES,
    OPENMQ_PROPERTIES,
    OPENMQ_FILES,
    RABBITMQ_DEFINITIONS,
    RABBITMQ_SETTINGS,
    RABBITMQ_FILES,
)


def told_elsewhere(elements: Elements, name: str) -> str:
    """Return where the element `name` is set, or why nowhere; empty where `others` says it."""
    families = (by for family, by in elements.by.items() if family.endswith("…") and name.startswith(family[:-1]))
    by = elements.by.get(name) or next(families, "")
    return by if isinstance(by, str) else f"say it by {' and '.join(by)}"
