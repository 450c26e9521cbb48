"""The right Java of several is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerdrill.base.java import choose, major

A, B, C = Path("/jvm/a"), Path("/jvm/b"), Path("/jvm/c")


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ('openjdk version "17.0.9" 2023-10-17', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("Unrecognized option: -version", None),
    ],
)
def test_major(text: str, release: int | None) -> None:
    assert major(text) == release


@pytest.mark.parametrize(
    ("found", "own", "chosen"),
    [
        ([(A, 25), (B, 17), (C, 21)], None, B),
        ([(A, 25), (C, 21)], None, C),
        ([(A, 25), (B, 11)], None, A),
        ([(A, 25), (B, 17)], A, A),
        ([(A, 11), (B, 17)], A, B),
        ([(A, 8), (B, 11)], A, None),
        ([], None, None),
    ],
)
def test_choose(found: list[tuple[Path, int]], own: Path | None, chosen: Path | None) -> None:
    assert choose(found, own) == chosen
