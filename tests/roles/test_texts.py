"""Any text that a vault gives comes out of each file as it went in, read by the product's own parser, or is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest
from ansible_collections.brokerdrill.ha.plugins.filter import artemis, openmq, own_elements, texts
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from lxml import etree

from brokerdrill.base import paths
from tests.roles import told
from tests.roles.conftest import ROOT, load, render_all
from tests.roles.test_plugins import cached
from tests.unpacking import unpack

# As people and their vaults write them.
SAID = (
    r"R&D<4ever>\1", r"Tr0ub\4dor, &3", r"it's\me", "a:b", "a b", "$x ${x} $$", "100% %h", "quo\"te's`", "#!=:",
    "Grüße 世界 😀", "CN=client,OU=dev", r"CORP\svc-orders", "team:billing", "ENC", "x${x}", "--x", "]]>", "&amp;",
)  # fmt: skip
ODD = st.text("aZ0 \\\"'`&<>;:,=#!$%{}()*?[]/|~^@+-._ß世😀", min_size=1, max_size=24)


def any_text(**more: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a test generated texts, and those that people wrote."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        found = given(text=ODD)(test)
        for one in SAID:
            found = example(text=one)(found)
        return settings(
            max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], **more
        )(found)

    return decorate


class Reader:
    """The JVM that reads all examples."""

    def __init__(self, classpath: list[str]) -> None:
        script = str(ROOT / "tests" / "roles" / "java_reader.py")
        self.process = subprocess.Popen(
            [sys.executable, script, *classpath], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, parser: str, **asked: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"parser": parser, **asked}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert not (isinstance(answer, dict) and "error" in answer), (asked, answer)
        return answer


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    jars = tmp_path_factory.mktemp("jars")
    artemis_role = load(ROOT / "roles" / "artemis" / "defaults" / "main.yml")["artemis_version"]
    archives = load(ROOT / "roles" / "artemis" / "vars" / "main" / "archive.yml")["__artemis_archives"]
    name = f"apache-artemis-{artemis_role}-bin.tar.gz"
    kept = cached.keep(paths.cache() / "archives", name, "maven", [archives[artemis_role]])
    unpack(kept["path"], jars, ".jar")
    # (The Jetty that it brings along is another place's.)
    found = [str(path) for path in jars.rglob("lib/*.jar")] + [str(path) for path in jars.rglob("jetty-*.jar")]
    one = Reader(found)
    yield one
    assert one.process.stdin is not None
    one.process.stdin.close()
    one.process.wait(timeout=30)


def rendered(role: str, template: str, **variables: Any) -> str:
    """Return what a template says, with the filters that it uses and `variables`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ROOT / "roles" / role / "templates"),
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    filters = {**texts.FilterModule().filters(), **openmq.FilterModule().filters(), **artemis.FilterModule().filters()}
    filters |= own_elements.FilterModule().filters()
    environment.filters |= {f"brokerdrill.ha.{name}": function for name, function in filters.items()}
    environment.filters["bool"] = bool
    environment.globals["lookup"] = lambda *_, **__: "ab" * 32
    return environment.get_template(template).render(__artemis_salt={}, common_secrets_dir="/x", **variables)


def clean(text: str, kind: str) -> bool:
    return not texts.text_problems({"x": text}, kind)


@any_text()
def test_properties_of_users_and_groups(reader: Reader, text: str) -> None:
    if clean(text, "classic_name"):
        users = [{"name": text, "password": text[::-1] or "x", "groups": [text, "b"]}]
        found = rendered("activemq_classic", "users.properties.j2", __activemq_classic_users=users)
        assert reader("properties", text=found) == {text: text[::-1]}
        found = rendered("activemq_classic", "groups.properties.j2", __activemq_classic_groups={text: [text, "b"]})
        assert {group: names.split(",") for group, names in reader("properties", text=found).items()} == {
            text: [text, "b"]
        }
    if clean(text, "artemis_name"):
        found = rendered("artemis", "artemis-users.properties.j2", __artemis_users=[{"name": text, "password": text}])
        assert reader("properties", text=found) == {text: artemis.artemis_password_hash(text, "ab" * 32)}
        members = [{"name": text, "roles": [text]}, {"name": "b", "roles": [text]}]
        found = rendered("artemis", "artemis-roles.properties.j2", __artemis_users=members)
        assert {role: names.split(",") for role, names in reader("properties", text=found).items()} == {
            text: [text, "b"]
        }


