"""What users bring is told through the roles' variables, as the tables in docs/operations.md say."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from ansible_collections.brokerdrill.ha.plugins.filter import own_elements, rabbitmq, texts
from ansible_collections.brokerdrill.ha.plugins.plugin_utils import own_configuration
from lxml import etree

from brokerdrill.base import paths
from tests.roles import told
from tests.roles.conftest import ROOT, Render, load
from tests.roles.schemas import schema_of
from tests.roles.test_activemq_classic import ARCHIVE as CLASSIC
from tests.roles.test_activemq_classic import SCHEMAS
from tests.roles.test_plugins import cached, plugin
from tests.roles.test_render import schema  # noqa: F401  (a fixture)
from tests.unpacking import unpack

JAAS = "org.apache.activemq.artemis.spi.core.security.jaas"
PUBLISHED = Path(__file__).parent / "published"
CLASSIC_ARCHIVE = "apache-activemq-5.18.3-bin.tar.gz"
ARTEMIS = sorted(PUBLISHED.glob("artemis_*.xml"))


def same(said: etree._Element, written: etree._Element, apart_from: tuple[str, ...]) -> None:
    """Whether each element that a person said is written, and says the same."""
    there = {told.local(one): told.canonical(one) for one in told.children(written)}
    for element in told.children(said):
        if told.local(element) not in apart_from:
            assert there[told.local(element)] == told.canonical(element)


@pytest.mark.parametrize("file", ARTEMIS, ids=lambda file: file.stem)
def test_a_broker_xml_is_told_whole(schema: etree.XMLSchema, file: Path) -> None:  # noqa: F811
    said = etree.parse(file).getroot().find(f"{told.CORE}core")
    core = etree.fromstring(told.broker_xml(told.artemis_variables(said)).encode()).find(f"{told.CORE}core")
    assert schema.validate(core), schema.error_log
    same(said, core, told.OF_THE_DEPLOYMENT)


def test_an_estate_through_ansible(render: Render, schema: etree.XMLSchema) -> None:  # noqa: F811
    said = etree.parse(PUBLISHED / "artemis_estate.xml").getroot().find(f"{told.CORE}core")
    files = ("broker.xml", "secrets.env", "login.config")
    ldap = {
        "connectionURL": "ldaps://ldap.example:636",
        "connectionPassword": r'p"w\d',
        "roleBase": "ou=groups,o=example",
    }
    found = render(
        "artemis", "artemis1", {name: f"{name}.j2" for name in files}, ["__artemis_descriptor"],
        drill_allowed=False, artemis_more_secrets={"BRIDGE_PASSWORD": "R&D<4"},
        artemis_more_connectors=[{"name": "head-office", "address": "192.0.2.7", "port": 61616}],
        artemis_login_modules=[{"module": f"{JAAS}.LDAPLoginModule", "options": ldap}],
        **told.artemis_variables(said),
    )  # fmt: skip
    core = etree.fromstring(found["files"]["broker.xml"].encode()).find(f"{told.CORE}core")
    assert schema.validate(core), schema.error_log
    same(said, core, told.OF_THE_DEPLOYMENT)
    assert 'BRIDGE_PASSWORD="R&amp;D&lt;4"' in found["files"]["secrets.env"]
    assert {one["name"]: one["routing"] for one in found["variables"]["__artemis_descriptor"]["addresses"]} == {
        "orders": "anycast", "prices": "anycast", "trace": "anycast", "billing": "multicast", "news": "multicast",
    }  # fmt: skip
    assert "LDAPLoginModule sufficient" in found["files"]["login.config"]
    assert "PropertiesLoginModule sufficient" in found["files"]["login.config"]


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ActiveMQ Classic's own examples, out of the archive that the role deploys."""
    work = tmp_path_factory.mktemp("examples")
    kept = cached.keep(paths.cache() / "archives", CLASSIC_ARCHIVE, "maven", [CLASSIC])
    unpack(kept["path"], work, ".xml")
    return work


EXAMPLES = (
    *("activemq-demo", "activemq-dynamic-network-broker1", "activemq-dynamic-network-broker2", "activemq-mqtt"),
    *("activemq-jdbc", "activemq-jdbc-performance", "activemq-scalability", "activemq-security", "activemq-specjms"),
    *("activemq-static-network-broker1", "activemq-static-network-broker2", "activemq-stomp", "activemq-throughput"),
    "activemq",
)


