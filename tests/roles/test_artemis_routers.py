"""Connection routers of Artemis: what is rendered, held against the schema of each version; what is refused."""

from __future__ import annotations

import itertools
import json
import shlex
import zipfile
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from tests.roles.conftest import Render
from tests.roles.schemas import ARCHIVES, schema_of
from tests.roles.test_plugins import cached, plugin
from tests.unpacking import unpack

routers = plugin("filter", "artemis_routers")
preflight = plugin("filter", "artemis_router_preflight")

CORE = "{urn:activemq:core}"
KEYS = ("CLIENT_ID", "SNI_HOST", "SOURCE_IP", "USER_NAME", "ROLE_NAME")
POLICIES: dict[str, dict[str, Any]] = {
    "FIRST_ELEMENT": {},
    "ROUND_ROBIN": {},
    "CONSISTENT_HASH": {},
    "LEAST_CONNECTIONS": {"connection_count_threshold": 5},
    "CONSISTENT_HASH_MODULO": {"modulo": 3, "local_target_filter": "[0-2]"},
}
POOLS: dict[str, Any] = {
    "cluster_connection": "orders",
    "discovery_group": "dg2",
    "static_connectors": ["b", "c"],
}


def named(*parts: str) -> str:
    return "-".join(part.lower().replace("_", "") for part in parts)


EVERY = [
    {"name": named(*one), "key_type": one[0], "policy": one[1], **POLICIES[one[1]], "pool": {one[2]: POOLS[one[2]]}}
    for one in itertools.product(KEYS, POLICIES, POOLS)
]


def inventory(work: Path) -> Path:
    """Three brokers of one cluster, each a pair of its own."""
    hosts = {name: {"ansible_host": f"192.0.2.{number}"} for number, name in enumerate("abc", start=1)}
    shared = {"artemis_cluster": "orders", "artemis_ha_policy": "primary_only", "drill_allowed": False}
    found = work / "routed" / "hosts.yml"
    found.parent.mkdir()
    found.write_text(json.dumps({"all": {"children": {"artemis": {"hosts": hosts, "vars": shared}}}}))
    return found.parent


def rendered(render: Render, work: Path, **extra: Any) -> dict[str, Any]:
    names = ("broker.xml", "secrets.env", "artemis-users.properties", "artemis-roles.properties")
    files = {name: f"{name}.j2" for name in names}
    return render("artemis", "a", files, ["__artemis_descriptor"], inventory=inventory(work), **extra)


def router(root: etree._Element, name: str) -> etree._Element:
    (found,) = (item for item in root.iter(f"{CORE}connection-router") if item.get("name") == name)
    return found


def text(found: etree._Element, path: str) -> str | None:
    return found.findtext("/".join(CORE + name for name in path.split("/")))


def test_each_key_by_each_policy_from_each_pool(render: Render, tmp_path: Path) -> None:
    """All side by side in one broker, as are two discovery groups."""
    groups = [{"name": name, "type": "udp", "udp_group_port": port} for name, port in (("dg1", 9876), ("dg2", 9877))]
    found = rendered(render, tmp_path, artemis_connection_routers=EVERY, artemis_discovery_groups=groups)
    root = etree.fromstring(found["files"]["broker.xml"].encode())
    for version in ARCHIVES:
        schema = schema_of(version, tmp_path / version)
        assert schema.validate(root.find(f"{CORE}core")), schema.error_log
    assert [item.get("name") for item in root.iter(f"{CORE}connection-router")] == [item["name"] for item in EVERY]
    for key, policy, pool in itertools.product(KEYS, POLICIES, POOLS):
        one = router(root, named(key, policy, pool))
        assert text(one, "key-type") == key
        (chosen,) = one.iter(f"{CORE}policy")
        assert chosen.get("name") == policy
        properties = {item.get("key"): item.get("value") for item in chosen}
        assert properties == {
            "LEAST_CONNECTIONS": {"CONNECTION_COUNT_THRESHOLD": "5"},
            "CONSISTENT_HASH_MODULO": {"MODULO": "3"},
        }.get(policy, {})
        (targets,) = one.iter(f"{CORE}pool")
        groups_named = [item.get("discovery-group-name") for item in targets.iter(f"{CORE}discovery-group-ref")]
        connectors = [item.text for item in targets.iter(f"{CORE}connector-ref")]
        assert (text(targets, "cluster-connection"), groups_named, connectors) == {
            "cluster_connection": ("orders", [], []),
            "discovery_group": (None, ["dg2"], []),
            "static_connectors": (None, [], ["b", "c"]),
        }[pool]


