"""What the role amqp_router renders, held against the router's own reading of it, and what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.brokerdrill.ha.plugins.filter import amqp_router as filters
from ansible_collections.brokerdrill.ha.plugins.filter import prometheus
from ansible_collections.brokerdrill.ha.plugins.plugin_utils import products

from amqp_session_router.config import loader
from amqp_session_router.control import drift
from tests.roles.conftest import ROOT, render_all
from tests.roles.test_plugins import cached

HOSTS = """
all:
  children:
    amqp_router:
      hosts:
        router1: {ansible_host: 172.30.60.11, amqp_router_datacenter: west}
    rabbitmq:
      hosts:
        rabbit2: {ansible_host: 172.30.60.22, rabbitmq_cluster: orders, rabbitmq_datacenter: west}
        rabbit1: {ansible_host: 172.30.60.21, rabbitmq_cluster: orders, rabbitmq_datacenter: west}
        far1: {ansible_host: 172.30.60.24, rabbitmq_cluster: far, rabbitmq_datacenter: east}
"""
VARIABLES = ["__amqp_router_config", "__amqp_router_descriptor", "__amqp_router_more_descriptors"]


def rendered(work: Path, **extra: Any) -> dict[str, Any]:
    inventory = work / "inventory"
    inventory.mkdir()
    (inventory / "hosts.yml").write_text(HOSTS)
    options = {"amqp_router_default_farm": "orders", **extra}
    files = {"unit": "service.j2", "resolv.conf": "resolv.conf.j2"}
    return render_all(work, "amqp_router", "amqp_router", files, VARIABLES, inventory=inventory, **options)["router1"]


def config_of(host: dict[str, Any]) -> dict[str, Any]:
    found = host["variables"]["__amqp_router_config"]
    for side in found["tls"].values():
        # The files are those of a host.
        side.clear()
    for listener in found["listeners"].values():
        listener["tls"] = False
    for backend in found["backends"].values():
        backend["tls"] = False
    return found


def test_the_router_takes_what_the_role_writes_and_has_a_farm_for_each_cluster(tmp_path: Path) -> None:
    host = rendered(tmp_path, amqp_router_rules=[{"vhost": "x", "farm": "far"}])
    settings = loader.from_data(config_of(host))
    farms = {name: [member.name for member in farm.members] for name, farm in settings.farms.items()}
    assert farms == {"far": ["far1"], "orders": ["rabbit1", "rabbit2"]}
    assert {name: one.datacenter for name, one in settings.backends.items()} == {
        "rabbit1": "west",
        "rabbit2": "west",
        "far1": "east",
    }
    assert settings.config.datacenter == "west"
    assert settings.config.default is not None
    assert settings.config.default.farm == "orders"


def test_the_unit_outlives_a_worker_that_is_killed_for_memory(tmp_path: Path) -> None:
    assert "\nOOMPolicy=continue\n" in rendered(tmp_path)["files"]["unit"]


def test_it_has_the_workers_that_are_asked_for(tmp_path: Path) -> None:
    host = rendered(tmp_path, amqp_router_workers=3)
    assert loader.from_data(config_of(host)).config.workers == 3


def test_tls_is_on_both_sides_unless_told_otherwise(tmp_path: Path) -> None:
    host = rendered(tmp_path)
    found = host["variables"]["__amqp_router_config"]
    assert found["listeners"]["amqp"] == {"host": "172.30.60.11", "port": 5671, "tls": True}
    assert {(one["port"], one["tls"]) for one in found["backends"].values()} == {(5671, True)}
    assert found["tls"]["ingress"]["cert_file"].endswith("router1.bundle.pem")
    assert found["tls"]["egress"] == {"ca_file": "/etc/brokerdrill/tls/ca.pem"}
    assert host["variables"]["__amqp_router_descriptor"]["features"] == []


def test_without_tls_its_sessions_last(tmp_path: Path) -> None:
    host = rendered(tmp_path, amqp_router_tls=False, rabbitmq_tls=False)
    found = host["variables"]["__amqp_router_config"]
    assert found["listeners"]["amqp"] == {"host": "172.30.60.11", "port": 5672, "tls": False}
    assert {(one["port"], one["tls"]) for one in found["backends"].values()} == {(5672, False)}
    assert host["variables"]["__amqp_router_descriptor"]["features"] == ["lasting_sessions"]


def test_brokers_may_be_dialled_by_name(tmp_path: Path) -> None:
    servers = ["172.30.60.41", "172.30.60.42"]
    host = rendered(tmp_path, amqp_router_broker_domain="internal", amqp_router_nameservers=servers)
    backends = host["variables"]["__amqp_router_config"]["backends"]
    assert {name: one["host"] for name, one in backends.items()} == {
        name: f"{name}.internal" for name in ("far1", "rabbit1", "rabbit2")
    }
    found = host["variables"]["__amqp_router_descriptor"]
    assert "named_brokers" in found["features"]
    # Links are cut by address.
    assert {dial["address"] for dial in found["dials"]} == {"172.30.60.21", "172.30.60.22", "172.30.60.24"}
    assert "\nBindReadOnlyPaths=/etc/amqp-session-router/resolv.conf:/etc/resolv.conf\n" in host["files"]["unit"]
    assert host["files"]["resolv.conf"].splitlines()[1:3] == [f"nameserver {one}" for one in servers]


def test_by_default_it_asks_nobody_and_dials_addresses(tmp_path: Path) -> None:
    host = rendered(tmp_path)
    assert host["variables"]["__amqp_router_config"]["backends"]["rabbit1"]["host"] == "172.30.60.21"
    assert "resolv.conf" not in host["files"]["unit"]
    assert not host["variables"]["__amqp_router_more_descriptors"]


def test_a_broker_that_asks_for_certificates_is_shown_one(tmp_path: Path) -> None:
    found = rendered(tmp_path, rabbitmq_client_certificates=True)["variables"]["__amqp_router_config"]
    assert found["tls"]["egress"]["cert_file"].endswith("router1.bundle.pem")


def test_the_inventory_adds_to_farms_backends_and_file(tmp_path: Path) -> None:
    host = rendered(
        tmp_path,
        amqp_router_farms={"orders": {"quorum": 2, "fallback": "far"}, "spare": {"members": ["far1"]}},
        amqp_router_backends={"far1": {"weight": 3}},
        amqp_router_settings={"timeouts": {"connect": 2}, "status": {"port": 1234}},
    )
    settings = loader.from_data(config_of(host))
    orders = settings.farms["orders"]
    assert (orders.quorum, orders.fallback) == (2, "far")
    assert [member.name for member in orders.members] == ["rabbit1", "rabbit2"]
    assert [member.name for member in settings.farms["spare"].members] == ["far1"]
    assert settings.backends["far1"].weight == 3
    assert settings.config.timeouts.connect == 2
    assert settings.config.status is not None
    assert (settings.config.status.host, settings.config.status.port) == ("127.0.0.1", 1234)


def test_drills_look_from_outside_and_others_on_the_host(tmp_path: Path) -> None:
    found = rendered(tmp_path, drill_allowed=True)["variables"]["__amqp_router_descriptor"]
    assert found["management"]["url"] == "http://172.30.60.11:15673"
    assert {dial["to"]: (dial["address"], dial["port"]) for dial in found["dials"]}["far1"] == ("172.30.60.24", 5671)
    assert [one["protocol"] for one in found["listeners"]] == ["amqp091", "http"]


MEASURED = [{"name": one.name, "metrics": one.metrics} for one in products.read_all()]


def test_prometheus_reads_a_router_where_its_status_page_is(tmp_path: Path) -> None:
    more = {"common_metrics": True, "common_metrics_address": "192.0.2.5", "common_metrics_ports": {"amqp_router": 999}}
    status = config_of(rendered(tmp_path, drill_allowed=True, **more))["status"]
    assert status == {"host": "192.0.2.5", "port": 999}
    (target,) = prometheus.prometheus_targets({"amqp_router": ["router1"]}, {"router1": more}, MEASURED)
    assert (target["product"], target["address"]) == ("amqp_router", "192.0.2.5:999")
    own = {**more, "amqp_router_status_address": "192.0.2.6", "amqp_router_status_port": 1000}
    (target,) = prometheus.prometheus_targets({"amqp_router": ["router1"]}, {"router1": own}, MEASURED)
    assert target["address"] == "192.0.2.6:1000"


def test_an_inventory_that_names_the_metrics_ports_of_other_products_leaves_the_routers(tmp_path: Path) -> None:
    found = config_of(rendered(tmp_path, common_metrics_ports={"artemis": 9404}))
    assert found["status"] == {"host": "127.0.0.1", "port": 15673}


def test_its_unit_is_one_that_it_tells_when_it_is_ready(tmp_path: Path) -> None:
    unit = rendered(tmp_path)["files"]["unit"]
    wanted = ["Type=notify", "NotifyAccess=all", "WatchdogSec=30", "KillMode=mixed", "User=amqp-router"]
    for line in [*wanted, "FileDescriptorStoreMax=512"]:
        assert f"\n{line}\n" in unit
    assert "AmbientCapabilities" not in unit


def test_clients_reach_it_at_the_virtual_address_of_all_routers(tmp_path: Path) -> None:
    host = rendered(tmp_path, common_virtual_address="172.30.60.250/24")
    assert host["variables"]["__amqp_router_config"]["listeners"]["amqp"]["host"] == "0.0.0.0"
    found = host["variables"]["__amqp_router_descriptor"]
    assert "virtual_address" in found["features"]
    assert [(one["name"], one["address"], one.get("clients", True)) for one in found["listeners"]] == [
        ("amqp", "172.30.60.11", True),
        ("status", "127.0.0.1", True),
        ("virtual", "172.30.60.250", False),
    ]
    (keeper,) = host["variables"]["__amqp_router_more_descriptors"]
    assert (keeper["product"], keeper["unit"]) == ("keepalived", "virtual-address.service")


def brokers(**of: str) -> dict[str, Any]:
    return {name: {"cluster": cluster} for name, cluster in of.items()}


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({}, ""),
        ({"brokers": {}}, "has no broker"),
        ({"brokers": brokers(a="x", b="y")}, "amqp_router_default_farm is needed: there are the farms x, y"),
        ({"default_farm": "z"}, "amqp_router_default_farm names the farm z, which is none of x"),
        ({"rules": [{"vhost": "v", "farm": "z"}]}, "amqp_router_rules names the farm z"),
        ({"rules": [{"vhost": "v", "reject": "no"}]}, ""),
        ({"farms": {"x": {"fallback": "z"}}}, "amqp_router_farms: x names the farm z"),
        ({"farms": {"x": {"members": ["c"]}}}, "has the member c, which is none of a"),
        ({"backends": {"c": {"weight": 2}}}, "c is no broker of the inventory and so needs its host"),
        ({"backends": {"c": {"host": "h"}}, "farms": {"x": {"members": ["c"]}}}, ""),
        ({"virtual_address": "10.0.0.9/24"}, ""),
        ({"virtual_address": "2001:db8::9/64"}, ""),
        ({"virtual_address": "10.0.0.9"}, "which is no address with the length of its network's prefix"),
        ({"virtual_address": "router/24"}, "which is no address with the length of its network's prefix"),
        ({"virtual_address": "10.0.0.1/24"}, "which is a host's own address"),
        ({"virtual_address": "10.0.0.9/24", "virtual_router_id": 256}, "VRRP has the numbers 1 to 255"),
    ],
)
def test_preflight(parts: dict[str, Any], words: str) -> None:
    given = {"brokers": brokers(a="x"), "backends": {}, "farms": {}, "rules": [], "default_farm": "", **parts}
    given = {"virtual_address": "", "virtual_router_id": 51, "addresses": ["10.0.0.1", "name"], **given}
    problems = filters.amqp_router_problems(given)
    assert len(problems) == bool(words)
    assert words in "".join(problems)


def pins(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", path.read_text(), re.MULTILINE))


def test_its_packages_have_the_pins_of_the_tests() -> None:
    lock = ROOT / "roles" / "amqp_router" / "files" / "router-requirements.lock"
    own = pins(lock)
    assert own.items() <= pins(ROOT / "requirements.lock").items()
    needed = re.search(r"dependencies = \[(.*?)\]", (ROOT / "router" / "pyproject.toml").read_text(), re.DOTALL)
    assert needed
    assert set(re.findall(r'"([a-z0-9-]+)', needed[1])) <= set(own)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What hosts with the controller's Python get."""
    source = {
        "requirements": "",
        "python_version": f"{sys.version_info.major}.{sys.version_info.minor}",
        "platforms": [],
        "project": str(ROOT / "router"),
        "machine": cached.platform.machine(),
        "build_variable": "AMQP_SESSION_ROUTER_BUILD",
    }
    made = tmp_path_factory.mktemp("made")
    (made / "out").mkdir()
    with pytest.MonkeyPatch.context() as environment:
        # What it does is tested here, not how fast.
        environment.setenv("CFLAGS", "-O0")
        cached._build("router.tar", source, made, made / "out")
    return made / "out"