def test_no_example_is_left_out(examples: Path) -> None:
    with_brokers = [path for path in examples.glob("*/examples/conf/*.xml") if b"<broker" in path.read_bytes()]
    assert {path.stem for path in with_brokers} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_activemq_xml_is_told_whole(examples: Path, name: str) -> None:
    (file,) = examples.glob(f"*/examples/conf/{name}.xml")
    beans = etree.parse(file).getroot()
    variables = told.classic_variables(beans)
    for part in ("more_elements", "policy_entries", "more_plugins"):
        where = "CLASSIC_BROKER" if part == "more_elements" else None
        assert own_elements.xml_problems(variables[f"activemq_classic_{part}"], part, where) == []
    text = told.activemq_xml(variables)
    archive = paths.cache() / "archives" / CLASSIC_ARCHIVE
    assert plugin("action", "host").schema_problem(text, str(archive), SCHEMAS) is None
    said, written = beans.find(told.BROKER), etree.fromstring(text.encode()).find(told.BROKER)
    same(said, written, (*told.CLASSIC_OWN, "destinationPolicy", "plugins", "destinations", "transportConnectors"))

    def of(broker: etree._Element, name: str) -> list[bytes]:
        # An entry that names nobody for a right says nothing of it.
        return [told.canonical(one).replace(b' admin=""', b"") for one in broker.iter(f"{{*}}{name}")]

    assert set(of(said, "policyEntry")) <= set(of(written, "policyEntry"))
    assert set(of(said, "authorizationEntry")) <= set(of(written, "authorizationEntry"))
    assert {name: said.get(name) for name in variables["activemq_classic_broker_attributes"]} == {
        name: written.get(name) for name in variables["activemq_classic_broker_attributes"]
    }
    connectors = zip(said.iter("{*}transportConnector"), written.iter("{*}transportConnector"), strict=True)
    for one, there in connectors:
        assert {**there.attrib, "uri": ""} == {"name": there.get("name"), **one.attrib, "uri": ""}
        ours, theirs = urlsplit(str(there.get("uri"))), urlsplit(str(one.get("uri")))
        assert (ours.scheme, ours.port, sorted(parse_qsl(ours.query))) == (
            theirs.scheme, theirs.port, sorted(parse_qsl(theirs.query)),
        )  # fmt: skip


ESTATE = json.loads((PUBLISHED / "rabbitmq_estate.json").read_text())
ADMIN = {"name": "admin", "password": "x", "permissions": {"/": {}}}


def definition_problems(more: Any, **config: Any) -> list[str]:
    base = {
        "members": {},
        "queues": [],
        "vhosts": ["/"],
        "policies": [],
        "users": [ADMIN],
        "memory": "0.4",
        "allow": [],
    }
    return rabbitmq.rabbitmq_problems(base | config | {"more": more})


def test_exported_definitions_are_told_whole() -> None:
    assert definition_problems(ESTATE) == []
    policy = {"name": "ours", "pattern": "x", "definition": {"max-length": 1}}
    found = rabbitmq.rabbitmq_definitions([ADMIN], ["/"], [policy], ESTATE)
    for kind in ("vhosts", "users", "permissions", "topic_permissions", "parameters", "policies"):
        assert [one for one in found[kind] if one in ESTATE[kind]] == ESTATE[kind]
    for kind in ("queues", "exchanges", "bindings"):
        assert found[kind] == ESTATE[kind]
    assert "global_parameters" in found and found["global_parameters"] == [], "the cluster's name is its own"
    assert set(found) == {*rabbitmq._KINDS}, "who wrote the file is not told"
    assert found["users"][0]["name"] == "admin" and len(found["vhosts"]) == 3


def changed(kind: str, **fields: Any) -> dict[str, Any]:
    """The estate with one more object of a kind: the first one, changed."""
    return {**ESTATE, kind: [*ESTATE[kind], {**ESTATE[kind][0], **fields}]}


def without(kind: str, field: str) -> dict[str, Any]:
    return {**ESTATE, kind: [{name: value for name, value in one.items() if name != field} for one in ESTATE[kind]]}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (changed("users"), r"user CORP\svc-orders is there 2 times"),
        (changed("users", name="admin"), "user admin is there 2 times"),
        (without("users", "password_hash"), "has neither password_hash nor password"),
        (changed("vhosts"), "vhost / of rabbitmq_more_definitions is there 2 times"),
        (changed("permissions"), "a permission of user CORP\\svc-orders in vhost orders is there 2 times"),
        (changed("permissions", user="nobody"), "a permission is of user nobody, who is nowhere"),
        (changed("permissions", vhost="no"), "is of vhost no, which is none of /, orders, billing/eu"),
        (changed("policies"), "policy ha of vhost orders is there 2 times"),
        (changed("policies", vhost="no"), "policy ha is of vhost no"),
        (without("policies", "vhost"), "policy ha names no vhost: a file that was exported of one vhost"),
        (without("queues", "vhost"), "queue orders.new names no vhost: a file that was exported of one vhost"),
        (changed("queues"), "queue orders.new of vhost orders is there 2 times"),
        (changed("exchanges"), "exchange dlx of vhost orders is there 2 times"),
        (changed("parameters"), "parameter shovel to-archive of vhost orders is there 2 times"),
        (changed("bindings", source="nowhere"), "the binding of nowhere to dlq is of an exchange that"),
        (changed("bindings", destination="gone"), "the binding of dlx to gone is to a queue that"),
        (changed("bindings", destination_type="exchange"), "the binding of dlx to dlq is to a exchange that"),
        (changed("topic_permissions", user="nobody"), "a topic permission is of user nobody, who is nowhere"),
        ({**ESTATE, "exchange": []}, "rabbitmq_more_definitions has exchange: there are vhosts, users"),
        ({"queues": {"name": "q"}}, "queues of rabbitmq_more_definitions is no list of mappings"),
        ({"queues": ["q"]}, "queues of rabbitmq_more_definitions is no list of mappings"),
        (["q"], "rabbitmq_more_definitions is no mapping"),
    ],
)
def test_definitions_that_contradict_themselves(more: Any, said: str) -> None:
    assert any(said in one for one in definition_problems(more)), definition_problems(more)


def test_a_policy_of_the_roles_own_is_of_the_first_vhost() -> None:
    own = {"name": "ha", "pattern": "", "definition": {}}
    assert definition_problems({}, policies=[own]) == []
    assert definition_problems({"policies": [own]}, policies=[own]) == [
        "policy ha names no vhost: a file that was exported of one vhost does not say which"
    ]


def test_a_queue_that_the_role_declares_and_the_definitions_have() -> None:
    queues = [{"name": "orders.new", "vhost": "orders"}]
    assert "queue orders.new of vhost orders is there 2 times" in definition_problems(ESTATE, queues=queues)
    assert definition_problems(ESTATE, queues=[{"name": "another", "vhost": "orders"}]) == []


def test_every_line_of_rabbitmq_conf_is_the_roles_or_the_inventorys() -> None:
    text = (ROOT / "roles" / "rabbitmq" / "templates" / "rabbitmq.conf.j2").read_text()
    keys = [line.partition(" = ")[0] for line in text.splitlines() if " = " in line and not line.startswith("{")]
    assert len(keys) > 25
    for key in keys:
        assert own_configuration.told_elsewhere(
            own_configuration.RABBITMQ_SETTINGS, key.replace("{{ loop.index }}", "1")
        )
    for key in (
        "channel_max",
        "consumer_timeout",
        "log.console.formatter",
        "mqtt.listeners.tcp.default",
        "ssl_options.depth",
    ):
        assert not own_configuration.told_elsewhere(own_configuration.RABBITMQ_SETTINGS, key)


def test_preflight_of_rabbitmq_says_them(render: Render) -> None:
    text = refused(
        render, "rabbitmq", "rabbit1", "rabbitmq_router",
        rabbitmq_more_definitions=changed("users", name="admin"),
        rabbitmq_settings={
            "heartbeat": 10,
            "channel_max": "2047 # many",
            "auth_ldap.dn_lookup_bind.password": "hush$(hush",
            "log.file.rotation.date": ["hush"],
        },
    )  # fmt: skip
    assert "user admin is there 2 times" in text
    assert "rabbitmq_settings has heartbeat: say it by rabbitmq_heartbeat_s" in text
    assert "channel_max of rabbitmq_settings has '#': rabbitmq.conf takes it for something else" in text
    assert "auth_ldap.dn_lookup_bind.password of rabbitmq_settings has '$('" in text
    assert "log.file.rotation.date of rabbitmq_settings has" in text
    assert "hush" not in text and "many" not in text


