"""What the tests of the roles share: the checkout, role files, and what a role renders for a host of an inventory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
# What roles share, and the control host's own role: no products. Every other role is one.
SERVICES = [role for role in ROLES if role not in ("common", "gameday")]
BIN = Path(sys.executable).parent

# Plugins import what they share by the collection's name, as Ansible finds it in a clone.
sys.path.append(str(ROOT / ".collections"))

RENDER = """
- hosts: {host}
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {{name: brokerdrill.ha.{role}, tasks_from: preflight, public: true}}
    - brokerdrill_render:
        out: {out}
        files: {files}
        variables: {variables}
"""

# Renders a role's templates for a host without touching it: the action plugin of `host`, with a map instead of a host.
PLUGIN = """
import json
from pathlib import Path
from ansible_collections.brokerdrill.ha.plugins.action.host import ActionModule as Host


class ActionModule(Host):
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        args = self._task.args
        found = {}
        for name, template in args["files"].items():
            entry = {"dest": name, "template": template}
            found[name] = self._ready(entry, task_vars)["content"]
        values = {name: self._templar.template(self._templar.available_variables[name]) for name in args["variables"]}
        text = json.dumps({"files": found, "variables": values})
        (Path(args["out"]) / task_vars["inventory_hostname"]).write_text(text)
        return {"changed": False}
"""


def inventories(inventory: Path) -> list[str]:
    """Return ansible-playbook's words for an inventory, with its bench if it is one of the checkout's."""
    bench = ROOT / "bench" / f"{inventory.name}.yml"
    sources = [inventory, bench] if inventory.parent == ROOT / "inventories" and bench.is_file() else [inventory]
    return [word for source in sources for word in ("-i", str(source))]


def load(path: Path) -> Any:
    """Return the YAML at `path`."""
    return yaml.safe_load(path.read_text())


def environment(cache: Path) -> dict[str, str]:
    """Return the environment in which Ansible sees this checkout and keeps what it makes in `cache`."""
    return {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "BROKERDRILL_CACHE": str(cache),
        "ANSIBLE_NOCOLOR": "1",
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    }


def playbook(arguments: list[str], cache: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run ansible-playbook from the checkout and return what it did."""
    return subprocess.run(
        [str(BIN / "ansible-playbook"), *arguments],
        cwd=ROOT,
        env=environment(cache) | more,
        capture_output=True,
        text=True,
        check=False,
    )


Render = Callable[..., dict[str, Any]]


def render_all(
    work: Path,
    role: str,
    hosts: str,
    files: dict[str, str],
    variables: list[str] | None = None,
    inventory: Path = ROOT / "inventories" / "artemis_quorum",
    **extra: Any,
) -> dict[str, dict[str, Any]]:
    """Render templates and variables of a role for `hosts` (an Ansible pattern) in one play; return host → what came.

    Raises AssertionError with Ansible's words where it fails, preflight included.
    """
    plugins, library, out = work / "plugins", work / "library", work / "out"
    for directory in (plugins, library, out):
        directory.mkdir(exist_ok=True)
    (plugins / "brokerdrill_render.py").write_text(PLUGIN)
    (library / "brokerdrill_render.py").write_text("#!/usr/bin/python\n")
    templates = {name: str(ROOT / "roles" / role / "templates" / name) for name in files.values()}
    book = work / "play.yml"
    book.write_text(
        RENDER.format(
            host=hosts,
            role=role,
            out=out,
            files=json.dumps({name: templates[template] for name, template in files.items()}),
            variables=json.dumps(variables or []),
        )
    )
    (work / "extra.json").write_text(json.dumps(extra))
    done = playbook(
        [*inventories(inventory), str(book), "-e", f"@{work / 'extra.json'}"],
        work / "cache",
        ANSIBLE_ACTION_PLUGINS=str(plugins),
        ANSIBLE_LIBRARY=str(library),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name: json.loads(path.read_text()) for path in out.iterdir()}


@pytest.fixture
def render(tmp_path: Path) -> Render:
    """Return a function that renders templates and variables of a role for one host of an inventory."""

    def run(role: str, host: str, *arguments: Any, **named: Any) -> dict[str, Any]:
        return render_all(tmp_path, role, host, *arguments, **named)[host]

    return run
