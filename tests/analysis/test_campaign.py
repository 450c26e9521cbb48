"""The oracle is written by itself, and a campaign's digest is of all that makes or judges its ledgers."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.analysis import campaign, oracle

ROOT = Path(campaign.__file__).resolve().parents[2]


def imported(path: Path) -> set[str]:
    """The dotted names that a file imports, of modules or of what is in them."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return found


def test_the_oracle_has_nothing_of_what_it_is_held_against() -> None:
    modules = sorted(Path(oracle.__file__).parent.glob("*.py"))
    assert len(modules) > 20
    assert [
        path.name for path in modules if any(name.startswith("brokerdrill.analysis") for name in imported(path))
    ] == []


def test_the_digest_is_of_every_module_that_makes_or_judges_a_ledger() -> None:
    sources = {path.resolve() for path in campaign.sources()}
    seen: set[Path] = set()
    waiting = [Path(campaign.__file__).resolve()]
    while waiting:
        for name in imported(waiting.pop()):
            place = ROOT.joinpath(*name.split("."))
            for path in (place.with_suffix(".py"), place / "__init__.py"):
                if name.startswith("tests.analysis.") and path.exists() and path not in seen:
                    seen.add(path)
                    waiting.append(path)
    assert len(seen) > 30
    assert seen <= sources