@pytest.fixture(scope="module")
def openmq_archive() -> zipfile.ZipFile:
    """Open MQ's archive that the role deploys."""
    role = load(ROOT / "roles" / "openmq" / "defaults" / "main.yml")["openmq_version"]
    archives = load(ROOT / "roles" / "openmq" / "vars" / "main.yml")["__openmq_archives"]
    kept = cached.keep(paths.cache() / "archives", f"mq-distribution-{role}.zip", "maven", [archives[role]])
    return zipfile.ZipFile(kept["path"])


@pytest.fixture(scope="module")
def broker_properties(openmq_archive: zipfile.ZipFile) -> dict[str, str]:
    """Every property that Open MQ's broker has by itself."""
    return java_properties(openmq_archive.read("mq/lib/props/broker/default.properties").decode("iso-8859-1"))


@pytest.fixture(scope="module")
def broker_classes(openmq_archive: zipfile.ZipFile) -> bytes:
    """The classes of Open MQ's broker: in them are the names of the properties that have no default."""
    read = [
        zipfile.ZipFile(io.BytesIO(openmq_archive.read(f"mq/lib/{name}.jar")))
        for name in ("imqbroker", "imqutil", "imq")
    ]
    return b"".join(jar.read(name) for jar in read for name in jar.namelist() if name.endswith(".class"))


def java_properties(text: str) -> dict[str, str]:
    """A file of properties that has no escapes but lines that go on."""
    joined = re.sub(r"\\\n\s*", "", text)
    lines = (line.strip() for line in joined.splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith(("#", "!")))
    return {name.strip(): value.strip() for name, _, value in pairs}


def test_every_property_of_open_mq_has_its_variable(render: Render, broker_properties: dict[str, str]) -> None:
    """The broker's whole default.properties, as if somebody had written all of it into a configuration of their own."""
    of_the_role = own_configuration.OPENMQ_PROPERTIES.by
    own = {
        name: value for name, value in broker_properties.items() if name.startswith("imq") and name not in of_the_role
    }
    assert len(own) > 200
    found = render(
        "openmq", "openmq1", {"java.options": "java.options.j2"}, ["__openmq_text_problems"],
        inventory=ROOT / "inventories" / "openmq_master", openmq_properties=own,
    )  # fmt: skip
    assert found["variables"]["__openmq_text_problems"] == []
    lines = found["files"]["java.options"].splitlines()
    for name, value in own.items():
        assert texts.java_argument(f"-D{name}={value}") in lines


def test_preflight_of_open_mq_says_what_has_a_variable(render: Render) -> None:
    text = refused(
        render, "openmq", "openmq1", "openmq_master",
        openmq_properties={"imq.portmapper.port": 7000, "imq.autocreate.queue": False},
        openmq_cluster_properties={"imq.cluster.masterbroker": "a:1"}, openmq_queues=["a", "b", "a"],
    )  # fmt: skip
    assert "openmq_properties has imq.portmapper.port: say it by openmq_port" in text
    assert "openmq_cluster_properties has imq.cluster.masterbroker: say it by openmq_cluster" in text
    assert "queue 'a' is there 2 times" in text


def test_preflight_of_classic_says_them(render: Render) -> None:
    text = refused(
        render, "activemq_classic", "classic1", "classic_shared_file",
        activemq_classic_more_elements="<sslContext/><networkConnectors>",
        activemq_classic_broker_attributes={"useJmx": False},
        activemq_classic_policy_entries='<policyEntry queue="a"/><policyEntry queue="a"/>',
        activemq_classic_more_secrets={"a b": "x${y}"}, activemq_classic_queues=["a", "a"],
        activemq_classic_login_modules=[{"module": "a.B", "options": {"c": "${d}"}}],
    )  # fmt: skip
    for said in (
        "activemq_classic_more_elements is no XML: mismatched tag",
        "activemq_classic_broker_attributes has useJmx: the role's own: health and drills",
        "policyEntry of queue 'a' is there 2 times",
        "activemq_classic_more_secrets has 'a b', which is no name of a property",
        "a password of activemq_classic_more_secrets has '${'",
        "queue 'a' is there 2 times",
        "an option of activemq_classic_login_modules has '${': Java replaces it",
    ):
        assert said in text


