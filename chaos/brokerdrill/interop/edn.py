"""EDN (github.com/edn-format/edn): read with line numbers and any tag, written in one canonical form.

Why no library: `edn_format`, the maintained one, refuses every tag that was not registered by name before
(`#jepsen.history.Op{…}`, `#object[…]` stand in ordinary histories), names no line for what is malformed, cuts instants
to microseconds, and reads 2,600 lines a second.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from brokerdrill.base.errors import UsageError


@dataclass(frozen=True, slots=True)
class Keyword:
    """`:name`, without its colon."""

    name: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol; also what is printed like one (`clojure.core$fn__1`)."""

    name: str


@dataclass(frozen=True, slots=True)
class Char:
    """A character, as the one that it is."""

    text: str


@dataclass(frozen=True, slots=True)
class Tagged:
    """`#tag value`, whatever the tag means."""

    tag: str
    value: Any


@dataclass(frozen=True, slots=True)
class Map:
    """A map: pairs in the order in which they are written."""

    pairs: tuple[tuple[Any, Any], ...]


@dataclass(frozen=True, slots=True)
class Set:
    """A set: elements in the order in which they are written."""

    items: tuple[Any, ...]


_TOKEN = re.compile(
    r"""
    (?P<skip>(?:[\s,]+|;[^\n]*)+)
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<char>\\(?:u[0-9a-fA-F]{4}(?![\w])|o[0-7]{1,3}(?![\w])|[a-z]{2,}|.))
  | (?P<discard>\#_)
  | (?P<meta>\^)
  | (?P<number>\#\#(?:-?Inf|NaN))
  | (?P<ns>\#:[^\s,()\[\]{}";]+(?=\s*\{))
  | (?P<open>\#?\{|\#?\(|\[)
  | (?P<close>[)\]}])
  | (?P<tag>\#[A-Za-z][^\s,()\[\]{}";]*)
  | (?P<atom>[^\s,()\[\]{}";\\]+)
    """,
    re.VERBOSE | re.DOTALL,
)
DEEPEST = 200
# What stands before a value and changes it.
_PREFIXES = ("discard", "tag", "ns", "meta")
_CLOSES = {"{": "}", "#{": "}", "[": "]", "(": ")", "#(": ")"}
_KINDS = {"{": "map", "#{": "set", "[": "vector", "(": "list", "#(": "function"}
_CHARS = {"newline": "\n", "return": "\r", "space": " ", "tab": "\t", "formfeed": "\f", "backspace": "\b"}
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([0-7]{1,3})|(.))", re.DOTALL)
_INTEGER = re.compile(r"[+-]?(?:0|[1-9][0-9]*)N?\Z")
_REAL = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?M?\Z")
_RATIO = re.compile(r"[+-]?[0-9]+/[0-9]*[1-9][0-9]*\Z")
_HEX = re.compile(r"([+-]?)0[xX]([0-9a-fA-F]+)N?\Z")
_WORDS = {"nil": None, "true": True, "false": False}
_REALS = {"##Inf": float("inf"), "##-Inf": float("-inf"), "##NaN": float("nan")}


class _Open:
    """A collection, tag or discard that has begun: where, and what it holds so far."""

    def __init__(self, kind: str, line: int, word: str = "") -> None:
        self.kind = kind
        self.line = line
        self.word = word
        self.items: list[Any] = []


def read(text: str, where: str) -> Iterator[tuple[int, Any]]:
    """Yield (line, value) of each value of `text`; where the text is one single vector or list, of each element of it.

    Lines count from 1. Vectors and lists are tuples, maps `Map`, sets `Set`, integers int, ratios Fraction, decimals
    with `M` Decimal; a discarded value is not there. Raises UsageError, one sentence that names `where` and the line.
    """
    stack: list[_Open] = []
    first = _first(text)
    position, line, counted = 0, 1, 0
    whole: _Open | None = None  # the vector that is the whole text
    ended = False
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _no_token(text, position, where)
        kind, token = match.lastgroup, match[0]
        if kind == "skip":
            position = match.end()
            continue
        line += text.count("\n", counted, position)
        counted, position = position, match.end()
        if ended:
            raise UsageError(f"{where}, line {line}: something follows the vector of operations: {token[:20]!r}")
        if kind in _PREFIXES:
            stack.append(_Open(kind, line, token.lstrip("#:") if kind != "discard" else ""))
            continue
        if kind == "open":
            if match.start() == first and token in "[(":
                whole = _Open(token, line)
                continue
            stack.append(_Open(token, line))
            if len(stack) > DEEPEST:
                raise UsageError(f"{where}, line {line}: nested deeper than {DEEPEST}")
            continue
        if kind == "close":
            inner = stack.pop() if stack else whole
            if inner is None or _CLOSES.get(inner.kind) != token:
                raise UsageError(f"{where}, line {line}: {token!r} closes nothing that is open")
            if inner is whole:
                ended = True
                continue
            done = (inner.line, _closed(inner, where, line))
        else:
            done = (line, _atom(str(kind), token, where, line))
        found = _prefixed(stack, done, where, line) if stack and stack[-1].kind in _PREFIXES else done
        if found is None:
            continue
        if stack:
            stack[-1].items.append(found[1])
        else:
            yield found
    if (left := stack[0] if stack else None if ended else whole) is not None:
        what = f"a {_KINDS[left.kind]}" if left.kind in _KINDS else f"a {left.kind}"
        raise UsageError(f"{where}, line {left.line}: {what} that begins here never ends")