WHOLE = {
    "name": "whole",
    "key_filter": "^.{3}&",
    "local_target_filter": "FOO.*",
    "policy": "ROUND_ROBIN",
    "cache": {"persisted": True, "timeout_ms": 60000},
    "pool": {
        "static_connectors": ["b", "c"],
        "username": "guest",
        "password": "not-a-default-3",
        "check_period_ms": 1000,
        "quorum_size": 3,
        "quorum_timeout_ms": 0,
        "local_target_enabled": True,
    },
}
PLAIN = {"name": "plain", "policy": "FIRST_ELEMENT", "cache": {}, "pool": {"static_connectors": ["b"]}}
ROUTED = [
    {"name": "core", "port": 61616, "protocols": ["CORE"]},
    {"name": "routed", "port": 61617, "protocols": ["CORE", "AMQP"], "router": "whole"},
]


def test_every_setting_reaches_the_broker(render: Render, tmp_path: Path) -> None:
    found = rendered(
        render,
        tmp_path,
        artemis_connection_routers=[PLAIN, WHOLE],
        artemis_acceptors=ROUTED,
        artemis_router_password="not-a-default-4",
    )
    files = found["files"]
    root = etree.fromstring(files["broker.xml"].encode())
    one = router(root, "whole")
    assert {path: text(one, path) for path in ("key-filter", "local-target-filter", "cache/persisted")} == {
        "key-filter": "^.{3}&",
        "local-target-filter": "FOO.*",
        "cache/persisted": "true",
    }
    assert text(one, "cache/timeout") == "60000"
    assert {str(item.tag).removeprefix(CORE): item.text for item in one.find(f"{CORE}pool") if not len(item)} == {
        "username": "guest",
        "password": "${ARTEMIS_ROUTER_PASSWORD_1}",
        "check-period": "1000",
        "quorum-size": "3",
        "quorum-timeout": "0",
        "local-target-enabled": "true",
    }
    pool = {str(item.tag).removeprefix(CORE): item.text for item in router(root, "plain").find(f"{CORE}pool")}
    assert (pool["username"], pool["password"]) == ("router", "${ARTEMIS_ROUTER_PASSWORD}")
    assert "check-period" not in pool, "what is not given is the broker's own default"
    assert router(root, "plain").find(f"{CORE}cache") is not None, "an empty cache is one with the broker's defaults"
    secrets = dict(line.split("=") for line in shlex.split(files["secrets.env"], comments=True))
    assert secrets["ARTEMIS_ROUTER_PASSWORD"] == "not-a-default-4"
    assert secrets["ARTEMIS_ROUTER_PASSWORD_1"] == "not-a-default-3"
    assert "not-a-default" not in files["broker.xml"]
    uris = {item.get("name"): str(item.text) for item in root.iter(f"{CORE}acceptor")}
    assert "router=" not in uris["core"]
    assert uris["routed"].endswith(";protocols=CORE,AMQP;router=whole")
    assert "router = router" in files["artemis-roles.properties"]
    described = found["variables"]["__artemis_descriptor"]
    led = {item["name"]: (item.get("router"), item.get("key")) for item in described["listeners"]}
    assert led == {"core": (None, None), "routed": ("whole", "SOURCE_IP"), "console": (None, None)}
    assert described["routers"][1] == {
        "name": "whole",
        "key_type": "SOURCE_IP",
        "key_filter": "^.{3}&",
        "policy": "ROUND_ROBIN",
        "cached": True,
        "check_period_ms": 1000,
        "targets": 2,
    }
    assert described["routers"][0]["check_period_ms"] == 5000, "the broker's own"
    assert "connection_router" in described["features"]
    assert {item["to"] for item in described["dials"] if item["link"] == "target"} == {"b", "c"}


