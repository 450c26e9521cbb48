"""No class, module or function of the package is so long that it has several reasons to change; no class name is there
twice."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import amqp_session_router

ROOT = Path(amqp_session_router.__file__).parent
LONGEST = {"module": 500, "class": 250, "function": 60}
"""Lines, of a class and a function from its first word to its last, without decorators."""


def sources() -> dict[str, str]:
    """Return the text of each module of the package by its path."""
    return {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in sorted(ROOT.rglob("*.py"))}


def measured(source: str) -> Iterator[tuple[str, str, int]]:
    """Yield the kind, name and lines of a module and of all classes and functions in it, nested ones too."""
    yield "module", "", len(source.splitlines())
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            yield kind, node.name, node.end_lineno - node.lineno + 1


def test_nothing_is_too_long() -> None:
    too_long = [
        f"{path}: {kind} {name} has {lines} lines, and may have {LONGEST[kind]}"
        for path, source in sources().items()
        for kind, name, lines in measured(source)
        if lines > LONGEST[kind]
    ]
    assert not too_long


def test_no_class_name_is_there_twice() -> None:
    names = Counter(name for source in sources().values() for kind, name, _ in measured(source) if kind == "class")
    assert [name for name, times in names.items() if times > 1] == []


def test_what_is_measured() -> None:
    source = "class Outer:\n    async def work(self):\n        class Inner:\n            pass\n        pass\n\n\npass\n"
    assert [*measured(source)] == [
        ("module", "", 8),
        ("class", "Outer", 5),
        ("function", "work", 4),
        ("class", "Inner", 2),
    ]
