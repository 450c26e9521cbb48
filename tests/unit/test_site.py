"""The site of the pages: each once, links that leave it, and (long) the whole of it, with every link looked at."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tomllib
import venv
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest

from brokerdrill.base import paths

BUILD = paths.ROOT / "docs" / "build_site.py"


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_site", BUILD)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_page_is_in_the_navigation_once(site: ModuleType) -> None:
    shown = site.pages()
    listed = [page for part in site.navigation(set(shown)) for pages in part.values() for page in pages]
    assert len(listed) == len(set(listed))
    assert set(listed) == {str(page) for page in shown if page.suffix == ".md"}


def test_pages_that_are_named_are_there(site: ModuleType) -> None:
    assert [entry for part in site.NAVIGATION.values() for entry in part if not (paths.ROOT / entry).exists()] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a](operations.md#playbooks)", "[a](operations.md#playbooks)"),
        ("[a](../roles/artemis)", "[a](../roles/artemis/README.md)"),
        ("[a](../roles)", "[a](https://github.com/brokerdrill/brokerdrill/tree/main/roles)"),
        ("[a](../galaxy.yml)", "[a](https://github.com/brokerdrill/brokerdrill/blob/main/galaxy.yml)"),
        ("[a](https://example.org/a.md)", "[a](https://example.org/a.md)"),
        ("[a](#here)", "[a](#here)"),
        ("`[a](../roles)` [a](../roles/artemis)", "`[a](../roles)` [a](../roles/artemis/README.md)"),
        ("```\n[a](nowhere)\n```\n", "```\n[a](nowhere)\n```\n"),
    ],
)
def test_what_is_no_page_is_in_the_repository(site: ModuleType, text: str, said: str) -> None:
    assert site.rewritten(Path("docs/tonight.md"), text, set(site.pages())) == said


def test_a_link_that_leads_nowhere_ends_the_build(site: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"docs/tonight.md: nowhere.md is not there"):
        site.rewritten(Path("docs/tonight.md"), "[a](nowhere.md)", set(site.pages()))


def test_all_pages_have_links_that_lead_somewhere(site: ModuleType) -> None:
    shown = set(site.pages())
    for page in shown:
        if page.suffix == ".md":
            site.rewritten(page, (paths.ROOT / page).read_text(), shown)


@pytest.mark.long
def test_the_whole_site_is_built_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    """With headings: MkDocs refuses a link to one that is not there. In an environment of its own, from the index."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    wanted = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["dependency-groups"]["site"]
    subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True, timeout=600)
    out = tmp_path / "site"
    done = subprocess.run([python, BUILD, out], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    dead = []
    for page in out.rglob("*.html"):
        for link in re.findall(r'(?:href|src)="([^"#?]+)', page.read_text()):
            # The page of what is not found stands at the root of a server.
            place = out if link.startswith("/") else page.parent
            if not re.match(r"\w+:", link) and not (place / unquote(link).lstrip("/")).exists():
                dead.append((page.name, link))
    assert dead == []
    assert "kill_active" in (out / "search" / "search_index.json").read_text()
