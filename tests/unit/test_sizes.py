"""No module or function of the package, of the plug-ins or of their tests is so long that it has several reasons to
change; no class name is twice in one folder."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerdrill.base import paths

FOLDERS = ("chaos/brokerdrill", "plugins", "tests")
LONGEST = {"module": 500, "function": 60}
"""Lines, of a function from its first word to its last, without decorators: the cases of a test are data."""

# Ansible finds a plug-in by the name of its class.
NAMED_BY_ANSIBLE = {"ActionModule", "CallbackModule", "FilterModule", "LookupModule"}


def sources(folder: str) -> dict[Path, ast.Module]:
    """Return each module below a folder of the project by its path in the project."""
    found = sorted((paths.ROOT / folder).rglob("*.py"))
    return {path.relative_to(paths.ROOT): ast.parse(path.read_text("utf-8")) for path in found}


def functions(module: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the name and the lines of all functions in it, nested ones too."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


@pytest.mark.parametrize("folder", FOLDERS)
def test_nothing_is_too_long(folder: str) -> None:
    too_long = []
    for path, module in sources(folder).items():
        lines = len((paths.ROOT / path).read_text("utf-8").splitlines())
        if lines > LONGEST["module"]:
            too_long.append(f"{path} has {lines} lines, and may have {LONGEST['module']}")
        too_long += [
            f"{path}: {name} has {lines} lines, and may have {LONGEST['function']}"
            for name, lines in functions(module)
            if lines > LONGEST["function"]
        ]
    assert too_long == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_class_name_is_twice_in_one_folder(folder: str) -> None:
    names = Counter(
        (str(path.parent), node.name)
        for path, module in sources(folder).items()
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef) and node.name not in NAMED_BY_ANSIBLE
    )
    assert [f"{parent}: {name}" for (parent, name), times in names.items() if times > 1] == []


def test_what_is_measured() -> None:
    source = "@decorated(\n    1\n)\nasync def work():\n    def inner():\n        pass\n    pass\n\n\npass\n"
    assert [*functions(ast.parse(source))] == [("work", 4), ("inner", 2)]
