"""What an inventory must say to become a bench, what else may hold its subnet, and whether its hosts have booted."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from docker.errors import APIError, NotFound

from brokerdrill.base import paths
from brokerdrill.base.errors import UsageError
from brokerdrill.bench import hosts, image, kernel_limits
from brokerdrill.bench.network import conflict
from brokerdrill.bench.plan import devices, plan, recipes, volumes
from brokerdrill.inventory.topology import Host, Topology, load


def topology(*addresses: str, subnet: str | None = "10.77.0.0/24") -> Topology:
    hosts = tuple(Host(f"h{n}", address, 22, "root", None, (), {}) for n, address in enumerate(addresses, 1))
    shared = {"bench_subnet": subnet} if subnet else {}
    return Topology("shelf", Path("/nowhere/shelf"), hosts, True, "0" * 64, shared)


def test_plan_names_everything_after_the_topology() -> None:
    made = plan(topology("10.77.0.11", "10.77.0.12"))
    assert made.container("h1") == "shelf-h1"
    assert made.network == "brokerdrill-shelf"
    assert made.gateway == "10.77.0.1"
    assert dict(made.addresses) == {"h1": "10.77.0.11", "h2": "10.77.0.12"}
    assert len(made.bridge) <= 15, "Linux cuts interface names at 15 characters"


@pytest.mark.parametrize(
    ("addresses", "subnet", "said"),
    [
        (("10.77.0.11",), None, "has no bench_subnet"),
        (("10.77.0.11",), "10.77.0.0/33", "bench_subnet is no IPv4 network"),
        (("10.77.1.11",), "10.77.0.0/24", "host h1 has the address '10.77.1.11', not one in bench_subnet"),
        (("broker.example",), "10.77.0.0/24", "host h1 has the address 'broker.example'"),
        (("10.77.0.1",), "10.77.0.0/24", "host h1 has the address 10.77.0.1 of the bridge"),
        (("10.77.0.11", "10.77.0.11"), "10.77.0.0/24", "host h2 has the address 10.77.0.11 of h1"),
    ],
)
def test_an_inventory_that_is_no_bench_is_refused(addresses: tuple[str, ...], subnet: str | None, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        plan(topology(*addresses, subnet=subnet))


@pytest.mark.parametrize(
    ("routes", "found"),
    [
        ([("10.77.0.0/16", "eth0")], "10.77.0.0/16 on eth0"),
        ([("10.77.0.128/25", "tun0")], "10.77.0.128/25 on tun0"),
        ([("10.77.0.9", "wg0")], "10.77.0.9 on wg0"),
        ([("10.77.0.0/24", "bd-own")], None),
        ([("10.78.0.0/16", "eth0"), ("unreachable", "")], None),
    ],
)
def test_conflict(routes: list[tuple[str, str]], found: str | None) -> None:
    assert conflict(ipaddress.IPv4Network("10.77.0.0/24"), "bd-own", routes) == found


def test_hosts_share_a_volume_by_its_name_and_may_say_its_size() -> None:
    def host(given: object) -> Host:
        return Host("h1", "10.77.0.11", 22, "root", None, (), {"bench_volumes": given})

    assert volumes("shelf", host({"orders": "/srv/orders"})) == {"brokerdrill-shelf-orders": ("/srv/orders", None)}
    sized = {"disk1": {"path": "/var/lib/artemis", "size": "256m"}}
    assert volumes("shelf", host(sized)) == {"brokerdrill-shelf-disk1": ("/var/lib/artemis", "256m")}
    assert volumes("shelf", host(None)) == {}
    for wrong in (["orders"], {"orders": "srv"}, {"orders": {"size": "1g"}}, {"orders": {"path": "/srv", "of": 1}}):
        with pytest.raises(UsageError, match="bench_volumes must map names to absolute paths, or to path and size"):
            volumes("shelf", host(wrong))


def test_a_host_may_have_devices_of_the_machine() -> None:
    def host(given: object) -> Host:
        return Host("h1", "10.77.0.11", 22, "root", None, (), {"bench_devices": given})

    assert devices(host(None)) == []
    assert devices(host(["/dev/kvm", "/dev/fuse"])) == ["/dev/fuse", "/dev/kvm"]
    for wrong in ("/dev/fuse", ["fuse"], ["/etc/passwd"]):
        with pytest.raises(UsageError, match="bench_devices must list paths below /dev"):
            devices(host(wrong))


def test_an_image_follows_its_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = image.RECIPES[image.DEFAULT]
    assert image.tag(recipe) == image.tag(replace(recipe))
    others = [replace(recipe, suite="sid"), replace(recipe, packages=(*recipe.packages, "one-more"))]
    assert len({image.tag(one) for one in (recipe, *others, *image.RECIPES.values())}) == 2 + len(image.RECIPES)
    before = image.tag(recipe)
    monkeypatch.setattr(image, "PROVISION", image.PROVISION + ":")
    assert image.tag(recipe) != before


def test_a_host_is_made_of_the_image_it_names(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(
        "all: {hosts: {one: {bench_image: debian13}, two: {}}, vars: {bench_subnet: 10.77.0.0/24}}"
    )
    found = load(tmp_path)
    trixie, usual, bare = (image.RECIPES[name] for name in ("debian13", "debian12", "bare"))
    assert recipes(found) == {"one": trixie, "two": usual}
    assert recipes(found, "bare") == {"one": bare, "two": bare}
    assert not {"nftables", "procps"} & {*bare.packages} and not any("jre" in package for package in bare.packages)
    with pytest.raises(UsageError, match=r"no bench image is called 'debian14'; did you mean 'debian1[23]'"):
        recipes(found, "debian14")


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (["running\n"], "running"),
        (["", APIError("busy"), "running\n"], "running"),
        (["", "", ""], "starting"),
        ([NotFound("gone")], "absent"),
    ],
)
def test_a_host_that_gives_no_answer_is_asked_again(
    answers: list[str | Exception], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "POLL_S", 0)
    client = Mock()
    found = client.containers.get.return_value
    found.status = "running"
    found.exec_run.side_effect = [
        answer if isinstance(answer, Exception) else Mock(output=answer.encode()) for answer in answers
    ]
    assert hosts.system_state(client, "two") == told
    assert found.exec_run.call_count == len(answers)


def test_benches_of_tests_have_subnets_of_their_own() -> None:
    """Their files run side by side, and shipped topologies may be up beside them."""
    shipped = (*paths.INVENTORIES.rglob("*.yml"), *paths.BENCH.rglob("*.yml"))
    taken = {name: "shipped" for path in shipped for name in _subnets(path)}
    twice = []
    for path in sorted((paths.ROOT / "tests" / "bench").glob("*.py")):
        twice += [(name, path.name, taken[name]) for name in _subnets(path) if name in taken]
        taken |= dict.fromkeys(_subnets(path), path.name)
    assert twice == []


def _subnets(path: Path) -> set[str]:
    return set(re.findall(r"\b172\.30\.\d+\b", path.read_text(encoding="utf-8")))


def test_a_low_limit_of_the_kernel_is_raised_or_named(tmp_path: Path) -> None:
    """With 128 inotify instances some twelve hosts boot; the next one's systemd ends without a word."""
    limit = tmp_path / "max_user_instances"
    limit.write_text("128\n")
    assert "max_user_instances is 128" in str(kernel_limits.not_up("host a is not up", limit))
    kernel_limits.ensure_watches(limit, 4096)
    assert limit.read_text() == "4096\n"
    kernel_limits.ensure_watches(limit, 1024)
    assert limit.read_text() == "4096\n"
    assert str(kernel_limits.not_up("host a is not up", limit, 4096)) == "host a is not up"
    kernel_limits.ensure_watches(tmp_path / "nowhere" / "limit")
