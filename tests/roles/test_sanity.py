"""What `ansible-test sanity` asks of a collection, as far as it takes no environment of its own."""

from __future__ import annotations

import ast
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.roles.conftest import BIN, ROOT

MODULES = sorted((ROOT / "plugins" / "modules").glob("*.py"))
LOOKUPS = sorted((ROOT / "plugins" / "lookup").glob("*.py"))
# What Ansible's schemas of documentation know of an option, and of a value that is returned.
OPTION = {"description", "type", "elements", "required", "default", "choices", "aliases", "suboptions", "version_added"}
RETURNED = {"description", "type", "elements", "returned", "sample", "contains", "version_added"}
_LINK = re.compile(r"\]\(([^)\s]+)\)")


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


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_has_its_documentation_before_its_imports(path: Path) -> None:
    assert path.read_text().startswith("#!/usr/bin/python\n")
    body = ast.parse(path.read_text()).body
    place = next(n for n, node in enumerate(body) if isinstance(node, ast.Assign))
    imported = [node for node in body[:place] if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert [getattr(node, "module", None) for node in imported] in ([], ["__future__"])


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
    files = {line.split()[0] for line in texts.pop().splitlines()}
    assert all((ROOT / name).is_file() for name in files)
    assert {f"plugins/modules/{path.name}" for path in MODULES} <= files


def test_links_of_the_installed_readmes_lead_somewhere(built: Path) -> None:
    pages = [built / "README.md", *sorted(built.glob("router/**/*.md")), *sorted(built.glob("roles/*/README.md"))]
    dead = [
        (page.relative_to(built), target)
        for page in pages
        for link in _LINK.findall(page.read_text())
        if (target := link.partition("#")[0]) and "://" not in target and not (page.parent / target).exists()
    ]
    assert dead == []


def test_no_link_leads_out_of_the_archive(built: Path) -> None:
    assert [path for path in built.rglob("*") if path.is_symlink()] == []


def test_what_is_no_part_of_it_is_not_in_it(built: Path) -> None:
    top = {path.name for path in built.iterdir()}
    assert top <= {
        "CHANGELOG.md", "CONTRIBUTING.md", "FILES.json", "FINDINGS.md", "LICENSE", "MANIFEST.json", "README.md",
        "bindep.txt", "docs", "meta", "playbooks", "plugins", "requirements.txt", "roles", "router", "tests",
    }  # fmt: skip
    assert {path.name for path in (built / "tests").iterdir()} == {"sanity"}
    assert {path.name for path in (built / "router").iterdir()} == {"README.md", "docs"}


def test_lines_are_no_longer_than_pycodestyle_lets_them(built: Path) -> None:
    long = [path for path in (built / "plugins").rglob("*.py") if max(map(len, path.read_text().splitlines())) > 160]
    assert long == []