@any_text()
def test_jetty_knows_its_users(reader: Reader, text: str) -> None:
    if clean(text, "classic_name") and clean(text, "classic_user_password"):
        users = [{"name": text, "password": text, "groups": [text, "b"]}]
        found = rendered("activemq_classic", "management-users.properties.j2", __activemq_classic_users=users)
        assert reader("jetty", text=found, user=text, password=text) == {"is": True, "roles": [text, "b"]}
        assert not reader("jetty", text=found, user=text, password=f"{text}x")["is"]


@any_text()
def test_passwords_in_properties(reader: Reader, text: str) -> None:
    more = {"activemq_classic_more_secrets": {"ldap": text, "net.password": text}}
    found = rendered("activemq_classic", "secrets.properties.j2", activemq_classic_jdbc_password=text, **more)
    assert reader("properties", text=found) == dict.fromkeys(("database.password", "ldap", "net.password"), text)
    account = {"username": text, "password": text}
    found = rendered("openmq", "jolokia.properties.j2", openmq_keystore_password=text, __openmq_looking=account)
    read = reader("properties", text=found)
    assert (read["user"], read["password"], read["keystorePassword"]) == (text, text, text)
    found = rendered("openmq", "cluster.properties.j2", __openmq_shared_properties={"imq.x": text, "imq.y": True})
    assert reader("properties", text=found) == {"imq.x": text, "imq.y": "true"}
    found = rendered("openmq", "accesscontrol.properties.j2", __openmq_access_control={f"queue.{text}.x": text})
    assert reader("properties", text=found)[f"queue.{text}.x"] == text


@any_text()
def test_the_file_of_users_of_open_mq(text: str) -> None:
    if clean(text, "openmq_name"):
        users = [{"name": text, "password": text, "group": text}]
        (line,) = rendered("openmq", "passwd.j2", __openmq_users=users).splitlines()
        assert line.split(":") == [text, openmq.openmq_password_hash(text, text), text, "1"]


@any_text()
def test_options_of_login_modules(reader: Reader, text: str) -> None:
    if not clean(text, "jaas_password"):
        return
    modules = [{"module": "a.B", "options": {"c": text, "d": True}}, {"module": "a.C", "flag": "requisite"}]
    # One list of users alone has to accept; of the two that Artemis has while secrets are changed, either.
    files = load(ROOT / "roles" / "artemis" / "vars" / "main" / "users.yml")["__artemis_user_files"]
    for role, flags in (("artemis", ["sufficient"] * len(files)), ("activemq_classic", ["required"])):

        def entries(own: list[dict[str, Any]], role: str = role) -> Any:
            variables = {f"{role}_login_modules": own, f"{role}_config_dir": "/etc/x y", "__artemis_user_files": files}
            return reader("jaas", text=rendered(role, "login.config.j2", **variables))

        read = entries(modules)
        assert [(one["module"], one["flag"]) for one in read[:2]] == [("a.B", "sufficient"), ("a.C", "requisite")]
        assert read[0]["options"] == {"c": text, "d": "true"}
        assert [one["flag"] for one in read[2:]] == ["sufficient"] * len(flags)
        assert [one["flag"] for one in entries([])] == flags


def systemd_environment(text: str) -> dict[str, str]:
    """What a file of EnvironmentFile says, by systemd's rules (systemd.exec(5), src/basic/env-file.c)."""
    found = {}
    for line in text.splitlines():
        if line.startswith(("#", ";")) or not line:
            continue
        name, _, value = line.partition("=")
        assert value.startswith('"') and value.endswith('"')
        read, inner = "", iter(value[1:-1])
        for one in inner:
            if one == "\\":
                after = next(inner)
                read += after if after in '"\\`$' else one + after
            else:
                assert one != '"'
                read += one
        found[name] = read
    return found


@any_text()
def test_the_clusters_password_in_broker_xml(reader: Reader, text: str) -> None:
    if not clean(text, "artemis_password"):
        return
    env = systemd_environment(
        rendered("artemis", "secrets.env.j2", artemis_cluster_password=text, __artemis_connection_routers=[],
                 artemis_more_secrets={"BRIDGE": text})
    )  # fmt: skip
    xml = "<a><cluster-password>${ARTEMIS_CLUSTER_PASSWORD}</cluster-password><b c='${BRIDGE}'/></a>"
    assert reader("artemis_xml", text=xml, variables=env) == [text, text, ""]


