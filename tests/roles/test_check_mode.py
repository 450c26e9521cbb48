"""A dry run changes nothing on the controller either, so that what follows it finds the inventory as it was."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.roles.conftest import ROOT, playbook

BOOK = """
- hosts: all
  gather_facts: false
  vars:
    ansible_connection: local
    password: "{{ lookup('brokerdrill.ha.secret', common_secrets_dir ~ '/artemis-admin.password', length=40) }}"
  tasks:
    - ansible.builtin.include_role: {name: brokerdrill.ha.common, tasks_from: preflight, public: true}
    - ansible.builtin.include_role: {name: brokerdrill.ha.common, tasks_from: tls, public: true}
    - ansible.builtin.copy:
        content: "{{ [password, password] + query('file', common_tls_made.bundle, common_tls_made.ca) }}"
        dest: "{{ out }}/{{ inventory_hostname }}"
        mode: "0600"
      check_mode: false
"""


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory" / "hosts.yml").write_text("all: {hosts: {a: {}, b: {}}}\n")
    return tmp_path / "inventory"


def run(inventory: Path, *words: str, **variables: str) -> dict[str, list[str]]:
    """Play it; return by host what it was given: the password twice, its bundle, the CA's certificate."""
    work = inventory.parent
    (work / "book.yml").write_text(BOOK)
    out = work / "out"
    out.mkdir(exist_ok=True)
    extra = json.dumps({"out": str(out), **variables})
    done = playbook(["-i", str(inventory), str(work / "book.yml"), "-e", extra, *words], work / "cache")
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name: json.loads(path.read_text()) for path in out.iterdir()}


def state(inventory: Path) -> dict[str, tuple[bytes, int]]:
    """All that the controller keeps, with the time at which it was written."""
    secrets = inventory.parent / "cache" / "secrets"
    return {
        str(path.relative_to(secrets)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in secrets.rglob("*")
        if path.is_file() and path.name != "ca.lock"
    }


def issued_by(ca: str, bundle: str, work: Path) -> bool:
    (work / "ca").write_text(ca)
    (work / "bundle").write_text(bundle)
    words = ["openssl", "verify", "-CAfile", str(work / "ca"), str(work / "bundle")]
    return subprocess.run(words, capture_output=True).returncode == 0


def test_check_check_deploy_check_deploy(inventory: Path, tmp_path: Path) -> None:
    for _ in range(2):
        given = run(inventory, "--check")
        assert not (tmp_path / "cache" / "secrets").exists()
        # What a dry run works with fits together, on all hosts.
        (a, again, bundle, ca), (b, _, other, same_ca) = given["a"], given["b"]
        assert a == again == b and len(a) == 40
        assert ca == same_ca and bundle != other
        assert issued_by(ca, bundle, tmp_path) and issued_by(ca, other, tmp_path)
    deployed = run(inventory)
    made = state(inventory)
    name = inventory.name
    assert {
        f"{name}/{file}" for file in ("inventory", "ca.pem", "ca.key", "a.bundle.pem", "artemis-admin.password")
    } <= (made.keys())
    assert run(inventory, "--check") == deployed
    assert state(inventory) == made
    assert run(inventory) == deployed
    assert state(inventory) == made


def test_a_check_of_what_would_change_keeps_the_certificate(inventory: Path, tmp_path: Path) -> None:
    run(inventory)
    made = state(inventory)
    given = run(inventory, "--check", common_tls_days="20")
    assert state(inventory) == made
    assert given["a"][2] != made[f"{inventory.name}/a.bundle.pem"][0].decode()
    assert issued_by(made[f"{inventory.name}/ca.pem"][0].decode(), given["a"][2], tmp_path)


def test_no_role_makes_a_password_by_another_lookup() -> None:
    """Ansible's own writes it in check mode, too."""
    for path in (ROOT / "roles").rglob("*"):
        if path.suffix in (".yml", ".j2"):
            assert "ansible.builtin.password" not in path.read_text(), path
