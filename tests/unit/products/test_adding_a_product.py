"""docs/adding-a-product.md is true: the toy product touches the page's places alone, and everything finds it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.free_ports import free_port
from tests.toy import checkout
from tests.toy.checkout import ADDED, ENTRIES, ROOT

PAGE = (ROOT / "docs" / "adding-a-product.md").read_text()


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout.make(tmp_path_factory.mktemp("checkout"))


def run(toy: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=toy, env=checkout.environment(toy), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_place_is_one_that_the_page_names() -> None:
    places = re.findall(r"^\| `([^`]+)` \|", PAGE.partition("\n## 1. ")[0], re.MULTILINE)
    named = [re.sub("PRODUCT|PROTOCOL|TOPOLOGY", "toy", place) for place in places]
    assert places
    for name in checkout.added():
        assert any(name == place or (place.endswith("/") and name.startswith(place)) for place in named), name
    assert {name for name, _, _ in ENTRIES} <= set(places)
    used = {*checkout.added(), *(name for name, _, _ in ENTRIES)}
    for place in named:
        assert any(name.startswith(place) for name in used), f"the toy has nothing at {place}"


def test_the_collection_finds_it(toy: Path) -> None:
    query = "{{ query('brokerdrill.ha.products') | join(' ') }}"
    inventory = ["-i", "inventories/toy"]
    told = run(toy, "ansible", *inventory, "-c", "local", "load1", "-m", "ansible.builtin.debug", "-a", f"msg={query}")
    assert "toy" in re.findall(r'"msg": "([^"]+)"', told)[0].split()
    run(toy, "ansible-playbook", *inventory, "playbooks/site.yml", "--syntax-check")


def test_prometheus_finds_it(toy: Path) -> None:
    products = "query('brokerdrill.ha.products', details=true)"
    targets = f"groups | brokerdrill.ha.prometheus_targets(hostvars, {products})"
    files = f"{targets} | brokerdrill.ha.prometheus_product_files({products}, '/etc/prometheus')"
    shown = {"targets": f"{{{{ {targets} }}}}", "files": f"{{{{ {files} }}}}"}
    module = ["-m", "ansible.builtin.debug", "-a", "var=shown"]
    more = json.dumps({"common_metrics": True, "shown": shown})
    told = run(toy, "ansible", "-i", "inventories/toy", "-c", "local", "load1", *module, "-e", more)
    found = json.loads(told.partition("=> ")[2])["shown"]
    (target,) = found["targets"]
    assert (target["product"], target["instance"], target["store"]) == ("toy", "toy1", "toy")
    assert target["address"] == "toy1:6002"
    places = {entry["dest"]: Path(entry["src"]) for entry in found["files"]}
    assert set(places) == {"/etc/prometheus/rules/toy.yml", "/etc/prometheus/dashboards/toy.json"}
    assert all(toy.resolve() in path.resolve().parents for path in places.values())


def test_the_package_finds_it(toy: Path) -> None:
    script = """
import json
from brokerdrill.inventory.targets import PROTOCOLS
from brokerdrill.inventory.topology import topologies
from brokerdrill.products.health import READERS
from brokerdrill.products.registry import PRODUCTS
from brokerdrill.workload.client import client_type
there = ["toy" in names for names in (PROTOCOLS, READERS, dict(topologies()))]
print(json.dumps([PRODUCTS["toy"].client, client_type("toy").protocol, *there]))
"""
    assert json.loads(run(toy, sys.executable, "-c", script)) == ["toy", "toy", True, True, True]


def test_the_drills_that_apply_follow_from_its_descriptor(toy: Path) -> None:
    shown = run(toy, sys.executable, "-m", "brokerdrill", "scenarios", "toy")
    apply, do_not = shown.split("these do not apply")
    assert "kill_toy" in apply and "kill_toy" not in do_not
    assert "kill_active" not in apply and "kill_active" in do_not


def test_what_it_acknowledged_survives_its_kill(toy: Path, tmp_path: Path) -> None:
    """The toy itself, on this machine: sent, killed, started again, received."""
    credentials = tmp_path / "credentials.json"
    credentials.write_text(json.dumps({"username": "drill", "password": "secret"}))
    port, metrics_port = free_port(), free_port()
    server = [sys.executable, str(ADDED / "roles/toy/files/toy.py"), "127.0.0.1", str(port)]
    metrics = ("127.0.0.1", str(metrics_port))

    def start() -> subprocess.Popen[str]:
        command = [*server, str(tmp_path / "journal"), str(credentials), *metrics]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout
        assert process.stdout.readline() == "toy is ready\n"
        return process

    script = """
import sys
from brokerdrill.workload import header
from brokerdrill.workload.client import Message, client_type
from brokerdrill.workload.config import BrokerEndpoint, ClientAccount, WorkerConfig
port, what = int(sys.argv[1]), sys.argv[2]
ends = (BrokerEndpoint("127.0.0.1", port, "t", "t"),)
config = WorkerConfig("run", "w", "w", "toy", ends, ClientAccount("d", "secret"), ("q",))
client = client_type("toy")(config, "c")
client.open(["q"], ["q"], transacted=False)
if what == "send":
    for number in range(3):
        assert client.send("q", Message(f"m{number}", number, None, b"x", header.sha(b"x")), 0).result == "ok"
    assert client.send("q", Message("m0", 0, None, b"x", header.sha(b"x")), 1).error == "duplicate"
    first = client.receive(1)
    assert client.ack(first).result == "ok" and first.message_id == "m0"
else:
    got = [client.receive(1) for _ in range(2)]
    assert [item.message_id for item in got] == ["m1", "m2"], got
    assert client.receive(0.1) is None
client.close()
"""
    first = start()
    run(toy, sys.executable, "-c", script, str(port), "send")
    first.send_signal(signal.SIGKILL)
    first.wait(10)
    second = start()
    page = httpx.get(f"http://127.0.0.1:{metrics_port}/metrics", trust_env=False).text
    assert 'toy_messages{queue="q"} 2' in page.splitlines()
    run(toy, sys.executable, "-c", script, str(port), "receive")
    second.send_signal(signal.SIGKILL)
    second.wait(10)
