"""`ansible-test sanity` on the collection as it is built (long), and at once what it asks as far as it takes no
environment of its own; every link of the built collection's pages."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.roles.conftest import BIN, ROOT

MODULES = sorted((ROOT / "plugins" / "modules").glob("*.py"))
LOOKUPS = sorted((ROOT / "plugins" / "lookup").glob("*.py"))
CALLBACKS = sorted((ROOT / "plugins" / "callback").glob("*.py"))
# The oldest Python that the oldest ansible-core of meta/runtime.yml supports on a host.
OLDEST_PYTHON = "py38"
# What Ansible's schemas of documentation know of an option, and of a value that is returned.
OPTION = {"description", "type", "elements", "required", "default", "choices", "aliases", "suboptions", "version_added"}
RETURNED = {"description", "type", "elements", "returned", "sample", "contains", "version_added"}
_LINK = re.compile(r"""\]\(([^)\s]+)\)|(?:src|href)="([^"]+)"|^\[[^]]+\]:[ ]*(\S+)""", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
REPOSITORY = yaml.safe_load((ROOT / "galaxy.yml").read_text())["repository"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection as it is installed."""
    work = tmp_path_factory.mktemp("built")
    words = [str(BIN / "ansible-galaxy"), "collection", "build", str(ROOT), "--output-path", str(work)]
    done = subprocess.run(words, cwd=work, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (archive,) = work.glob("*.tar.gz")
    with tarfile.open(archive) as content:
        content.extractall(work / "ha", filter="data")
    return work / "ha"


def words_of(path: Path, name: str) -> Any:
    """Return the YAML of one of a plug-in's texts."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return yaml.safe_load(ast.literal_eval(node.value))
    raise AssertionError(f"{path.name} has no {name}")


@pytest.mark.parametrize("path", [*MODULES, *LOOKUPS], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_documentation_has_what_ansible_knows(path: Path) -> None:
    """A comma in a sentence of a mapping on one line begins a key that nobody wanted."""
    documentation = words_of(path, "DOCUMENTATION")
    assert all(re.search(r"\(@\w+\)", author) for author in documentation["author"])
    for name, option in (documentation.get("options") or {}).items():
        assert set(option) <= OPTION, name
    for name, value in (words_of(path, "RETURN") or {}).items():
        assert set(value) <= RETURNED, name
    assert words_of(path, "EXAMPLES")


@pytest.mark.parametrize("path", [*MODULES, *LOOKUPS, *CALLBACKS], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_plugin_has_its_documentation_before_its_imports(path: Path) -> None:
    assert path.read_text().startswith("#!/usr/bin/python\n") == (path in MODULES)
    body = ast.parse(path.read_text()).body
    place = next(n for n, node in enumerate(body) if isinstance(node, ast.Assign))
    imported = [node for node in body[:place] if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert [getattr(node, "module", None) for node in imported] in ([], ["__future__"])


@pytest.mark.parametrize("kind", ["callback", "filter", "lookup", "modules"])
def test_ansible_doc_can_read_a_plugin(kind: str) -> None:
    """It understands no assignment to several names at once, and says so on the error output."""
    body = {path.name: ast.parse(path.read_text()).body for path in (ROOT / "plugins" / kind).glob("*.py")}
    assert [
        name
        for name, nodes in body.items()
        for node in nodes
        if isinstance(node, ast.Assign) and any(isinstance(target, ast.Tuple) for target in node.targets)
    ] == []


def test_nothing_else_is_a_program(built: Path) -> None:
    """But for a template that /bin/sh runs, which it lets be."""
    ignored = {
        line.split()[0]
        for line in (ROOT / "tests/sanity/ignore-2.19.txt").read_text().splitlines()
        if "shebang" in line
    }
    programs = {
        str(path.relative_to(built))
        for path in built.rglob("*")
        if path.is_file()
        and path.read_bytes().startswith(b"#!")
        and not path.read_bytes().startswith(b"#!/bin/sh\n")
        and path.parent != built / "plugins" / "modules"
    }
    assert programs == ignored


def test_exceptions_are_the_same_for_each_version() -> None:
    texts = {path.read_text() for path in (ROOT / "tests" / "sanity").glob("ignore-*.txt")}
    assert len(texts) == 1
    lines = texts.pop().splitlines()
    assert all(line.partition(" # ")[2] for line in lines), "an exception without its reason"
    files = {line.split()[0] for line in lines}
    assert all((ROOT / name).is_file() for name in files)
    assert {f"plugins/modules/{path.name}" for path in MODULES} <= files


def test_what_runs_on_hosts_is_understood_by_the_oldest_python_there() -> None:
    """ansible-test asks each Python that is installed; a controller need not have the hosts'."""
    words = [str(BIN / "ruff"), "check", "--isolated", "--select", "E9", "--target-version", OLDEST_PYTHON]
    done = subprocess.run(
        [*words, "plugins/modules", "plugins/module_utils"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.long
def test_ansible_test_finds_nothing() -> None:
    done = subprocess.run([str(ROOT / ".ci" / "sanity")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Running sanity test") >= 20


def links(built: Path) -> list[tuple[Path, str]]:
    """Return the links of all pages, but for what is code: (page, target without its heading)."""
    return [
        (page, target)
        for page in sorted(built.rglob("*.md"))
        for found in _LINK.findall(_CODE.sub("", page.read_text()))
        for link in found
        if (target := link.partition("#")[0])
    ]


def test_links_of_the_installed_pages_lead_somewhere(built: Path) -> None:
    relative = [(page, target) for page, target in links(built) if not re.match(r"\w+:", target)]
    assert len(relative) > 100
    assert [(str(page.relative_to(built)), to) for page, to in relative if not (page.parent / to).exists()] == []


def test_links_to_the_repository_lead_to_what_the_collection_has_not(built: Path) -> None:
    """What it has is linked to as a file, so that it is found without a network."""
    begin = re.compile(rf"{re.escape(REPOSITORY)}/(?:blob|tree)/main/")
    inside = {(page, begin.sub("", target)) for page, target in links(built) if begin.match(target)}
    assert inside
    assert [(str(page.relative_to(built)), to) for page, to in inside if not (ROOT / to).exists()] == []
    assert [(str(page.relative_to(built)), to) for page, to in inside if (built / to).exists()] == []


def test_no_link_leads_out_of_the_archive(built: Path) -> None:
    assert [path for path in built.rglob("*") if path.is_symlink()] == []


def test_what_is_no_part_of_it_is_not_in_it(built: Path) -> None:
    top = {path.name for path in built.iterdir()}
    assert top <= {
        "CHANGELOG.md", "CONTRIBUTING.md", "FILES.json", "FINDINGS.md", "LICENSE", "MANIFEST.json", "README.md",
        "bindep.txt", "changelogs", "docs", "meta", "playbooks", "plugins", "requirements.txt", "roles", "router",
        "tests",
    }  # fmt: skip
    assert {path.name for path in (built / "tests").iterdir()} == {"sanity"}
    assert not list((built / "docs").glob("*.py")) and not (built / "docs" / "statements").exists()
    assert {path.name for path in (built / "router").iterdir()} == {"README.md", "docs"}


def test_the_changelog_is_made_of_its_own_source(tmp_path: Path) -> None:
    """As `make changelog` makes it: nobody writes into it."""
    for name in ("galaxy.yml", "changelogs"):
        copied = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copied(ROOT / name, tmp_path / name)
    for words in (["lint"], ["generate"]):
        command = [str(BIN / "antsibull-changelog"), *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
    assert (tmp_path / "CHANGELOG.md").read_text() == (ROOT / "CHANGELOG.md").read_text()


def test_the_changelog_knows_the_version() -> None:
    version = yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"]
    assert version in yaml.safe_load((ROOT / "changelogs" / "changelog.yaml").read_text())["releases"]


def test_lines_are_no_longer_than_pycodestyle_lets_them(built: Path) -> None:
    long = [path for path in (built / "plugins").rglob("*.py") if max(map(len, path.read_text().splitlines())) > 160]
    assert long == []
