"""What the roles render, held against the schema inside the distribution that is deployed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from tests.roles.conftest import ROOT, Render, inventories, load, playbook
from tests.roles.schemas import schema_of

CORE = "{urn:activemq:core}"
INVENTORY = ROOT / "inventories" / "artemis_quorum"
HOSTS = ("zk1", "zk2", "zk3", "artemis1", "artemis2", "load1")


@pytest.fixture(scope="session")
def schema(tmp_path_factory: pytest.TempPathFactory) -> etree.XMLSchema:
    """The schema of the distribution that the role deploys by default, from the controller's cache."""
    version = load(ROOT / "roles" / "artemis" / "defaults" / "main.yml")["artemis_version"]
    return schema_of(version, tmp_path_factory.mktemp("schema"))


def broker(render: Render, host: str, **extra: Any) -> etree._Element:
    text = render("artemis", host, {"broker.xml": "broker.xml.j2"}, **extra)["files"]["broker.xml"]
    assert text.startswith("<?xml")
    return etree.fromstring(text.encode())


def one(root: etree._Element, path: str) -> etree._Element:
    """Return the only element at `path` (local names) anywhere below `root`."""
    (found,) = root.findall(".//" + "/".join(CORE + name for name in path.split("/")))
    return found


def check(schema: etree.XMLSchema, root: etree._Element) -> None:
    assert schema.validate(root.find(f"{CORE}core")), schema.error_log


@pytest.mark.parametrize(("host", "role"), [("artemis1", "primary"), ("artemis2", "backup")])
def test_quorum_pair(render: Render, schema: etree.XMLSchema, host: str, role: str) -> None:
    root = broker(render, host)
    check(schema, root)
    policy = one(root, f"ha-policy/replication/{role}")
    properties = {item.get("key"): item.get("value") for item in policy.iter(f"{CORE}property")}
    assert properties["connect-string"] == "172.30.16.11:2281,172.30.16.12:2281,172.30.16.13:2281"
    assert properties["session-ms"] == "4000"
    assert one(policy, "group-name").text == "orders_pair1"
    connectors = {item.get("name"): item.text for item in root.iter(f"{CORE}connector")}
    assert connectors == {
        "artemis1": "tcp://172.30.16.21:61616?sslEnabled=true",
        "artemis2": "tcp://172.30.16.22:61616?sslEnabled=true",
    }, "no path in a connector: clients would look for it on their own disk"
    (other,) = [item.text for item in root.iter(f"{CORE}connector-ref")][1:]
    assert {host, other} == {"artemis1", "artemis2"}
    assert one(root, "cluster-password").text == "${ARTEMIS_CLUSTER_PASSWORD}"


def test_primary_only(render: Render, schema: etree.XMLSchema, tmp_path: Path) -> None:
    hosts = {"all": {"children": {"artemis": {"hosts": {"one": {"ansible_host": "192.0.2.1"}}}}}}
    inventory = tmp_path / "alone" / "hosts.yml"
    inventory.parent.mkdir()
    inventory.write_text(json.dumps(hosts))
    root = broker(render, "one", inventory=inventory, artemis_ha_policy="primary_only")
    check(schema, root)
    assert one(root, "ha-policy/primary-only") is not None
    assert root.find(f".//{CORE}cluster-connections") is None


def test_data_reaches_the_broker_and_is_escaped(render: Render, schema: etree.XMLSchema) -> None:
    root = broker(
        render,
        "artemis1",
        drill_allowed=False,
        artemis_addresses=[
            {"name": "a&b", "routing": "anycast", "queues": ["x", "y"]},
            {"name": "news", "routing": "multicast"},
            {"name": "bills", "routing": "multicast", "queues": ["billing.sub", "audit.sub"]},
        ],
        artemis_address_settings=[
            {"match": "a&b", "settings": {"max-delivery-attempts": 3, "auto-create-queues": True}}
        ],
        artemis_security_settings=[{"match": "#", "permissions": {"send": ["amq", "<r>"]}}],
        artemis_acceptors=[
            {"name": "all", "port": 61617, "protocols": ["CORE", "AMQP"], "parameters": {"amqpCredits": 10}}
        ],
    )
    check(schema, root)
    addresses = {
        item.get("name"): [queue.get("name") for queue in item.iter(f"{CORE}queue")]
        for item in root.iter(f"{CORE}address")
    }
    assert addresses == {"a&b": ["x", "y"], "news": [], "bills": ["billing.sub", "audit.sub"]}
    assert len(root.findall(f".//{CORE}multicast/{CORE}queue")) == 2
    assert one(root, "permission").get("roles") == "amq,<r>"
    assert one(root, "auto-create-queues").text == "true"
    uri = one(root, "acceptor").text
    assert uri is not None
    assert uri.startswith("tcp://172.30.16.21:61617?sslEnabled=true;")
    assert uri.endswith("amqpCredits=10;protocols=CORE,AMQP")