@any_text()
def test_names_in_broker_xml(reader: Reader, text: str) -> None:
    if clean(text, "artemis_text"):
        written = jinja2.filters.do_forceescape(text)
        found = reader("artemis_xml", text=f'<a><address name="{written}"/><queue>{written}</queue></a>', variables={})
        assert found == [text, "", text]


@any_text()
def test_units(text: str) -> None:
    """Within double quotes systemd undoes the escapes of C, and then its specifiers (systemd.syntax(7))."""
    read, inner = "", iter(texts.unit_text(text))
    for one in inner:
        assert one != '"'
        after = next(inner) if one in "\\%" else ""
        assert after in ('"', "\\") if one == "\\" else after in ("", "%")
        read += after or one
    assert read == text


@pytest.mark.skipif(shutil.which("java") is None, reason="no Java")
def test_arguments_of_java(tmp_path: Path) -> None:
    """By java itself: each argument is a property, and the JVM says what it made of it."""
    wanted = [f"-Dx{place}={text}" for place, text in enumerate(SAID)] + ["-XX:OnOutOfMemoryError=kill -9 %p"]
    for role in ("artemis", "activemq_classic", "openmq", "zookeeper"):
        found = rendered(role, "java.options.j2", **{f"__{role}_jvm": wanted, f"__{role}_own_properties": {}})
        lines = [line for line in found.splitlines() if line.startswith(("-D", "-X", '"'))]
        (tmp_path / role).write_text("\n".join(lines) + "\n")
        done = subprocess.run(
            ["java", f"@{tmp_path / role}", "-Dfile.encoding=UTF-8", "-Dsun.stdout.encoding=UTF-8",
             str(ROOT / "tests" / "roles" / "Properties.java"), str(len(SAID))],
            capture_output=True, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        assert done.stdout.decode().split("\0")[:-1] == list(SAID)


@any_text()
def test_sql(text: str) -> None:
    """As PostgreSQL's scanner reads a literal and a name."""
    literal, name = texts.sql_text(text), texts.sql_name(text)
    inner = literal[2:-1].replace("\\\\", "\\") if literal.startswith("E") else literal[1:-1]
    assert inner.replace("''", "'") == text
    assert name[1:-1].replace('""', '"') == text


def test_the_broker_makes_of_an_estate_what_was_said(reader: Reader) -> None:
    """By its own reader of broker.xml, with a password from the environment's file."""
    said = etree.parse(ROOT / "tests" / "roles" / "published" / "artemis_estate.xml").getroot().find(f"{told.CORE}core")
    env = systemd_environment(
        rendered("artemis", "secrets.env.j2", artemis_cluster_password="x", __artemis_connection_routers=[],
                 artemis_more_secrets={"BRIDGE_PASSWORD": r"R&D<4ever>\1 $x"})
    )  # fmt: skip
    read = reader("artemis_configuration", text=told.broker_xml(told.artemis_variables(said)), variables=env)
    assert read["bridges"] == {"to-head-office": r"R&D<4ever>\1 $x"} and read["plugins"] == 1
    assert read["diverts"] == {"audit": "total > 1000 AND region = 'R&D'"}
    queues = read["queues"]
    assert set(queues) == {"orders", "orders.big", "prices", "trace", "billing.sub", "audit.sub"}
    assert (queues["orders"]["max_consumers"], queues["orders"]["exclusive"]) == ("5", "True")
    assert queues["orders.big"]["filter"] == "total > 1000 AND name = 'O''Brien & <sons>'"
    assert (queues["orders.big"]["address"], queues["orders.big"]["user"]) == ("orders", "billing")
    assert (queues["prices"]["last_value_key"], queues["trace"]["ring_size"]) == ("ticker", "1000")
    assert {queues[name]["routing"] for name in ("billing.sub", "audit.sub", "orders.big")} == {"MULTICAST"}


def test_a_whole_broker_xml_with_odd_names(reader: Reader, tmp_path: Path) -> None:
    """What the role renders through Ansible, and the file of secrets, read by the broker's own classes."""
    odd = r"""R&D<4ever>\1 $x "it's" 100%"""
    found = render_all(
        tmp_path, "artemis", "artemis1", {"broker.xml": "broker.xml.j2", "secrets.env": "secrets.env.j2"},
        drill_allowed=False, artemis_cluster_user=odd, artemis_cluster_password=f"{odd},2",
        artemis_addresses=[{"name": f"{odd}.q", "routing": "anycast", "queues": [f"{odd}.q1"]}],
        artemis_more_users=[{"name": f"{odd} u", "password": odd, "roles": [f"{odd} r"]}],
    )["artemis1"]["files"]  # fmt: skip
    read = reader("artemis_xml", text=found["broker.xml"], variables=systemd_environment(found["secrets.env"]))
    assert {odd, f"{odd},2", f"{odd}.q", f"{odd}.q1"} <= set(read)
    etree.fromstring(found["broker.xml"].encode())


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (
            "artemis_name",
            "CN=client,OU=dev",
            "x 'CN=client,OU=dev' has ',': Artemis separates users and roles by commas",
        ),
        ("artemis_name", " a", "x ' a' has spaces around it: Artemis separates"),
        ("artemis_password", "ENC(a)", "x has 'ENC(' at its beginning: Artemis takes what begins so as encrypted"),
        ("classic_user_password", "OBF:a", "x has 'OBF:' at its beginning: Jetty takes what begins so as obfuscated"),
        ("classic_password", "a${b}", "x has '${': Spring replaces it in ActiveMQ Classic's files"),
        ("openmq_name", "team:billing", "x 'team:billing' has ':': Open MQ's file of users separates by them"),
        ("password", "a\nb", "x has a control character, or a line's end"),
        ("postgresql_name", "ä" * 32, "has more than 63 bytes"),
        ("rabbitmq_name", "a#b", "x 'a#b' has '#': rabbitmq.conf takes it for something else"),
        ("rabbitmq_setting", "a#b", "x has '#': rabbitmq.conf takes it for something else"),
        ("rabbitmq_name", "größe", "x 'größe' has a character beyond ASCII: rabbitmq.conf knows no others"),
    ],
)
def test_what_no_file_can_hold_is_refused(kind: str, text: str, said: str) -> None:
    (found,) = texts.text_problems({"x": text}, kind)
    assert said in found