def test_a_target_lets_its_router_in_and_nobody_where_there_is_none(render: Render, tmp_path: Path) -> None:
    routed = inventory(tmp_path)
    files = {name: f"{name}.j2" for name in ("broker.xml", "artemis-roles.properties", "secrets.env")}
    alone = render("artemis", "b", files, inventory=routed)["files"]
    assert "router" not in alone["artemis-roles.properties"] + alone["broker.xml"]
    entry = {"name": "r", "policy": "ROUND_ROBIN", "pool": {"static_connectors": ["b"]}}
    host_vars = routed / "host_vars"
    host_vars.mkdir()
    (host_vars / "a.yml").write_text(json.dumps({"artemis_connection_routers": [entry]}))
    target = render("artemis", "b", files, inventory=routed)["files"]
    assert "router = router" in target["artemis-roles.properties"]
    root = etree.fromstring(target["broker.xml"].encode())
    (setting,) = (item for item in root.iter(f"{CORE}security-setting") if item.get("match") == "activemq.management.#")
    granted = {item.get("type"): item.get("roles") for item in setting}
    assert (granted["manage"], granted["createDurableQueue"]) == ("amq,router", "amq")
    assert root.find(f".//{CORE}connection-routers") is None
    assert "ROUTER" not in target["secrets.env"], "who is looked at needs no password"


@pytest.mark.parametrize("version", ARCHIVES)
def test_properties_are_called_what_the_broker_reads(version: str, tmp_path: Path) -> None:
    """Its documents have `modulo` in lower case; the constants in its classes are what counts."""
    from brokerdrill.base import paths

    name = f"apache-artemis-{version}-bin.tar.gz"
    archive = cached.keep(paths.cache() / "archives", name, "maven", [ARCHIVES[version]])
    unpack(archive["path"], tmp_path, f"artemis-server-{version}.jar")
    (jar,) = tmp_path.rglob(f"artemis-server-{version}.jar")
    package = "org/apache/activemq/artemis/core/server/routing/policies/"
    with zipfile.ZipFile(jar) as classes:
        modulo = classes.read(f"{package}ConsistentHashModuloPolicy.class")
        least = classes.read(f"{package}LeastConnectionsPolicy.class")
    assert routers.PROPERTIES["modulo"].encode() in modulo
    assert routers.PROPERTIES["connection_count_threshold"].encode() in least


# --- what is refused --------------------------------------------------------------------------------------------------


def entry(**change: Any) -> dict[str, Any]:
    return {"name": "r", "policy": "ROUND_ROBIN", "pool": {"static_connectors": ["b", "c"]}, **change}


def problems(*given: dict[str, Any], acceptors: list[dict[str, Any]] | None = None) -> list[str]:
    return preflight.artemis_router_problems(
        {
            "routers": routers.artemis_connection_routers(given, "router"),
            "acceptors": acceptors or [],
            "connectors": ["a", "b", "c"],
            "cluster_connections": ["orders"],
            "discovery_groups": [],
        }
    )


def modulo(**change: Any) -> dict[str, Any]:
    return {"name": "r", "policy": "CONSISTENT_HASH_MODULO", "modulo": 3, "local_target_filter": "0", **change}


