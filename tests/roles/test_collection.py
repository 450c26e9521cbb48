"""The repository is a collection: usable from a plain clone, it builds, and it installs without a network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.roles.conftest import BIN, ROLES, ROOT, SERVICES

PLAYBOOKS = sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml"))


def run(*arguments: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(BIN / arguments[0]), *arguments[1:]],
        cwd=cwd,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collections directory that a built and offline installed collection is in."""
    work = tmp_path_factory.mktemp("collection")
    run("ansible-galaxy", "collection", "build", str(ROOT), "--output-path", str(work), cwd=work)
    (archive,) = work.glob("brokerdrill-ha-*.tar.gz")
    assert archive.stat().st_size < 1 << 20, "something large is in the collection: see build_ignore in galaxy.yml"
    run("ansible-galaxy", "collection", "install", "--offline", "-n", "-p", str(work / "there"), str(archive), cwd=work)
    return work / "there"


def test_it_holds_what_a_deployment_needs_and_no_more(installed: Path) -> None:
    found = installed / "ansible_collections" / "brokerdrill" / "ha"
    assert sorted(path.name for path in (found / "roles").iterdir()) == ROLES
    assert {path.stem for path in (found / "playbooks").glob("*.yml")} == set(PLAYBOOKS)
    top = {path.name for path in found.iterdir()}
    assert top >= {"README.md", "meta", "plugins", "roles", "playbooks", "MANIFEST.json", "FILES.json"}
    assert not top & {"chaos", "inventories", "molecule", ".cache", ".venv", "runs", "uv.lock"}


def test_playbooks_are_understood_from_there(installed: Path, tmp_path: Path) -> None:
    shown = run(
        "ansible-playbook",
        *(f"brokerdrill.ha.{playbook}" for playbook in PLAYBOOKS),
        "--syntax-check",
        "-i",
        str(ROOT / "inventories" / "artemis_quorum"),
        cwd=tmp_path,
        ANSIBLE_COLLECTIONS_PATH=str(installed),
        BROKERDRILL_CACHE=str(tmp_path),
    )
    assert understood(shown) == PLAYBOOKS


def understood(shown: str) -> list[str]:
    """Return the names of the playbooks that a syntax check went through, which ends at the first that is wrong."""
    return [Path(line.removeprefix("playbook: ")).stem for line in shown.splitlines() if line.startswith("playbook: ")]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a clone of this checkout holds: the files that git has or would add, and nothing that a set-up made."""
    directory = tmp_path_factory.mktemp("clone")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_symlink() or (ROOT / name).exists():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, directory / name, follow_symlinks=False)
    return directory


def test_a_clone_needs_no_set_up(clone: Path, tmp_path: Path) -> None:
    """Ansible, with nothing of ours in its environment, finds the roles of the clone's own collection."""
    mine = [name for name in os.environ if name.startswith("ANSIBLE_")]
    done = subprocess.run(
        [
            *("env", *(f"--unset={name}" for name in mine), f"HOME={tmp_path}", str(BIN / "ansible-playbook")),
            *("--syntax-check", "-i", "inventories/artemis_quorum"),
            *(f"playbooks/{playbook}.yml" for playbook in PLAYBOOKS),
        ],
        cwd=clone,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert understood(done.stdout) == PLAYBOOKS


def test_a_mistyped_inventory_fails() -> None:
    words = [str(BIN / "ansible-playbook"), "--syntax-check", "-i", "inventories/nowhere", "playbooks/site.yml"]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "inventories/nowhere" in done.stderr + done.stdout


def test_a_clone_runs_its_own_plugins(clone: Path) -> None:
    (clone / "plugins" / "modules" / "only_here.py").write_text(
        (clone / "plugins" / "modules" / "host.py").read_text().replace("module: host", "module: only_here")
    )
    assert "brokerdrill.ha.only_here" in run("ansible-doc", "--list", "brokerdrill.ha", cwd=clone)


def test_the_link_to_itself_leads_no_tool_astray() -> None:
    link = ROOT / ".collections" / "ansible_collections" / "brokerdrill" / "ha"
    assert link.is_symlink() and link.resolve() == ROOT
    seen = run("ruff", "check", "--show-files", cwd=ROOT).splitlines()
    assert str(ROOT / "plugins" / "modules" / "health.py") in seen
    assert not [name for name in seen if ".collections" in name]


@pytest.mark.parametrize("plugin", sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py")))
def test_modules_have_documentation(installed: Path, tmp_path: Path, plugin: str) -> None:
    shown = run("ansible-doc", f"brokerdrill.ha.{plugin}", cwd=tmp_path, ANSIBLE_COLLECTIONS_PATH=str(installed))
    assert "EXAMPLES" in shown


@pytest.mark.parametrize("kind", ["filter", "lookup", "callback", "module"])
def test_each_plugin_has_documentation(installed: Path, tmp_path: Path, kind: str) -> None:
    words = ["ansible-doc", "-t", kind, "--list", "--json", "brokerdrill.ha"]
    listed = json.loads(run(*words, cwd=tmp_path, ANSIBLE_COLLECTIONS_PATH=str(installed)))
    assert listed
    assert [name for name, says in listed.items() if says in ("UNDOCUMENTED", "")] == []


def test_documentation_of_filters_is_theirs() -> None:
    """`make docs` makes it of docstrings, signatures and what the roles have them for."""
    done = subprocess.run([sys.executable, "docs/filters.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_products_and_their_health_are_found_from_there(installed: Path, tmp_path: Path) -> None:
    environment = {"ANSIBLE_COLLECTIONS_PATH": str(installed), "ANSIBLE_PYTHON_INTERPRETER": sys.executable}
    query = "msg={{ query('brokerdrill.ha.products') | sort | join(' ') }}"
    shown = run("ansible", "localhost", "-m", "ansible.builtin.debug", "-a", query, cwd=tmp_path, **environment)
    assert f'"msg": "{" ".join(SERVICES)}"' in shown
    # An unknown product: the module has got as far as the table of all readers, each of which it had to import.
    descriptor = tmp_path / "x.json"
    descriptor.write_text('{"product": "x", "instance": "x"}')
    arguments = ("-m", "brokerdrill.ha.health", "-a", f"descriptor={descriptor}")
    done = subprocess.run(
        [str(BIN / "ansible"), "localhost", *arguments],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "product 'x' is none of activemq_classic, amqp_router, artemis, balancer, lease_db" in done.stdout