def test_many_addresses_users_and_roles(render: Render, schema: etree.XMLSchema) -> None:
    """An estate of a real size: every address with its own role, user, setting and permissions."""
    names = [f"address.{number}" for number in range(650)]
    roles = [f"role{number}" for number in range(620)]
    permissions = [
        {"match": a, "permissions": {"send": [r], "consume": [r]}} for a, r in zip(names, roles, strict=False)
    ]
    found = render(
        "artemis",
        "artemis1",
        {name: f"{name}.j2" for name in ("broker.xml", "artemis-users.properties", "artemis-roles.properties")},
        drill_allowed=False,
        artemis_addresses=[{"name": name, "routing": "anycast"} for name in names],
        artemis_address_settings=[{"match": name, "settings": {"max-delivery-attempts": 3}} for name in names],
        artemis_security_settings=permissions,
        artemis_more_users=[{"name": f"user-{role}", "password": f"not-{role}", "roles": [role]} for role in roles],
    )["files"]
    root = etree.fromstring(found["broker.xml"].encode())
    check(schema, root)
    assert len(list(root.iter(f"{CORE}address"))) == 650
    assert len(list(root.iter(f"{CORE}security-setting"))) == 620
    assert found["artemis-users.properties"].count("ENC(1024:") == 622
    assert found["artemis-roles.properties"].count("= user-role") == 620


def test_the_schema_catches_a_wrong_setting(render: Render, schema: etree.XMLSchema) -> None:
    root = broker(
        render, "artemis1", artemis_address_settings=[{"match": "#", "settings": {"max-delivery-atempts": 3}}]
    )
    assert not schema.validate(root.find(f"{CORE}core"))


def test_secrets_are_only_where_they_belong(render: Render) -> None:
    password, cluster = "not-a-default-1", "not-a-default-2"
    names = ["broker.xml", "bootstrap.xml", "management.xml", "jolokia-access.xml", "login.config", "log4j2.properties"]
    names += ["java.options", "artemis-users.properties", "artemis-roles.properties", "secrets.env"]
    found = render(
        "artemis",
        "artemis1",
        {name: f"{name}.j2" for name in names},
        ["__artemis_descriptor"],
        artemis_drill_password=password,
        artemis_monitor_password=password,
        artemis_admin_password=password,
        artemis_cluster_password=cluster,
    )
    holders = {name for name, text in found["files"].items() if password in text or cluster in text}
    assert holders == {"secrets.env"}
    assert password not in json.dumps(found["variables"])
    assert found["files"]["artemis-users.properties"].count("ENC(1024:") == 3


DRILLED = {
    name: f"{name}.j2"
    for name in (
        "artemis-users.properties",
        "artemis-roles.properties",
        "management.xml",
        "credentials.json",
        "broker.xml",
    )
}


def test_without_drills_nothing_of_them_is_there(render: Render, schema: etree.XMLSchema) -> None:
    found = render("artemis", "artemis1", DRILLED, ["__artemis_descriptor"], drill_allowed=False)
    assert [name for name, text in found["files"].items() if "drill" in text.replace("brokerdrill", "")] == []
    assert [item["name"] for item in found["variables"]["__artemis_descriptor"]["addresses"]] == ["DLQ", "ExpiryQueue"]
    assert json.loads(found["files"]["credentials.json"])["username"] == "monitor"
    check(schema, etree.fromstring(found["files"]["broker.xml"].encode()))


