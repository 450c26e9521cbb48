"""The package's layers: which folder may use which, and that no imports go in a circle, imports for types included."""

from __future__ import annotations

import ast
import functools
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from brokerdrill.base import paths

PACKAGE = paths.ROOT / "chaos" / "brokerdrill"
# From the bottom up; a folder uses itself and what stands before it.
LAYERS = (
    "base",
    "promises",
    "ledger",
    "workload",
    "inventory",
    "hosts",
    "bench",
    "products",
    "describe",
    "faults",
    "scenario",
    "analysis",
    "synthesize",
    "report",
    "results",
    "interop",
    "runner",
    "campaigns",
    "explore",
    "gameday",
    "web",
    "cli",
)


def _modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _imports(path: Path, modules: dict[str, Path]) -> set[str]:
    """The modules of the package that a file imports anywhere in it, also only for types."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if name.split(".")[0] == PACKAGE.name:
                found.add(name if name in modules else name.rpartition(".")[0])
    return found


@functools.cache
def _graph() -> dict[str, set[str]]:
    modules = _modules()
    return {name: _imports(path, modules) - {name} for name, path in modules.items()}


def _layer(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else None


def test_every_folder_has_its_layer() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert folders == set(LAYERS)


def test_unit_tests_mirror_the_package() -> None:
    """A folder of tests for each folder of the package that has some: whoever changes one finds the other."""
    own = paths.ROOT / "tests" / "unit"
    folders = {path.parent.relative_to(own) for path in own.rglob("test_*.py")}
    assert not [folder for folder in folders if not (PACKAGE / folder).is_dir()]


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_uses_only_what_is_below_it(layer: str) -> None:
    allowed = set(LAYERS[: LAYERS.index(layer) + 1])
    upward = {
        f"{module} imports {other}"
        for module, imported in _graph().items()
        if _layer(module) == layer
        for other in imported
        if _layer(other) not in allowed and _layer(other) is not None
    }
    assert not upward


def test_no_imports_go_in_a_circle() -> None:
    try:
        TopologicalSorter(_graph()).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