def test_the_package_is_whole_and_runs_by_itself(package: Path, tmp_path: Path) -> None:
    cached.pack(package, tmp_path / "router.tar")
    with tarfile.open(tmp_path / "router.tar") as archive:
        names = archive.getnames()
    # Each module with C types beside it is compiled, and the one that is C all through.
    typed = {path.stem for path in (ROOT / "router" / "amqp_session_router").rglob("*.p[xy][dx]")}
    assert sorted(Path(name).name.split(".")[0] for name in names if name.endswith(".so")) == sorted(typed)
    assert not [name for name in names if "tests" in name.split("/")]
    code = f"import sys; sys.path.insert(0, {str(package)!r}); from amqp_session_router import cli; print(cli.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; cli.main(['example'])"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(str(package))
    assert "listeners:" in done.stdout


ELSEWHERE = {
    "project": str(ROOT / "router"),
    "python_version": "3.4",
    "machine": "vax",
    "build_variable": "AMQP_SESSION_ROUTER_BUILD",
}


def test_hosts_with_another_python_get_it_without_compiled_parts_and_that_is_said(tmp_path: Path) -> None:
    why = cached.not_compiled("router.tar", ELSEWHERE)
    assert why and re.search(r"the host has Python 3\.4 on vax and the controller 3\.\d+ on ", why)
    cached._build("router.tar", ELSEWHERE, tmp_path, tmp_path / "out")
    assert not [*(tmp_path / "out").rglob("*.so")]
    code = "from amqp_session_router.relay import fastpath; print(fastpath.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path / 'out')!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(tmp_path / "out" / "amqp_session_router" / "relay" / "fastpath.py")