def test_drills_may_do_with_their_own_addresses_what_they_need(render: Render, schema: etree.XMLSchema) -> None:
    found = render("artemis", "artemis1", DRILLED, drill_allowed=True)["files"]
    management = etree.fromstring(found["management.xml"].encode())
    matches = list(management.iter("{http://activemq.apache.org/schema}match"))
    granted = {
        item.get("key"): [one.get("method") for one in item if "drill" in one.get("roles", "")] for item in matches
    }
    own = ["drill.q0", "drill.q1", "drill.q2", "drill.q3", "drill.DLQ"]
    assert granted == {**{f"address={name}": ["removeAllMessages"] for name in own}, None: []}
    root = etree.fromstring(found["broker.xml"].encode())
    check(schema, root)
    permitted = [
        item.get("match")
        for item in root.iter(f"{CORE}security-setting")
        if any("drill" in one.get("roles", "") for one in item)
    ]
    assert sorted(permitted) == sorted(own)
    addresses = {item.get("name") for item in root.iter(f"{CORE}address")}
    assert addresses == {"DLQ", "ExpiryQueue", "drill.DLQ", *(f"drill.q{number}" for number in range(4))}
    letters = {
        item.get("match"): item.findtext(f"{CORE}dead-letter-address") for item in root.iter(f"{CORE}address-setting")
    }
    assert [letters[name] for name in own] == ["drill.DLQ"] * len(own) and letters["#"] == "DLQ"
    assert json.loads(found["credentials.json"])["username"] == "drill"


def test_made_passwords_stay_and_differ(render: Render) -> None:
    name = {"artemis-users.properties": "artemis-users.properties.j2", "secrets.env": "secrets.env.j2"}
    first = render("artemis", "artemis1", name)["files"]
    assert render("artemis", "artemis1", name)["files"] == first, (
        "a second run changes nothing: password and salt are kept"
    )
    assert render("artemis", "artemis2", name)["files"]["secrets.env"] == first["secrets.env"], (
        "one cluster, one password"
    )


@pytest.mark.parametrize(
    ("role", "host", "variable"),
    [
        ("artemis", "artemis1", "__artemis_descriptor"),
        ("artemis", "artemis2", "__artemis_descriptor"),
        ("zookeeper", "zk2", "__zookeeper_descriptor"),
        ("toxiproxy", "load1", "__toxiproxy_descriptor"),
        ("load", "load1", "__load_descriptor"),
    ],
)
def test_descriptors_are_what_the_runner_reads(render: Render, role: str, host: str, variable: str) -> None:
    from brokerdrill.inventory import descriptors
    from brokerdrill.products import registry
    from brokerdrill.products.artemis import ArtemisDescriptor

    on_host = {
        "uid": 997,
        "java": {"version": 17, "home": "/usr/lib/jvm/java-17"},
        "python": "3.11",
        "machine": "x86_64",
    }
    found = render(role, host, {}, [variable], common_user_result=on_host)["variables"][variable]
    files = {f"/etc/brokerdrill/{found['instance']}.json": json.dumps(found)}
    (parsed,) = descriptors.parse(host, files, registry.DESCRIPTORS)
    assert (parsed.product, parsed.host) == (role, host)
    assert type(parsed) is registry.DESCRIPTORS.get(role, descriptors.Descriptor)
    dialled = {(dial.link, dial.to, dial.port) for dial in parsed.dials}
    if role == "artemis":
        other = ("backup", "artemis2", 61616) if host == "artemis1" else ("primary", "artemis1", 61616)
        assert other in dialled
        assert {to for link, to, _port in dialled if link == "zookeeper"} == {"zk1", "zk2", "zk3"}
        assert parsed.store == "orders_pair1"
        assert {item.name: item.dead_letter for item in parsed.addresses}["drill.q0"] == "drill.DLQ"
        assert isinstance(parsed, ArtemisDescriptor)
        assert (parsed.ha_policy, parsed.settings.allow_failback) == ("replication_quorum", True)
        assert dict(parsed.settings.items())["session_ms"] == parsed.settings.session_ms
    if role == "toxiproxy":
        assert isinstance(parsed, descriptors.ToxiproxyDescriptor)
        assert (parsed.user, str(parsed.api)) == ("toxi", "127.0.0.1:8474")
    if role == "load":
        assert found["jars"] == dict.fromkeys(("core", "amqp", "openwire"), "/opt/brokerdrill/artemis-2.56.0/lib")
        assert not dialled, "clients dial what the brokers' own descriptors say"


