"""What the controller needs is declared, and asked for before any host is touched."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import venv
from pathlib import Path

import pytest
import yaml

from tests.roles.conftest import BIN, ROLES, ROOT, environment, load, playbook
from tests.roles.test_plugins import plugin

controller = plugin("action", "controller")

# What the play of a deployment calls before it asks a host anything.
PREFLIGHT = """
- hosts: all
  gather_facts: false
  any_errors_fatal: true
  tasks:
    - name: Preflight of the controller
      ansible.builtin.include_role: {{name: "{role}", tasks_from: controller}}
"""


def needs(role: str, tmp_path: Path, inventory: str, path: str, cache: Path, **more: str) -> str:
    """Return what ansible-playbook says to the role's question; "" where the controller has all of it."""
    book = tmp_path / "book.yml"
    book.write_text(PREFLIGHT.format(role=f"brokerdrill.ha.{role}"))
    words = ["-i", str(ROOT / "inventories" / inventory), "--limit", f"{role}[0]" if role != "common" else "all[0]"]
    done = playbook([*words, str(book)], cache, PATH=path, **more)
    return "" if done.returncode == 0 else " ".join((done.stdout + done.stderr).split())


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A PATH with what Ansible itself calls, and nothing that makes archives or certificates."""
    (tmp_path / "bin").mkdir()
    for name in ("sh", "ssh", "env", "uname", "stty", "tput", "locale"):
        if found := shutil.which(name):
            (tmp_path / "bin" / name).symlink_to(found)
    return f"{tmp_path / 'bin'}"


@pytest.mark.parametrize(
    ("role", "inventory", "said"),
    [
        ("artemis", "artemis_quorum", "no program 'mvn' (for apache-artemis-2.56.0-bin.tar.gz)"),
        ("activemq_classic", "classic_shared_file", "no program 'mvn' (for apache-activemq-"),
        ("zookeeper", "artemis_quorum", "no program 'mvn' (for zookeeper-"),
        ("openmq", "openmq_master", "no program 'mvn' (for mq-distribution-"),
        ("toxiproxy", "artemis_quorum", "no program 'go' (for toxiproxy-"),
        ("load", "artemis_quorum", "no program 'mvn' (for apache-artemis-"),
        ("common", "artemis_quorum", "no program 'openssl' (for certificates)"),
    ],
)
def test_a_bare_controller_is_refused(tmp_path: Path, bare: str, role: str, inventory: str, said: str) -> None:
    found = needs(role, tmp_path, inventory, bare, tmp_path / "cache")
    assert "the controller has" in found and said in found
    assert "see bindep.txt and requirements.txt" in found
    assert not (tmp_path / "cache").exists()


def test_what_the_cache_has_needs_no_program(tmp_path: Path, bare: str) -> None:
    """An archive of the same recipe: a controller without a network and without Maven deploys from its cache."""
    cache = tmp_path / "cache"
    source = {
        "maven": [load(ROOT / "roles" / "artemis" / "vars" / "main" / "archive.yml")["__artemis_archives"]["2.56.0"]]
    }
    name = "apache-artemis-2.56.0-bin.tar.gz"
    archives = cache / "archives"
    archives.mkdir(parents=True)
    (archives / name).write_text("x")
    state = (archives / name).stat()
    key = controller.is_kept.__globals__["recipe_key"](source)
    (archives / f"{name}.json").write_text(
        f'{{"recipe": "{key}", "sha256": "x", "size": {state.st_size}, "mtime_ns": {state.st_mtime_ns}}}'
    )
    assert needs("artemis", tmp_path, "artemis_quorum", bare, cache) == ""


def test_this_controller_has_all_of_it(tmp_path: Path) -> None:
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    assert needs("artemis", tmp_path, "artemis_quorum", path, tmp_path / "cache") == ""


def test_a_module_that_is_missing_is_named() -> None:
    assert controller.missing([("module", "no_such_module", "schemas"), ("module", "json", "all")]) == [
        "no Python module 'no_such_module' (in the Python of Ansible) (for schemas)"
    ]


def test_the_site_asks_before_it_asks_a_host() -> None:
    for name in ("site", "upgrade"):
        first, *_ = load(ROOT / "playbooks" / f"{name}.yml")
        (asked,) = [
            task for task in first["tasks"] if task["ansible.builtin.include_role"].get("tasks_from") == "controller"
        ]
        assert asked["name"] == "Preflight of the controller"


def test_a_role_that_fetches_asks() -> None:
    for role in ROLES:
        tasks = ROOT / "roles" / role / "tasks"
        fetches = any("tasks_from: fetch" in path.read_text() for path in tasks.glob("*.yml"))
        assert not fetches or (tasks / "controller.yml").is_file(), role


def test_what_is_called_is_declared() -> None:
    """bindep.txt by Debian's names of what has the programs; requirements.txt by the modules' own."""
    packages = {line.split()[0] for line in (ROOT / "bindep.txt").read_text().splitlines() if line[:1] not in ("#", "")}
    called = {"mvn": "maven", "go": "golang-go", "openssl": "openssl", "git": "git"}
    assert set(called.values()) <= packages
    modules = {
        re.split(r"[<>=]", line)[0] for line in (ROOT / "requirements.txt").read_text().splitlines() if line[:1] != "#"
    }
    assert modules >= {"lxml", "pip", "setuptools"}
    declared = load(ROOT / "meta" / "execution-environment.yml")
    assert declared["dependencies"] == {"python": "requirements.txt", "system": "bindep.txt"}
    assert (ROOT / "bindep.txt").is_file() and (ROOT / "requirements.txt").is_file()


def test_the_range_of_ansible_is_told_once_and_the_same() -> None:
    assert load(ROOT / "meta" / "runtime.yml")["requires_ansible"] == ">=2.19.0"
    for role in ROLES:
        assert load(ROOT / "roles" / role / "meta" / "main.yml")["galaxy_info"]["min_ansible_version"] == "2.19"
    assert '"ansible-core>=2.19"' in (ROOT / "pyproject.toml").read_text()
    assert "version('2.19', '>=')" in (ROOT / "roles" / "common" / "tasks" / "preflight.yml").read_text()


@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("2.18.*", "at least 2.19 is needed"),
        ("2.19.*", ""),
        ("", ""),
    ],
    ids=["too old", "oldest", "newest for this Python"],
)
def test_the_ends_of_the_range(tmp_path: Path, version: str, said: str) -> None:
    """ansible-core alone, of that version: what every host is asked before it is touched, without a host."""
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    wanted = f"ansible-core=={version}" if version else "ansible-core"
    subprocess.run([str(programs / "pip"), "install", "-q", wanted, "lxml"], check=True)
    book = tmp_path / "book.yml"
    first, *_ = load(ROOT / "playbooks" / "site.yml")
    book.write_text(yaml.safe_dump([first]))
    done = subprocess.run(
        [str(programs / "ansible-playbook"), "-i", str(ROOT / "inventories" / "artemis_quorum"), str(book)],
        cwd=ROOT,
        env=environment(tmp_path / "cache") | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode == 0) == (said == ""), done.stdout + done.stderr
    assert said in done.stdout