def test_a_controller_without_a_compiler_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"python_version": f"{sys.version_info.major}.{sys.version_info.minor}", "machine": cached.platform.machine()}
    monkeypatch.setenv("CC", "false")
    with pytest.raises(Exception, match=r"router.tar cannot be built compiled; has the controller a C compiler"):
        cached._build("router.tar", {**ELSEWHERE, **own}, tmp_path, tmp_path / "out")


def test_only_what_is_built_from_makes_a_new_package(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("1")
    first = cached.tree_digest(tmp_path)
    (tmp_path / "src" / "a.so").write_text("built")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("2")
    assert cached.tree_digest(tmp_path) == first
    (tmp_path / "src" / "a.py").write_text("2")
    assert cached.tree_digest(tmp_path) != first


def drift_of(running: dict[str, str], file: dict[str, str]) -> dict[str, Any]:
    """What Ansible registers of a router's DRIFT."""
    return {"rc": 0, "stdout": json.dumps(drift.table(running, file, {}))}


def test_routers_that_run_by_their_files_and_alike_have_not_drifted() -> None:
    same = {"farms": "aa", "rules": "bb", "paused_vhosts": "cc"}
    answers = {name: drift_of(same | {"listeners": name}, same | {"listeners": name}) for name in ("r1", "r2")}
    hostvars = {name: {"__amqp_router_drift": answer} for name, answer in answers.items()}
    assert filters.amqp_router_drift(["r1", "r2"], hostvars) == []


def test_a_drift_is_told_by_section_and_router() -> None:
    file = {"farms": "aa", "rules": "bb", "paused_vhosts": "cc"}
    hostvars = {
        "h1": {"__amqp_router_drift": drift_of(file, file), "amqp_router_instance": "r1"},
        "h2": {"__amqp_router_drift": drift_of(file | {"rules": "other"}, file)},
        "h3": {"__amqp_router_drift": drift_of(file | {"paused_vhosts": "other"}, file)},
        "h4": {"__amqp_router_drift": {"rc": 3, "stdout": ""}},
        "h5": {},
    }
    assert filters.amqp_router_drift([*hostvars], hostvars) == [
        "h2 runs by something other than its file: rules",
        "h4 does not answer",
        "h5 does not answer",
        "rules is not the same: r1, h3 / h2",
        "paused_vhosts is not the same: r1, h2 / h3",
    ]