def test_zookeeper_has_no_plain_port(render: Render) -> None:
    text = render("zookeeper", "zk2", {"zoo.cfg": "zoo.cfg.j2"})["files"]["zoo.cfg"]
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    assert "clientPort" not in values
    assert (values["secureClientPort"], values["ssl.clientAuth"], values["sslQuorum"]) == ("2281", "need", "true")
    assert [values[f"server.{number}"] for number in (1, 2, 3)] == [f"172.30.16.1{n}:2888:3888" for n in (1, 2, 3)]


def test_limit_gives_a_host_the_same_file(render: Render) -> None:
    """Peers come from the inventory, not from the hosts of the play: a play of one host renders them all."""
    text = render("zookeeper", "zk3", {"zoo.cfg": "zoo.cfg.j2"})["files"]["zoo.cfg"]
    assert text.count("\nserver.") == 3


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"artemis_quorum_session_ms": 900}, "session_ms 900 is outside 1000 to 10000"),
        ({"artemis_ha_role": "primary"}, "pair orders_pair1 needs exactly one primary and has 2"),
        ({"zookeeper_tick_time_ms": 5000}, "session_ms 4000 is outside 10000 to 100000"),
    ],
)
def test_preflight_refuses_before_anything_is_touched(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    """Through site.yml: hosts that do not exist, so that a touch would be an unreachable host."""
    inventory = tmp_path / "inventory"
    shutil.copytree(INVENTORY, inventory)
    nowhere = {name: {"ansible_host": f"192.0.2.{number}", **change} for number, name in enumerate(HOSTS, start=1)}
    (inventory / "nowhere.yml").write_text(json.dumps({"all": {"hosts": nowhere}}))
    done = playbook(["-i", str(inventory), "playbooks/site.yml"], tmp_path / "cache")
    assert done.returncode != 0
    assert sentence in done.stdout
    assert "UNREACHABLE" not in done.stdout


def test_a_copied_inventory_is_refused_the_secrets_of_the_bench(tmp_path: Path) -> None:
    """The bench notes whose its CA is; a copy that is pointed at it is refused, and no host is touched."""
    copied, cache = tmp_path / "production", tmp_path / "cache"
    shutil.copytree(INVENTORY, copied)
    nowhere = {name: {"ansible_host": f"192.0.2.{number}"} for number, name in enumerate(HOSTS, start=1)}
    (copied / "nowhere.yml").write_text(json.dumps({"all": {"hosts": nowhere}}))
    (tmp_path / "play.yml").write_text(
        "- hosts: zk1\n  gather_facts: false\n  tasks:\n"
        "    - ansible.builtin.include_role: {name: brokerdrill.ha.common, tasks_from: preflight}\n"
    )
    done = playbook([*inventories(INVENTORY), str(tmp_path / "play.yml")], cache)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (cache / "secrets" / "bench-artemis_quorum" / "inventory").read_text() == "bench-artemis_quorum\n"
    name = {"common_inventory_name": "bench-artemis_quorum"}
    done = playbook(["-i", str(copied), "playbooks/site.yml", "-e", json.dumps(name)], cache)
    assert done.returncode != 0
    assert f"the passwords of bench-artemis_quorum, which {copied} must not share" in done.stdout + done.stderr
    assert "UNREACHABLE" not in done.stdout


@pytest.mark.parametrize("allowed", [False, True])
def test_classic_has_the_drills_account_and_queues_only_where_they_are_allowed(render: Render, allowed: bool) -> None:
    files = ("activemq.xml", "users.properties", "groups.properties", "management-users.properties", "credentials.json")
    found = render(
        "activemq_classic",
        "classic1",
        {name: f"{name}.j2" for name in files},
        ["__activemq_classic_descriptor"],
        inventory=ROOT / "inventories" / "classic_shared_file",
        drill_allowed=allowed,
    )
    with_drills = {name for name, text in found["files"].items() if "drill" in text.replace("brokerdrill", "")}
    assert with_drills == (set(files) if allowed else set())
    credentials = json.loads(found["files"]["credentials.json"])
    assert credentials["username"] == ("drill" if allowed else "monitor")
    described = {
        item["name"]: item["dead_letter"] for item in found["variables"]["__activemq_classic_descriptor"]["addresses"]
    }
    queues = {f"drill.q{number}": "drill.DLQ" for number in range(4)} | {"drill.DLQ": None} if allowed else {}
    assert described == {"ActiveMQ.DLQ": None, **queues}
    root = etree.fromstring(found["files"]["activemq.xml"].encode())
    made = [item.get("physicalName") for item in root.findall(".//{*}destinations/{*}queue")]
    assert sorted(made) == sorted(described)
    policies = [item.get("queue") for item in root.iter("{*}policyEntry")]
    assert policies == ([">", *(f"drill.q{number}" for number in range(4)), "drill.DLQ"] if allowed else [">"])


def test_dead_letters_that_go_where_others_do_are_looked_at_and_nothing_else(
    render: Render, schema: etree.XMLSchema
) -> None:
    shared = {
        "drill_allowed": True,
        "common_drill_queues": ["chaos", "other.chaos"],
        "common_drill_dead_letters": "DLQ",
        "artemis_security_settings": [
            {"match": "#", "permissions": {"send": ["amq"], "browse": ["amq"]}},
            {"match": "other.#", "permissions": {"send": ["apps"]}},
            {"match": "DLQ", "permissions": {"browse": ["support"]}},
        ],
    }
    found = render("artemis", "artemis1", DRILLED, ["__artemis_descriptor"], **shared)
    addresses = found["variables"]["__artemis_descriptor"]["addresses"]
    assert {item["name"]: (item["drill"], item["dead_letter"]) for item in addresses} == {
        "DLQ": (False, None),
        "ExpiryQueue": (False, None),
        "chaos": (True, "DLQ"),
        "other.chaos": (True, "DLQ"),
    }
    root = etree.fromstring(found["files"]["broker.xml"].encode())
    check(schema, root)
    rights = {
        item.get("match"): {one.get("type"): one.get("roles") for one in item}
        for item in root.iter(f"{CORE}security-setting")
    }
    assert rights["DLQ"] == {"browse": "support,drill"}
    assert rights["chaos"]["send"] == "amq,drill" and rights["other.chaos"]["send"] == "apps,drill"
    assert rights["#"] == {"send": "amq", "browse": "amq"} and rights["other.#"] == {"send": "apps"}
    management = etree.fromstring(found["files"]["management.xml"].encode())
    keys = [item.get("key") for item in management.iter("{http://activemq.apache.org/schema}match")]
    assert keys == ["address=chaos", "address=other.chaos", None]


def test_drills_manage_a_classic_broker_by_a_path_of_their_own(render: Render) -> None:
    files = ("management.xml", "drill-access.xml")
    found = render(
        "activemq_classic",
        "classic1",
        {name: f"{name}.j2" for name in files},
        ["__activemq_classic_descriptor", "__activemq_classic_drill_files"],
        inventory=ROOT / "inventories" / "classic_shared_file",
        drill_allowed=True,
    )
    assert found["variables"]["__activemq_classic_descriptor"]["management"]["url"].endswith("/api/drill/")
    assert len(found["variables"]["__activemq_classic_drill_files"]) == 1
    root = etree.fromstring(found["files"]["management.xml"].encode())
    values = {
        item.get("value"): mapping.find(".//{*}property[@name='roles']").get("value")
        for mapping in root.iter("{*}bean")
        if str(mapping.get("class")).endswith("ConstraintMapping")
        for item in mapping.findall("{*}property[@name='pathSpec']")
    }
    assert values == {"/jolokia/*": "admins,monitors", "/drill/*": "drill"}
    policy = etree.fromstring(found["files"]["drill-access.xml"].encode())
    assert [item.text for item in policy.iter("command")] == ["search"]
    emptied = [
        str(item.findtext("name")).rpartition("=")[2] for item in policy.iter("mbean") if item.findtext("operation")
    ]
    assert emptied == [f"drill.q{number}" for number in range(4)] + ["drill.DLQ"]
    assert {item.text for item in policy.iter("operation")} == {"purge*"}
    # A bean that has an entry of its own is not looked for in others.
    assert [item.findtext("attribute") for item in policy.iter("mbean")] == ["*"] * 6
