"""Every row of `ha_rows` is held against the schema of each version that the role knows, and against what it names."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
from lxml import etree

from tests.roles.conftest import ROOT, Render, load, render_all
from tests.roles.ha_rows import ROWS, Vars
from tests.roles.schemas import ARCHIVES, schema_of

CORE = "{urn:activemq:core}"
ROWS_A_PLAY = 10


def inventory(rows: Iterable[str]) -> Vars:
    """Some rows as one inventory."""
    children, address = {}, 1
    for name in rows:
        hosts = {}
        for host, own in ROWS[name].hosts.items():
            hosts[f"{name}-{host}"] = {"ansible_host": f"192.0.2.{address}", **own}
            address += 1
        children[name] = {"hosts": hosts, "vars": {"artemis_cluster": name, **ROWS[name].shared}}
    zookeeper = {f"zk{n}": {"ansible_host": f"192.0.2.20{n}"} for n in (1, 2, 3)}
    return {"all": {"children": {"artemis": {"children": children}, "zookeeper": {"hosts": zookeeper}}}}


class Rendered(NamedTuple):
    """A host's broker.xml, and VARIABLES of the role."""

    xml: etree._Element
    variables: dict[str, Any]


VARIABLES = ["__artemis_runs_backup", "__artemis_uses_jgroups", "__artemis_descriptor"]


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rendered]:
    """Host → what the role makes for it, of all rows."""
    files = {"broker.xml": "broker.xml.j2"}
    found = {}
    # Each broker looks at all others of its play: fewer cost less (64 s in one play, 54 s so, the starts included).
    for first in range(0, len(ROWS), ROWS_A_PLAY):
        names = [*ROWS][first : first + ROWS_A_PLAY]
        work = tmp_path_factory.mktemp("policies")
        (work / "rows").mkdir()
        (work / "rows" / "hosts.yml").write_text(json.dumps(inventory(names)))
        hosts = ",".join(f"{name}-{host}" for name in names for host in ROWS[name].expected)
        found |= render_all(work, "artemis", hosts, files, VARIABLES, inventory=work / "rows")
    return {
        host: Rendered(etree.fromstring(parts["files"]["broker.xml"].encode()), parts["variables"])
        for host, parts in found.items()
    }


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> dict[str, etree.XMLSchema]:
    """Version → schema, of every version that the role knows."""
    return {version: schema_of(version, tmp_path_factory.mktemp("schema")) for version in ARCHIVES}


def text_at(root: etree._Element, path: str) -> str | None:
    """Return the text of the only element (or the attribute) at `path` below ha-policy, None where it is not there."""
    path, _, attribute = path.partition("/@")
    steps = [f"{CORE}{step}" for step in path.split("/")]
    found = root.findall(f".//{CORE}ha-policy/" + "/".join(steps))
    if not found:
        return None
    (element,) = found
    return element.get(attribute) if attribute else (element.text or "").strip()


@pytest.mark.parametrize("row", ROWS)
def test_row(rendered: dict[str, Rendered], schemas: dict[str, etree.XMLSchema], row: str) -> None:
    for host in ROWS[row].expected:
        for version, schema in schemas.items():
            core = rendered[f"{row}-{host}"].xml.find(f"{CORE}core")
            assert schema.validate(core), (version, host, schema.error_log)
    for host, expected in ROWS[row].expected.items():
        found = {path: text_at(rendered[f"{row}-{host}"].xml, path) for path in expected}
        assert found == expected, host


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("udp", {"group-address": "231.7.7.7", "group-port": "9877", "initial-wait-timeout": "10000"}),
        ("jgroups", {"jgroups-file": "jgroups.xml", "jgroups-channel": "jgroups", "refresh-timeout": "10000"}),
    ],
)
def test_discovery(rendered: dict[str, Rendered], row: str, said: dict[str, str]) -> None:
    root = rendered[f"{row}-a"].xml
    (group,) = root.iter(f"{CORE}discovery-group")
    assert {name: group.findtext(f"{CORE}{name}") for name in said} == said
    assert group.get("name") == "brokers"
    (announced,) = root.findall(f".//{CORE}broadcast-group/{CORE}connector-ref")
    assert announced.text == f"{row}-a"
    connection = root.find(f".//{CORE}cluster-connection")
    assert connection is not None
    (reference,) = connection.iter(f"{CORE}discovery-group-ref")
    assert reference.get("discovery-group-name") == "brokers"
    assert connection.find(f"{CORE}static-connectors") is None
    assert [item.get("name") for item in root.iter(f"{CORE}connector")] == [f"{row}-a"]