def test_the_page_has_the_tables_as_they_are() -> None:
    check = [sys.executable, str(ROOT / "docs" / "own_configuration.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_variable_that_a_table_names_is_there() -> None:
    for elements in own_configuration.ALL:
        specs = {
            role: load(ROOT / "roles" / role / "meta" / "argument_specs.yml") for role in (elements.role, "common")
        }
        options = {
            name for spec in specs.values() for entry in spec["argument_specs"].values() for name in entry["options"]
        }
        named = {
            name
            for by in elements.by.values()
            for name in (re.findall(r"\b[a-z]+_[a-z_]+\b", by) if isinstance(by, str) else by)
        }
        named |= {elements.others} if elements.others else set()
        assert {name for name in named if name.startswith((f"{elements.role}_", "common_"))} <= options
        assert {name for by in elements.by.values() if not isinstance(by, str) for name in by} <= options


XS = "{http://www.w3.org/2001/XMLSchema}"


def declared(root: etree._Element, name: str, kind: str) -> set[str]:
    """The names of the elements or attributes that a schema declares directly in the element `name`."""
    element = root.find(f".//{XS}element[@name='{name}']")
    type_name = str(element.get("type") or "").rpartition(":")[2]
    of = root.find(f"{XS}complexType[@name='{type_name}']") if type_name else element
    found = of.iter(f"{XS}{kind}")
    return {str(one.get("name") or one.get("ref")) for one in found if one is not element}


def test_every_element_that_a_table_names_is_the_products(
    tmp_path: Path, broker_properties: dict[str, str], broker_classes: bytes
) -> None:
    """And what is not among them is for the last row: nothing of a product is without a place."""
    kept = paths.cache() / "archives"
    versions = load(ROOT / "roles" / "artemis" / "defaults" / "main.yml")
    schema_of(versions["artemis_version"], tmp_path)
    core = declared(etree.parse(next(tmp_path.rglob("artemis-configuration.xsd"))).getroot(), "core", "element")
    assert set(own_configuration.ARTEMIS_CORE.by) <= core and len(core) > 120
    with tarfile.open(kept / CLASSIC_ARCHIVE) as archive:
        name = next(one for one in archive.getnames() if "/activemq-spring-" in one)
        jar = zipfile.ZipFile(io.BytesIO(archive.extractfile(name).read()))  # type: ignore[union-attr]
    root = etree.fromstring(jar.read("activemq.xsd"))
    assert set(own_configuration.CLASSIC_BROKER.by) <= declared(root, "broker", "element")
    assert set(own_configuration.CLASSIC_ATTRIBUTES.by) <= declared(root, "broker", "attribute")
    for name in own_configuration.OPENMQ_PROPERTIES.by:
        assert name in broker_properties or name.encode() in broker_classes, name


def own_problems(text: str, place: str | None = "ARTEMIS_CORE") -> list[str]:
    return own_elements.xml_problems(text, "artemis_more_core", place)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<diverts><divert></diverts>", "artemis_more_core is no XML: mismatched tag, line 1, column 19 of it"),
        ("<name>x</name>", "artemis_more_core has name: say it by artemis_instance"),
        ("<diverts/> and <bridges/>", "artemis_more_core has text beside elements: 'and'"),
        ("<mask-password>true</mask-password>", "artemis_more_core has mask-password: passwords are not masked"),
        ("<diverts/><diverts/>", "artemis_more_core has diverts 2 times"),
        ("diverts", "artemis_more_core has text beside elements: 'diverts'"),
        ("<a/>\n<b", "artemis_more_core is no XML: not well-formed (invalid token), line 2, column 2 of it"),
        ('<a x="1" x="2"/>', "artemis_more_core is no XML: duplicate attribute, line 1"),
        ("<a>R&D</a>", "artemis_more_core is no XML: not well-formed (invalid token), line 1"),
        ("<xi:include href='x'/>", "artemis_more_core is no XML: unbound prefix, line 1"),
        ("</all><name>x</name><all>", "artemis_more_core is no XML"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "artemis_more_core is no XML"),
        ("<name xmlns='urn:activemq:core'>x</name>", "artemis_more_core has name: say it by artemis_instance"),
    ],
)
def test_elements_that_have_no_place_are_refused(text: str, said: str) -> None:
    assert any(one.startswith(said) for one in own_problems(text)), own_problems(text)


