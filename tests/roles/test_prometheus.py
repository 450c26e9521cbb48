"""Metrics as an option of the roles, and the Prometheus that reads them: targets, rules, dashboards."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from amqp_session_router.admission.limits import Limiter
from amqp_session_router.base.paced import now
from amqp_session_router.config.loader import from_data
from amqp_session_router.config.schema import LimitsPart
from amqp_session_router.routing.routes import Routes
from amqp_session_router.telemetry import metrics
from amqp_session_router.telemetry.loop_lag import LoopLag
from tests.roles.conftest import ROOT, Render, load, playbook
from tests.roles.test_plugins import plugin

filters = plugin("filter", "prometheus")
KEPT = ("name", "client", "metrics", "metrics_files")
# As the lookup gives them.
PRODUCTS = [{key: getattr(one, key) for key in KEPT} for one in plugin("plugin_utils", "products").read_all()]
MEASURED = {one["name"]: one for one in PRODUCTS if one["metrics"]}
PORTS = filters.metrics_ports(PRODUCTS, {})
CA = "/etc/brokerdrill/tls/ca.pem"
# What is alerted of where it is no broker.
NEEDED = {
    "amqp_router": {"RouterDown", "NoActiveRouter"},
    "lease_db": {"DatabaseDown", "NoPrimaryDatabase", "SeveralPrimaryDatabases", "ReplicationLag"},
    "zookeeper": {"VoterDown", "NoQuorum", "VoterNotInSync"},
}
# Metrics of Prometheus itself, and of the JMX exporter.
ALWAYS = {"up", "jmx_scrape_error", "ALERTS"}
WORDS = {"by", "on", "unless", "or", "and", "count", "sum", "min", "max", "rate", "max_over_time", "m", "d"} | {
    "histogram_quantile",
    "delta",
    "group_right",
    "time",
}


def test_metrics_are_off_by_default(render: Render) -> None:
    names = {"management.xml": "management.xml.j2", "java.options": "java.options.j2"}
    files = render("artemis", "artemis1", names)["files"]
    assert "<connector" not in files["management.xml"]
    assert "rmi" not in files["java.options"]


def test_artemis_serves_them_beside_its_guard(render: Render) -> None:
    """The exporter logs in on loopback; no agent is in the broker's process, where it would be refused or, first
    there, leave the beans without their guard."""
    names = {name: f"{name}.j2" for name in ("management.xml", "java.options", "metrics.yml")}
    found = render("artemis", "artemis1", names, ["__artemis_metrics_unit"], common_metrics=True)
    files = found["files"]
    assert '<connector connector-host="127.0.0.1" connector-port="1099"/>' in files["management.xml"]
    assert "-Djava.rmi.server.hostname=127.0.0.1" in files["java.options"]
    assert "-javaagent" not in files["java.options"]
    metrics = yaml.safe_load(files["metrics.yml"])
    assert metrics["jmxUrl"].endswith("//127.0.0.1:1099/jmxrmi")
    assert metrics["username"] == "monitor"
    assert len(metrics["password"]) == 40
    assert "172.30.16.21:9404" in found["variables"]["__artemis_metrics_unit"]["command"]


def test_classic_loads_an_agent(render: Render) -> None:
    inventory = ROOT / "inventories" / "classic_shared_file"
    host = next(iter(load(ROOT / "bench" / "classic_shared_file.yml")["all"]["hosts"]))
    name = {"java.options": "java.options.j2"}
    off = render("activemq_classic", host, name, inventory=inventory)["files"]["java.options"]
    on = render("activemq_classic", host, name, inventory=inventory, common_metrics=True)["files"]["java.options"]
    assert "-javaagent" not in off
    (line,) = [line for line in on.splitlines() if line.startswith("-javaagent:")]
    assert re.fullmatch(
        r"-javaagent:/opt/jmx-exporter/\S+\.jar=[0-9.]+:9405:/etc/activemq-classic/\S+/metrics\.yml", line
    )


def test_zookeeper_serves_them_by_its_own_provider(render: Render) -> None:
    names = {name: f"{name}.j2" for name in ("zoo.cfg", "java.options")}
    off = render("zookeeper", "zk1", names)["files"]
    assert "metricsProvider" not in off["zoo.cfg"]
    assert off["java.options"].endswith("-classpath /opt/zookeeper/3.9.5/*\n")
    on = render("zookeeper", "zk1", names, common_metrics=True)["files"]
    settings = dict(line.split("=", 1) for line in on["zoo.cfg"].splitlines() if line.startswith("metricsProvider."))
    assert settings == {
        "metricsProvider.className": "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider",
        "metricsProvider.httpHost": "172.30.16.11",
        "metricsProvider.httpPort": str(PORTS["zookeeper"]),
    }
    assert "-classpath /opt/zookeeper/3.9.5/*:/opt/zookeeper-metrics/3.9.4/*\n" in on["java.options"]


def test_openmq_loads_an_agent(render: Render) -> None:
    inventory = ROOT / "inventories" / "openmq_master"
    name = {"java.options": "java.options.j2"}
    off = render("openmq", "openmq1", name, inventory=inventory, common_metrics=False)["files"]["java.options"]
    on = render("openmq", "openmq1", name, inventory=inventory, common_metrics=True)["files"]["java.options"]
    assert "jmx_prometheus" not in off
    (line,) = [line for line in on.splitlines() if "jmx_prometheus" in line]
    pattern = r"-javaagent:/opt/jmx-exporter/\S+\.jar=172\.30\.50\.21:9406:/etc/openmq/openmq1/metrics\.yml"
    assert re.fullmatch(pattern, line)


def hostvars(**more: Any) -> dict[str, dict[str, Any]]:
    one = {"ansible_host": "10.0.0.1", "artemis_pair": "p", "common_metrics": True, **more}
    return {"a1": one, "a2": {**one, "ansible_host": "fd00::2", "artemis_instance": "second"}, "r1": {}}


def test_targets_follow_from_the_inventory() -> None:
    groups = {"artemis": ["a2", "a1"], "rabbitmq": ["r1"], "load": ["l1"]}
    first, second = filters.prometheus_targets(groups, hostvars(), PRODUCTS)
    assert first == {
        "product": "artemis",
        "host": "a1",
        "instance": "a1",
        "store": "p",
        "cluster": "",
        "address": f"10.0.0.1:{PORTS['artemis']}",
        "tls": False,
    }
    assert (second["instance"], second["address"]) == ("second", f"[fd00::2]:{PORTS['artemis']}")
    (job,) = filters.prometheus_scrape_configs([first, second], CA)
    assert job["job_name"] == "artemis"
    assert "scheme" not in job
    assert job["static_configs"][0] == {
        "targets": [first["address"]],
        "labels": {"host": "a1", "instance": "a1", "store": "p"},
    }


def test_each_cluster_has_its_name() -> None:
    one = {"ansible_host": "10.0.0.1", "common_metrics": True}
    two = {"r1": {**one, "rabbitmq_cluster": "orders"}, "r2": one}
    (job,) = filters.prometheus_scrape_configs(
        filters.prometheus_targets({"rabbitmq": ["r1", "r2"]}, two, PRODUCTS), CA
    )
    assert [entry["labels"]["cluster"] for entry in job["static_configs"]] == ["orders", "rabbit"]


def test_an_inventory_that_says_otherwise_is_heeded() -> None:
    other = hostvars(common_metrics_address="192.0.2.7", common_metrics_ports={"artemis": 1234})
    first, _ = filters.prometheus_targets({"artemis": ["a1", "a2"]}, other, PRODUCTS)
    assert first["address"] == "192.0.2.7:1234"
    # It names the ports of some products only.
    other["a1"]["common_metrics_ports"] = {"rabbitmq": 1}
    (target,) = filters.prometheus_targets({"artemis": ["a1"]}, other, PRODUCTS)
    assert target["address"] == f"192.0.2.7:{PORTS['artemis']}"
    assert filters.metrics_ports(PRODUCTS, {"rabbitmq": 1}) == PORTS | {"rabbitmq": 1}


def test_a_database_is_read_by_tls_where_its_rest_api_is() -> None:
    one = {"ansible_host": "10.0.0.5", "common_metrics": True}
    both = {"d1": one, "d2": {**one, "lease_db_address": "10.0.9.9", "lease_db_rest_port": 1, "lease_db_scope": "own"}}
    first, second = filters.prometheus_targets({"lease_db": ["d1", "d2"]}, both, PRODUCTS)
    assert (first["address"], first["store"], first["tls"]) == ("10.0.0.5:8008", "leasedb", True)
    assert (second["address"], second["store"]) == ("10.0.9.9:1", "own")
    # What asks for metrics elsewhere moves none of Patroni's listeners.
    (moved,) = filters.prometheus_targets(
        {"lease_db": ["d1"]}, {"d1": {**one, "common_metrics_address": "x"}}, PRODUCTS
    )
    assert moved["address"] == "10.0.0.5:8008"
    (job,) = filters.prometheus_scrape_configs([first, second], CA)
    assert (job["scheme"], job["tls_config"]) == ("https", {"ca_file": CA})


def test_what_a_product_says_of_its_metrics_are_its_roles_variables() -> None:
    for name, product in MEASURED.items():
        defaults = load(ROOT / "roles" / name / "defaults" / "main.yml")
        metrics, variables = product["metrics"], product["metrics"].get("variables", {})
        assert set(variables.values()) <= set(defaults), name
        for label in {"store", "cluster"} & set(metrics):
            assert defaults[variables[label]] == metrics[label], name
        if "port" in variables:
            # A number of the role's own, or the port of its metrics.
            assert defaults[variables["port"]] in (metrics["port"], f"{{{{ common_metrics_port_of.{name} }}}}"), name
    assert len(set(PORTS.values())) == len(PORTS), "two products on one host"


def test_nothing_to_scrape_is_refused(tmp_path: Path) -> None:
    assert filters.prometheus_targets({"artemis": ["a1"]}, hostvars(common_metrics=False), PRODUCTS) == []
    (sentence,) = filters.prometheus_problems([], "p1", PRODUCTS)
    assert "no host of activemq_classic, amqp_router, artemis, " in sentence
    assert "set common_metrics to true" in sentence
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(yaml.safe_dump({"all": {"children": {"prometheus": {"hosts": {"p1": None}}}}}))
    tasks = [{"ansible.builtin.include_role": {"name": "brokerdrill.ha.prometheus", "tasks_from": "preflight"}}]
    book = tmp_path / "play.yml"
    book.write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "connection": "local", "tasks": tasks}]))
    done = playbook(["-i", str(inventory), str(book)], tmp_path / "cache")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "p1 is in the group prometheus, but no host of" in done.stdout


def test_the_configuration_has_what_the_inventory_has(tmp_path: Path, render: Render) -> None:
    inventory = tmp_path / "inventory"
    inventory.mkdir()
    brokers = {"a1": {"artemis_ha_role": "primary"}, "a2": {"artemis_ha_role": "backup"}}
    databases = {"d1": None}
    groups = {"artemis": {"hosts": brokers}, "lease_db": {"hosts": databases}, "prometheus": {"hosts": {"p1": None}}}
    variables = {"common_metrics": True, "artemis_pair": "p", "artemis_ha_policy": "shared_store"}
    (inventory / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": groups, "vars": variables}}))
    names = ["__prometheus_config", "__prometheus_descriptor", "__prometheus_files"]
    # As the task before it registers it.
    made = {"ca": str(tmp_path / "ca.pem")}
    found = render("prometheus", "p1", {"default": "default.j2"}, names, inventory=inventory, common_tls_made=made)
    job, database = found["variables"]["__prometheus_config"]["scrape_configs"]
    assert database["tls_config"] == {"ca_file": CA}
    assert {"dest": CA, "src": made["ca"]} in found["variables"]["__prometheus_files"]
    assert [entry["targets"] for entry in job["static_configs"]] == [["a1:9404"], ["a2:9404"]]
    assert "--web.listen-address=127.0.0.1:9090 " in found["files"]["default"]
    sources = {entry["dest"]: entry.get("src") for entry in found["variables"]["__prometheus_files"]}
    folder = "/etc/prometheus"
    for product in ("artemis", "lease_db"):
        own = ROOT / "roles" / product / "files" / "prometheus"
        assert Path(sources.pop(f"{folder}/rules/{product}.yml")).samefile(own / "rules.yml")
        assert Path(sources.pop(f"{folder}/dashboards/{product}.json")).samefile(own / "dashboard.json")
    assert not [dest for dest in sources if "/rules/" in dest or "/dashboards/" in dest]
    from brokerdrill.inventory import descriptors
    from brokerdrill.products import registry

    descriptor = found["variables"]["__prometheus_descriptor"]
    (parsed,) = descriptors.parse("p1", {"x.json": json.dumps(descriptor)}, registry.DESCRIPTORS)
    assert isinstance(parsed, descriptors.PrometheusDescriptor)
    assert (str(parsed.api), parsed.settings.items()[0]) == ("127.0.0.1:9090", ("scrape_interval_ms", 5000))


@pytest.mark.parametrize("product", MEASURED)
def test_rules_and_dashboard_ask_for_what_is_exported(product: str) -> None:
    files = MEASURED[product]["metrics_files"]
    assert set(files) == {"rules", "dashboards"}
    rules = load(Path(files["rules"]))["groups"][0]["rules"]
    assert NEEDED.get(product, {"BrokerDown", "NoActiveBroker"}) <= {rule["alert"] for rule in rules}
    assert all({"alert", "expr", "for", "labels", "annotations"} == set(rule) for rule in rules)
    panels = json.loads(Path(files["dashboards"]).read_text())["panels"]
    asked = [rule["expr"] for rule in rules] + [target["expr"] for panel in panels for target in panel["targets"]]
    for expression in asked:
        bare = re.sub(r"\{[^}]*\}|\[[^]]*\]|\([a-z, ]*\)", " ", expression)
        names = set(re.findall(r"[a-zA-Z_][a-zA-Z_]*", bare)) - WORDS
        assert names, expression
        assert names <= exported(product), expression


def exported(product: str) -> set[str]:
    """The names that the exporter's rules of the product make, by its attributes; the router's own are on its page."""
    if product == "amqp_router":
        text = now(metrics.prometheus(Routes(from_data({})), Limiter(LimitsPart()), LoopLag(), False)).decode()
        names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
        return ALWAYS | names | {f"{name}_bucket" for name in names}
    if product == "rabbitmq":
        text = Path(MEASURED["rabbitmq"]["metrics_files"]["dashboards"]).read_text()
        return ALWAYS | set(re.findall(r"rabbitmq_[a-z_]+", text))
    if (seen := Path(__file__).with_name("exported") / f"{product}.txt").is_file():
        return ALWAYS | set(seen.read_text().splitlines())
    role = ROOT / "roles" / product
    path = role / "templates" / "metrics.yml.j2" if product == "artemis" else role / "files" / "metrics.yml"
    found = set(ALWAYS)
    for rule in yaml.safe_load(path.read_text().replace("{{", "'{{").replace("}}", "}}'"))["rules"]:
        # The exporter holds its patterns against names in snake case, which end before a colon.
        attributes = re.findall(r"\(([a-z_|]+)\):$", rule["pattern"])[0]
        prefix = rule["name"].rpartition("$")[0]
        found |= {prefix + name for name in attributes.split("|")}
    return found
