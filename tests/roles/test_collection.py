"""The repository is a collection: it builds, installs without a network, and its playbooks run from there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.roles.conftest import BIN, ROLES, ROOT

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
    assert not top & {"chaos", "inventories", "tests", "molecule", ".cache", ".venv", "runs", "uv.lock"}


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_playbooks_are_understood_from_there(installed: Path, tmp_path: Path, playbook: str) -> None:
    run(
        "ansible-playbook",
        f"brokerdrill.ha.{playbook}",
        "--syntax-check",
        "-i",
        str(ROOT / "inventories" / "artemis_quorum"),
        cwd=tmp_path,
        ANSIBLE_COLLECTIONS_PATH=str(installed),
        BROKERDRILL_CACHE=str(tmp_path),
    )


@pytest.mark.parametrize("plugin", sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py")))
def test_modules_have_documentation(installed: Path, tmp_path: Path, plugin: str) -> None:
    shown = run("ansible-doc", f"brokerdrill.ha.{plugin}", cwd=tmp_path, ANSIBLE_COLLECTIONS_PATH=str(installed))
    assert "EXAMPLES" in shown