def listed(root: etree._Element, name: str) -> dict[str | None, dict[str, list[str | None]]]:
    """Return the elements called `name`, by their own name: child → texts, and the discovery group referred to."""
    found = {}
    for element in root.iter(CORE + name):
        texts: dict[str, list[str | None]] = {}
        for child in element.iter():
            text = child.get("discovery-group-name") or (child.text or "").strip()
            if text:
                texts.setdefault(etree.QName(child).localname, []).append(text)
        found[element.get("name")] = texts
    return found


def test_several_groups_and_connections_stand_side_by_side(rendered: dict[str, Rendered]) -> None:
    root, variables = rendered["side_by_side-a"]
    groups = listed(root, "discovery-group")
    assert {name: (group.get("group-address"), group.get("group-port")) for name, group in groups.items()} == {
        "near": (["231.7.7.7"], ["9876"]),
        "far": (["231.7.7.8"], ["9878"]),
        "named": (None, None),
    }
    assert groups["named"]["jgroups-channel"] == ["own"]
    announced = listed(root, "broadcast-group")
    assert announced["tell-near"]["connector-ref"] == ["side_by_side-a", "side_by_side-b"]
    assert announced["tell-named"]["connector-ref"] == ["side_by_side-a"]
    assert announced["tell-named"]["broadcast-period"] == ["700"]
    connections = listed(root, "cluster-connection")
    assert list(connections) == ["first", "second"]
    assert connections["first"]["connector-ref"] == ["side_by_side-a", "side_by_side-b"], "the own, then the static one"
    assert connections["second"]["discovery-group-ref"] == ["far"]
    assert (connections["second"]["address"], connections["second"]["max-hops"]) == (["billing"], ["2"])
    assert variables["__artemis_uses_jgroups"] is True


def test_brokers_within_the_process_have_no_port(rendered: dict[str, Rendered]) -> None:
    root, variables = rendered["side_by_side-a"]
    uris = {item.get("name"): item.text or "" for item in root.iter(f"{CORE}acceptor")}
    assert uris["within"] == "vm://7"
    assert uris["core"].startswith("tcp://") and ":61617?sslEnabled=true" in uris["core"]
    connectors = {item.get("name"): item.text or "" for item in root.iter(f"{CORE}connector")}
    assert connectors["within"] == "vm://7"
    assert connectors["side_by_side-b"].endswith(":61617?sslEnabled=true"), "the first acceptor with a port"
    assert [item["name"] for item in variables["__artemis_descriptor"]["listeners"]] == ["core", "console"]


@pytest.mark.parametrize(
    ("host", "runs"),
    [
        ("one_asks-a", True),
        ("one_asks-b", False),
        ("colocated-a", True),
        ("colocated_ring-c", True),
        ("classic-a", False),
    ],
)
def test_a_broker_runs_the_backup_of_who_asks_for_one(rendered: dict[str, Rendered], host: str, runs: bool) -> None:
    assert rendered[host].variables["__artemis_runs_backup"] is runs


def test_jgroups_asks_every_member(render: Render) -> None:
    found = render("artemis", "artemis1", {"jgroups": "jgroups.xml.j2"}, artemis_discovery="jgroups")["files"][
        "jgroups"
    ]
    stack = etree.fromstring(found.encode())
    names = "{urn:org:jgroups}"
    assert stack.find(f"{names}TCP").get("bind_addr") == "172.30.16.21"
    assert stack.find(f"{names}TCPPING").get("initial_hosts") == "172.30.16.21[7800],172.30.16.22[7800]"


@pytest.mark.parametrize(("discovery", "said"), [("static", False), ("udp", True), ("jgroups", True)])
def test_discovery_is_switched_on_where_there_are_groups(render: Render, discovery: str, said: bool) -> None:
    """Artemis 2.57.0 does not start with groups and without it (AMQ229262, seen with that version's server)."""
    found = render("artemis", "artemis1", {"options": "java.options.j2"}, artemis_discovery=discovery)["files"][
        "options"
    ]
    assert ("-Dartemis.discovery.enabled=true" in found.splitlines()) is said


def test_every_version_is_held_against_its_own_schema() -> None:
    assert set(ARCHIVES) == {"2.56.0", "2.44.0"}
    assert ARCHIVES["2.44.0"]["coordinate"].startswith("org.apache.activemq:")
    assert load(ROOT / "roles" / "artemis" / "defaults" / "main.yml")["artemis_version"] in ARCHIVES
