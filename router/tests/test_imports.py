"""The layers of the package: who may import whom, read from the source, imports for type checking included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import amqp_session_router

ROOT = Path(amqp_session_router.__file__).parent
LAYERS = (
    "base",
    "amqp",
    "net",
    "relay",
    "session",
    "selection",
    "config",
    "routing",
    "admission",
    "telemetry",
    "control",
    "process",
    "cli",
    "reference",
)
"""From the lowest to the highest: a module imports from its own layer and those before it only."""


def modules() -> dict[str, list[Path]]:
    """Return the source files of each module, `relay.fastpath`: a Cython module has two."""
    found: dict[str, list[Path]] = {}
    for path in sorted(ROOT.rglob("*.py*")):
        if path.suffix in (".py", ".pyx", ".pyi") and path.name != "__init__.py":
            found.setdefault(".".join(path.relative_to(ROOT).with_suffix("").parts), []).append(path)
    return found


def imports(source: str, known: set[str]) -> Iterator[str]:
    """Yield the modules of this package that `source` imports, anywhere in it, under TYPE_CHECKING too."""
    prefix = "amqp_session_router."
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.startswith(prefix):
                module = name.removeprefix(prefix)
                while module and module not in known:
                    module = module.rpartition(".")[0]
                if module:
                    yield module


def python_of(path: Path) -> str:
    """Return the import statements of a Cython file (which is no Python as a whole), else the whole file."""
    lines = path.read_text("utf-8").splitlines()
    if path.suffix == ".pyx":
        lines = [line for line in lines if line.startswith(("from ", "import ")) and " cimport " not in line]
    return "\n".join(lines)


def graph() -> dict[str, set[str]]:
    """Return the modules that each module imports."""
    files = modules()
    return {name: {one for path in files[name] for one in imports(python_of(path), set(files))} for name in files}


def layer(module: str) -> str:
    return module.partition(".")[0]


def test_every_module_is_in_a_layer() -> None:
    assert {layer(module) for module in modules()} == set(LAYERS)


def test_no_module_imports_from_a_higher_layer() -> None:
    upwards = [
        f"{module} -> {imported}"
        for module, found in graph().items()
        for imported in found
        if LAYERS.index(layer(imported)) > LAYERS.index(layer(module))
    ]
    assert not upwards


def test_there_is_no_import_cycle() -> None:
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None


def test_the_reader_of_imports_sees_all_kinds() -> None:
    source = """
from typing import TYPE_CHECKING
from amqp_session_router.a import b
if TYPE_CHECKING:
    from amqp_session_router.a.b import C
def late():
    import amqp_session_router.d
"""
    assert [*imports(source, {"a.b", "d"})] == ["a.b", "a.b", "d"]
    assert {"amqp.codec", "relay.journal"} <= graph()["relay.fastpath"]
    assert "process.worker" in graph()["process.supervisor"]


def test_the_supervisor_loads_nothing_that_a_new_version_replaces() -> None:
    """What it loads stays in memory over restarts, so it is kept to what cannot change its meaning."""
    found = graph()["process.supervisor"] - {"process.worker", "process.keeper"}
    assert found == {"process.descriptors", "process.lifecycle", "process.place", "relay.journal"}
    assert set().union(*(graph()[one] for one in found)) == {"relay.journal"}
    # Nor does the process above several, but what it speaks to systemd by.
    assert graph()["process.group"] == {"process.place", "process.service_manager"}
