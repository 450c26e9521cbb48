"""What the role balancer renders, held against HAProxy's own check, and what it refuses."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from brokerdrill.inventory import descriptors
from brokerdrill.products import registry
from tests.roles.conftest import render_all
from tests.roles.test_plugins import plugin

filters = plugin("filter", "balancer")
HOSTS = """
all:
  children:
    balancer:
      hosts:
        balancer1: {ansible_host: 172.30.60.11}
      vars:
        balancer_listeners: [{name: front, port: 61617, acceptor: own_keys}]
    artemis:
      hosts:
        artemis2: {ansible_host: 172.30.60.22}
        artemis1: {ansible_host: 172.30.60.21, artemis_instance: first}
      vars:
        artemis_acceptors:
          - {name: core, port: 61616, protocols: [CORE]}
          - {name: own_keys, port: 61618, protocols: [CORE, AMQP], router: own}
        artemis_connection_routers: [{name: own, key_type: SNI_HOST, key_filter: "[0-9]$", local_target_filter: x}]
"""
VARIABLES = ["__balancer_descriptor", "__balancer_unit"]


def rendered(work: Path, **extra: Any) -> dict[str, Any]:
    inventory = work / "inventory"
    inventory.mkdir()
    (inventory / "hosts.yml").write_text(HOSTS)
    files = {"haproxy.cfg": "haproxy.cfg.j2"}
    return render_all(work, "balancer", "balancer", files, VARIABLES, inventory=inventory, **extra)["balancer1"]


def test_haproxy_takes_what_the_role_writes(tmp_path: Path) -> None:
    text = rendered(tmp_path)["files"]["haproxy.cfg"]
    lines = [line.strip() for line in text.splitlines()]
    assert "bind 172.30.60.11:61617" in lines
    assert "balance roundrobin" in lines
    assert [line for line in lines if line.startswith("server ")] == [
        "server first 172.30.60.21:61618 check",
        "server artemis2 172.30.60.22:61618 check",
    ]
    assert "bind 127.0.0.1:8404" in lines, "not for others where no drill is allowed"
    program = shutil.which("haproxy", path="/usr/sbin:/usr/bin")
    assert program, "make setup-tests installs it"
    (tmp_path / "haproxy.cfg").write_text(text)
    check = [program, "-c", "-f", str(tmp_path / "haproxy.cfg")]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "[WARNING]" not in done.stderr, done.stderr


def test_its_descriptor_says_what_is_behind_it(tmp_path: Path) -> None:
    found = rendered(tmp_path, drill_allowed=True)["variables"]["__balancer_descriptor"]
    (parsed,) = descriptors.parse("balancer1", {"balancer1.json": descriptors.json.dumps(found)}, registry.DESCRIPTORS)
    led = [one for one in parsed.listeners if one.router]
    assert [(one.name, one.protocol, one.port) for one in led] == [("front", "core", 61617), ("front", "amqp", 61617)]
    assert all((one.relays, one.key, one.key_filter) == (True, "SNI_HOST", "[0-9]$") for one in led)
    assert {(dial.to, dial.address, dial.port) for dial in parsed.dials} == {
        ("first", "172.30.60.21", 61618),
        ("artemis2", "172.30.60.22", 61618),
    }
    assert parsed.management and parsed.management.url == "http://172.30.60.11:8404"
    assert parsed.store is None


BROKER = {
    "artemis_acceptors": [
        {"name": "own_keys", "port": 61618, "protocols": ["CORE"]},
        {"name": "vm", "type": "vm", "server_id": 0},
    ]
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([], "balancer_listeners is empty"),
        ([{}], ""),
        ([{"acceptor": "other"}], "has no backend: no host of the group artemis has an acceptor other"),
        ([{"acceptor": "vm"}], "has no backend"),
        ([{"port": 443}], "its port is 443, not 1024 to 65535"),
        ([{"port": 65536}], "its port is 65536, not 1024 to 65535"),
        ([{"port": 8404}], "its port 8404 is that of balancer_status_port"),
        ([{}, {"name": "two"}], "its port 61617 is that of front"),
        ([{}, {"port": 61619}], "the name is taken"),
        ([{"name": "status"}], "the name is taken"),
        ([{"name": "a b"}], "a name has only letters"),
    ],
)
def test_preflight(changes: list[dict[str, Any]], words: str) -> None:
    given = [{"name": "front", "port": 61617, "acceptor": "own_keys", **change} for change in changes]
    frontends = filters.balancer_frontends(given, ["b1"], {"b1": BROKER})
    problems = filters.balancer_problems(frontends, 8404)
    assert len(problems) == bool(words), problems
    assert words in "".join(problems)


def test_preflight_of_the_status_page() -> None:
    frontends = filters.balancer_frontends([{"name": "f", "port": 2000, "acceptor": "core"}], ["b1"], {"b1": {}})
    assert frontends[0]["backends"][0]["port"] == 61616, "the role artemis' own acceptor"
    (problem,) = filters.balancer_problems(frontends, 80)
    assert "balancer_status_port is 80, not 1024 to 65535" in problem