def _no_token(text: str, position: int, where: str) -> UsageError:
    """Return the error for what is no token of `text`."""
    line = 1 + text.count("\n", 0, position)
    what = "a string that never ends" if text[position] == '"' else f"no EDN: {text[position : position + 20]!r}"
    return UsageError(f"{where}, line {line}: {what}")


def _prefixed(stack: list[_Open], found: tuple[int, Any], where: str, end: int) -> tuple[int, Any] | None:
    """Return (line, value) with the prefixes before it applied, which leave the stack; None: it is discarded, or is
    another value's metadata. The value ends on line `end`."""
    begun, value = found
    while stack and stack[-1].kind in _PREFIXES:
        above = stack[-1]
        if above.kind == "meta" and not above.items:
            above.items.append(value)
            return None
        stack.pop()
        begun = above.line
        if above.kind == "discard":
            return None
        if above.kind == "tag":
            value = Tagged(above.word, value)
        elif above.kind == "ns":
            value = _spaced(above.word, value, where, end)
    return begun, value


def _first(text: str) -> int:
    """Where the first token of `text` begins."""
    match = _TOKEN.match(text)
    return match.end() if match and match.lastgroup == "skip" else 0


def _closed(inner: _Open, where: str, line: int) -> Any:
    items = inner.items
    if inner.kind == "{":
        if len(items) % 2:
            raise UsageError(f"{where}, line {line}: a map has a key without a value")
        return Map(tuple(zip(items[::2], items[1::2], strict=True)))
    return Set(tuple(items)) if inner.kind == "#{" else tuple(items)


def _spaced(space: str, value: Any, where: str, line: int) -> Map:
    """The map `#:space{…}` with its keys' namespace written out."""
    if not isinstance(value, Map):
        raise UsageError(f"{where}, line {line}: #:{space} stands before something that is no map")
    return Map(
        tuple(
            (Keyword(f"{space}/{key.name}") if isinstance(key, Keyword) and "/" not in key.name else key, item)
            for key, item in value.pairs
        )
    )


def _unescape(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    if match[2]:
        return chr(int(match[2], 8))
    return _ESCAPES[match[3]]


def _atom(kind: str, token: str, where: str, line: int) -> Any:
    try:
        if kind == "string":
            return _ESCAPE.sub(_unescape, token[1:-1]) if "\\" in token else token[1:-1]
        if kind == "char":
            return Char(_char(token[1:]))
        if kind == "number":
            return _REALS[token]
        return _word(token)
    except (KeyError, ValueError, ArithmeticError):
        raise UsageError(f"{where}, line {line}: no EDN: {' '.join(token[:40].split())}") from None


def _char(name: str) -> str:
    if len(name) == 1:
        return name
    if name[0] == "u" and len(name) == 5:
        return chr(int(name[1:], 16))
    return chr(int(name[1:], 8)) if name[0] == "o" and name[1:].isdigit() else _CHARS[name]


@functools.lru_cache(maxsize=4096)
def _keyword(token: str) -> Keyword:
    return Keyword(token.lstrip(":"))


def _word(token: str) -> Any:
    if token in _WORDS:
        return _WORDS[token]
    if token[0] == ":":
        if len(token) == 1:
            raise ValueError(token)
        return _keyword(token)
    if token[0].isdigit() or (token[0] in "+-" and token[1:2].isdigit()):
        if _INTEGER.match(token):
            return int(token.rstrip("N"))
        if _RATIO.match(token):
            ratio = Fraction(token)
            return int(ratio) if ratio.denominator == 1 else ratio
        if match := _HEX.match(token):
            return int(match[1] + match[2], 16)
        if not _REAL.match(token):
            raise ValueError(token)
        return Decimal(token[:-1]) if token.endswith("M") else float(token)
    return Symbol(token)


_UNESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\f": "\\f", "\b": "\\b"})


def write(value: Any) -> str:
    """Return `value` as EDN on one line, the same for equal values: entries of maps and sets are sorted.

    Besides what `read` returns it takes Python's dict (string keys stay strings) and list. Raises TypeError for others.
    """
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Keyword):
        return f":{value.name}"
    if isinstance(value, Symbol):
        return value.name
    if isinstance(value, Tagged):
        return f"#{value.tag} {write(value.value)}"
    if isinstance(value, Char):
        return "\\" + next((name for name, text in _CHARS.items() if text == value.text), value.text)
    if isinstance(value, str):
        return f'"{value.translate(_UNESCAPES)}"'
    if isinstance(value, float):
        return next((word for word, real in _REALS.items() if repr(real) == repr(value)), repr(value))
    if isinstance(value, Decimal):
        return f"{value}M"
    if isinstance(value, (int, Fraction)):
        return str(value)
    if isinstance(value, Set):
        return "#{" + " ".join(sorted(map(write, value.items))) + "}"
    if isinstance(value, (Map, dict)):
        pairs = value.pairs if isinstance(value, Map) else value.items()
        return "{" + ", ".join(sorted(f"{write(key)} {write(item)}" for key, item in pairs)) + "}"
    if isinstance(value, (tuple, list)):
        return "[" + " ".join(map(write, value)) + "]"
    raise TypeError(f"no EDN for {type(value).__name__}")


def entry(pairs: dict[str, Any]) -> str:
    """Return a map with these keywords as keys, in this order: a line of a history."""
    return "{" + ", ".join(f":{name} {write(value)}" for name, value in pairs.items()) + "}"
