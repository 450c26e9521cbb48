"""How a ledger's files become tasks."""

from __future__ import annotations

from brokerdrill.analysis.reading.rows import Piece
from brokerdrill.analysis.sources import Sized, _apart


def sized(number: int, share: float, first: str, last: str) -> Sized:
    return Sized(Piece(1, "run", f"part-{number}", f"/part-{number}", 0, 1), share, (first, last))


def files(tasks: list[list[Piece]] | None) -> list[list[str]]:
    return [[piece.file for piece in task] for task in tasks or []]


def test_the_largest_task_comes_first() -> None:
    """The last task holds up all: it is a small one."""
    shares = (0.3, 0.3, 1.0, 0.8, 0.9)
    given = [sized(number, share, f"c{number}", f"c{number}") for number, share in enumerate(shares)]
    assert files(_apart(given, 3)) == [["part-2"], ["part-4"], ["part-3"], ["part-0", "part-1"]]


def test_a_client_is_in_one_task() -> None:
    given = [sized(0, 0.5, "a", "c"), sized(1, 0.7, "c", "d"), sized(2, 1.1, "e", "e"), sized(3, 0.9, "f", "f")]
    assert files(_apart(given, 3)) == [["part-0", "part-1"], ["part-2"], ["part-3"]]


def test_who_is_where_must_be_known() -> None:
    given = [sized(0, 1.0, "a", "c"), sized(1, 1.0, "d", "e")._replace(clients=None)]
    assert _apart(given, 2) is None
