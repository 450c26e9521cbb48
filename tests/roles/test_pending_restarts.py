"""The end of verify.yml, and so of site.yml: who started before its files were changed, by one sentence each."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from brokerdrill.base.progress import Progress
from brokerdrill.inventory.playbooks import _Reader
from tests.roles.conftest import ROOT, playbook

WORDS = "started before these files were changed, and what it does not read anew waits for a restart:"


def verified(work: Path, pending: dict[str, Any]) -> str:
    """Run verify.yml on hosts of which the task file `wait_healthy` has found that; return what it said."""
    hosts = {name: {"ansible_connection": "local", "found": found} for name, found in pending.items()}
    (work / "hosts.yml").write_text(json.dumps({"all": {"hosts": hosts}}))
    fact = {"common_pending_restarts": "{{ found }}"}
    keep = {"name": "Keep", "ansible.builtin.set_fact": fact, "when": "found | length > 0"}
    plays = [
        {"name": "As found", "hosts": "all", "gather_facts": False, "tasks": [keep]},
        {"name": "Verify", "ansible.builtin.import_playbook": str(ROOT / "playbooks" / "verify.yml")},
    ]
    (work / "play.yml").write_text(json.dumps(plays))
    done = playbook(["-i", str(work / "hosts.yml"), str(work / "play.yml")], work)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_end_names_each_with_its_host_once(tmp_path: Path) -> None:
    said = verified(tmp_path, {"h1": {"a": ["/etc/a/x", "/etc/a/y"], "b": []}, "h2": {"c": ["/etc/c/z"]}, "h3": {}})
    last = said[said.index("TASK [Pending restarts]") :]
    assert last.count(f"a on h1 {WORDS} /etc/a/x, /etc/a/y") == 1
    assert last.count(f"c on h2 {WORDS} /etc/c/z") == 1
    assert said.count(WORDS) == 2
    # So does `brokerdrill deploy`.
    shown = io.StringIO()
    reader = _Reader(Progress(Console(file=shown, width=200)))
    for line in said.splitlines(keepends=True):
        reader.line(line)
    assert f"a on h1 {WORDS} /etc/a/x, /etc/a/y" in shown.getvalue()
    assert f"c on h2 {WORDS} /etc/c/z" in shown.getvalue()


def test_where_nothing_waits_nothing_is_said(tmp_path: Path) -> None:
    assert "waits for a restart" not in verified(tmp_path, {"h1": {"a": []}, "h2": {}})
