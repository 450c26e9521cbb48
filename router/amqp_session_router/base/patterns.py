"""Regular expressions that cost time in proportion to the text, whatever client and operator write: RE2's.

Python's own try alternatives one after the other: `(a|a)*$` takes longer than the world on 40 bytes. RE2 has no
look-around and no back-references, which cannot be had in linear time.
"""

from __future__ import annotations

import re2

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
# Bytes of a client that are no UTF-8 are lone surrogates in our texts, one each; RE2 knows none. Each gets a character
# of the last plane, where nothing is assigned, while it looks.
_HIDE = {0xDC80 + number: 0x10FF00 + number for number in range(0x80)}
_SHOW = {hidden: shown for shown, hidden in _HIDE.items()}


class Pattern:
    """A compiled expression; equal where the expressions are."""

    __slots__ = ("_compiled", "pattern")

    def __init__(self, pattern: str) -> None:
        """Raises ValueError, in RE2's words, if `pattern` is no expression of it."""
        try:
            self._compiled = re2.compile(pattern, _OPTIONS)
        except re2.error as error:
            why = error.args[0]
            raise ValueError(why.decode(errors="replace") if isinstance(why, bytes) else str(why)) from None
        self.pattern = pattern

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and other.pattern == self.pattern

    def __hash__(self) -> int:
        return hash(self.pattern)

    def find(self, text: str) -> str | None:
        """Return the first place of `text` that it matches, None if there is none."""
        found = self._compiled.search(text.translate(_HIDE))
        return None if found is None else found[0].translate(_SHOW)

    def matches(self, text: str) -> bool:
        """Does it match the whole `text`?"""
        return self._compiled.fullmatch(text.translate(_HIDE)) is not None

    def replace(self, text: str, replacement: str) -> str | None:
        r"""Return `replacement` with the groups that it names, `\1` or `\g<name>`, where the whole `text` matches."""
        found = self._compiled.fullmatch(text.translate(_HIDE))
        return None if found is None else found.expand(replacement).translate(_SHOW)

    def check(self, replacement: str) -> None:
        """Raise ValueError if `replacement` names a group that it does not have."""
        # With an empty alternative it has the same groups and matches what is at hand.
        found = re2.compile(f"{self.pattern}|", _OPTIONS).fullmatch("")
        try:
            found.expand(replacement)
        except (IndexError, re2.error) as error:
            raise ValueError(str(error)) from None
