"""The collection's registry: each role's meta/product.yml, in order, and what a load host makes of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.roles.conftest import ROOT, SERVICES, playbook
from tests.roles.test_plugins import plugin

products, load = plugin("plugin_utils", "products"), plugin("filter", "load")
Product = products.Product


def test_every_service_is_a_product_and_comes_after_what_it_uses() -> None:
    found = [item.name for item in products.read_all(ROOT / "roles")]
    assert sorted(found) == SERVICES
    place = {name: index for index, name in enumerate(found)}
    for item in products.read_all(ROOT / "roles"):
        assert all(place[used] < place[item.name] for used in item.uses), item.name
    assert place["zookeeper"] < place["artemis"]
    assert place["lease_db"] < place["activemq_classic"]


def test_what_a_product_can_do_is_its_roles_task_files() -> None:
    by_name = {item.name: item for item in products.read_all(ROOT / "roles")}
    for broker in ("artemis", "activemq_classic"):
        needed = {"discover", "pairs", "restart", "handover", "handover_restart", "takeover", "upgrade"}
        assert by_name[broker].tasks >= needed | {"upgrade_prepare"}
        assert by_name[broker].client
    assert "takeover" not in by_name["zookeeper"].tasks


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"use": []}, "use is none of client, heap, metrics, tool, uses"),
        ({"heap": "toy_heap_mib"}, "heap: the role has no default of toy_heap_mib that is a number of MiB"),
        ([], "is no mapping"),
        ({"client": "core"}, "client is no mapping"),
        ({"client": {}}, "client.protocol is missing"),
        ({"client": {"protocol": "x", "jar": 1}}, "client.jar is none of"),
        ({"client": {"protocol": "x", "jars": []}}, "client.version is missing"),
        ({"metrics": 9404}, "metrics is no mapping"),
        ({"metrics": {"store": "x"}}, "metrics.port is no number"),
        (
            {"metrics": {"port": 1, "path": "/"}},
            "metrics.path is none of address, cluster, port, store, tls, variables",
        ),
        ({"metrics": {"port": 1, "variables": {"host": "x"}}}, "metrics.variables.host is none of"),
        ({"metrics": {"port": 1, "variables": ["x"]}}, "metrics.variables is no mapping"),
    ],
)
def test_a_wrong_entry_is_refused_with_one_sentence(content: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        products.parse("toy", content, [])


def test_an_unknown_dependency_and_a_circle_are_refused() -> None:
    with pytest.raises(ValueError, match="uses b, which is no product"):
        products.in_order([Product("a", ("b",))])
    with pytest.raises(ValueError, match="in a circle"):
        products.in_order([Product("a", ("b",)), Product("b", ("a",))])


ARCHIVE = {"coordinate": "g:apache-x:1.2:tar.gz:bin", "sha256": "0"}
TOOLS = [
    {"name": "one_mq", "client": {"protocol": "p", "archive": ARCHIVE, "include": ["*/lib/*"], "directory": "lib"}},
    {"name": "two", "client": {"protocol": "q", "jars": [{"coordinate": "g:j:3", "sha256": "1"}], "version": "3"}},
    {"name": "three", "client": {"protocol": "r"}},
    {"name": "database", "client": None},
]
GROUPS = {"one_mq": ["a"], "two": ["b"], "three": ["c"], "database": ["d"]}


def test_a_load_host_gets_what_the_inventorys_products_need() -> None:
    one, two, three = load.load_clients(TOOLS, GROUPS, {})
    assert (one["name"], one["source"], one["strip"]) == ("apache-x-1.2-bin.tar.gz", {"maven": [ARCHIVE]}, 1)
    assert (one["directory"], one["jars"]) == ("/opt/brokerdrill/one-mq-1.2", "/opt/brokerdrill/one-mq-1.2/lib")
    assert (two["name"], two["strip"], two["jars"]) == ("two-client-3.tar", 0, "/opt/brokerdrill/two-3")
    assert three == {"product": "three", "protocols": ["r"], "version": ""}, "no files: nothing to fetch"
    assert load.load_clients(TOOLS, {"two": [], "database": ["d"]}, {}) == []


def test_one_folder_of_jars_may_serve_several_protocols() -> None:
    more = {**TOOLS[0], "client": {**TOOLS[0]["client"], "more_protocols": ["q", "s"]}}
    found = load.load_jars(load.load_clients([more, *TOOLS[1:]], GROUPS, {}))
    lib = "/opt/brokerdrill/one-mq-1.2/lib"
    assert found == {"p": lib, "s": lib, "q": "/opt/brokerdrill/two-3"}, "whose own protocol it is comes first"


def test_an_inventory_may_take_the_same_archive_from_elsewhere() -> None:
    url = "https://mirror.example/x.tgz"
    (one, *_) = load.load_clients(TOOLS, GROUPS, {"one_mq": {"url": url}})
    assert one["source"] == {"url": {"url": url, "sha256": "0"}}


@pytest.mark.parametrize(
    ("groups", "overrides", "said"),
    [
        ({"database": ["d"]}, {}, "h is a load host, but the inventory has no broker in the groups one_mq, three, two"),
        (GROUPS, {"four": {}}, "load_clients names four, which is none of one_mq, three, two"),
        (GROUPS, {"two": {"jar": 1}}, "load_clients: two has no setting jar"),
    ],
)
def test_a_load_host_that_cannot_work_is_refused(groups: dict[str, Any], overrides: dict[str, Any], said: str) -> None:
    assert load.load_problems(TOOLS, GROUPS, {"two": {"url": "u"}}, "h") == []
    (problem,) = load.load_problems(TOOLS, groups, overrides, "h")
    assert problem.startswith(said)


@pytest.mark.parametrize(
    ("book", "topology", "said"),
    [
        (
            "failback",
            "classic_shared_file",
            "no product of this inventory has the operation failback; these have: artemis",
        ),
        ("newest_data", "classic_shared_file", "no product of this inventory has the operation newest_data"),
        (
            "drift",
            "classic_shared_file",
            "no product of this inventory has the operation drift; these have: amqp_router",
        ),
    ],
)
def test_an_operation_that_no_product_here_has_is_refused(tmp_path: Path, book: str, topology: str, said: str) -> None:
    inventory = str(ROOT / "inventories" / topology)
    done = playbook(["-i", inventory, str(ROOT / "playbooks" / f"{book}.yml")], tmp_path / "cache")
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stdout + done.stderr


def test_no_playbook_names_a_product() -> None:
    for path in (ROOT / "playbooks").glob("*.yml"):
        code = "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("#"))
        assert not [name for name in SERVICES if re.search(rf"\b{name}\b", code)], path.name


def test_every_product_with_a_descriptor_has_a_reader_of_its_health() -> None:
    from brokerdrill.products.health import READERS

    assert set(READERS) == set(SERVICES)