def test_elements_that_have_one() -> None:
    for text in (
        "",
        "  \n",
        "<!-- nothing -->",
        "<diverts/>\n<!-- and -->\n<bridges><bridge name='a&amp;b'/></bridges>",
    ):
        assert own_problems(text) == []


@pytest.mark.parametrize(
    ("addresses", "said"),
    [
        ([{"name": "a", "routing": "topic"}], ["address 'a' has the routing 'topic': there are anycast and multicast"]),
        (
            [
                {"name": "a", "routing": "multicast", "queues": ["q"]},
                {"name": "b", "routing": "anycast", "queues": ["q"]},
            ],
            ["queue 'q' is there 2 times (a, b): a queue's name is unique in a broker"],
        ),
        (
            [{"name": "a", "routing": "anycast"}, {"name": "b", "routing": "multicast", "queues": [{"name": "a"}]}],
            ["queue 'a' is there 2 times (a, b): a queue's name is unique in a broker"],
        ),
        ([{"name": "a", "routing": "multicast"}] * 2, ["artemis_addresses has 'a' 2 times"]),
        (
            [{"name": "a", "routing": "anycast", "queues": [{"filter": "x"}]}],
            ["address 'a' has a queue without a name"],
        ),
        ([{"name": "a", "routing": ["anycast", "multicast"], "queues": [{"name": "q", "routing": "multicast"}]}], []),
        ([{"name": "a", "routing": "anycast,multicast"}], []),
    ],
)
def test_addresses_that_the_broker_would_take_without_a_word(addresses: list[dict[str, Any]], said: list[str]) -> None:
    assert own_elements.artemis_address_problems(addresses) == said


@pytest.mark.parametrize("routing", ["MULTICAST", " Multicast "])
def test_a_queues_routing_in_capitals_is_the_one_that_preflight_reads(routing: str) -> None:
    addresses = [{"name": "a", "routing": "ANYCAST, multicast", "queues": [{"name": "q", "routing": routing}]}]
    assert own_elements.artemis_address_problems(addresses) == []
    (address,) = own_elements.artemis_address_entries(addresses)
    assert [(one["type"], len(one["queues"])) for one in address["routings"]] == [("anycast", 0), ("multicast", 1)]


def test_what_stands_twice_is_said_once() -> None:
    assert texts.duplicate_problems({"user": ["a", "b", "a", "a"], "queue": ["a"], "port": [1, "1"]}) == [
        "user 'a' is there 3 times",
        "port '1' is there 2 times",
    ]


def refused(render: Render, role: str, host: str, inventory: str, **extra: Any) -> str:
    """What preflight says."""
    with pytest.raises(AssertionError) as caught:
        render(role, host, {}, inventory=ROOT / "inventories" / inventory, **extra)
    return str(caught.value).replace("\\'", "'").replace('\\"', '"')


def test_preflight_of_artemis_says_them(render: Render) -> None:
    text = refused(
        render, "artemis", "artemis1", "artemis_quorum",
        artemis_more_core="<name>x</name>", artemis_more_security="role-mapping",
        artemis_more_secrets={"A B": "x", "C": "ENC(x)"},
        artemis_addresses=[{"name": "a", "routing": "anycast"}] * 2,
        artemis_more_users=[{"name": "admin", "password": "x", "roles": ["r"]}],
        artemis_address_settings=[{"match": "#", "settings": {}}, {"match": "#", "settings": {}}],
    )  # fmt: skip
    for said in (
        "artemis_more_core has name: say it by artemis_instance",
        "artemis_more_security has text beside elements: 'role-mapping'",
        "artemis_more_secrets has 'A B', which is no name of a variable of the environment",
        "a password of artemis_more_secrets has 'ENC('",
        "artemis_addresses has 'a' 2 times",
        "user 'admin' is there 2 times",
        "address-setting of '#' is there 2 times",
    ):
        assert said in text
