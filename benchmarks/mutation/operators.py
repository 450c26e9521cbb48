"""Mutations that Cosmic Ray has none of: of the SQL within Python's strings, and of min and max."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

import parso.tree
from cosmic_ray.operators.operator import Example, Operator
from replaced import REPLACED, SQL

_STRINGS = ("string", "fstring_string")


def _is_sql(node: Any) -> bool:
    """Whether a leaf is a part of an expression of strings (side by side, or formatted) that holds SQL."""
    if node.type not in _STRINGS:
        return False
    whole = node
    while whole.parent is not None and whole.parent.type in ("fstring", "strings"):
        whole = whole.parent
    # A docstring is a statement of its own.
    return whole.parent is not None and whole.parent.type != "simple_stmt" and bool(SQL.search(whole.get_code()))


class Sql(Operator):  # type: ignore[misc]
    """Replaces one operator, aggregate or join in SQL by another."""

    def _found(self, node: Any) -> Iterator[tuple[re.Match[str], str]]:
        if isinstance(node, parso.tree.Leaf) and _is_sql(node):
            # What a line says after -- is a comment.
            comments = [one.span() for one in re.finditer(r"--.*", node.value)]
            for pattern, other in REPLACED:
                for match in re.finditer(pattern, node.value):
                    if not any(begin <= match.start() < end for begin, end in comments):
                        yield match, other

    def mutation_positions(self, node: Any) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        for match, _ in self._found(node):
            before = node.value[: match.start()].split("\n")
            line = node.start_pos[0] + len(before) - 1
            column = len(before[-1]) + (node.start_pos[1] if len(before) == 1 else 0)
            yield (line, column), (line, column + len(match.group()))

    def mutate(self, node: Any, index: int) -> Any:
        match, other = list(self._found(node))[index]
        node.value = node.value[: match.start()] + other + node.value[match.end() :]
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example('x = "SELECT a WHERE a < b"', 'x = "SELECT a WHERE a <= b"'),)


class Extreme(Operator):  # type: ignore[misc]
    """Calls max for min, and min for max."""

    OTHER: ClassVar[dict[str, str]] = {"min": "max", "max": "min"}

    def mutation_positions(self, node: Any) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        if node.type == "name" and node.value in self.OTHER and node.parent.type in ("atom_expr", "power"):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        node.value = self.OTHER[node.value]
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("x = min(a, b)", "x = max(a, b)"),)


class OwnOperators:
    """What Cosmic Ray looks operators up in."""

    def __iter__(self) -> Iterator[str]:
        return iter(("Sql", "Extreme"))

    def __getitem__(self, name: str) -> type[Operator]:
        return {"Sql": Sql, "Extreme": Extreme}[name]
