"""The EDN reader: what it takes, what it refuses and where, and that writing and reading agree."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerdrill.base.errors import UsageError
from brokerdrill.interop.edn import Char, Keyword, Map, Set, Symbol, Tagged, read, write


def one(text: str) -> Any:
    ((_, value),) = read(text, "f.edn")
    return value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("nil", None), ("true", True), ("-17", -17), ("17N", 17), ("0x1F", 31), ("4/6", Fraction(2, 3)), ("4/2", 2),
        ("1.5e3", 1500.0), ("1.50M", Decimal("1.50")), ("##Inf", float("inf")), (":a/b", Keyword("a/b")),
        ("clojure.core$fn__1", Symbol("clojure.core$fn__1")), (r"\newline", Char("\n")), (r"\u0041", Char("A")),
        (r'"a\"\\\n\u00e9"', 'a"\\\né'), ("#{1 2}", Set((1, 2))), ("#inst \"2026\"", Tagged("inst", "2026")),
        ("{:a [1 (2)]}", Map(((Keyword("a"), (1, (2,))),))),
        ("#:n{:a 1, :m/b 2}", Map(((Keyword("n/a"), 1), (Keyword("m/b"), 2)))),
        ("#_ gone #_ #tag gone 3", 3), ("^{:line 1} {:a 1} ; end", Map(((Keyword("a"), 1),))),
    ],
)  # fmt: skip
def test_reads(text: str, value: object) -> None:
    assert one(text) == value


def test_one_vector_is_its_elements_and_lines_count() -> None:
    assert list(read("; history\n[{:a 1}\n\n {:b\n 2}, [3]]\n", "f")) == [
        (2, Map(((Keyword("a"), 1),))),
        (4, Map(((Keyword("b"), 2),))),
        (5, (3,)),
    ]
    assert [line for line, _ in read("{:a 1}\n\n{:b 2}", "f")] == [1, 3]
    assert list(read(" \n; nothing", "f")) == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{:a 1}\n{:b 2", "f.edn, line 2: a map that begins here never ends"),
        ("\n[1\n2", "f.edn, line 2: a vector that begins here never ends"),
        ("{:a}", "f.edn, line 1: a map has a key without a value"),
        ('1\n"abc', "f.edn, line 2: a string that never ends"),
        ("(1]", "f.edn, line 1: ']' closes nothing that is open"),
        ("[1]\n2", "f.edn, line 2: something follows the vector of operations: '2'"),
        ("12ab", "f.edn, line 1: no EDN: 12ab"),
        (r'"\q"', r'f.edn, line 1: no EDN: "\q"'),
        ('"a \\}\nb"', r'f.edn, line 1: no EDN: "a \} b"'),
        (r"\nowhere", r"f.edn, line 1: no EDN: \nowhere"),
        ("#foo", "f.edn, line 1: a tag that begins here never ends"),
        ("{:a " + "[" * 300, "f.edn, line 1: nested deeper than 200"),
    ],
)
def test_refuses_with_the_line(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        list(read(text, "f.edn"))
    assert str(caught.value) == sentence


NAMES = st.sampled_from(["a", "b-c", "ns/name", "java.io.IOException", "fn__1"])
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.builds(Keyword, NAMES),
    st.builds(Symbol, NAMES),
    st.builds(Char, st.characters(min_codepoint=33, max_codepoint=900)),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(tuple),
        st.lists(inner, max_size=3).map(lambda items: Set(tuple(items))),
        st.lists(st.tuples(inner, inner), max_size=3).map(lambda pairs: Map(tuple(pairs))),
        st.builds(Tagged, st.just("my/tag"), inner),
    ),
    max_leaves=12,
)


@given(VALUES)
def test_what_is_written_is_read_again(value: object) -> None:
    text = write((value,))
    assert "\n" not in text
    ((_, again),) = read(f"[{text}]", "f")
    assert write(again) == text


@given(st.text(alphabet='{}[]()#:"\\a1 ;^_\n', max_size=40))
def test_anything_is_read_or_refused_with_one_sentence(text: str) -> None:
    try:
        list(read(text, "f.edn"))
    except UsageError as error:
        assert str(error).startswith("f.edn, line ")
