"""A checkout with one product more, made as docs/adding-a-product.md says: files added, and one entry in each list."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ADDED = Path(__file__).parent / "added"
NOT_NEEDED = ("benchmarks/", "router/", "tests/")
# The lists that the page names: file, the line that the entry comes before, and the entry.
ENTRIES = (
    ("plugins/module_utils/health/__init__.py", "from . import ", "from . import toy\n"),
    ("plugins/module_utils/health/__init__.py", '    "toxiproxy": ', '    "toy": toy.read,\n'),
    ("chaos/brokerdrill/workload/client.py", '    "stomp": ', '    "toy": "brokerdrill.workload.toy:Toy",\n'),
    ("chaos/brokerdrill/ledger/contract.py", "PROTOCOLS = (", None),
)


def added() -> list[str]:
    """Return the files that the product adds, relative to the checkout."""
    return sorted(
        str(path.relative_to(ADDED)) for path in ADDED.rglob("*") if path.is_file() and ".pyc" not in path.name
    )


def make(target: Path) -> Path:
    """Copy what a deployment and a drill need of the checkout to `target`, add the toy product, and return `target`.

    Raises AssertionError where a file of the product is in the checkout already, or a list is not where it should be.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    for name in filter(None, listed.split("\0")):
        source, copy = ROOT / name, target / name
        if not name.startswith(NOT_NEEDED) and (source.exists() or source.is_symlink()):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)
    for name in added():
        copy = target / name
        assert not copy.exists(), f"{name}: the product would change it"
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ADDED / name, copy)
    for name, before, entry in ENTRIES:
        path = target / name
        text = path.read_text()
        assert text.count(f"\n{before}") == 1, f"{name}: no list at {before!r}"
        new = f"\n{entry}{before}" if entry else f'\n{before}"toy", '
        path.write_text(text.replace(f"\n{before}", new))
    return target


def environment(checkout: Path) -> dict[str, str]:
    """Return the environment in which Python and Ansible see that checkout, with this one's programs and cache."""
    programs = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PYTHONPATH": str(checkout / "chaos"),
        "ANSIBLE_CONFIG": str(checkout / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        "BROKERDRILL_CACHE": os.environ.get("BROKERDRILL_CACHE", str(ROOT / ".cache")),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }
