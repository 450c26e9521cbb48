"""The documentation for people: every link leads somewhere, and the README stays short."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from brokerdrill.base import paths

README_BYTES = 8_000
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def _pages() -> list[Path]:
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [paths.ROOT / name for name in tracked.stdout.split()]


@pytest.mark.parametrize("page", _pages(), ids=lambda page: str(page.relative_to(paths.ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    targets = [target.partition("#")[0] for target in _LINK.findall(page.read_text(encoding="utf-8"))]
    missing = [target for target in targets if target and "://" not in target and not (page.parent / target).exists()]
    assert not missing


def test_the_readme_is_short() -> None:
    assert (paths.ROOT / "README.md").stat().st_size <= README_BYTES


def test_the_pages_of_statements_say_what_was_seen() -> None:
    """`make docs` makes them of the statements, the drills' names and the kept runs."""
    done = subprocess.run(
        [sys.executable, "docs/statements.py", "--check"], cwd=paths.ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