def test_names_of_files_are_one_for_each_text() -> None:
    found = {texts.file_name(text) for text in SAID}
    assert len(found) == len(SAID)
    assert not any(set(name) & set("/ =$") for name in found)
    assert texts.file_name("drill-1.x_y") == "drill-1.x_y"


@pytest.mark.parametrize(
    ("role", "inventory", "host", "extra", "said"),
    [
        ("artemis", "artemis_quorum", "artemis1",
         {"artemis_more_users": [{"name": "CN=client,OU=dev", "password": "x", "roles": ["r"]}],
          "artemis_cluster_password": "ENC(x)"},
         ["users 'CN=client,OU=dev' has ','", "artemis_cluster_password has 'ENC('"]),
        ("activemq_classic", "classic_lease", "classic1",
         {"activemq_classic_more_users": [{"name": "a", "password": "x", "groups": ["a,b"]}],
          "activemq_classic_jdbc_password": "a${b}"},
         ["groups 'a,b' has ','", "activemq_classic_jdbc_password has '${'"]),
        ("openmq", "openmq_master", "openmq1",
         {"openmq_more_users": [{"name": "team:billing", "password": "x", "group": "user"}]},
         ["users 'team:billing' has ':'"]),
        ("rabbitmq", "rabbitmq_router", "rabbit1", {"rabbitmq_cluster": "a#b"}, ["rabbitmq_cluster 'a#b' has '#'"]),
        ("lease_db", "classic_lease", "db1", {"lease_db_name": "a=b", "lease_db_password": "a\nb"},
         ["lease_db_name 'a=b' has '='", "lease_db_password has a control character"]),
    ],
)  # fmt: skip
def test_preflight_refuses_them(
    tmp_path: Path, role: str, inventory: str, host: str, extra: dict[str, Any], said: list[str]
) -> None:
    with pytest.raises(AssertionError, match="has ") as caught:
        render_all(tmp_path, role, host, {}, inventory=ROOT / "inventories" / inventory, **extra)
    assert [words for words in said if words not in str(caught.value).replace("\\'", "'")] == []