@pytest.mark.parametrize(
    "sound",
    [
        entry(),
        entry(policy="LEAST_CONNECTIONS", connection_count_threshold=3),
        entry(pool={"static_connectors": ["b", "c"], "quorum_size": 3, "local_target_enabled": True}),
        entry(pool={"cluster_connection": "orders", "quorum_size": 9}),
        entry(key_filter=r"^(?<first>\p{L}+)\Q.[\E\h*", local_target_filter="(?i)foo.*+"),
        entry(cache={}),
        modulo(),
        modulo(pool={"static_connectors": ["b"]}),
        {"name": "r", "local_target_filter": "^FOO.*"},
    ],
    ids=lambda item: "-".join(sorted(item)),
)
def test_a_sound_router_passes(sound: dict[str, Any]) -> None:
    assert problems(sound) == []


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (modulo(pool={"static_connectors": ["b"]}, local_target_filter=None), "which chooses nobody from it"),
        (modulo(modulo=None), "without modulo: the broker would not start"),
        (modulo(modulo=0), "has the modulo 0: it must be 1 or more"),
        (modulo(local_target_filter=None), "neither pool nor local_target_filter"),
        (entry(modulo=3), "has modulo, which the policy ROUND_ROBIN does not read"),
        (entry(policy=None), "has a pool and no policy"),
        (entry(pool=None, local_target_filter="x"), "has the policy ROUND_ROBIN and no pool"),
        ({"name": "r", "local_target_filter": "x", "cache": {}}, "has a cache and no pool"),
        (entry(pool={}), "it has none"),
        (
            entry(pool={"cluster_connection": "orders", "static_connectors": ["b"]}),
            "static_connectors; it has cluster_",
        ),
        (entry(pool={"static_connectors": ["b", "c"], "quorum_size": 3}), "2 targets at most and a quorum of 3"),
        (entry(pool={"static_connectors": ["b", "nobody"]}), "refers to the connector nobody, which is not there"),
        (entry(pool={"cluster_connection": "other"}), "refers to the cluster connection other, which is not there"),
        (entry(pool={"discovery_group": "dg1"}), "the discovery group dg1, which is not there; there are none"),
        (entry(key_filter="^(abc"), "key_filter '^(abc' is no regular expression"),
        (entry(local_target_filter="*"), "local_target_filter '*' is no regular expression"),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(broken: dict[str, Any], sentence: str) -> None:
    (found,) = problems(broken)
    assert sentence in found


def test_two_routers_of_one_name_are_refused() -> None:
    assert problems(entry(), entry()) == ["two connection routers are called r: give each its own name"]


@pytest.mark.parametrize(
    ("acceptor", "sentence"),
    [
        ({"router": "r"}, None),
        ({"router": "q"}, "acceptor in refers to the connection router q, which is not there; there are: r"),
        ({"router": "r", "protocols": ["CORE", "STOMP"]}, "the protocol STOMP, whose clients are not led elsewhere"),
    ],
)
def test_an_acceptor_names_a_router_that_its_clients_follow(acceptor: dict[str, Any], sentence: str | None) -> None:
    found = problems(entry(), acceptors=[{"name": "in", "port": 1, "protocols": ["CORE"], **acceptor}])
    assert found == [] if sentence is None else len(found) == 1 and sentence in found[0]


def test_it_is_refused_before_anything_is_touched(render: Render, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="has a pool and no policy: it would choose nobody"):
        rendered(render, tmp_path, artemis_connection_routers=[{"name": "r", "pool": {"static_connectors": ["b"]}}])


def test_the_examples_of_the_brokers_own_documents_are_sound() -> None:
    given = [
        {"name": "local-partition", "key_type": "CLIENT_ID", "key_filter": "^.{3}", "local_target_filter": "^FOO.*"},
        {"name": "simple-router", "policy": "FIRST_ELEMENT", "pool": {"static_connectors": ["a", "b", "c"]}},
        {
            "name": "consistent-hash-router",
            "key_type": "USER_NAME",
            "local_target_filter": "admin",
            "policy": "CONSISTENT_HASH",
            "pool": {"local_target_enabled": True, "cluster_connection": "orders"},
        },
        {
            "name": "evenly-balance",
            "key_type": "CLIENT_ID",
            "key_filter": "^.{3}",
            "policy": "LEAST_CONNECTIONS",
            "pool": {"username": "guest", "password": "guest", "cluster_connection": "orders"},
        },
    ]
    assert problems(*given) == []
